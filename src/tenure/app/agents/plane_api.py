"""Implements what steps of an agent's plan can call in the plane: lock, cascade, invocations."""

from collections.abc import Mapping, Sequence

from tenure.app.agents import agent_rows, cascade, verbs
from tenure.app.agents.subject import typed_input_of
from tenure.app.agents.views import holdings_of
from tenure.app.events import acknowledgements
from tenure.app.operations.handle import encode, stored_input_of
from tenure.app.plane import Plane
from tenure.core import agent as core
from tenure.core.agent import AgentState
from tenure.core.errors import Conflict, Defect
from tenure.core.operation import OperationState
from tenure.core.records import AgentRecord, OperationRecord, is_agent
from tenure.plans.agents.inputs import LockedInput, QueuedInput, VerbInput, plain_fields
from tenure.plans.agents.lifecycle import VERBS
from tenure.ports import lock_rows, operation_rows
from tenure.ports.plane_api import LockAnswer, MissingAcknowledgement, OwnedAgents, PlaneApi
from tenure.ports.store import Change, Is


class AgentPlaneApi(PlaneApi):
    """Implements `ports.plane_api.PlaneApi` for one plane, which `attach` sets."""

    def __init__(self) -> None:
        self._plane: Plane | None = None

    def attach(self, plane: Plane) -> None:
        """Act on this plane from now on."""
        self._plane = plane

    async def acquire_lock(
        self, agent: str, operation: str, *, return_state: AgentState, previous_operation: str
    ) -> LockAnswer:
        """The agent's row is the lock: a guarded change takes it, once it is free."""
        plane, key = self._require_plane(), (agent,)
        row = await plane.store.find(AgentRecord, key)
        while row is not None and row.operation != operation:
            if row.operation is not None:
                return LockAnswer(lock_holder=row.operation)
            mine = await plane.store.find(OperationRecord, (operation,))
            queued = mine is not None and typed_input_of(mine).queued
            if queued and row.next != operation:
                return LockAnswer(refusal="another operation has closed the agent")
            if mine is None or row.next != operation or not is_agent(row):
                raise Defect(f"operation {operation} does not wait for agent {agent}")
            try:
                change = (
                    await verbs.start_queued(plane, row, mine)
                    if queued
                    else await self._change_to_lock(row, mine, return_state, previous_operation)
                )
            except Conflict as refused:
                return LockAnswer(refusal=str(refused))
            await plane.store.commit(change)
            row = await plane.store.find(AgentRecord, key)
        if row is None:
            raise Defect(f"operation {operation} works on agent {agent}, which is not there")
        mine = await plane.store.find(OperationRecord, (operation,))
        holds = await holdings_of(plane, row.tenant, agent)
        values = None if mine is None else typed_input_of(mine)
        if isinstance(values, VerbInput):
            return_state = values.return_state
        return LockAnswer("", return_state, holds)

    async def _change_to_lock(
        self,
        row: AgentRecord,
        mine: OperationRecord,
        return_state: AgentState,
        previous_operation: str,
    ) -> Change:
        """The change that takes the free lock and stores the new return state.

        So it is known even if the operation ends before the result of its lock step is recorded.
        """
        locked = LockedInput(await self._new_return_state(return_state, previous_operation))
        text = encode({**stored_input_of(mine), **plain_fields(locked)})
        guards = (Is.of(row, "operation", "next"), Is.of(mine, "revision"))
        writes = (lock_rows.pass_lock(row.uid, mine.id), operation_rows.change_input(mine, text))
        return Change("", guards, writes)

    async def _new_return_state(
        self, return_state: AgentState, previous_operation: str
    ) -> AgentState:
        """The state that the end of the previous operation gave the agent.

        `return_state` if there was no previous operation, or if its end changed nothing.
        """
        before = (
            await self._require_plane().store.find(OperationRecord, (previous_operation,))
            if previous_operation
            else None
        )
        if before is None:
            return return_state
        verb = VERBS.get(before.plan_name)
        if verb is None:
            return return_state
        values = typed_input_of(before)
        state = verb.agent_after(
            OperationState.RUNNING,
            OperationState(before.state),
            return_state=values.return_state
            if isinstance(values, VerbInput | QueuedInput)
            else AgentState.READY,
        )
        return return_state if state is None else core.state_if_undone(state)

    async def serve_from(self, agent: str, operation: str, serving: Mapping[str, object]) -> None:
        """Write where the agent is reached, if the agent's row still names this operation."""
        guard = Is("agent", (agent,), {"operation": operation})
        write = agent_rows.set_serving(agent, encode(dict(serving)))
        if await self._require_plane().store.commit(Change("", (guard,), (write,))) is not None:
            raise Defect(f"operation {operation} no longer has the lock of agent {agent}")

    async def delete_owned(self, agent: str, operation: str) -> OwnedAgents:
        """End what the agent owns; walk the agents below it if a caller requested the operation."""
        return await cascade.delete_owned(self._require_plane(), agent, operation)

    async def list_missing_acknowledgements(
        self, operation: str
    ) -> Sequence[MissingAcknowledgement]:
        """Read from the store the acknowledgements that the operation still waits for."""
        return await acknowledgements.missing_of(self._require_plane(), operation)

    def in_flight(self, agent: str) -> int:
        """The invocations in flight in this process, plus one if another process has some."""
        return self._require_plane().in_flight.count_of(agent)

    def abort_invocations(self, agent: str) -> None:
        """Abort invocations in this process at once, and in others at their next poll."""
        self._require_plane().in_flight.abort(agent)

    def _require_plane(self) -> Plane:
        if self._plane is None:
            raise Defect("a step called the control plane before the plane was set")
        return self._plane
