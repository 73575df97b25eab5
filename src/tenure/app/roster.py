"""The plane's own word on its agents, as steps of plans ask for it (`tenure.ports.roster`)."""

from collections.abc import Mapping, Sequence
from typing import cast

from tenure.app import acknowledgements, cascade
from tenure.app.agent_views import holdings_of
from tenure.app.live import decode, encode
from tenure.app.plane import Plane
from tenure.core import agent as core
from tenure.core.agent import State
from tenure.core.errors import Defect
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
            if row["next"] != operation:
                raise Defect(f"operation {operation} does not wait for agent {agent}")
            await self._take(key, operation, State(was), after)
            row = await plane.store.find("agent", key)
        if row is None:
            raise Defect(f"operation {operation} works on agent {agent}, which is not there")
        mine = await plane.store.find("operation", (operation,))
        holds = await holdings_of(plane, str(row["tenant"]), agent)
        return Turn("", was if mine is None else str(_input(mine).get("was", was)), holds)

    async def _take(self, key: tuple[str], operation: str, was: State, after: str) -> None:
        """Take the free lock, and in the same commit keep how the agent stands now.

        So whoever ends this operation before its turn is recorded knows it too.
        """
        store = self._of().store
        mine = await store.find("operation", (operation,))
        if mine is None:
            raise Defect(f"there is no operation {operation}")
        stood = await self._stood(was, after)
        given = encode({**_input(mine), "was": stood, "after": ""})
        revision = cast(int, mine["revision"])
        guards = (
            Is("agent", key, {"operation": None, "next": operation}),
            Is("operation", (operation,), {"revision": revision}),
        )
        writes = (
            Set("agent", key, {"operation": operation, "next": None}),
            Set("operation", (operation,), {"input": given, "revision": revision + 1}),
        )
        await store.commit(Change("", guards, writes))

    async def _stood(self, was: State, after: str) -> State:
        """How the agent stood: as the operation before has left it, if there was one."""
        before = await self._of().store.find("operation", (after,)) if after else None
        if before is None:
            return was
        state = core.after_operation(
            str(before["kind"]),
            OperationState.RUNNING,
            OperationState(str(before["state"])),
            was=State(str(_input(before).get("was", State.READY))),
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
        below = await cascade.delete_below(self._of(), agent, operation)
        return Below(below.left, more=below.more)

    async def unacknowledged(self, operation: str) -> Sequence[Missing]:
        """As its rows say."""
        return await acknowledgements.missing_of(self._of(), operation)

    def in_flight(self, agent: str) -> int:
        """What this process passes through, and whether others do."""
        return self._of().in_flight.of(agent)

    def cut(self, agent: str) -> None:
        """Through this process, which is all there are."""
        self._of().in_flight.cut(agent)

    def _of(self) -> Plane:
        if self._plane is None:
            raise Defect("the roster was asked before its plane was there")
        return self._plane


def _input(row: Row) -> dict[str, object]:
    """What the steps of an operation are given."""
    return cast("dict[str, object]", decode(cast(str, row["input"])))
