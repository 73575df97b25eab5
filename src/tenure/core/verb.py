"""A verb of the agent lifecycle: all that it means for an agent, declared beside its plan.

The plan says how the verb is carried out.  The declaration says when it may be requested, in which
state the agent is meanwhile, and what each end of the operation makes of the agent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tenure.core import operation
from tenure.core.agent import AGENT, RETURN_TRIGGERS, AgentState, AgentTrigger, Verb


@dataclass(frozen=True, slots=True)
class LifecycleVerb:
    """The declaration of one verb.

    Args:
        name: the name of its plan.
        during: the agent's state while the operation is open.
        ends: what each state of the operation does to the agent; a state that is not named has no
            effect on it.
        audit: the action in the audit log.
        request: what accepting the verb does to an agent that is there; None: it makes a new one.
        closes: accepting it closes the agent at once, also while another operation has its lock.
            If it is cancelled, the agent returns to the state it had before.
        during_stuck: the agent's state while the operation is STUCK, if that is another one.
        starts_runtime: at its end the agent is reached at the runtime that the operation made.
        needs_open_owner: an agent that others own must have an open owner when it is accepted.
        is_announced: an event tells that it was accepted.
        can_queue: it may wait for the operation that has the agent's lock.
        waits_for: the event whose required subscribers the operation waits for; empty: for none.
        options: the type of what a caller chooses; None: the verb has no options.
        input: the type in which its steps read their input; None: it adds nothing to the fields
            that every verb on an agent has.
    """

    name: Verb
    during: AgentState
    ends: Mapping[operation.OperationState, AgentTrigger]
    audit: str
    request: AgentTrigger | None = None
    closes: bool = False
    during_stuck: AgentState | None = None
    starts_runtime: bool = False
    needs_open_owner: bool = False
    is_announced: bool = True
    can_queue: bool = True
    waits_for: str = ""
    options: type[Any] | None = None
    input: type[Any] | None = None

    def interrupts(self, state: AgentState) -> bool:
        """Whether it is accepted while another operation has the lock of an agent in this state.

        A delete that is stuck is helped or abandoned, and not overtaken by another one.
        """
        return self.closes and state is not AgentState.DELETE_FAILED

    def agent_after(
        self,
        before: operation.OperationState,
        state: operation.OperationState,
        *,
        was: AgentState = AgentState.READY,
    ) -> AgentState | None:
        """The agent's state once the operation went from `before` to `state`; None: no change.

        `was` is the agent's state before a closing operation, to which it returns if that operation
        is cancelled.
        """
        trigger = self.ends.get(state)
        if state is operation.OperationState.COMPENSATED and self.closes:
            trigger = RETURN_TRIGGERS[was]
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
