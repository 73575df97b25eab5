"""Agents as local processes, each under a keeper that outlives the plane.

Implements `tenure.ports.runtime.RuntimeProvider`: blocking work runs on the provider's own threads,
and its methods raise only ProviderErrors.  This is not a security boundary.
"""

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from tenure.adapters.runtime.process import groups, proc, process_spec, runtime_dir, sandbox
from tenure.adapters.runtime.process.launcher import Launcher
from tenure.adapters.runtime.process.ping import Health, ping
from tenure.adapters.runtime.process.runtime_root import KeyBusy, RuntimeRoot, RuntimeStatus
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
"""How long a call waits for another call of the same key."""
PAUSE_SHARE = 0.05
"""Pause between two polls of a starting runtime, as a share of the time waited so far."""
PREFORK_DELAY_SECONDS = 0.1
"""Delay after a runtime is ready before a keeper is pre-forked for the next one."""
STATUS_CACHE_SECONDS = 0.02
"""How long the file state of a starting runtime is used before it is read again."""

P = ParamSpec("P")
T = TypeVar("T")


class ProcessRuntime:
    """The provider of local runtimes.

    `path` is the search path of programs and the PATH of agents; `hidden` are directories that a
    sandboxed agent sees empty; `sandbox` is auto, off, or require.
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
        """Use `root`, created if it does not exist; several processes may share it."""
        self.zones = zones
        self._clock = clock
        self._ping_seconds = ping_seconds
        self._prefork_timer: asyncio.TimerHandle | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="tenure-runtime")
        launcher = Launcher(
            path=path,
            grace_ms=int(grace_seconds * 1000),
            end_seconds=end_seconds,
            hidden=tuple(str(one.absolute()) for one in hidden),
            logs_kept=logs_kept,
            sandbox=_find_sandbox(sandbox, path),
            groups=groups.available(f"tenure-probe-{os.getpid()}"),
        )
        self._root = RuntimeRoot(root.absolute(), zones=zones, launcher=launcher)

    def close(self) -> None:
        """End the threads; agents go on running."""
        if self._prefork_timer is not None:
            self._prefork_timer.cancel()
        self._root.keepers.close()
        self._pool.shutdown(wait=False)

    # ---------------------------------------------------------------------------- provider methods

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Start the agent under a keeper, or converge it; Rejected if a spec cannot be enforced."""
        try:
            desired = self._read(spec)
        except Invalid as error:
            await self._call(self._root.refuse, key, str(error))
            raise Rejected(str(error)) from error
        now = self._clock.now()
        status = await self._call(lambda: self._root.ensure(key, desired, now=now))
        return status.reference

    async def inspect(self, key: ResourceKey) -> Observation:
        """The presence that `status` gives, with reference, owner and generation."""
        runtime = await self._call(self._root.inspect, key)
        status = await self._status(runtime)
        return Observation(status.presence, runtime.reference, runtime.owner, runtime.generation)

    async def remove(self, key: ResourceKey) -> None:
        """Burn the key, end the whole tree, delete its directory."""
        await self._call(self._root.remove, key)

    async def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Every directory of this plane."""
        for item in await self._call(lambda: list(self._root.list_owned(plane))):
            yield item

    # ----------------------------------------------------------------------------- runtime methods

    async def digest(self, spec: Spec) -> Spec:
        """The spec with the digests of program, files and bundle, or why they are missing.

        Raises Invalid also for limits that this machine cannot enforce.
        """
        desired = self._read(spec)
        if desired.state_of:
            raise Invalid("state_of: only a plan may set it, not a spec")
        self._refuse_plane_paths(desired)
        path, digests = self._root.launcher.path, self._root.digests
        return await self._call(
            lambda: process_spec.digest(spec, desired, path=path, digests=digests)
        )

    def _refuse_plane_paths(self, desired: process_spec.ProcessSpec) -> None:
        """Refuse a command or bundle inside the directories that are hidden from agents."""
        for own in {self._root.root.resolve(), *map(_real_path, self._root.launcher.hidden)}:
            for part in desired.command:
                if part.startswith("/") and _real_path(part).is_relative_to(own):
                    raise Invalid(f"command: {part} is in the control plane's own directory")
            bundle = _real_path(desired.bundle) if desired.bundle else None
            if bundle and (bundle.is_relative_to(own) or own.is_relative_to(bundle)):
                raise Invalid(
                    f"bundle: {desired.bundle} contains or is inside the plane's own directory"
                    f" {own}; move one of them"
                )

    async def status(self, key: ResourceKey) -> Status:
        """The status by the keeper, by the agent's ping, and by the owner of the socket."""
        status = await self._status(await self._call(self._root.inspect, key))
        return await self._with_last_lines(key, status)

    async def wait_ready(self, key: ResourceKey, *, seconds: float) -> Status:
        """Poll until the agent is ready, broken, or `seconds` have passed."""
        started_at = inspected_at = self._clock.monotonic()
        runtime = await self._call(self._root.inspect, key)
        while True:
            status = await self._status(runtime)
            now = self._clock.monotonic()
            remaining = started_at + seconds - now
            if status.presence is not Presence.STARTING or remaining <= 0:
                self._schedule_prefork()
                return await self._with_last_lines(key, status)
            share = PAUSE_SHARE * (now - started_at)
            pause = min(max(share, RUNTIME_KEY.first_seconds), RUNTIME_KEY.cap_seconds, remaining)
            await self._clock.sleep(pause)
            if now - inspected_at > STATUS_CACHE_SECONDS:
                inspected_at = now
                runtime = await self._call(self._root.inspect, key)

    async def listens_at(self, key: ResourceKey, address: str) -> bool:
        """Whether the runtime's own processes listen at this address, as the kernel reports it."""
        return await self._call(self._root.listens_at, key, address)

    async def logs(self, key: ResourceKey, *, lines: int = 100) -> str:
        """The last lines of the log, also of a recently removed runtime."""
        return await self._call(lambda: runtime_dir.tail(self._root.log_directory(key), lines))

    async def follow(self, key: ResourceKey, *, since: int) -> LogPart:
        """The log from this offset on."""
        return await self._call(lambda: runtime_dir.part(self._root.log_directory(key), since))

    async def stop(self, key: ResourceKey) -> None:
        """Kill at once and burn; the directory and the log stay until `remove`."""
        await self._call(self._root.stop, key)

    # ------------------------------------------------------------------------------------- helpers

    def _schedule_prefork(self) -> None:
        """Pre-fork a keeper a little later, so that it does not delay the current operation."""
        if self._prefork_timer is not None:
            self._prefork_timer.cancel()
        prepare = self._root.keepers.prepare
        loop = asyncio.get_running_loop()
        self._prefork_timer = loop.call_later(PREFORK_DELAY_SECONDS, self._pool.submit, prepare)

    def _read(self, spec: Spec) -> process_spec.ProcessSpec:
        """Read the spec; Invalid if this machine cannot enforce it."""
        desired = process_spec.read(spec, zones=self.zones)
        if "processes" in desired.resources and not self._root.launcher.groups.pids:
            raise Invalid(
                "resources: processes cannot be limited here: there is no pids control group"
            )
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and desired.resources.get("open_files", 0) > hard:
            raise Invalid(f"resources: open_files is at most {hard} here")
        return desired

    async def _with_last_lines(self, key: ResourceKey, status: Status) -> Status:
        """Add the last log lines, which most likely say why the agent is not ready."""
        if status.presence is not Presence.STARTING:
            return status
        root = self._root
        message = await self._call(
            lambda: runtime_dir.with_last_lines(status.message, root.log_directory(key))
        )
        return status._replace(message=message)

    async def _status(self, runtime: RuntimeStatus) -> Status:
        if runtime.presence is not Presence.STARTING:
            return Status(runtime.presence, exit_code=runtime.exit_code, message=runtime.message)
        health, answer = await ping(runtime.port, seconds=self._ping_seconds)
        match health:
            case Health.SILENT:
                remedy = "the agent has to listen there, on $PORT, or its spec has to set `port`"
                message = f"no process listens on port {runtime.port}: {remedy}"
                return Status(Presence.STARTING, message=message)
            case Health.ODD:
                expected = 'with 200 and {"status": "Healthy"}'
                message = f"port {runtime.port} does not answer GET /ping {expected}, but: {answer}"
                return Status(Presence.STARTING, message=message)
            case Health.HEALTHY | Health.BUSY:
                if not await self._call(proc.owns_port, runtime.keeper, runtime.port):
                    message = f"another process listens on port {runtime.port}"
                    return Status(Presence.STARTING, message=message)
                return Status(Presence.READY, busy=health is Health.BUSY)

    async def _call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` on a thread, and again while the key is locked; OSError is OutcomeUnknown."""
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


def _find_sandbox(mode: str, path: str) -> str:
    """The path of bubblewrap, or "" without a sandbox."""
    if mode not in ("auto", "off", "require"):
        raise Invalid(f"sandbox is auto, off or require, not {mode!r}")
    found = "" if mode == "off" else sandbox.find(path)
    if mode == "require" and not found:
        raise Invalid("sandbox: bubblewrap is required, and none works here")
    return found


def _real_path(path: str) -> Path:
    return Path(os.path.realpath(path))
