"""The plane's own word on its agents, as steps of plans ask for it (`tenure.ports.roster`)."""

from collections.abc import Mapping, Sequence
from typing import cast

from tenure.app import acknowledgements, cascade, verbs
from tenure.app.agent_views import holdings_of
from tenure.app.lifecycle import QUEUED
from tenure.app.live import encode, input_of
from tenure.app.plane import Plane
from tenure.core import agent as core
from tenure.core.agent import State
from tenure.core.errors import Conflict, Defect
from tenure.core.operation import State as OperationState
from tenure.ports.roster import Below, Missing, Turn
from tenure.ports.store import Change, Is, Row, Set


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
            mine = await plane.store.find("operation", (operation,))
            queued = mine is not None and input_of(mine).get(QUEUED)
            if queued and row["next"] != operation:
                return Turn(refused="another operation has closed the agent")
            if mine is None or row["next"] != operation:
                raise Defect(f"operation {operation} does not wait for agent {agent}")
            try:
                change = (
                    await verbs.begin_queued(plane, row, mine)
                    if queued
                    else await self._taken(key, mine, State(was), after)
                )
            except Conflict as refused:
                return Turn(refused=str(refused))
            await plane.store.commit(change)
            row = await plane.store.find("agent", key)
        if row is None:
            raise Defect(f"operation {operation} works on agent {agent}, which is not there")
        mine = await plane.store.find("operation", (operation,))
        holds = await holdings_of(plane, str(row["tenant"]), agent)
        return Turn("", was if mine is None else str(input_of(mine).get("was", was)), holds)

    async def _taken(self, key: tuple[str], mine: Row, was: State, after: str) -> Change:
        """Take the free lock, and in the same commit keep how the agent stands now.

        So whoever ends this operation before its turn is recorded knows it too.
        """
        stood = await self._stood(was, after)
        given = encode({**input_of(mine), "was": stood, "after": ""})
        operation, revision = str(mine["id"]), cast(int, mine["revision"])
        guards = (
            Is("agent", key, {"operation": None, "next": operation}),
            Is("operation", (operation,), {"revision": revision}),
        )
        writes = (
            Set("agent", key, {"operation": operation, "next": None}),
            Set("operation", (operation,), {"input": given, "revision": revision + 1}),
        )
        return Change("", guards, writes)

    async def _stood(self, was: State, after: str) -> State:
        """How the agent stood: as the operation before has left it, if there was one."""
        before = await self._of().store.find("operation", (after,)) if after else None
        if before is None:
            return was
        state = core.after_operation(
            str(before["kind"]),
            OperationState.RUNNING,
            OperationState(str(before["state"])),
            was=State(str(input_of(before).get("was", State.READY))),
        )
        return was if state is None else core.settled_as(state)

    async def serve_from(
        self, agent: str, operation: str, serving: Mapping[str, object]
    ) -> None:
        """Written at once: the agent's row still names this operation, or nothing changes."""
        guard = Is("agent", (agent,), {"operation": operation})
        write = Set("agent", (agent,), {"serving": encode(dict(serving))})
        if await self._of().store.commit(Change("", (guard,), (write,))) is not None:
            raise Defect(f"operation {operation} does not work on agent {agent} any more")

    async def delete_owned(self, agent: str, operation: str) -> Below:
        """Walk what it owns, if this operation is the one that a caller asked for."""
        return await cascade.delete_below(self._of(), agent, operation)

    async def unacknowledged(self, operation: str) -> Sequence[Missing]:
        """As its rows say."""
        return await acknowledgements.missing_of(self._of(), operation)

    def in_flight(self, agent: str) -> int:
        """What this process passes through, and whether others do."""
        return self._of().in_flight.of(agent)

    def cut(self, agent: str) -> None:
        """Through this process at once, through others as soon as they look."""
        self._of().in_flight.cut(agent)

    def _of(self) -> Plane:
        if self._plane is None:
            raise Defect("the roster was asked before its plane was there")
        return self._plane
