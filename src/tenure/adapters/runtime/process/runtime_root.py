"""All local runtimes below one directory.  Each call runs under the lock of its key.

Everything here blocks and runs on a thread.  A process locks a key's directory before it changes
it; a call that finds it locked raises `KeyBusy` and is repeated.  The burn mark of a key is written
before its processes are ended.  A keeper checks for the burn mark after it has taken its lock and
before it starts the agent, so a late start never outlives a removal.
"""

import fcntl
import os
import select
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from tenure.adapters.runtime.process import (
    inherited_directory,
    keeper,
    proc,
    process_spec,
    runtime_dir,
)
from tenure.adapters.runtime.process.bundle import DigestCache, read_bundle
from tenure.adapters.runtime.process.launcher import Launcher
from tenure.adapters.runtime.process.prefork import KeeperPool
from tenure.adapters.runtime.process.process_spec import ProcessSpec
from tenure.adapters.runtime.process.runtime_dir import RuntimeDir, RuntimeOwner, group_of
from tenure.core.errors import Invalid, OutcomeUnknown, Rejected
from tenure.core.ids import ResourceKey
from tenure.ports.provider import OwnedResource, Presence

LOGS, TRASH = "logs", "trash"
BURNS_PER_CLEANUP = 256
"""Keys burned between two clean-ups of old burn marks."""
BURNED_SECONDS = 7 * 86_400.0
"""Age of a burn mark at its deletion; no call is delayed for a week."""
START_SECONDS = 10.0
"""How long a keeper may take to answer; the agent itself may take longer to be ready."""


class KeyBusy(Exception):
    """Another call has locked this key; the provider retries."""


class RuntimeStatus(NamedTuple):
    """State of a runtime by its files and the kernel; the provider pings the agent itself."""

    presence: Presence
    reference: Mapping[str, object] = {}
    owner: str = ""
    generation: int = 0
    exit_code: int | None = None
    message: str = ""
    keeper: int = 0
    port: int = 0


class RuntimeRoot:
    """The runtimes below one directory; see the module."""

    def __init__(self, root: Path, *, zones: tuple[str, ...], launcher: Launcher) -> None:
        """Create the directory if it does not exist."""
        self.root = root
        self.zones = zones
        self.launcher = launcher
        self.digests = DigestCache()
        self.keepers = KeeperPool(root)
        self._burns = 0
        self._children: dict[str, int] = {}
        for name in (*zones, keeper.BURNED, keeper.PORTS, LOGS, TRASH):
            (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    # ------------------------------------------------------------------------------ provider calls

    def ensure(self, key: ResourceKey, desired: ProcessSpec, *, now: float) -> RuntimeStatus:
        """Start or converge the runtime; a rejection is stored before it is raised."""
        self._reap(key)
        self._refuse_burned(key)
        other = self.find(key)
        if other is not None and other.path.parent.name != desired.zone:
            self.refuse(key, f"{key.text} is in zone {other.path.parent.name} and cannot move")
        directory = RuntimeDir(self.root / desired.zone / key.text)
        directory.path.mkdir(mode=0o700, exist_ok=True)
        with self._lock(directory.path, fcntl.LOCK_EX) as exists:
            if not exists:  # removed meanwhile
                raise KeyBusy
            self._refuse_foreign(key, directory)
            self._refuse_burned(key, directory)
            owner = directory.owner()
            owner = owner or RuntimeOwner(key.plane, key.tenant, key.agent, key.generation, now)
            if owner.generation > key.generation:
                raise Rejected(f"{key.text} has the newer generation {owner.generation}")
            same = directory.launch_config().text("spec") == desired.text
            has_keeper = proc.has_keeper(directory.path)
            if same and has_keeper and (status := self._read_status(key, directory)).keeper:
                if owner.generation < key.generation:
                    directory.write_owner(owner._replace(generation=key.generation))
                    status = status._replace(generation=key.generation)
                return status
            if owner.refused >= key.generation:
                raise Rejected(f"generation {owner.refused} of {key.text} was refused before")
            self._start(key, desired, directory, owner._replace(generation=key.generation))
            return self._read_status(key, directory)

    def inspect(self, key: ResourceKey) -> RuntimeStatus:
        """The current state of this key."""
        self._reap(key)
        directory = self.find(key)
        if directory is None:
            return RuntimeStatus(Presence.ABSENT)
        if directory.is_foreign_to(key):
            owner = directory.owner()
            return RuntimeStatus(Presence.FOREIGN, owner=owner.plane if owner else "")
        if self.is_burned(key):  # a removal may hold the lock for seconds
            return self._burned_status(directory)
        with self._lock(directory.path, fcntl.LOCK_SH) as exists:
            return self._read_status(key, directory) if exists else RuntimeStatus(Presence.ABSENT)

    def listens_at(self, key: ResourceKey, address: str) -> bool:
        """Whether the runtime's processes, and no others, listen at this address."""
        directory = self.find(key)
        if directory is None or directory.is_foreign_to(key):
            return False
        holder, state = proc.keeper_of(directory.path), directory.state()
        return holder != 0 and address == state.address and proc.owns_port(holder, state.port)

    def remove(self, key: ResourceKey) -> None:
        """Burn the key, end the process tree, delete the directory."""
        directory = self.find(key)
        if directory is not None:
            self._refuse_foreign(key, directory)
        self.burn(key)
        for zone in self.zones:
            directory = RuntimeDir(self.root / zone / key.text)
            with self._lock(directory.path, fcntl.LOCK_EX) as exists:
                if exists:
                    self._refuse_foreign(key, directory)
                    self._end(key, directory, at_once=False)
                    self._free_port(key, directory)
                    proc.remove_groups(self.launcher.groups.paths(group_of(directory)))
                    earlier = self._earlier(inherited_directory.earlier_keys(directory))
                    inherited_directory.move_back(
                        key, directory, earlier, lock=self._lock_exclusively
                    )
                    runtime_dir.keep_logs(
                        directory, self.root / LOGS, count=self.launcher.logs_kept
                    )
                    self._delete(directory.path)
        runtime_dir.delete_tree(
            self.root / TRASH / key.text
        )  # left if the plane died during an earlier removal
        self._reap(key)

    def stop(self, key: ResourceKey) -> None:
        """Burn the key and kill the process tree; the directory stays."""
        directory = self.find(key)
        if directory is not None:
            self._refuse_foreign(key, directory)
        self.burn(key)
        if directory is not None:
            with self._lock(directory.path, fcntl.LOCK_EX) as exists:
                if exists:
                    self._end(key, directory, at_once=True)
        self._reap(key)

    def list_owned(self, plane: str) -> Iterator[OwnedResource]:
        """Every runtime of this plane."""
        for zone in self.zones:
            for path in sorted((self.root / zone).iterdir()):
                owner = RuntimeDir(path).owner()
                if owner is not None and owner.plane == plane:
                    yield OwnedResource(path.name, owner.agent, owner.generation, owner.since)

    def refuse(self, key: ResourceKey, sentence: str) -> None:
        """Store the rejection of this generation and raise it."""
        directory = self.find(key)
        if directory is not None:
            with self._lock(directory.path, fcntl.LOCK_EX) as exists:
                if exists:
                    self._refuse_foreign(key, directory)
                    self._refuse(key, sentence, directory)
        self.burn(key)
        raise Rejected(sentence)

    def log_directory(self, key: ResourceKey) -> Path:
        """The directory with the log, also after a removal."""
        directory = self.find(key)
        ours = directory is not None and not directory.is_foreign_to(key)
        return directory.path if directory is not None and ours else self.root / LOGS / key.text

    # ------------------------------------------------------------------------------ keys and locks

    def find(self, key: ResourceKey) -> RuntimeDir | None:
        """The directory of this key in any zone; None if there is none."""
        for zone in self.zones:
            path = self.root / zone / key.text
            if path.exists():
                return RuntimeDir(path)
        return None

    def is_burned(self, key: ResourceKey) -> bool:
        """Whether the key has a burn mark."""
        return (self.root / keeper.BURNED / key.text).exists()

    def burn(self, key: ResourceKey) -> None:
        """Write the burn mark and flush it."""
        if self.is_burned(key):
            return
        directory = self.root / keeper.BURNED
        self._burns += 1
        if self._burns % BURNS_PER_CLEANUP == 0:
            runtime_dir.delete_older(directory, seconds=BURNED_SECONDS)
        file = os.open(directory / key.text, os.O_WRONLY | os.O_CREAT, 0o600)
        os.close(file)
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def _lock(self, path: Path, how: int) -> Iterator[bool]:
        """Lock the directory itself; yields False if there is none; KeyBusy if it is locked."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
            yield path.exists()  # False if it was removed meanwhile, for good
        except BlockingIOError:
            raise KeyBusy from None
        finally:
            os.close(file)

    def _lock_exclusively(self, path: Path) -> AbstractContextManager[bool]:
        return self._lock(path, fcntl.LOCK_EX)

    def _earlier(self, names: Sequence[str]) -> list[RuntimeDir]:
        """The existing directories of these keys."""
        paths = (self.root / zone / name for name in names for zone in self.zones)
        return [RuntimeDir(path) for path in paths if path.is_dir()]

    def _refuse_foreign(self, key: ResourceKey, directory: RuntimeDir) -> None:
        if directory.is_foreign_to(key):
            raise Rejected(f"{key.text} belongs to another owner")

    def _refuse_burned(self, key: ResourceKey, directory: RuntimeDir | None = None) -> None:
        if self.is_burned(key):
            if directory is not None and directory.owner() is None:
                self._delete(directory.path)  # created by this call
            raise Rejected(f"{key.text} was removed, stopped or refused and is never used again")

    def _refuse(self, key: ResourceKey, sentence: str, directory: RuntimeDir) -> None:
        """Refuse this generation.  A running runtime goes on; a key without one is burned."""
        owner = directory.owner()
        if owner is not None and directory.launch_config().number("start"):
            directory.write_owner(owner._replace(refused=max(owner.refused, key.generation)))
        else:
            self.burn(key)
            if owner is not None:  # it may have reserved a port already
                self._free_port(key, directory)
            self._delete(directory.path)
        raise Rejected(sentence)

    # -------------------------------------------------------------------------- starting and ending

    def _start(
        self, key: ResourceKey, desired: ProcessSpec, directory: RuntimeDir, owner: RuntimeOwner
    ) -> None:
        """End the earlier run, write the launch file, start a keeper and wait for its answer."""
        before = directory.launch_config()
        if sentence := process_spec.change_reason(desired, self.digests, first=key.generation == 1):
            self._refuse(key, sentence, directory)
        try:
            program = process_spec.pinned_program(desired, path=self.launcher.path)
            if before.number("start"):
                self._end(key, directory, at_once=False)
            directory.write_owner(owner, flush=False)
            if desired.port:
                self._reserve(key, desired.port)
            if desired.bundle:
                self._unpack(key, desired, directory)
        except Invalid as error:
            self._refuse(key, str(error), directory)
            raise
        except OSError as error:
            if desired.bundle and str(error.filename).startswith(desired.bundle):
                self._refuse(key, f"bundle: {error.filename}: {error.strerror}", directory)
            raise
        start = before.number("start") + 1
        config = self.launcher.make_launch_config(
            key, desired, directory, root=self.root, program=program, start=start
        )
        directory.write_launch_config(config)
        if desired.state_of and not directory.work.exists():
            earlier = self._earlier(desired.state_of)
            if sentence := inherited_directory.move_from(
                key, directory, earlier, lock=self._lock_exclusively
            ):
                self._refuse(key, sentence, directory)
        directory.work.mkdir(mode=0o700, exist_ok=True)
        self._spawn(key, directory)

    def _unpack(self, key: ResourceKey, desired: ProcessSpec, directory: RuntimeDir) -> None:
        """Copy the bundle; refused if its digest has changed."""
        new = directory.path / f"{keeper.BUNDLE}.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        digest = read_bundle(Path(desired.bundle), new)
        if desired.digests.get(desired.bundle, digest) != digest:
            shutil.rmtree(new)
            self._refuse(key, process_spec.changed_content_reason(desired.bundle), directory)
        shutil.rmtree(directory.bundle, ignore_errors=True)
        new.rename(directory.bundle)

    def _spawn(self, key: ResourceKey, directory: RuntimeDir) -> None:
        """Assign a keeper and wait until it has started the agent."""
        pid, answer_pipe = self.keepers.keep(directory.path)
        try:
            self._children[key.text] = pid
            directory.flush()  # while the keeper is starting
            poll = select.poll()
            poll.register(answer_pipe, select.POLLIN)
            if poll.poll(START_SECONDS * 1000) and os.read(answer_pipe, 100):
                return
        finally:
            os.close(answer_pipe)
        self._refuse_burned(key)
        if proc.has_keeper(directory.path):  # a keeper of an earlier plane came first
            raise KeyBusy
        self._reap(key)
        self._sweep(key, directory)
        raise OutcomeUnknown(f"the keeper of {key.text} did not answer: {directory.errors()}")

    def _end(self, key: ResourceKey, directory: RuntimeDir, *, at_once: bool) -> None:
        """End the keeper and its process tree; kill processes that a killed keeper has left."""
        seconds = self.launcher.end_seconds + (0 if at_once else self.launcher.grace_ms / 1000)
        proc.end_keeper(directory.path, at_once=at_once, seconds=seconds)
        state = directory.state()
        if state.start != directory.launch_config().number("start") or state.exit is None:
            self._sweep(key, directory)

    def _sweep(self, key: ResourceKey, directory: RuntimeDir) -> None:
        tags = (f"TENURE_KEY={key.text}", f"TENURE_DIRECTORY={directory.path}")
        found = self.launcher.groups.paths(group_of(directory))
        proc.sweep(tuple(os.fsencode(tag) for tag in tags), found)

    def _reserve(self, key: ResourceKey, port: int) -> None:
        """Reserve the port of the spec; Invalid if another agent has it."""
        path = self.root / keeper.PORTS / str(port)
        try:
            with path.open("x") as file:
                file.write(key.text)
        except FileExistsError:
            if path.read_text() != key.text:
                raise Invalid(f"port: {port} is another agent's") from None

    def _free_port(self, key: ResourceKey, directory: RuntimeDir) -> None:
        """Release the port, also one that a keeper reserved before it died without naming it."""
        port = directory.state().port
        ports = self.root / keeper.PORTS
        for path in [ports / str(port)] if port else ports.iterdir():
            try:
                if path.read_text() == key.text:
                    path.unlink()
            except FileNotFoundError:
                continue

    def _delete(self, path: Path) -> None:
        """Move the directory to the trash atomically, then delete it."""
        trash = self.root / TRASH / path.name
        runtime_dir.delete_tree(trash)
        path.rename(trash)
        runtime_dir.delete_tree(trash)

    def _reap(self, key: ResourceKey) -> None:
        """Reap a keeper that this process has started, if it has ended."""
        pid = self._children.get(key.text)
        try:
            has_ended = pid is not None and os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            has_ended = True
        if has_ended:
            self._children.pop(key.text, None)

    # ------------------------------------------------------------------------------------- status

    def _read_status(self, key: ResourceKey, directory: RuntimeDir) -> RuntimeStatus:
        """The state of a locked directory; KeyBusy if its keeper has not yet written its port."""
        has_keeper = proc.has_keeper(directory.path)
        holder = proc.keeper_of(directory.path) if has_keeper else 0
        owner, state, start = (
            directory.owner(),
            directory.state(),
            directory.launch_config().number("start"),
        )
        if owner is None or not start:
            return RuntimeStatus(Presence.ABSENT)
        if has_keeper and (not holder or holder != state.keeper):
            raise KeyBusy
        if state.start != start:
            # The last launch file was never used; a running keeper is of an older one.
            return RuntimeStatus(Presence.ABSENT)
        reference = {"address": state.address, "zone": directory.path.parent.name}
        status = RuntimeStatus(
            Presence.STARTING, reference, owner.plane, owner.generation, port=state.port
        )
        if has_keeper:
            return status._replace(keeper=holder)
        if state.exit is None and not state.swept:
            self._sweep(key, directory)
            directory.mark_swept(state)
        message = runtime_dir.with_last_lines(runtime_dir.reason_of(state), directory.path)
        return status._replace(presence=Presence.BROKEN, exit_code=state.exit, message=message)

    def _burned_status(self, directory: RuntimeDir) -> RuntimeStatus:
        """The state of a key that was removed or stopped."""
        owner, state = directory.owner(), directory.state()
        if owner is None:
            return RuntimeStatus(Presence.ABSENT)
        where = {"address": state.address, "zone": directory.path.parent.name}
        status = RuntimeStatus(Presence.BROKEN, where, owner.plane, owner.generation, state.exit)
        return status._replace(message="it was stopped, or is being removed")
