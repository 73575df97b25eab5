"""Writes docs/reference/flow.md: a diagram of plans, events, reactions and reconcilers.

The page is read from the code, and a test fails if the file differs.

usage: python -m proofs.flow > docs/reference/flow.md
"""

import itertools
import sys
from collections.abc import Iterator
from contextlib import suppress

from tenure.app.events.reactions import REACTIONS
from tenure.core import agent, operation
from tenure.core.agent import AGENT
from tenure.core.agent_events import AGENT_EVENTS, agent_event
from tenure.core.errors import IllegalTransition
from tenure.core.events import OperationEvent
from tenure.core.plan import Plan
from tenure.core.subscription import SubscriptionKind
from tenure.core.verb import LifecycleVerb
from tenure.delivery import outbox
from tenure.plans.agents.lifecycle import PLANS, VERBS, WAITED_FOR
from tenure.reconcilers import epoch
from tenure.reconcilers.driver import RECONCILERS

INTRODUCTION = """\
# The flow

A plan commits events with its records. The relay delivers them to subscribers and to the plane's
own reactions. Reconcilers keep their sentences true even if an event was lost. This page is
generated from the code by `python -m proofs.flow`; a test fails if it is stale.
"""
WAYS = {
    SubscriptionKind.WEBHOOK: "signed POST, at least once, in order for each agent",
    SubscriptionKind.NATS: "JetStream, at least once, in order for each agent",
    SubscriptionKind.PULL: "GET /v1/events: pages, or a stream",
}
"""How each kind of subscription receives events."""


def events_of(plan: str) -> list[str]:
    """The agent events that operations of this plan can publish, in the order of a life."""
    verb = VERBS[plan]
    states = set(_states_before(verb))
    for before, after in itertools.product(operation.OperationState, repeat=2):
        for was in (
            agent.AgentState.READY,
            agent.AgentState.SUSPENDED,
            agent.AgentState.CREATE_FAILED,
        ):
            then = _states_after(verb, before, after, was)
            states |= set() if then is None else {then}
    events = {agent_event(state) for state in states}
    return [event for event in AGENT_EVENTS.values() if event in events]


def _states_before(verb: LifecycleVerb) -> Iterator[agent.AgentState]:
    """The states in which an accepted verb puts its agent; empty if it changes no state."""
    if verb.accept_trigger is None:
        yield verb.during
    for start, trigger, end in AGENT.rows:
        if trigger == verb.accept_trigger and start != end:
            yield agent.AgentState(end)


def _states_after(
    verb: LifecycleVerb,
    before: operation.OperationState,
    after: operation.OperationState,
    was: agent.AgentState,
) -> agent.AgentState | None:
    """The state of the agent after this transition of the operation; None if it does not change.

    None also if an operation of this verb cannot make the transition.
    """
    if before is after or not operation.OPERATION.permits(before, after):
        return None
    with suppress(IllegalTransition):  # the verb is not accepted in that state
        return verb.agent_after(before, after, return_state=was)
    return None


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, _picture(), _plans(), _reactions(), _reconcilers()]
    return "\n".join(parts)


# --- the picture ----------------------------------------------------------------------------------


def _picture() -> str:
    lines = ["```mermaid", "flowchart LR", *_nodes(), *_arrows(), "```", ""]
    return "\n".join(lines)


def _nodes() -> Iterator[str]:
    yield '    subgraph plans ["plans: every step done, or all undone"]'
    for plan in PLANS:
        yield f'        {plan.name}["{plan.name}<br/>{_steps(plan)}"]'
    yield "    end"
    yield '    subgraph events ["events: each in the commit of its change"]'
    for event in AGENT_EVENTS.values():
        yield f'        {_node(event)}(["{event}"])'
    kinds = "<br/>".join(OperationEvent)
    yield f'        operation_events(["{kinds}"])'
    yield "    end"
    yield '    outbox[("outbox")]'
    yield f'    relay{{{{"relay<br/>{_sentence(outbox)}"}}}}'
    yield '    subgraph ways ["destinations"]'
    for kind in SubscriptionKind:
        yield f'        {_node(kind)}["{kind}<br/>{WAYS[kind]}"]'
    yield "    end"
    yield '    subgraph reactions ["reactions of the plane itself"]'
    for name in REACTIONS:
        yield f'        {_node(name)}["{name}"]'
    yield "    end"
    yield '    subgraph reconcilers ["reconcilers: compare states, never read events"]'
    for name, one in RECONCILERS.items():
        yield f'        keeps_{name}["{name}<br/>{one.SENTENCE}"]'
    yield "    end"


def _arrows() -> Iterator[str]:
    for plan in PLANS:
        for event in events_of(plan.name):
            yield f"    {plan.name} --> {_node(event)}"
    yield "    plans --> operation_events"
    yield "    events --> outbox --> relay"
    for kind in SubscriptionKind:
        yield f"    {'outbox' if kind is SubscriptionKind.PULL else 'relay'} --> {_node(kind)}"
    yield "    relay --> reactions"
    for name, reaction in REACTIONS.items():
        for event in reaction.types:
            yield f"    {_node(event)} -.-> {_node(name)}"
    for verb, awaited in WAITED_FOR.items():
        yield f"    {_node(awaited)} -. required subscribers acknowledge .-> {verb}"
    yield "    reconcilers -. repair differences .-> plans"


# --- the same as tables ---------------------------------------------------------------------------


def _plans() -> str:
    head = ["| plan | steps | events of its agent |", "| ---- | ----- | ------------------- |"]
    rows = [
        f"| `{plan.name}` | {_steps(plan)} | {_code_list(events_of(plan.name))} |" for plan in PLANS
    ]
    waits = ", ".join(f"`{verb}` (of `{event}`)" for verb, event in WAITED_FOR.items())
    tail = f"Required subscribers acknowledge before the end of {waits}."
    return "\n".join(["## Plans", "", *head, *rows, "", tail, ""])


def _reactions() -> str:
    head = ["| reaction | to | does |", "| -------- | -- | ---- |"]
    rows = [
        f"| `{name}` | {_code_list(one.types)} | {_sentence(one.react)} |"
        for name, one in REACTIONS.items()
    ]
    return "\n".join(["## Reactions", "", *head, *rows, ""])


def _reconcilers() -> str:
    head = [
        "| reconciler | the sentence that it keeps true |",
        "| ---------- | ------------------------------- |",
    ]
    sentences = {
        "outbox": _sentence(outbox),
        **{name: one.SENTENCE for name, one in RECONCILERS.items()},
        "epoch": epoch.SENTENCE,
    }
    rows = [f"| `{name}` | {sentence} |" for name, sentence in sentences.items()]
    return "\n".join(["## Reconcilers", "", *head, *rows, ""])


def _code_list(events: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{event}`" for event in events)


def _sentence(one: object) -> str:
    """The first line of its docstring."""
    return str(one.__doc__).splitlines()[0]


def _steps(plan: Plan) -> str:
    return " · ".join(plan.steps)


def _node(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


if __name__ == "__main__":
    sys.stdout.write(page())
