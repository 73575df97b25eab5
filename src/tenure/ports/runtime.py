"""Runtimes: somewhere an agent can run; the four verbs of every provider, and what is special.

An agent answers `GET /ping` with 200 and `{"status": "Healthy"}` or `"HealthyBusy"`, and takes its
work by `POST /invocations`.  A reference is `{"address": "host:port", "zone": …}`: the same from
`ensure` and from `inspect`, for as long as the key lives.

A plan may add `state_of` to a spec: keys of earlier runtimes of the same agent, newest first.  The
new one begins with what the first of them that is there kept in its own directory; if it is removed
while that one is still there, that one has it again.  Refused while the earlier one runs.
"""

from typing import Final, NamedTuple, Protocol

from tenure.core.ids import ResourceKey
from tenure.ports.provider import Presence, Provider, Spec

MISSING: Final = "missing: "
"""What stands before the sentence in place of a digest, where there were no bytes to take it of."""


class Status(NamedTuple):
    """How a runtime is: what `inspect` says, and what only a runtime has."""

    presence: Presence
    busy: bool = False
    """Whether it works on something now, by its own word: what a drain waits for."""
    exit_code: int | None = None
    """How it ended; negative is a signal.  None while it lives, and where nobody could know."""
    said: str = ""
    """For people: why it is not ready, in a sentence, with the last lines it printed."""


class LogPart(NamedTuple):
    """A piece of a log, and where the next one begins."""

    text: str
    next_offset: int


class RuntimeProvider(Provider, Protocol):
    """Every promise here is a test in `tenure.testing.contracts.runtime`."""

    @property
    def zones(self) -> tuple[str, ...]:
        """Where an agent can be put; the first is the default, any other name is Rejected."""
        ...

    async def digest(self, spec: Spec) -> Spec:
        """The spec with `digests` of all that it starts: other bytes then refuse to start.

        What cannot be found or read has none, but `missing: ` and a sentence that names the field:
        whether it is there is for `ensure` to refuse, also if it has turned up meanwhile.  Of an
        argument nobody can tell before it is a file: it may be what the agent is to write.
        Raises Invalid, with such a sentence, for what cannot be enforced here.
        """
        ...

    async def status(self, key: ResourceKey) -> Status:
        """READY only if it answers `/ping` itself: somebody else on its port does not count."""
        ...

    async def wait_ready(self, key: ResourceKey, *, seconds: float) -> Status:
        """The status as soon as it is no longer STARTING, or as it is after so many seconds."""
        ...

    async def listens_at(self, key: ResourceKey, address: str) -> bool:
        """Whether it is this one, and nobody else, that listens at this address now.

        Asked after a connection was made and before anything is said on it: another program can
        take the port of an agent that died.
        """
        ...

    async def logs(self, key: ResourceKey, *, lines: int = 100) -> str:
        """The last lines that it printed; of an unknown key none."""
        ...

    async def follow(self, key: ResourceKey, *, since: int) -> LogPart:
        """What it printed from this offset on, as much as is still kept and fits one answer."""
        ...

    async def stop(self, key: ResourceKey) -> None:
        """Kill it at once and for good, and keep what it printed until it is removed.

        The key is burned: nothing starts under it again, not even by a call sent before.
        """
        ...
