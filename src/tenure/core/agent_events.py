"""The types of the events of an agent: each tells that the agent is in another state now."""

from typing import Final

from tenure.core.agent import STATES_WITHOUT_VERB, AgentState

AGENT_EVENTS: Final = {
    state: f"agent.{state.lower()}" for state in AgentState if state not in STATES_WITHOUT_VERB
}
"""The type of the event that an agent is in a state now, for each state that an agent can reach."""


def agent_event(state: AgentState) -> str:
    """The type of the event that an agent is in `state` now."""
    return AGENT_EVENTS[state]
