"""Limits that several packages share; a limit of one package is defined in that package.

A value beyond its limit is refused with LimitExceeded or Invalid.  Only messages of providers are
shortened and not refused.
"""

from dataclasses import dataclass

from tenure.core.retry import STEP, RetryPolicy

STEPS_MAX = 64
"""Steps in one plan."""
NAME_CHARACTERS_MAX = 63
"""A plan's, step's or slot's name."""
NAME_PATTERN = r"[a-z][a-z0-9-]{0,62}"
"""An agent's, tenant's, zone's or subscription's name."""
GRANT_PATTERN = r"[a-z][a-z0-9._:-]{0,62}"
"""A role's or a team's name."""
AUDIENCE_PATTERN = r"https?://[!$->A-~]+"
"""Where a credential is shown: a place alone, without user, query or fragment."""
GRANTS_MAX = 64
"""Roles of one agent, and teams."""
CREDENTIALS_MAX = 32
"""Audiences that one agent may ask credentials for."""
SCOPES_MAX = 64
"""Scopes of one audience."""
LOG_BYTES_MIN, LOG_BYTES_MAX = 4_096, 1_073_741_824
"""How much of an agent's output is stored."""
PORT_MIN, PORT_MAX = 1_024, 65_535
"""A port that an agent asks for."""
INPUT_BYTES_MAX = 262_144
"""The input of an operation, as JSON."""
RESULT_BYTES_MAX = 65_536
"""The result of a step, as JSON."""
DEPTH_MAX = 64
"""How deep plain data may be nested."""
IDENTIFIER_CHARACTERS_MAX = 255
"""A tenant's, principal's, agent's or signal's name."""
DETAIL_CHARACTERS_MAX = 500
"""The message of a provider in an intent or a cause; the rest is cut."""
SIGNALS_MAX = 100
"""Signals of one operation."""
LATE_SECONDS = 60.0
"""How long after its key was burned a call may still arrive at its provider."""
IDEMPOTENCY_KEY_CHARACTERS_MAX = 255
IDEMPOTENCY_SECONDS = 86_400.0
"""How long an idempotency key is remembered, at least."""
OWNERS_MAX = 64
"""The longest chain of owners that a request may make.

Two requests at the same moment do not see each other's edges and may exceed it together.  That is
harmless: the limit only bounds the time in which the graph is walked.
"""
NO_DEADLINE_SECONDS = 3.0e8
"""The deadline of a step that waits for a person or for another operation: practically none."""
FAILURES_MAX = 32
"""Failures in a row, in some ten minutes, after which a step without a deadline is STUCK."""
BATCH_CHANGES_MAX = 512
"""Changes that share one transaction."""
SUBSCRIPTIONS_MAX = 100
"""Subscriptions of one tenant."""
LETTERS_MAX = 10_000
"""Dead letters of one destination; at this number its delivery stops until some are removed."""
OUTBOX_MAX = 1_000_000
"""Events of all tenants in the outbox, delivered or not."""
OUTBOX_TENANT_MAX = 500_000
"""Events of one tenant in the outbox, delivered or not, unless the settings say otherwise."""
OUTBOX_SECONDS = 86_400.0
"""How long a delivered event stays in the outbox for readers who come back late."""
POSITION_MAX = 2**63 - 1
"""The greatest position that an event can have."""
STREAMS_MAX = 100
"""Event streams that one tenant may have open in one process."""
PAGE_MAX = 1_000
"""Rows in one page of a list."""
POLL_SECONDS_MIN = 0.001
"""The shortest time between two polls, whatever a plan requests."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The time limits of one step, in seconds from a journal entry.

    Attempts are counted only if a step has no deadline and no undo (`FAILURES_MAX`).
    """

    call_seconds: float = 30.0
    """The limit of one call; after it the outcome of the call is unknown."""
    deadline_seconds: float = 600.0
    """From the start of its stage, or from the last retry by an operator; after it a compensatable
    step is undone, any other is STUCK.
    """
    undo_seconds: float = 600.0
    """From the decision to compensate; after it an undo that still fails is STUCK."""
    retry_first_seconds: float = STEP.first_seconds
    retry_cap_seconds: float = STEP.cap_seconds
    """The delays between attempts: `tenure.core.retry.STEP` with these two numbers."""
    visible_seconds: float = 0.0
    """How long the provider may answer "absent" about a resource that it has just created."""

    def retry_seconds(self, attempts: int, fraction: float) -> float:
        """Return the delay before the next attempt; `fraction` is random, in [0, 1)."""
        first, cap = self.retry_first_seconds, self.retry_cap_seconds
        return RetryPolicy(first, cap, STEP.factor, STEP.jitter).delay_seconds(attempts, fraction)

    @property
    def deadline_text(self) -> str:
        """The deadline as a part of an error message."""
        if self.deadline_seconds >= NO_DEADLINE_SECONDS:
            return f"and failed {FAILURES_MAX} times in a row"
        return f"within {self.deadline_seconds:g} s"


DEFAULT_LIMITS = StepLimits()
