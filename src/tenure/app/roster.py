"""The plane's own word on its agents, as steps of plans ask for it (`tenure.ports.roster`)."""

from collections.abc import Sequence
from typing import cast

from tenure.app import agents
from tenure.app.agent_views import holdings_of
from tenure.app.agents import Asked
from tenure.app.live import decode
from tenure.app.plane import Plane
from tenure.core import agent as core
from tenure.core.agent import State
from tenure.core.errors import Conflict, Defect
from tenure.core.limits import PAGE_MAX
from tenure.core.operation import State as OperationState
from tenure.core.roles import Caller, Role
from tenure.ports.roster import Turn
from tenure.ports.store import Change, Is, Set


class PlaneRoster:
    """Keeps the promises of `tenure.ports.roster.Roster` on one plane, which it is given late."""

    def __init__(self) -> None:
        """Nothing can be asked before `serve`."""
        self._plane: Plane | None = None

    def serve(self, plane: Plane) -> None:
        """Speak for this plane, which has this roster among its providers."""
        self._plane = plane

    async def take_turn(self, agent: str, operation: str, *, was: str, after: str) -> Turn:
        """The agent's row is the lock: it is taken by a guarded change, once it is free."""
        plane, key = self._of(), (agent,)
        row = await plane.store.find("agent", key)
        while row is not None and row["operation"] != operation:
            if row["operation"] is not None:
                return Turn(holder=str(row["operation"]))
            guard = Is("agent", key, {"operation": None, "next": operation})
            mine = Set("agent", key, {"operation": operation, "next": None})
            await plane.store.commit(Change("", (guard,), (mine,)))
            row = await plane.store.find("agent", key)
        if row is None:
            raise Defect(f"operation {operation} works on agent {agent}, which is not there")
        holds = await holdings_of(plane, str(row["tenant"]), agent)
        return Turn("", await self._stood(State(was), after), holds)

    async def _stood(self, was: State, after: str) -> State:
        """How the agent stood: as the operation before has left it, if there was one."""
        before = await self._of().store.find("operation", (after,)) if after else None
        if before is None:
            return was
        given = cast("dict[str, object]", decode(cast(str, before["input"])))
        state = core.after_operation(
            str(before["kind"]),
            OperationState.RUNNING,
            OperationState(str(before["state"])),
            was=State(str(given.get("was", State.READY))),
        )
        return was if state is None else core.settled_as(state)

    async def delete_owned(self, agent: str, operation: str) -> Sequence[str]:
        """Ask for each child's delete under a key of its own."""
        plane = self._of()
        left: list[str] = []
        last = ""
        while page := await plane.store.list_rows(
            "agent", {"parent": agent}, after=(last,), limit=PAGE_MAX
        ):
            last = str(page[-1]["uid"])
            for row in page:
                state, uid = State(str(row["state"])), str(row["uid"])
                if state is State.DELETED:
                    continue
                left.append(str(row["name"]))
                if state is not State.DELETING:
                    await self._delete(str(row["tenant"]), uid, operation)
        return left

    async def _delete(self, tenant: str, child: str, operation: str) -> None:
        caller = Caller(tenant, f"operation {operation}", Role.OPERATOR)
        asked = Asked(idempotency_key=f"{operation}/{child}")
        try:
            await agents.delete_agent(self._of(), caller, child, asked=asked)
        except Conflict:
            return  # another operation closes it, or waits to; it is asked again at the next look

    def in_flight(self, agent: str) -> int:
        """What this process passes through."""
        return self._of().in_flight.of(agent)

    def _of(self) -> Plane:
        if self._plane is None:
            raise Defect("the roster was asked before its plane was there")
        return self._plane
