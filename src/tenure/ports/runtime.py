"""The runtime provider: starts, stops and observes the process or container of an agent.

An agent answers `GET /ping` with 200 and `{"status": "Healthy"}` or `"HealthyBusy"`, and gets its
work by `POST /invocations`.  The reference of a runtime is `{"address": "host:port", "zone": …}`.
`ensure` and `inspect` return the same reference until the runtime is removed.

A plan may add `state_of` to a spec: keys of earlier runtimes of the same agent, newest first.  The
new runtime takes over the files in the own directory of the first of them that exists.  If the new
one is removed while the earlier one exists, the earlier one gets the files back.  Rejected while
the earlier one runs.
"""

from typing import Final, NamedTuple, Protocol

from tenure.core.ids import ResourceKey
from tenure.ports.provider import Presence, Provider, Spec

MISSING: Final = "missing: "
"""The prefix of an entry of `digests` for a file that could not be read; the reason follows."""


class Status(NamedTuple):
    """The state of a runtime, with more details than `inspect` returns."""

    presence: Presence
    busy: bool = False
    """Whether the agent says that it has work in progress; a drain waits for that work."""
    exit_code: int | None = None
    """The exit code, negative for a signal; None while it runs, or if it is not known."""
    message: str = ""
    """For people: why it is not ready, with the last lines that it printed."""


class LogPart(NamedTuple):
    """A part of a log, and the offset of the next part."""

    text: str
    next_offset: int


class RuntimeProvider(Provider, Protocol):
    """Every promise here is a test in `tenure.testing.contracts.runtime`."""

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones in which a runtime can be started; the first is the default."""
        ...

    async def digest(self, spec: Spec) -> Spec:
        """The spec with a field `digests`: the hash of each file that the runtime will start.

        `ensure` refuses to start a file whose hash has changed.  For a file that cannot be read,
        `digests` has `missing: ` and a sentence that names the field, and `ensure` then refuses
        the spec, even if the file exists by that time.  An argument of the command that is not a
        file has no entry: the agent may write that file itself.
        Invalid if the spec has a setting that this runtime cannot enforce.
        """
        ...

    async def status(self, key: ResourceKey) -> Status:
        """The status; READY only if the runtime itself, and no other program, answers `/ping`."""
        ...

    async def wait_ready(self, key: ResourceKey, *, seconds: float) -> Status:
        """Wait until it is no longer STARTING, at most so many seconds; return its status."""
        ...

    async def listens_at(self, key: ResourceKey, address: str) -> bool:
        """Whether this runtime, and no other program, listens at this address now.

        It is called after connecting and before sending: another program can get the port of a
        runtime that has died.
        """
        ...

    async def logs(self, key: ResourceKey, *, lines: int = 100) -> str:
        """The last lines that it printed; empty for an unknown key."""
        ...

    async def follow(self, key: ResourceKey, *, since: int) -> LogPart:
        """Its output from this offset on, as far as it is stored and fits into one answer."""
        ...

    async def stop(self, key: ResourceKey) -> None:
        """Kill the runtime at once; its output stays readable until it is removed.

        The key is burned: no later call, and none that was sent before, starts it again.
        """
        ...
