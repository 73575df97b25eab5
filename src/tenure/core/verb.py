"""A lifecycle verb (create, suspend, delete, …): its effect on the state of the agent.

Each verb has a plan and, in the same file, a declaration.  The plan lists the steps.  The
declaration says in which states the verb is accepted, in which state the agent is while the
operation is open, and in which state each end of the operation leaves the agent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tenure.core import operation
from tenure.core.agent import AGENT, RETURN_TRIGGERS, AgentState, AgentTrigger


class VerbName(StrEnum):
    """The name of a verb, which is the name of its plan."""

    CREATE = "create_agent"
    SUSPEND = "suspend_agent"
    STOP = "stop_agent"
    RESUME = "resume_agent"
    DELETE = "delete_agent"
    RECOVER = "recover_runtime"


@dataclass(frozen=True, slots=True)
class LifecycleVerb:
    """The declaration of one verb.

    Args:
        name: the name of its plan.
        during: the agent's state while the operation is open.
        triggers: the trigger for the agent when the operation reaches a state; other states have no
            effect.
        audit: the action in the audit log.
        accept_trigger: the trigger for the agent when the verb is accepted; None: the agent is new.
        closes: accepting it closes the agent at once, also while another operation has its lock.
            If it is cancelled, the agent returns to the state it had before.
        during_stuck: the agent's state while the operation is STUCK; None: the same as `during`.
        starts_runtime: its end makes the runtime of the operation the one that serves.
        keeps_runtime: whether an operation with this input leaves the runtime to an agent that it
            suspends; None: it never does.
        reserves: accepting it takes a place in the tenant's quota, which its failure gives back.
        releases: its success gives back the agent's name, its place in the quota and its edges.
        drops_owner_edges: whether an operation with these options drops the edges from the agent's
            owners when it succeeds; None: it never does.
        needs_open_owner: an agent that others own must have an open owner when it is accepted.
        is_announced: accepting it emits an event with the new state.
        can_queue: it may wait for the operation that has the agent's lock.
        waits_for: the operation ends only when the required subscribers have acknowledged this
            event; empty: it waits for none.
        options: the type of what a caller chooses; None: the verb has no options.
        input: the type in which its steps read their input; None: it adds nothing to the fields
            that every verb on an agent has.
    """

    name: VerbName
    during: AgentState
    triggers: Mapping[operation.OperationState, AgentTrigger]
    audit: str
    accept_trigger: AgentTrigger | None = None
    closes: bool = False
    during_stuck: AgentState | None = None
    starts_runtime: bool = False
    keeps_runtime: Callable[[Any], bool] | None = None
    reserves: bool = False
    releases: bool = False
    drops_owner_edges: Callable[[Any], bool] | None = None
    needs_open_owner: bool = False
    is_announced: bool = True
    can_queue: bool = True
    waits_for: str = ""
    options: type[Any] | None = None
    input: type[Any] | None = None

    def interrupts(self, state: AgentState) -> bool:
        """Whether it is accepted while another operation has the lock of an agent in this state.

        A second delete does not interrupt a stuck one: an operator retries or abandons that one.
        """
        return self.closes and state is not AgentState.DELETE_FAILED

    def agent_after(
        self,
        before: operation.OperationState,
        state: operation.OperationState,
        *,
        return_state: AgentState = AgentState.READY,
    ) -> AgentState | None:
        """The agent's state once the operation went from `before` to `state`; None: no change.

        `return_state` is the state to which the agent returns if a verb that closes is cancelled.
        """
        trigger = self.triggers.get(state)
        if state is operation.OperationState.COMPENSATED and self.closes:
            trigger = RETURN_TRIGGERS[return_state]
        if trigger is None:
            return None
        during = self.during
        if self.during_stuck is not None and before is operation.OperationState.STUCK:
            during = self.during_stuck
        if (during, trigger) in _NO_CHANGE:
            return None
        return AgentState(AGENT.after(during, trigger))


_NO_CHANGE: Final = {
    (AgentState.DELETING, AgentTrigger.DELETE_RETRIED),  # it was not stuck
    (AgentState.DELETE_FAILED, AgentTrigger.DELETE_STUCK),  # it was stuck already
}
