"""An agent: its states, what each of them allows, and what the end of an operation makes of it.

Whatever changes an agent's state asks the table here.  It changes in three places only: in the
commit that accepts a verb, by which a suspend, stop or delete closes the agent (nothing new
starts), in the one that begins a queued verb, and in the one that records what became of its
operation.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from tenure.core import operation
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
        (State.READY, Trigger.UPDATE, State.UPDATING),
        (State.READY, Trigger.SUSPEND, State.SUSPENDING),  # closed in this commit
        (State.READY, Trigger.STOP, State.SUSPENDING),
        (State.READY, Trigger.RECOVER, State.READY),  # its runtime died; it serves again soon
        (State.READY, Trigger.RECOVERED, State.READY),
        (State.READY, Trigger.MIGRATE, State.MIGRATING),
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
    """The operations of the lifecycle, by the names of their plans."""

    CREATE = "create_agent"
    SUSPEND = "suspend_agent"
    STOP = "stop_agent"
    RESUME = "resume_agent"
    DELETE = "delete_agent"
    RECOVER = "recover_runtime"


ASKED: Final = {
    Verb.SUSPEND: Trigger.SUSPEND,
    Verb.STOP: Trigger.STOP,
    Verb.RESUME: Trigger.RESUME,
    Verb.DELETE: Trigger.DELETE,
    Verb.RECOVER: Trigger.RECOVER,
}
"""What accepting a verb does to an agent that is there."""
CLOSING: Final = frozenset({Verb.SUSPEND, Verb.STOP, Verb.DELETE})
"""Verbs that do not wait for another operation to end before they close the agent."""


def interrupts(verb: Verb, state: State) -> bool:
    """Whether the verb is accepted while another operation works on an agent in this state.

    A delete that is stuck is helped or abandoned, and not overtaken by another one.
    """
    return verb in CLOSING and state is not State.DELETE_FAILED


_SPARED: Final = {
    State.READY: Trigger.SPARED_READY,
    State.SUSPENDED: Trigger.SPARED_SUSPENDED,
    State.CREATE_FAILED: Trigger.SPARED_FAILED,
    State.DELETE_FAILED: Trigger.DELETE_STUCK,
}
_ENDS: Final = {
    (Verb.CREATE, operation.State.SUCCEEDED): Trigger.CREATED,
    (Verb.CREATE, operation.State.COMPENSATED): Trigger.CREATE_ABORTED,
    (Verb.CREATE, operation.State.ABANDONED): Trigger.CREATE_ABORTED,
    (Verb.SUSPEND, operation.State.SUCCEEDED): Trigger.DRAINED,
    (Verb.SUSPEND, operation.State.ABANDONED): Trigger.DRAINED,
    (Verb.STOP, operation.State.SUCCEEDED): Trigger.DRAINED,
    (Verb.STOP, operation.State.ABANDONED): Trigger.DRAINED,
    (Verb.RESUME, operation.State.SUCCEEDED): Trigger.RESUMED,
    (Verb.RESUME, operation.State.COMPENSATED): Trigger.RESUME_ABORTED,
    (Verb.RESUME, operation.State.ABANDONED): Trigger.RESUME_ABORTED,
    (Verb.RECOVER, operation.State.SUCCEEDED): Trigger.RECOVERED,
    (Verb.DELETE, operation.State.SUCCEEDED): Trigger.RESOURCES_GONE,
    (Verb.DELETE, operation.State.STUCK): Trigger.DELETE_STUCK,
    (Verb.DELETE, operation.State.ABANDONED): Trigger.DELETE_STUCK,
    (Verb.DELETE, operation.State.RUNNING): Trigger.DELETE_RETRIED,
}
_VERBS: Final = frozenset(Verb)
_DURING: Final = {
    Verb.CREATE: State.CREATING,
    Verb.SUSPEND: State.SUSPENDING,
    Verb.STOP: State.SUSPENDING,
    Verb.RESUME: State.RESUMING,
    Verb.DELETE: State.DELETING,
    Verb.RECOVER: State.READY,
}


def settled_as(state: State) -> State:
    """Where an agent in this state stands if what is under way for it comes to nothing."""
    return {
        State.CREATING: State.CREATE_FAILED,
        State.RESUMING: State.SUSPENDED,
        State.SUSPENDED: State.SUSPENDED,
        State.CREATE_FAILED: State.CREATE_FAILED,
        State.DELETE_FAILED: State.DELETE_FAILED,  # some of it is gone: it never serves again
    }.get(state, State.READY)


def after_operation(
    kind: str, before: operation.State, state: operation.State, *, was: State = State.READY
) -> State | None:
    """Where an agent is once an operation of this kind went from `before` to `state`.

    None: the operation has no say in it, or not yet.  `was` is where the agent stood before a
    closing operation, to which it returns if that is cancelled.
    """
    if kind not in _VERBS:
        return None
    verb = Verb(kind)
    during = _DURING[verb]
    if verb is Verb.DELETE and before is operation.State.STUCK:
        during = State.DELETE_FAILED
    trigger = _ENDS.get((verb, state))
    if state is operation.State.COMPENSATED and verb in CLOSING:
        trigger = _SPARED[was]
    if trigger is None or (during, trigger) in _NO_NEWS:
        return None
    return State(AGENT.after(during, trigger))


_NO_NEWS: Final = {
    (State.DELETING, Trigger.DELETE_RETRIED),  # it was not stuck
    (State.DELETE_FAILED, Trigger.DELETE_STUCK),  # it was stuck already
}
