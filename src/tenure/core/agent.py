"""The states of an agent, and the table of transitions between them.

Every change of an agent's state is looked up in this table.  The state changes in these commits:
the one that accepts a verb (a suspend, stop or delete closes the agent there: no new invocation
starts), the one that starts a queued verb, and those after which a delete is stuck, goes on again,
or an operation has ended.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from tenure.core.limits import NAME_PATTERN
from tenure.core.states import StateMachine

NAME: Final = re.compile(NAME_PATTERN)


class AgentState(StrEnum):
    """The state of an agent."""

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
    """What changes the state of an agent: an accepted verb, or the end of an operation."""

    CREATED = "created"
    CREATE_ABORTED = "create_aborted"
    REPLACED = "replaced"
    UPDATE = "update"
    UPDATED = "updated"
    UPDATE_ABORTED = "update_aborted"
    SUSPEND = "suspend"
    STOP = "stop"
    SUSPEND_DONE = "suspend_done"
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
    CANCELLED_TO_READY = "cancelled_to_ready"
    CANCELLED_TO_SUSPENDED = "cancelled_to_suspended"
    CANCELLED_TO_FAILED = "cancelled_to_failed"


# fmt: off
S, T = AgentState, AgentTrigger
AGENT = StateMachine(
    "agent",
    start=S.CREATING,
    final={S.DELETED},
    rows=[
        # from            trigger             to
        (S.CREATING,      T.CREATED,          S.READY),
        (S.CREATING,      T.CREATE_ABORTED,   S.CREATE_FAILED),
        (S.CREATING,      T.DELETE,           S.DELETING),  # its create is cancelled
        (S.CREATE_FAILED, T.DELETE,           S.DELETING),
        (S.CREATE_FAILED, T.REPLACED,         S.DELETED),  # a new agent got its name
        (S.READY,         T.UPDATE,           S.UPDATING),  # no verb leads here yet
        (S.READY,         T.SUSPEND,          S.SUSPENDING),  # closed in this commit
        (S.READY,         T.STOP,             S.SUSPENDING),
        (S.READY,         T.RECOVER,          S.READY),  # its runtime died; a new one is started
        (S.READY,         T.RECOVERED,        S.READY),
        (S.READY,         T.MIGRATE,          S.MIGRATING),  # no verb leads here yet
        (S.READY,         T.DELETE,           S.DELETING),  # closed in this commit
        (S.UPDATING,      T.UPDATED,          S.READY),
        (S.UPDATING,      T.UPDATE_ABORTED,   S.UPDATE_FAILED),
        (S.UPDATING,      T.SUSPEND,          S.SUSPENDING),
        (S.UPDATING,      T.STOP,             S.SUSPENDING),
        (S.UPDATING,      T.DELETE,           S.DELETING),
        (S.UPDATE_FAILED, T.UPDATE,           S.UPDATING),
        (S.UPDATE_FAILED, T.SUSPEND,          S.SUSPENDING),
        (S.UPDATE_FAILED, T.STOP,             S.SUSPENDING),
        (S.UPDATE_FAILED, T.DELETE,           S.DELETING),
        (S.SUSPENDING,    T.SUSPEND_DONE,     S.SUSPENDED),
        (S.SUSPENDING,    T.CANCELLED_TO_READY,     S.READY),  # cancelled before the pivot
        (S.SUSPENDING,    T.CANCELLED_TO_SUSPENDED, S.SUSPENDED),
        (S.SUSPENDING,    T.STOP,             S.SUSPENDING),  # the stop waits for nothing
        (S.SUSPENDING,    T.DELETE,           S.DELETING),
        (S.SUSPENDED,     T.RESUME,           S.RESUMING),
        (S.SUSPENDED,     T.STOP,             S.SUSPENDING),  # its runtime may have been kept
        (S.SUSPENDED,     T.DELETE,           S.DELETING),
        (S.RESUMING,      T.RESUMED,          S.READY),
        (S.RESUMING,      T.RESUME_ABORTED,   S.SUSPENDED),
        (S.RESUMING,      T.SUSPEND,          S.SUSPENDING),
        (S.RESUMING,      T.STOP,             S.SUSPENDING),
        (S.RESUMING,      T.DELETE,           S.DELETING),
        (S.MIGRATING,     T.MIGRATED,         S.READY),
        (S.MIGRATING,     T.SUSPEND,          S.SUSPENDING),
        (S.MIGRATING,     T.STOP,             S.SUSPENDING),
        (S.MIGRATING,     T.DELETE,           S.DELETING),
        (S.DELETING,      T.RESOURCES_GONE,   S.DELETED),
        (S.DELETING,      T.DELETE_STUCK,     S.DELETE_FAILED),
        (S.DELETING,      T.CANCELLED_TO_READY,     S.READY),
        (S.DELETING,      T.CANCELLED_TO_SUSPENDED, S.SUSPENDED),
        (S.DELETING,      T.CANCELLED_TO_FAILED,    S.CREATE_FAILED),
        (S.DELETE_FAILED, T.DELETE_RETRIED,   S.DELETING),
        (S.DELETE_FAILED, T.RESOURCES_GONE,   S.DELETED),
        (S.DELETE_FAILED, T.DELETE,           S.DELETING),  # after an abandoned delete
        (S.DELETE_FAILED, T.CANCELLED_TO_READY,     S.READY),  # stuck before its pivot
        (S.DELETE_FAILED, T.CANCELLED_TO_SUSPENDED, S.SUSPENDED),
        (S.DELETE_FAILED, T.CANCELLED_TO_FAILED,    S.CREATE_FAILED),
    ],
)
del S, T
# fmt: on


STATES_WITHOUT_VERB: Final = frozenset(
    {AgentState.UPDATING, AgentState.UPDATE_FAILED, AgentState.MIGRATING}
)
"""States that no verb leads to yet: the table has their rows for verbs to come."""


class StatePermissions(NamedTuple):
    """What an agent may do in a state."""

    serves: bool
    """Whether invocations are passed to its runtime."""
    issues_tokens: str
    """Whether tokens are issued for it: "yes", "no", or "until the drain ends"."""


_OPEN = StatePermissions(serves=True, issues_tokens="yes")
_DRAINING = StatePermissions(serves=False, issues_tokens="until the drain ends")
_CLOSED = StatePermissions(serves=False, issues_tokens="no")
PERMISSIONS: Final = {
    AgentState.CREATING: _CLOSED,
    AgentState.CREATE_FAILED: _CLOSED,
    AgentState.READY: _OPEN,
    AgentState.UPDATING: _OPEN,
    AgentState.UPDATE_FAILED: _OPEN,
    AgentState.SUSPENDING: _DRAINING,
    AgentState.SUSPENDED: _CLOSED,
    AgentState.RESUMING: _CLOSED,
    AgentState.MIGRATING: _OPEN,
    AgentState.DELETING: _DRAINING,
    AgentState.DELETE_FAILED: _CLOSED,
    AgentState.DELETED: _CLOSED,
}
"""One row for each state; docs/reference/states.md shows it."""
MEANING: Final = {
    AgentState.CREATING: "was accepted and is being made",
    AgentState.CREATE_FAILED: "could not be made; whatever was made of it is undone",
    AgentState.READY: (
        "serves, after a create or a resume, or because its suspend or delete was cancelled"
    ),
    AgentState.UPDATING: "gets a new runtime beside the old one, which serves until then",
    AgentState.UPDATE_FAILED: "serves from its old runtime, as the new one did not become ready",
    AgentState.SUSPENDING: "is closed: nothing new starts",
    AgentState.SUSPENDED: (
        "has no work in flight and no credentials, and no runtime unless it was kept warm"
    ),
    AgentState.RESUMING: "is being brought back",
    AgentState.MIGRATING: "moves to a runtime of another kind",
    AgentState.DELETING: "is closed for good, unless its delete is cancelled in time",
    AgentState.DELETE_FAILED: "cannot be removed whole: its delete is stuck or was abandoned",
    AgentState.DELETED: "is gone with all that it held",
}
"""The meaning of each state's event; docs/reference/events.md shows it."""


def state_if_undone(state: AgentState) -> AgentState:
    """The state that an agent returns to if its running operation is undone or cancelled."""
    return {
        AgentState.CREATING: AgentState.CREATE_FAILED,
        AgentState.RESUMING: AgentState.SUSPENDED,
        AgentState.SUSPENDED: AgentState.SUSPENDED,
        AgentState.CREATE_FAILED: AgentState.CREATE_FAILED,
        AgentState.DELETE_FAILED: AgentState.DELETE_FAILED,  # it lacks resources
    }.get(state, AgentState.READY)


RETURN_TRIGGERS: Final = {
    AgentState.READY: AgentTrigger.CANCELLED_TO_READY,
    AgentState.SUSPENDED: AgentTrigger.CANCELLED_TO_SUSPENDED,
    AgentState.CREATE_FAILED: AgentTrigger.CANCELLED_TO_FAILED,
    AgentState.DELETE_FAILED: AgentTrigger.DELETE_STUCK,
}
"""The trigger of a cancelled close, by the state to which the agent returns."""
