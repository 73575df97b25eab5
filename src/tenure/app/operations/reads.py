"""Reads of operations: one, a page of them, its new journal entries, and waiting for an end."""

from collections.abc import Sequence
from typing import cast

from tenure.app.operations import views as operation_views
from tenure.app.operations.handle import OperationHandle, entry_of, load_handle
from tenure.app.operations.plane import OperationsPlane
from tenure.app.operations.views import OperationView
from tenure.app.pages import every, page_of
from tenure.core.errors import Invalid, NotFound
from tenure.core.operation import ENDED_OR_STUCK, JournalEntry, OperationState
from tenure.core.records.operation import OperationRecord
from tenure.ports.store import LoadedOperation


async def get_operation(plane: OperationsPlane, tenant: str, operation: str) -> OperationView:
    """One operation with its steps; NotFound if this tenant has none of that id."""
    handle, row = await read_own(plane, tenant, operation, read_only=True)
    return operation_views.view_operation(handle, row)


async def entries_after(
    plane: OperationsPlane, operation: str, last: int, *, known_revision: object = None
) -> tuple[object, OperationState, list[JournalEntry]] | None:
    """The operation's revision and state now, and its journal entries after number `last`.

    None if the revision is still `known_revision`, or if there is no such operation.
    """
    row = await plane.store.find(OperationRecord, (operation,))
    if row is None or row.revision == known_revision:
        return None
    loaded = cast(LoadedOperation, await plane.store.load(operation))
    state = OperationState(loaded.operation.state)
    return row.revision, state, [entry_of(row) for row in loaded.journal[last:]]


async def list_operations(
    plane: OperationsPlane,
    tenant: str,
    *,
    agent: str = "",
    states: Sequence[str] = (),
    after: str = "",
    limit: int = 100,
) -> list[OperationRecord]:
    """Operations of a tenant, oldest first; `after` is the last id of the page before.

    `agent` is a uid; with it only operations of that agent are listed.
    """
    if isinstance(states, str) or not set(OperationState).issuperset(states):
        message = f"states are a tuple of {', '.join(OperationState)}; not {states!r}"
        raise Invalid(message)
    limit = page_of(limit)
    if not agent:
        rows = await plane.store.list_operations(tenant, states=states, after=after, limit=limit)
        return list(rows)
    found: list[OperationRecord] = []
    async for row in every(plane.store, OperationRecord, {"agent": agent}, after=(after,)):
        if row.tenant == tenant and (not states or row.state in states):
            found.append(row)
            if len(found) == limit:
                break
    return found


async def wait(
    plane: OperationsPlane, tenant: str, operation: str, *, seconds: float = 60.0
) -> OperationView:
    """Wait until the operation has ended or is STUCK, for at most so many seconds; return it."""
    until = plane.store.now() + seconds
    while True:
        seen = await get_operation(plane, tenant, operation)
        left = until - plane.store.now()
        if seen.state in ENDED_OR_STUCK or left <= 0:
            return seen
        await plane.engine.wait(operation, min(left, 1.0))


async def read_own(
    plane: OperationsPlane, tenant: str, operation: str, *, read_only: bool = False
) -> tuple[OperationHandle, OperationRecord]:
    """An operation of this tenant, and its row; NotFound if the tenant has none of that id."""
    handle = await load_handle(
        plane.store, plane.catalogue, plane.id, operation, read_only=read_only
    )
    row = None if handle is None else await plane.store.find(OperationRecord, (operation,))
    if handle is None or row is None or row.tenant != tenant:
        message = f"there is no operation {operation}"
        raise NotFound(message)
    return handle, row
