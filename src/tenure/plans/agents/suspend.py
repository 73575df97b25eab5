"""Suspend an agent: drain it, close its credentials, remove its runtime.

The agent is closed when the verb is accepted.  Its identity and access stay.  A suspend can be
cancelled until the step that closes the credentials begins.
"""

from msgspec import UnsetType

from tenure.core.agent import AgentState, AgentTrigger
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, StepKind
from tenure.core.verb import LifecycleVerb, VerbName
from tenure.plans.agents import steps as agent_steps
from tenure.plans.agents.inputs import VerbInput, VerbOptions


class SuspendOptions(VerbOptions, frozen=True, kw_only=True):
    """The options of a suspend."""

    keep_runtime: bool = False
    drain_seconds: float | UnsetType | None = None


class SuspendInput(VerbInput, frozen=True, kw_only=True):
    """The input of a suspend."""

    keep_runtime: bool = False
    """The runtime stays, so that a resume is faster."""


def _keeps_runtime(values: SuspendInput) -> bool:
    return values.keep_runtime


VERB = LifecycleVerb(
    VerbName.SUSPEND,
    accept_trigger=AgentTrigger.SUSPEND,
    during=AgentState.SUSPENDING,
    triggers={
        OperationState.SUCCEEDED: AgentTrigger.SUSPEND_DONE,
        OperationState.ABANDONED: AgentTrigger.SUSPEND_DONE,
    },
    audit="agent.suspend",
    options=SuspendOptions,
    input=SuspendInput,
    closes=True,
    keeps_runtime=_keeps_runtime,
    waits_for="agent.suspending",
)
PLAN = Plan(
    VERB.name.value,
    subject="agent",
    stages=(
        agent_steps.acquire_lock(),
        agent_steps.drain(),
        agent_steps.close(StepKind.PIVOT),
        agent_steps.remove_held(
            "runtime", "runtime", skip_if=lambda call: _keeps_runtime(call.input)
        ),
        agent_steps.await_acknowledgements(),
    ),
)
