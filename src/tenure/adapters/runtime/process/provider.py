"""Agents as local processes, each under a keeper that outlives the plane.

The calls of `tenure.ports.runtime.RuntimeProvider`: everything that blocks runs in threads of this
provider's own, and nothing but a provider's errors leaves it.  This is not a security boundary.
"""

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from tenure.adapters.runtime.process import groups, proc, recipe, runtime_dir, sandbox
from tenure.adapters.runtime.process.ping import Health, ping
from tenure.adapters.runtime.process.runtime_root import (
    KeyBusy,
    Launcher,
    RuntimeRoot,
    RuntimeStatus,
)
from tenure.core.errors import Invalid, OutcomeUnknown, Rejected, Unavailable
from tenure.core.ids import ResourceKey
from tenure.core.retry import RUNTIME_KEY
from tenure.ports.clock import Clock
from tenure.ports.provider import Observation, OwnedResource, Presence, Spec
from tenure.ports.runtime import LogPart, Status

ZONES = ("local-a", "local-b")
SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
THREADS = 16
PING_SECONDS = 1.0
BUSY_SECONDS = 20.0
"""How long a call waits for another of the same key."""
PAUSE_SHARE = 0.05
"""Of the time that was waited already: how late a runtime may be found ready."""
SPARE_SECONDS = 0.1
"""After a runtime is ready, until a keeper is made ready for the next."""
LOOK_SECONDS = 0.02
"""How long what the files say of a runtime that starts is taken for true."""

P = ParamSpec("P")
T = TypeVar("T")


class ProcessRuntime:
    """See the module.

    `path` is where programs are looked for and what agents get as PATH; `hidden` are directories
    that a sandboxed agent sees empty; `sandbox` is auto, off, or require.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock,
        zones: tuple[str, ...] = ZONES,
        path: str = SEARCH_PATH,
        sandbox: str = "auto",
        hidden: tuple[Path, ...] = (),
        grace_seconds: float = 1.0,
        end_seconds: float = 5.0,
        ping_seconds: float = PING_SECONDS,
        logs_kept: int = 20,
    ) -> None:
        """Below `root`, made if it is not there; several may share it, in several processes."""
        self.zones = zones
        self._clock = clock
        self._ping_seconds = ping_seconds
        self._later: asyncio.TimerHandle | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="tenure-runtime")
        means = Launcher(
            path=path,
            grace_ms=int(grace_seconds * 1000),
            end_seconds=end_seconds,
            hidden=tuple(str(one.absolute()) for one in hidden),
            logs_kept=logs_kept,
            sandbox=_sandbox(sandbox, path),
            groups=groups.available(f"tenure-probe-{os.getpid()}"),
        )
        self._root = RuntimeRoot(root.absolute(), zones=zones, means=means)

    def close(self) -> None:
        """Let go of the threads; what runs goes on."""
        if self._later is not None:
            self._later.cancel()
        self._root.keepers.close()
        self._pool.shutdown(wait=False)

    # ------------------------------------------------------------------------------ the four verbs

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Start it under a keeper, or converge; a spec that cannot be enforced is Rejected."""
        try:
            wanted = self._read(spec)
        except Invalid as error:
            await self._call(self._root.refuse, key, str(error))
            raise Rejected(str(error)) from error
        now = self._clock.now()
        seen = await self._call(lambda: self._root.ensure(key, wanted, now=now))
        return seen.reference

    async def inspect(self, key: ResourceKey) -> Observation:
        """The presence that `status` gives, with reference, owner and generation."""
        seen = await self._call(self._root.look, key)
        status = await self._status(seen)
        return Observation(status.presence, seen.reference, seen.owner, seen.generation)

    async def remove(self, key: ResourceKey) -> None:
        """Burn the key, end the whole tree, delete its directory."""
        await self._call(self._root.remove, key)

    async def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Every directory of this plane."""
        for item in await self._call(lambda: list(self._root.owned(plane))):
            yield item

    # ------------------------------------------------------------------------- what a runtime has

    async def digest(self, spec: Spec) -> Spec:
        """The spec with the digests of program, files and bundle, or why they are missing.

        Invalid is also what a process of this machine cannot be held to.
        """
        wanted = self._read(spec)
        if wanted.state_of:
            raise Invalid("state_of: a plan says whose state a runtime goes on with, no spec")
        self._refuse_ours(wanted)
        path, digests = self._root.means.path, self._root.digests
        return await self._call(lambda: recipe.digest(spec, wanted, path=path, digests=digests))

    def _refuse_ours(self, wanted: recipe.Recipe) -> None:
        """Nothing that the plane hides is given to an agent by naming it."""
        for ours in {self._root.root.resolve(), *map(_resolved, self._root.means.hidden)}:
            for part in wanted.command:
                if part.startswith("/") and _resolved(part).is_relative_to(ours):
                    raise Invalid(f"command: {part} lies in the control plane's own directory")
            bundle = _resolved(wanted.bundle) if wanted.bundle else None
            if bundle and (bundle.is_relative_to(ours) or ours.is_relative_to(bundle)):
                raise Invalid(
                    f"bundle: {wanted.bundle} and the control plane's own {ours} are one inside the"
                    " other; move one"
                )

    async def status(self, key: ResourceKey) -> Status:
        """How it is, by its keeper, by its own word, and by whose socket that word came from."""
        status = await self._status(await self._call(self._root.look, key))
        return await self._with_last_lines(key, status)

    async def wait_ready(self, key: ResourceKey, *, seconds: float) -> Status:
        """Ask again and again, quickly at first; while nobody listens, look only now and then."""
        began = looked = self._clock.monotonic()
        seen = await self._call(self._root.look, key)
        while True:
            status = await self._status(seen)
            now = self._clock.monotonic()
            left = began + seconds - now
            if status.presence is not Presence.STARTING or left <= 0:
                self._prepare_later()
                return await self._with_last_lines(key, status)
            waited = PAUSE_SHARE * (now - began)
            pause = min(max(waited, RUNTIME_KEY.first_seconds), RUNTIME_KEY.cap_seconds, left)
            await self._clock.sleep(pause)
            if now - looked > LOOK_SECONDS:
                looked = now
                seen = await self._call(self._root.look, key)

    async def listens_at(self, key: ResourceKey, address: str) -> bool:
        """By its keeper, and by whose sockets the kernel says they are."""
        return await self._call(self._root.listens_at, key, address)

    async def logs(self, key: ResourceKey, *, lines: int = 100) -> str:
        """The last lines, also of what was removed lately."""
        return await self._call(lambda: runtime_dir.tail(self._root.log_directory(key), lines))

    async def follow(self, key: ResourceKey, *, since: int) -> LogPart:
        """What was printed from this offset on."""
        return await self._call(lambda: runtime_dir.part(self._root.log_directory(key), since))

    async def stop(self, key: ResourceKey) -> None:
        """Kill at once and burn; the directory and the log stay until `remove`."""
        await self._call(self._root.stop, key)

    # --------------------------------------------------------------------------------------- inner

    def _prepare_later(self) -> None:
        """Have a keeper ready for the next start, once this one's operation has had its time."""
        if self._later is not None:
            self._later.cancel()
        prepare = self._root.keepers.prepare
        loop = asyncio.get_running_loop()
        self._later = loop.call_later(SPARE_SECONDS, self._pool.submit, prepare)

    def _read(self, spec: Spec) -> recipe.Recipe:
        """Understand the spec, and refuse what cannot be enforced on this machine."""
        wanted = recipe.read(spec, zones=self.zones)
        if "processes" in wanted.resources and not self._root.means.groups.pids:
            raise Invalid("resources: processes cannot be bounded here, no pids group can be made")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and wanted.resources.get("open_files", 0) > hard:
            raise Invalid(f"resources: open_files is at most {hard} here")
        return wanted

    async def _with_last_lines(self, key: ResourceKey, status: Status) -> Status:
        """What keeps it from being ready is most likely what it printed last."""
        if status.presence is not Presence.STARTING:
            return status
        place = self._root
        said = await self._call(
            lambda: runtime_dir.with_last_lines(status.said, place.log_directory(key))
        )
        return status._replace(said=said)

    async def _status(self, seen: RuntimeStatus) -> Status:
        if seen.presence is not Presence.STARTING:
            return Status(seen.presence, exit_code=seen.exit_code, said=seen.said)
        health, answer = await ping(seen.port, seconds=self._ping_seconds)
        match health:
            case Health.SILENT:
                own = "it is to listen there, on $PORT, or its spec says on which `port`"
                said = f"nobody listens on port {seen.port}: {own}"
                return Status(Presence.STARTING, said=said)
            case Health.ODD:
                wanted = 'with 200 and {"status": "Healthy"}'
                said = f"port {seen.port} does not answer GET /ping {wanted}, but: {answer}"
                return Status(Presence.STARTING, said=said)
            case Health.HEALTHY | Health.BUSY:
                if not await self._call(proc.owns_port, seen.keeper, seen.port):
                    said = f"somebody else listens on port {seen.port}"
                    return Status(Presence.STARTING, said=said)
                return Status(Presence.READY, busy=health is Health.BUSY)

    async def _call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it in a thread, again while the key is busy; what goes wrong is said as ours."""
        loop = asyncio.get_running_loop()
        until = self._clock.monotonic() + BUSY_SECONDS
        pauses = RUNTIME_KEY.delays()
        while True:
            try:
                return await loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))
            except KeyBusy:
                if self._clock.monotonic() > until:
                    raise Unavailable("another call of this key takes too long") from None
            except OSError as error:
                raise OutcomeUnknown(f"{type(error).__name__}: {error}") from error
            await self._clock.sleep(next(pauses))


def _sandbox(wish: str, path: str) -> str:
    """The bubblewrap to use, or none."""
    if wish not in ("auto", "off", "require"):
        raise Invalid(f"sandbox is auto, off or require, not {wish!r}")
    found = "" if wish == "off" else sandbox.find(path)
    if wish == "require" and not found:
        raise Invalid("sandbox: bubblewrap is required, and none works here")
    return found


def _resolved(path: str) -> Path:
    return Path(os.path.realpath(path))
