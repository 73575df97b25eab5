"""An agent: its states, what each of them allows, and what the end of an operation makes of it.

Whatever changes an agent's state asks the table here.  It changes in three places only: in the
commit that accepts a verb, by which a suspend, stop or delete closes the agent (nothing new
starts), in the one that begins a queued verb, and in the one that records what became of its
operation.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from tenure.core.limits import NAME_PATTERN
from tenure.core.states import Table

NAME: Final = re.compile(NAME_PATTERN)


class AgentState(StrEnum):
    """Where an agent is."""

    CREATING = "CREATING"
    CREATE_FAILED = "CREATE_FAILED"
    READY = "READY"
    UPDATING = "UPDATING"
    UPDATE_FAILED = "UPDATE_FAILED"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    RESUMING = "RESUMING"
    MIGRATING = "MIGRATING"
    DELETING = "DELETING"
    DELETE_FAILED = "DELETE_FAILED"
    DELETED = "DELETED"


class AgentTrigger(StrEnum):
    """What moves an agent from one state to another: a verb that was accepted, or an end."""

    CREATED = "created"
    CREATE_ABORTED = "create_aborted"
    REPLACED = "replaced"
    UPDATE = "update"
    UPDATED = "updated"
    UPDATE_ABORTED = "update_aborted"
    SUSPEND = "suspend"
    STOP = "stop"
    DRAINED = "drained"
    RESUME = "resume"
    RESUMED = "resumed"
    RESUME_ABORTED = "resume_aborted"
    RECOVER = "recover"
    RECOVERED = "recovered"
    MIGRATE = "migrate"
    MIGRATED = "migrated"
    DELETE = "delete"
    RESOURCES_GONE = "resources_gone"
    DELETE_STUCK = "delete_stuck"
    DELETE_RETRIED = "delete_retried"
    SPARED_READY = "spared_ready"
    SPARED_SUSPENDED = "spared_suspended"
    SPARED_FAILED = "spared_failed"


AGENT = Table(
    "agent",
    start=AgentState.CREATING,
    final={AgentState.DELETED},
    rows=[
        (AgentState.CREATING, AgentTrigger.CREATED, AgentState.READY),
        (AgentState.CREATING, AgentTrigger.CREATE_ABORTED, AgentState.CREATE_FAILED),
        (AgentState.CREATING, AgentTrigger.DELETE, AgentState.DELETING),  # its create is cancelled
        (AgentState.CREATE_FAILED, AgentTrigger.DELETE, AgentState.DELETING),
        (
            AgentState.CREATE_FAILED,
            AgentTrigger.REPLACED,
            AgentState.DELETED,
        ),  # its name was created anew
        (AgentState.READY, AgentTrigger.UPDATE, AgentState.UPDATING),  # no verb leads here yet
        (AgentState.READY, AgentTrigger.SUSPEND, AgentState.SUSPENDING),  # closed in this commit
        (AgentState.READY, AgentTrigger.STOP, AgentState.SUSPENDING),
        (
            AgentState.READY,
            AgentTrigger.RECOVER,
            AgentState.READY,
        ),  # its runtime died; it serves again soon
        (AgentState.READY, AgentTrigger.RECOVERED, AgentState.READY),
        (AgentState.READY, AgentTrigger.MIGRATE, AgentState.MIGRATING),  # no verb leads here yet
        (AgentState.READY, AgentTrigger.DELETE, AgentState.DELETING),  # closed in this commit
        (AgentState.UPDATING, AgentTrigger.UPDATED, AgentState.READY),
        (AgentState.UPDATING, AgentTrigger.UPDATE_ABORTED, AgentState.UPDATE_FAILED),
        (AgentState.UPDATING, AgentTrigger.SUSPEND, AgentState.SUSPENDING),
        (AgentState.UPDATING, AgentTrigger.STOP, AgentState.SUSPENDING),
        (AgentState.UPDATING, AgentTrigger.DELETE, AgentState.DELETING),
        (AgentState.UPDATE_FAILED, AgentTrigger.UPDATE, AgentState.UPDATING),
        (AgentState.UPDATE_FAILED, AgentTrigger.SUSPEND, AgentState.SUSPENDING),
        (AgentState.UPDATE_FAILED, AgentTrigger.STOP, AgentState.SUSPENDING),
        (AgentState.UPDATE_FAILED, AgentTrigger.DELETE, AgentState.DELETING),
        (AgentState.SUSPENDING, AgentTrigger.DRAINED, AgentState.SUSPENDED),
        (
            AgentState.SUSPENDING,
            AgentTrigger.SPARED_READY,
            AgentState.READY,
        ),  # cancelled before the pivot
        (AgentState.SUSPENDING, AgentTrigger.SPARED_SUSPENDED, AgentState.SUSPENDED),
        (
            AgentState.SUSPENDING,
            AgentTrigger.STOP,
            AgentState.SUSPENDING,
        ),  # nothing is waited for any longer
        (AgentState.SUSPENDING, AgentTrigger.DELETE, AgentState.DELETING),
        (AgentState.SUSPENDED, AgentTrigger.RESUME, AgentState.RESUMING),
        (
            AgentState.SUSPENDED,
            AgentTrigger.STOP,
            AgentState.SUSPENDING,
        ),  # its runtime may have been kept
        (AgentState.SUSPENDED, AgentTrigger.DELETE, AgentState.DELETING),
        (AgentState.RESUMING, AgentTrigger.RESUMED, AgentState.READY),
        (AgentState.RESUMING, AgentTrigger.RESUME_ABORTED, AgentState.SUSPENDED),
        (AgentState.RESUMING, AgentTrigger.SUSPEND, AgentState.SUSPENDING),
        (AgentState.RESUMING, AgentTrigger.STOP, AgentState.SUSPENDING),
        (AgentState.RESUMING, AgentTrigger.DELETE, AgentState.DELETING),
        (AgentState.MIGRATING, AgentTrigger.MIGRATED, AgentState.READY),
        (AgentState.MIGRATING, AgentTrigger.SUSPEND, AgentState.SUSPENDING),
        (AgentState.MIGRATING, AgentTrigger.STOP, AgentState.SUSPENDING),
        (AgentState.MIGRATING, AgentTrigger.DELETE, AgentState.DELETING),
        (AgentState.DELETING, AgentTrigger.RESOURCES_GONE, AgentState.DELETED),
        (AgentState.DELETING, AgentTrigger.DELETE_STUCK, AgentState.DELETE_FAILED),
        (AgentState.DELETING, AgentTrigger.SPARED_READY, AgentState.READY),
        (AgentState.DELETING, AgentTrigger.SPARED_SUSPENDED, AgentState.SUSPENDED),
        (AgentState.DELETING, AgentTrigger.SPARED_FAILED, AgentState.CREATE_FAILED),
        (AgentState.DELETE_FAILED, AgentTrigger.DELETE_RETRIED, AgentState.DELETING),
        (AgentState.DELETE_FAILED, AgentTrigger.RESOURCES_GONE, AgentState.DELETED),
        (
            AgentState.DELETE_FAILED,
            AgentTrigger.DELETE,
            AgentState.DELETING,
        ),  # after an abandoned delete
        (
            AgentState.DELETE_FAILED,
            AgentTrigger.SPARED_READY,
            AgentState.READY,
        ),  # stuck before its pivot
        (AgentState.DELETE_FAILED, AgentTrigger.SPARED_SUSPENDED, AgentState.SUSPENDED),
        (AgentState.DELETE_FAILED, AgentTrigger.SPARED_FAILED, AgentState.CREATE_FAILED),
    ],
)


UNREACHABLE: Final = frozenset(
    {AgentState.UPDATING, AgentState.UPDATE_FAILED, AgentState.MIGRATING}
)
"""States that no verb leads to yet: the table has their rows for verbs to come."""


class Conduct(NamedTuple):
    """What an agent in a state does."""

    serves: bool
    """Whether an invocation is passed on to it."""
    mints: str
    """Whether tokens are handed out: yes, no, or until the drain ends, for work in flight."""


_OPEN = Conduct(serves=True, mints="yes")
_DRAINING = Conduct(serves=False, mints="until the drain ends")
_SHUT = Conduct(serves=False, mints="no")
CONDUCT: Final = {
    AgentState.CREATING: _SHUT,
    AgentState.CREATE_FAILED: _SHUT,
    AgentState.READY: _OPEN,
    AgentState.UPDATING: _OPEN,
    AgentState.UPDATE_FAILED: _OPEN,
    AgentState.SUSPENDING: _DRAINING,
    AgentState.SUSPENDED: _SHUT,
    AgentState.RESUMING: _SHUT,
    AgentState.MIGRATING: _OPEN,
    AgentState.DELETING: _DRAINING,
    AgentState.DELETE_FAILED: _SHUT,
    AgentState.DELETED: _SHUT,
}
"""One row for each state; the page about states shows the same."""


class Verb(StrEnum):
    """The operations of the lifecycle, by the names of their plans.

    What each of them means for an agent is declared beside its plan: see `tenure.core.verb`.
    """

    CREATE = "create_agent"
    SUSPEND = "suspend_agent"
    STOP = "stop_agent"
    RESUME = "resume_agent"
    DELETE = "delete_agent"
    RECOVER = "recover_runtime"


def settled_as(state: AgentState) -> AgentState:
    """Where an agent in this state stands if what is under way for it comes to nothing."""
    return {
        AgentState.CREATING: AgentState.CREATE_FAILED,
        AgentState.RESUMING: AgentState.SUSPENDED,
        AgentState.SUSPENDED: AgentState.SUSPENDED,
        AgentState.CREATE_FAILED: AgentState.CREATE_FAILED,
        AgentState.DELETE_FAILED: AgentState.DELETE_FAILED,  # parts are gone: it never serves again
    }.get(state, AgentState.READY)
