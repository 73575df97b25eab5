"""Every plan of an agent's life."""

from tenure.plans import (
    create_agent,
    delete_agent,
    recover_runtime,
    resume_agent,
    stop_agent,
    suspend_agent,
)

PLANS = (
    create_agent.PLAN, suspend_agent.PLAN, stop_agent.PLAN, resume_agent.PLAN, delete_agent.PLAN,
    recover_runtime.PLAN,
)  # fmt: skip
