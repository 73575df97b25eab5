"""How long to wait before the next attempt: one type, and every policy that the product uses.

A policy is a value.  It draws no random number: the caller passes `fraction`, which comes from the
entropy port.  `docs/reference/retries.md` shows `POLICIES` as a table and is written from it.
Fixed intervals between polls are not policies; they stay beside the loop that uses them.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final, NamedTuple

EXPONENT_MAX: Final = 100
"""The exponent stops growing here, so that no number of attempts overflows a float."""


class RetryPolicy(NamedTuple):
    """Exponential backoff: `first_seconds`, multiplied by `factor` per attempt, up to the cap."""

    first_seconds: float
    cap_seconds: float
    factor: float = 2.0
    jitter: float = 0.0
    """The share of a delay that jitter can take away: 0.5 means from half of it to all of it."""
    purpose: str = ""
    """What is retried, and where the numbers come from if a setting changes them."""

    def delay_seconds(self, attempts: int, fraction: float = 0.0) -> float:
        """Return the delay after `attempts` earlier delays; `fraction` is random, in [0, 1)."""
        full = self.first_seconds * self.factor ** min(attempts, EXPONENT_MAX)
        return min(self.cap_seconds, full) * (1.0 - self.jitter * fraction)

    def delays(self) -> Iterator[float]:
        """Yield the delays of one series of attempts without end, without jitter."""
        return map(self.delay_seconds, count())

    def scaled_to(self, first_seconds: float) -> "RetryPolicy":
        """Return this policy with another first delay and the same ratio of cap to first."""
        ratio = self.cap_seconds / self.first_seconds
        return self._replace(first_seconds=first_seconds, cap_seconds=first_seconds * ratio)


STEP: Final = RetryPolicy(
    0.2,
    30.0,
    jitter=0.5,
    purpose="A do, an undo or an inspect of a step that did not succeed. "
    "A plan can set first and cap for each step (`StepLimits`).",
)
HALTED_OPERATION: Final = RetryPolicy(
    5.0,
    300.0,
    purpose="An operation whose task in the embedded engine failed unexpectedly. "
    "The first delay is a third of the setting `lease_ttl_seconds`.",
)
DESTINATION: Final = RetryPolicy(
    1.0,
    60.0,
    jitter=0.5,
    purpose="A destination of events that does not answer. "
    "A longer `Retry-After` of the destination is respected.",
)
PARKED_STREAM: Final = RetryPolicy(
    5.0,
    3_600.0,
    jitter=0.5,
    purpose="The events of one agent that a destination has rejected, until the stream waits for "
    "an operator.",
)
WEBHOOK_BREAKER: Final = RetryPolicy(
    30.0,
    30.0,
    factor=1.0,
    purpose="A webhook endpoint that has failed five times in a row.",
)
DRIFT_REPAIR: Final = RetryPolicy(
    30.0,
    3_600.0,
    purpose="The repair of a resource that differs from what was recorded.",
)
TEMPORAL_ACTIVITY: Final = RetryPolicy(
    0.5,
    60.0,
    purpose="An activity whose Temporal worker was lost. Temporal itself waits.",
)
TEMPORAL_UNKNOWN_PLAN: Final = RetryPolicy(
    0.1,
    30.0,
    factor=1.3,
    purpose="An activity on a worker whose release does not know the plan; another worker may.",
)
TEMPORAL_WAKE: Final = RetryPolicy(
    15.0,
    960.0,
    purpose="The wake-up of a Temporal run that made no progress. "
    "The first delay is the margin of the run starter.",
)
POSTGRES_COMMIT: Final = RetryPolicy(
    0.02,
    0.5,
    purpose="A batch that PostgreSQL did not acknowledge, while the store's patience lasts.",
)
RUNTIME_KEY: Final = RetryPolicy(
    0.001,
    0.05,
    purpose="A call to the process runtime while another call uses the same key. "
    "First and cap also bound the polls of a runtime that starts.",
)
OPERATION_STREAM: Final = RetryPolicy(
    0.02,
    0.5,
    factor=1.5,
    purpose="A poll of an operation for a client that follows it over HTTP.",
)
CLI_CONNECT: Final = RetryPolicy(
    0.1,
    1.0,
    purpose="A request of the command line that waits until a server answers.",
)

POLICIES: Final = {
    name: value for name, value in list(globals().items()) if isinstance(value, RetryPolicy)
}
"""Every policy by the name of its constant, in the order above."""
