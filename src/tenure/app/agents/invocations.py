"""Invocations of agents: who may be invoked, where, and until when.

Every face that passes a request to an agent does so by `admit`, and by nothing else: the rule that
nothing reaches an agent after it was closed stands here, once.
"""

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import Self, cast

from tenure.app.agents import ownership, views
from tenure.app.plane import Plane
from tenure.core import agent as core
from tenure.core.agent import AgentState
from tenure.core.errors import Conflict, ConflictCode, NotReady
from tenure.core.roles import Caller
from tenure.ports.runtime import RuntimeProvider

RETRY_SECONDS = 1.0


class Invocation:
    """One invocation that was let in; it counts as under way until the `with` block is left."""

    __slots__ = ("_count", "address", "closed", "is_there")

    def __init__(
        self,
        plane: Plane,
        caller: Caller,
        uid: str,
        *,
        address: str,
        closed: asyncio.Event,
        count: ExitStack,
    ) -> None:
        """`count` is left when the invocation ends."""
        self.address = address
        """Where the agent's runtime listens: `host:port`."""
        self.closed = closed
        """Set when the agent was closed and the invocation must end now."""
        self.is_there = partial(is_at, plane, caller, uid, address)
        """To be asked of every new connection before anything is sent on it."""
        self._count = count

    def __enter__(self) -> Self:
        """It is counted already."""
        return self

    def __exit__(self, *_: object) -> None:
        """It is no longer under way."""
        self._count.close()


async def admit(plane: Plane, caller: Caller, name: str) -> Invocation:
    """Count one invocation and find its runtime; NotReady or Conflict if the agent is not open.

    It is counted before the agent's row is read again: an operation that closes the agent and then
    counts none under way knows that none will start.
    """
    uid, _ = await address_of(plane, caller, name)
    with ExitStack() as stack:
        closed = stack.enter_context(plane.in_flight.one(uid))
        _, address = await address_of(plane, caller, uid)
        count = stack.pop_all()
    return Invocation(plane, caller, uid, address=address, closed=closed, count=count)


async def address_of(plane: Plane, caller: Caller, name: str) -> tuple[str, str]:
    """The agent's uid and where its runtime answers; NotReady or Conflict if it serves nothing."""
    row = await views.get_agent_row(plane, caller, name)
    state = AgentState(str(row["state"]))
    if core.CONDUCT[state].serves and row["serving"]:
        await ownership.guards_of(plane, row)
        return str(row["uid"]), views.serving_of(row).address
    if state in {AgentState.CREATING, AgentState.RESUMING}:
        message = f"agent {name} is {state} and serves once it is READY"
        raise NotReady(message, retry_seconds=RETRY_SECONDS)
    message = f"agent {name} is {state} and serves nothing"
    if state in {AgentState.SUSPENDING, AgentState.SUSPENDED}:
        raise Conflict(message, code=ConflictCode.SUSPENDED, holder=str(row["uid"]))
    raise Conflict(message, code=ConflictCode.WRONG_STATE, holder=str(row["uid"]))


async def is_at(plane: Plane, caller: Caller, agent: str, address: str) -> bool:
    """Whether a runtime of the agent with this uid, and nobody else, listens there now."""
    runtime = cast(RuntimeProvider, plane.providers["runtime"])
    row = await views.get_agent_row(plane, caller, agent)
    for resource in (await views.holdings_of(plane, caller.tenant, agent)).get("runtime", []):
        if await runtime.listens_at(views.key_of(plane, row, "runtime", resource), address):
            return True
    return False
