"""Suspend an agent: it is closed already; drain it, shut its credentials, free its runtime.

Identity and access stay.  It can be cancelled until its credentials are being shut.
"""

from tenure.core.agent import AgentState, AgentTrigger, Verb
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, StepKind
from tenure.core.verb import LifecycleVerb
from tenure.plans.agents import steps as agent_steps

VERB = LifecycleVerb(
    Verb.SUSPEND,
    request=AgentTrigger.SUSPEND,
    during=AgentState.SUSPENDING,
    ends={
        OperationState.SUCCEEDED: AgentTrigger.DRAINED,
        OperationState.ABANDONED: AgentTrigger.DRAINED,
    },
    audit="agent.suspend",
    closes=True,
    waits_for="agent.suspending",
)
PLAN = Plan(
    VERB.name.value,
    subject="agent",
    stages=(
        agent_steps.turn(),
        agent_steps.drained(),
        agent_steps.closed(StepKind.PIVOT),
        agent_steps.removed(
            "runtime", "runtime", unless=lambda call: bool(call.input["keep_runtime"])
        ),
        agent_steps.acknowledged(),
    ),
)
