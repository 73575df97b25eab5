"""Invocations of agents: which agent may be invoked, where, and until when.

Every face passes requests to agents only through `admit` and `Invocation.run`.  These two enforce
the rule that no request reaches an agent after it was closed.
"""

import asyncio
import logging
from asyncio import FIRST_COMPLETED
from contextlib import ExitStack
from functools import partial
from typing import Self, cast

from tenure.app.agents import ownership, views
from tenure.app.plane import Plane
from tenure.concurrency import cancel_and_wait
from tenure.core import agent as core
from tenure.core.agent import AgentState
from tenure.core.errors import (
    Conflict,
    ConflictCode,
    NotReady,
    ProviderError,
    RuntimeBroken,
    Unavailable,
)
from tenure.core.roles import Caller
from tenure.ports.invoker import Exchange, Invoker, ListenerCheck
from tenure.ports.runtime import RuntimeProvider

log = logging.getLogger("tenure.invoke")
RETRY_SECONDS = 1.0
WHAT_FOLLOWS = (
    "if it has ended, the agent soon has a new one, unless drift is only reported:"
    " then suspend and resume it"
)


class Invocation:
    """One admitted invocation; it counts as in flight until the `with` block is left."""

    __slots__ = ("_agent", "_close_event", "_count", "_invoker", "_runtime_listens", "address")

    def __init__(
        self,
        invoker: Invoker | None,
        *,
        agent: str,
        address: str,
        runtime_listens: ListenerCheck,
        close_event: asyncio.Event,
        count: ExitStack,
    ) -> None:
        """`count` ends with the invocation; `close_event` is set when it must end at once."""
        self.address = address
        """Where the agent's runtime listens: `host:port`."""
        self._invoker = invoker
        self._agent = agent
        self._runtime_listens = runtime_listens
        self._close_event = close_event
        self._count = count

    def __enter__(self) -> Self:
        """The invocation was counted by `admit`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Count the invocation no longer."""
        self._count.close()

    async def run(self, exchange: Exchange) -> None:
        """Pass the exchange to the runtime; return when it is over or the caller has gone.

        If no response was started, an error says why: RuntimeBroken, Unavailable, or Conflict if
        the agent was closed meanwhile.  A response that broke off is left without its end.
        """
        if self._invoker is None:
            raise Unavailable("this process does not pass invocations on")
        calling = asyncio.create_task(
            self._invoker.invoke(self.address, exchange, runtime_listens=self._runtime_listens),
            name="invocation call",
        )
        watching = asyncio.create_task(exchange.watch_caller(), name="invocation caller")
        closing = asyncio.create_task(self._close_event.wait(), name="invocation abort")
        tasks = (calling, watching, closing)
        try:
            await asyncio.wait(tasks, return_when=FIRST_COMPLETED)  # sorted: results unread
            if calling.done():
                calling.result()
                return
        except ProviderError as error:
            log.warning("agent %s: an invocation failed: %s", self._agent, error)
            if exchange.has_started:
                return
            if isinstance(error, RuntimeBroken):
                raise RuntimeBroken(f"{error}; {WHAT_FOLLOWS}") from error
            raise
        finally:
            await cancel_and_wait(*tasks)
        if self._close_event.is_set() and not exchange.has_started:
            message = "the agent was closed, and the time for invocations in flight to end is over"
            raise Conflict(message, code=ConflictCode.SUSPENDED, holder=self._agent)


async def admit(plane: Plane, caller: Caller, name: str) -> Invocation:
    """Count one invocation and find its runtime; NotReady or Conflict if the agent is not open.

    The invocation is counted before the agent's row is read again.  So an operation that closes the
    agent and then counts no invocation in flight knows that none will start.
    """
    uid, _ = await address_of(plane, caller, name)
    with ExitStack() as stack:
        close_event = stack.enter_context(plane.in_flight.count_one(uid))
        _, address = await address_of(plane, caller, uid)
        count = stack.pop_all()
    return Invocation(
        plane.invoker,
        agent=uid,
        address=address,
        runtime_listens=partial(is_at, plane, caller, uid, address),
        close_event=close_event,
        count=count,
    )


async def address_of(plane: Plane, caller: Caller, name: str) -> tuple[str, str]:
    """The agent's uid and its runtime's address; NotReady or Conflict if the agent is not open."""
    row = await views.get_agent_row(plane, caller, name)
    state = AgentState(row.state)
    if core.PERMISSIONS[state].serves and row.serving:
        await ownership.require_open_owner(plane, row)
        return row.uid, views.serving_of(row).address
    if state in {AgentState.CREATING, AgentState.RESUMING}:
        message = f"agent {name} is {state} and serves once it is READY"
        raise NotReady(message, retry_seconds=RETRY_SECONDS)
    message = f"agent {name} is {state} and serves nothing"
    if state in {AgentState.SUSPENDING, AgentState.SUSPENDED}:
        raise Conflict(message, code=ConflictCode.SUSPENDED, holder=row.uid)
    raise Conflict(message, code=ConflictCode.WRONG_STATE, holder=row.uid)


async def is_at(plane: Plane, caller: Caller, agent: str, address: str) -> bool:
    """Whether a runtime of the agent with this uid listens at this address now."""
    runtime = cast(RuntimeProvider, plane.providers["runtime"])
    row = await views.get_agent_row(plane, caller, agent)
    for resource in (await views.holdings_of(plane, caller.tenant, agent)).get("runtime", []):
        if await runtime.listens_at(views.key_of(plane, row, "runtime", resource), address):
            return True
    return False
