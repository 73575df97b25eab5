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


class State(StrEnum):
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


class Trigger(StrEnum):
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
    start=State.CREATING,
    final={State.DELETED},
    rows=[
        (State.CREATING, Trigger.CREATED, State.READY),
        (State.CREATING, Trigger.CREATE_ABORTED, State.CREATE_FAILED),
        (State.CREATING, Trigger.DELETE, State.DELETING),  # its create is cancelled
        (State.CREATE_FAILED, Trigger.DELETE, State.DELETING),
        (State.CREATE_FAILED, Trigger.REPLACED, State.DELETED),  # its name was created anew
        (State.READY, Trigger.UPDATE, State.UPDATING),  # no verb leads here yet
        (State.READY, Trigger.SUSPEND, State.SUSPENDING),  # closed in this commit
        (State.READY, Trigger.STOP, State.SUSPENDING),
        (State.READY, Trigger.RECOVER, State.READY),  # its runtime died; it serves again soon
        (State.READY, Trigger.RECOVERED, State.READY),
        (State.READY, Trigger.MIGRATE, State.MIGRATING),  # no verb leads here yet
        (State.READY, Trigger.DELETE, State.DELETING),  # closed in this commit
        (State.UPDATING, Trigger.UPDATED, State.READY),
        (State.UPDATING, Trigger.UPDATE_ABORTED, State.UPDATE_FAILED),
        (State.UPDATING, Trigger.SUSPEND, State.SUSPENDING),
        (State.UPDATING, Trigger.STOP, State.SUSPENDING),
        (State.UPDATING, Trigger.DELETE, State.DELETING),
        (State.UPDATE_FAILED, Trigger.UPDATE, State.UPDATING),
        (State.UPDATE_FAILED, Trigger.SUSPEND, State.SUSPENDING),
        (State.UPDATE_FAILED, Trigger.STOP, State.SUSPENDING),
        (State.UPDATE_FAILED, Trigger.DELETE, State.DELETING),
        (State.SUSPENDING, Trigger.DRAINED, State.SUSPENDED),
        (State.SUSPENDING, Trigger.SPARED_READY, State.READY),  # cancelled before the pivot
        (State.SUSPENDING, Trigger.SPARED_SUSPENDED, State.SUSPENDED),
        (State.SUSPENDING, Trigger.STOP, State.SUSPENDING),  # nothing is waited for any longer
        (State.SUSPENDING, Trigger.DELETE, State.DELETING),
        (State.SUSPENDED, Trigger.RESUME, State.RESUMING),
        (State.SUSPENDED, Trigger.STOP, State.SUSPENDING),  # its runtime may have been kept
        (State.SUSPENDED, Trigger.DELETE, State.DELETING),
        (State.RESUMING, Trigger.RESUMED, State.READY),
        (State.RESUMING, Trigger.RESUME_ABORTED, State.SUSPENDED),
        (State.RESUMING, Trigger.SUSPEND, State.SUSPENDING),
        (State.RESUMING, Trigger.STOP, State.SUSPENDING),
        (State.RESUMING, Trigger.DELETE, State.DELETING),
        (State.MIGRATING, Trigger.MIGRATED, State.READY),
        (State.MIGRATING, Trigger.SUSPEND, State.SUSPENDING),
        (State.MIGRATING, Trigger.STOP, State.SUSPENDING),
        (State.MIGRATING, Trigger.DELETE, State.DELETING),
        (State.DELETING, Trigger.RESOURCES_GONE, State.DELETED),
        (State.DELETING, Trigger.DELETE_STUCK, State.DELETE_FAILED),
        (State.DELETING, Trigger.SPARED_READY, State.READY),
        (State.DELETING, Trigger.SPARED_SUSPENDED, State.SUSPENDED),
        (State.DELETING, Trigger.SPARED_FAILED, State.CREATE_FAILED),
        (State.DELETE_FAILED, Trigger.DELETE_RETRIED, State.DELETING),
        (State.DELETE_FAILED, Trigger.RESOURCES_GONE, State.DELETED),
        (State.DELETE_FAILED, Trigger.DELETE, State.DELETING),  # after an abandoned delete
        (State.DELETE_FAILED, Trigger.SPARED_READY, State.READY),  # stuck before its pivot
        (State.DELETE_FAILED, Trigger.SPARED_SUSPENDED, State.SUSPENDED),
        (State.DELETE_FAILED, Trigger.SPARED_FAILED, State.CREATE_FAILED),
    ],
)


UNREACHABLE: Final = frozenset({State.UPDATING, State.UPDATE_FAILED, State.MIGRATING})
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
    State.CREATING: _SHUT,
    State.CREATE_FAILED: _SHUT,
    State.READY: _OPEN,
    State.UPDATING: _OPEN,
    State.UPDATE_FAILED: _OPEN,
    State.SUSPENDING: _DRAINING,
    State.SUSPENDED: _SHUT,
    State.RESUMING: _SHUT,
    State.MIGRATING: _OPEN,
    State.DELETING: _DRAINING,
    State.DELETE_FAILED: _SHUT,
    State.DELETED: _SHUT,
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


def settled_as(state: State) -> State:
    """Where an agent in this state stands if what is under way for it comes to nothing."""
    return {
        State.CREATING: State.CREATE_FAILED,
        State.RESUMING: State.SUSPENDED,
        State.SUSPENDED: State.SUSPENDED,
        State.CREATE_FAILED: State.CREATE_FAILED,
        State.DELETE_FAILED: State.DELETE_FAILED,  # some of it is gone: it never serves again
    }.get(state, State.READY)
