"""All local runtimes below one directory: the verbs, each done whole while its key is locked.

Everything here blocks and is called in a thread.  A key's directory is locked by every process that
changes it; a call that meets the lock raises `KeyBusy` and is repeated.  The tombstone of a key is
written before anything of it is ended.  A keeper checks for it after it has the lock and before it
starts anything, so a late start never outlives a removal.
"""

import fcntl
import os
import resource
import select
import shutil
import subprocess
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tenure.adapters.runtime.process import (
    groups,
    inherited_directory,
    keeper,
    proc,
    recipe,
    runtime_dir,
    sandbox,
)
from tenure.adapters.runtime.process.bundle import DigestCache, read_bundle
from tenure.adapters.runtime.process.prefork import KeeperPool
from tenure.adapters.runtime.process.recipe import Recipe
from tenure.adapters.runtime.process.runtime_dir import RuntimeDir, RuntimeOwner
from tenure.core.errors import Invalid, OutcomeUnknown, Rejected
from tenure.core.ids import ResourceKey
from tenure.ports.provider import OwnedResource, Presence

LOGS, TRASH = "logs", "trash"
PROCESSES = 512
"""In one tree, where that can be bounded and nothing else was said."""
BURNS = 256
"""Keys burned between two looks for marks that can be forgotten."""
BURNED_SECONDS = 7 * 86_400.0
"""A week: a call that is later than that is not on its way any more."""
START_SECONDS = 10.0
"""For a keeper to answer; the agent may take as long as it likes."""


class KeyBusy(Exception):
    """Another call changes this key right now; not seen outside this package."""


class RuntimeStatus(NamedTuple):
    """What the files and the kernel say of a key; whether it answers is for others to ask."""

    presence: Presence
    reference: Mapping[str, object] = {}
    owner: str = ""
    generation: int = 0
    exit_code: int | None = None
    said: str = ""
    keeper: int = 0
    port: int = 0


class Launcher(NamedTuple):
    """How agents are started here."""

    path: str
    """Where programs are looked for."""
    grace_ms: int
    """Between SIGTERM and SIGKILL."""
    end_seconds: float
    """For a keeper to end, past the grace it gives; then it is killed itself."""
    hidden: tuple[str, ...]
    logs_kept: int
    sandbox: str
    """The bubblewrap to use, if any."""
    groups: groups.Groups


class RuntimeRoot:
    """See the module."""

    def __init__(self, root: Path, *, zones: tuple[str, ...], means: Launcher) -> None:
        """Create the directory if it does not exist."""
        self.root = root
        self.zones = zones
        self.means = means
        self.digests = DigestCache()
        self.keepers = KeeperPool(root)
        self._burns = 0
        self._children: dict[str, int] = {}
        for name in (*zones, keeper.BURNED, keeper.PORTS, LOGS, TRASH):
            (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    # ---------------------------------------------------------------------------------- the verbs

    def ensure(self, key: ResourceKey, wanted: Recipe, *, now: float) -> RuntimeStatus:
        """Make it so; Rejected is remembered before it is raised."""
        self._reap(key)
        self._refuse_burned(key)
        elsewhere = self.find(key)
        if elsewhere is not None and elsewhere.path.parent.name != wanted.zone:
            self.refuse(key, f"{key.text} stands in {elsewhere.path.parent.name} and cannot move")
        there = RuntimeDir(self.root / wanted.zone / key.text)
        there.path.mkdir(mode=0o700, exist_ok=True)
        with self._locked(there.path, fcntl.LOCK_EX) as held:
            if not held:  # removed under our hands
                raise KeyBusy
            self._refuse_foreign(key, there)
            self._refuse_burned(key, there)
            owner = there.owner()
            owner = owner or RuntimeOwner(key.plane, key.tenant, key.agent, key.generation, now)
            if owner.generation > key.generation:
                raise Rejected(f"{key.text} is held by generation {owner.generation}")
            same = there.orders().text("spec") == wanted.text
            kept = proc.is_kept(there.path)
            if same and kept and (seen := self._seen(key, there)).keeper:
                if owner.generation < key.generation:
                    there.own(owner._replace(generation=key.generation))
                    seen = seen._replace(generation=key.generation)
                return seen
            if owner.refused >= key.generation:
                raise Rejected(f"generation {owner.refused} of {key.text} was refused before")
            self._start(key, wanted, there, owner._replace(generation=key.generation))
            return self._seen(key, there)

    def look(self, key: ResourceKey) -> RuntimeStatus:
        """What stands under this key."""
        self._reap(key)
        there = self.find(key)
        if there is None:
            return RuntimeStatus(Presence.ABSENT)
        if there.is_foreign_to(key):
            owner = there.owner()
            return RuntimeStatus(Presence.FOREIGN, owner=owner.plane if owner else "")
        if self.is_burned(key):  # whoever removes it may hold the lock for seconds
            return self._burned_look(there)
        with self._locked(there.path, fcntl.LOCK_SH) as held:
            return self._seen(key, there) if held else RuntimeStatus(Presence.ABSENT)

    def listens_at(self, key: ResourceKey, address: str) -> bool:
        """Whether its tree, and nobody else, listens there."""
        there = self.find(key)
        if there is None or there.is_foreign_to(key):
            return False
        holder, state = proc.keeper_of(there.path), there.state()
        ours = holder != 0 and address == state.address
        return ours and proc.owns_port(holder, state.port)

    def remove(self, key: ResourceKey) -> None:
        """Burn the key, end the tree, delete the directory."""
        there = self.find(key)
        if there is not None:
            self._refuse_foreign(key, there)
        self.burn(key)
        for zone in self.zones:
            there = RuntimeDir(self.root / zone / key.text)
            with self._locked(there.path, fcntl.LOCK_EX) as held:
                if held:
                    self._refuse_foreign(key, there)
                    self._end(key, there, at_once=False)
                    self._free_port(key, there)
                    proc.remove_groups(self.means.groups.paths(group_of(there)))
                    earlier = self._earlier(inherited_directory.named_in(there))
                    inherited_directory.give_back(key, there, earlier, lock=self._alone)
                    runtime_dir.keep_logs(there, self.root / LOGS, count=self.means.logs_kept)
                    self._delete(there.path)
        _delete_whole(self.root / TRASH / key.text)  # the plane may have died half-way
        self._reap(key)

    def stop(self, key: ResourceKey) -> None:
        """Burn the key and kill the tree; the directory stays."""
        there = self.find(key)
        if there is not None:
            self._refuse_foreign(key, there)
        self.burn(key)
        if there is not None:
            with self._locked(there.path, fcntl.LOCK_EX) as held:
                if held:
                    self._end(key, there, at_once=True)
        self._reap(key)

    def owned(self, plane: str) -> Iterator[OwnedResource]:
        """Everything of this plane."""
        for zone in self.zones:
            for path in sorted((self.root / zone).iterdir()):
                owner = RuntimeDir(path).owner()
                if owner is not None and owner.plane == plane:
                    yield OwnedResource(path.name, owner.agent, owner.generation, owner.since)

    def refuse(self, key: ResourceKey, sentence: str) -> None:
        """Raise Rejected, for good."""
        there = self.find(key)
        if there is not None:
            with self._locked(there.path, fcntl.LOCK_EX) as held:
                if held:
                    self._refuse_foreign(key, there)
                    self._refuse(key, sentence, there)
        self.burn(key)
        raise Rejected(sentence)

    def log_directory(self, key: ResourceKey) -> Path:
        """Where what it printed is, or was put when it was removed."""
        there = self.find(key)
        ours = there is not None and not there.is_foreign_to(key)
        return there.path if there is not None and ours else self.root / LOGS / key.text

    # ------------------------------------------------------------------------------ keys and locks

    def find(self, key: ResourceKey) -> RuntimeDir | None:
        """The directory of this key, in whichever zone."""
        for zone in self.zones:
            path = self.root / zone / key.text
            if path.exists():
                return RuntimeDir(path)
        return None

    def is_burned(self, key: ResourceKey) -> bool:
        """Whether nothing may start under this key again."""
        return (self.root / keeper.BURNED / key.text).exists()

    def burn(self, key: ResourceKey) -> None:
        """Say so, on the disk."""
        if self.is_burned(key):
            return
        directory = self.root / keeper.BURNED
        self._burns += 1
        if self._burns % BURNS == 0:
            runtime_dir.forget_old(directory, seconds=BURNED_SECONDS)
        file = os.open(directory / key.text, os.O_WRONLY | os.O_CREAT, 0o600)
        os.close(file)
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def _locked(self, path: Path, how: int) -> Iterator[bool]:
        """Hold the directory itself; False if there is none."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
            yield path.exists()  # or it was removed meanwhile; a burned key is never made again
        except BlockingIOError:
            raise KeyBusy from None
        finally:
            os.close(file)

    def _alone(self, path: Path) -> AbstractContextManager[bool]:
        return self._locked(path, fcntl.LOCK_EX)

    def _earlier(self, names: Sequence[str]) -> list[RuntimeDir]:
        """What there is of these keys."""
        paths = (self.root / zone / name for name in names for zone in self.zones)
        return [RuntimeDir(path) for path in paths if path.is_dir()]

    def _refuse_foreign(self, key: ResourceKey, there: RuntimeDir) -> None:
        if there.is_foreign_to(key):
            raise Rejected(f"{key.text} belongs to somebody else")

    def _refuse_burned(self, key: ResourceKey, there: RuntimeDir | None = None) -> None:
        if self.is_burned(key):
            if there is not None and there.owner() is None:
                self._delete(there.path)  # made by us just now
            raise Rejected(f"{key.text} was removed, stopped or refused and is never used again")

    def _refuse(self, key: ResourceKey, sentence: str, there: RuntimeDir) -> None:
        """What runs goes on, and this generation is never applied to it; else the key is burned."""
        owner = there.owner()
        if owner is not None and there.orders().number("start"):
            there.own(owner._replace(refused=max(owner.refused, key.generation)))
        else:
            self.burn(key)
            if owner is not None:  # it may have a port already
                self._free_port(key, there)
            self._delete(there.path)
        raise Rejected(sentence)

    # -------------------------------------------------------------------------- starting and ending

    def _start(
        self, key: ResourceKey, wanted: Recipe, there: RuntimeDir, owner: RuntimeOwner
    ) -> None:
        """End what ran before, write the orders, start a keeper and hear from it."""
        before = there.orders()
        if sentence := recipe.changed(wanted, self.digests, first=key.generation == 1):
            self._refuse(key, sentence, there)
        try:
            program = recipe.pinned_program(wanted, path=self.means.path)
            if before.number("start"):
                self._end(key, there, at_once=False)
            there.own(owner, flush=False)
            if wanted.port:
                self._reserve(key, wanted.port)
            if wanted.bundle:
                self._unpack(key, wanted, there)
        except Invalid as error:
            self._refuse(key, str(error), there)
            raise
        except OSError as error:
            if wanted.bundle and str(error.filename).startswith(wanted.bundle):
                self._refuse(key, f"bundle: {error.filename}: {error.strerror}", there)
            raise
        start = before.number("start") + 1
        there.order(self._orders(key, wanted, there, program=program, start=start))
        if wanted.state_of and not there.work.exists():
            earlier = self._earlier(wanted.state_of)
            if sentence := inherited_directory.take(key, there, earlier, lock=self._alone):
                self._refuse(key, sentence, there)
        there.work.mkdir(mode=0o700, exist_ok=True)
        self._spawn(key, there)

    def _unpack(self, key: ResourceKey, wanted: Recipe, there: RuntimeDir) -> None:
        """A fresh copy of the bundle, if it is what it was."""
        new = there.path / f"{keeper.BUNDLE}.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        digest = read_bundle(Path(wanted.bundle), new)
        if wanted.digests.get(wanted.bundle, digest) != digest:
            shutil.rmtree(new)
            self._refuse(key, recipe.altered(wanted.bundle), there)
        shutil.rmtree(there.bundle, ignore_errors=True)
        new.rename(there.bundle)

    def _orders(
        self, key: ResourceKey, wanted: Recipe, there: RuntimeDir, *, program: str, start: int
    ) -> list[tuple[str, str]]:
        """All that the keeper is told."""
        means, asked = self.means, wanted.resources
        cwd = str(there.bundle if wanted.bundle else there.work)
        program = str(Path(cwd, program))  # as it is if it is absolute
        command = [*wanted.command]
        if means.sandbox:
            outside = [program, *recipe.absolute_files(wanted)]
            words = sandbox.wrap(
                means.sandbox,
                hidden=(str(self.root), *means.hidden),
                readable=outside,
                writable=tuple(dict.fromkeys((str(there.work), cwd))),
            )
            command = [*words, program, *command[1:]]
        env = {"PATH": means.path, "LANG": "C.UTF-8", **wanted.env, "HOME": str(there.work)}
        env |= {"TENURE_KEY": key.text, "TENURE_DIRECTORY": str(there.path)}
        limits = [
            (number, asked[name] * unit)
            for name, (number, unit) in recipe.LIMITS.items()
            if name in asked
        ]
        limits.append((resource.RLIMIT_CORE, 0))
        if "memory_mib" in asked and not means.groups.memory:
            limits.append((resource.RLIMIT_DATA, asked["memory_mib"] * groups.MIB))
        return [
            ("start", str(start)),
            ("spec", wanted.text),
            ("exec", means.sandbox or program),
            *(("command", part) for part in command),
            *(("env", f"{name}={value}") for name, value in env.items()),
            *(("port_name", name) for name in recipe.PORT_NAMES),
            ("cwd", cwd),
            ("port", str(wanted.port or there.state().port)),
            ("hint", str(zlib.crc32(str(there.path).encode()))),
            *(("limit", f"{number}={value}") for number, value in limits),
            ("log_bytes", str(wanted.log_bytes)),
            ("grace_ms", str(means.grace_ms)),
            ("sandboxed", "yes" if means.sandbox else ""),
            ("strict", "yes" if asked.keys() & {"memory_mib", "processes"} else ""),
            *means.groups.orders(
                group_of(there),
                processes=asked.get("processes", PROCESSES),
                memory_mib=asked.get("memory_mib", 0),
            ),
        ]

    def _spawn(self, key: ResourceKey, there: RuntimeDir) -> None:
        """Have a keeper for it, and wait until that has started the agent."""
        pid, heard = self.keepers.keep(there.path)
        try:
            self._children[key.text] = pid
            there.flush()  # while the keeper is starting
            poll = select.poll()
            poll.register(heard, select.POLLIN)
            if poll.poll(START_SECONDS * 1000) and os.read(heard, 100):
                return
        finally:
            os.close(heard)
        self._refuse_burned(key)
        if proc.is_kept(there.path):  # one that a dead plane had started came first
            raise KeyBusy
        self._reap(key)
        self._sweep(key, there)
        raise OutcomeUnknown(f"the keeper of {key.text} did not answer: {there.errors()}")

    def _end(self, key: ResourceKey, there: RuntimeDir, *, at_once: bool) -> None:
        """End the keeper, and with it the tree; sweep what a killed keeper left."""
        seconds = self.means.end_seconds + (0 if at_once else self.means.grace_ms / 1000)
        proc.end_keeper(there.path, at_once=at_once, seconds=seconds)
        state = there.state()
        if state.start != there.orders().number("start") or state.exit is None:
            self._sweep(key, there)

    def _sweep(self, key: ResourceKey, there: RuntimeDir) -> None:
        tags = (f"TENURE_KEY={key.text}", f"TENURE_DIRECTORY={there.path}")
        found = self.means.groups.paths(group_of(there))
        proc.sweep(tuple(os.fsencode(tag) for tag in tags), found)

    def _reserve(self, key: ResourceKey, port: int) -> None:
        """A port that was asked for is this key's, or refused: another agent was told it is its."""
        path = self.root / keeper.PORTS / str(port)
        try:
            with path.open("x") as file:
                file.write(key.text)
        except FileExistsError:
            if path.read_text() != key.text:
                raise Invalid(f"port: {port} is another agent's") from None

    def _free_port(self, key: ResourceKey, there: RuntimeDir) -> None:
        """Give the port back; a keeper that died early may have reserved one it never named."""
        port = there.state().port
        ports = self.root / keeper.PORTS
        for path in [ports / str(port)] if port else ports.iterdir():
            try:
                if path.read_text() == key.text:
                    path.unlink()
            except FileNotFoundError:
                continue

    def _delete(self, path: Path) -> None:
        """Out of sight in one step, then for good."""
        trash = self.root / TRASH / path.name
        _delete_whole(trash)
        path.rename(trash)
        _delete_whole(trash)

    def _reap(self, key: ResourceKey) -> None:
        """Collect a keeper that we started and that has ended."""
        pid = self._children.get(key.text)
        try:
            ended = pid is not None and os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            ended = True
        if ended:
            self._children.pop(key.text, None)

    # ------------------------------------------------------------------------------------- looking

    def _seen(self, key: ResourceKey, there: RuntimeDir) -> RuntimeStatus:
        """What stands in a directory of ours; Busy if its keeper has not yet said its port."""
        kept = proc.is_kept(there.path)
        holder = proc.keeper_of(there.path) if kept else 0
        owner, state, start = there.owner(), there.state(), there.orders().number("start")
        if owner is None or not start:
            return RuntimeStatus(Presence.ABSENT)
        if kept and (not holder or holder != state.keeper):
            raise KeyBusy
        if state.start != start:
            # Nobody has started what was ordered last; a keeper that is there is of an older order.
            return RuntimeStatus(Presence.ABSENT)
        reference = {"address": state.address, "zone": there.path.parent.name}
        seen = RuntimeStatus(
            Presence.STARTING, reference, owner.plane, owner.generation, port=state.port
        )
        if kept:
            return seen._replace(keeper=holder)
        if state.exit is None and not state.swept:
            self._sweep(key, there)
            there.note_swept(state)
        said = runtime_dir.with_last_lines(runtime_dir.reason_of(state), there.path)
        return seen._replace(presence=Presence.BROKEN, exit_code=state.exit, said=said)

    def _burned_look(self, there: RuntimeDir) -> RuntimeStatus:
        """What is left of a key that was removed or stopped."""
        owner, state = there.owner(), there.state()
        if owner is None:
            return RuntimeStatus(Presence.ABSENT)
        said = "it was stopped, or is being removed"
        reference = {"address": state.address, "zone": there.path.parent.name}
        return RuntimeStatus(
            Presence.BROKEN, reference, owner.plane, owner.generation, state.exit, said,
        )  # fmt: skip


def group_of(there: RuntimeDir) -> str:
    """The name of a runtime's control groups: the same key below another root has another."""
    return f"tenure-{there.path.name}-{zlib.crc32(str(there.path).encode()):08x}"


def _delete_whole(path: Path) -> None:
    """Delete a directory, however deep an agent has nested it."""
    with suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        words = ["rm", "-rf", "--", str(path)]
        subprocess.run(words, check=False, capture_output=True)  # noqa: S603 (our own path)
