"""The verbs on agents that a caller can request: create, suspend, stop, resume, delete, recover.

Each function reads the agent, checks the verb against the table of `tenure.core.agent`, and commits
one change with the operation that it starts.  The parts of a create are in
`tenure.app.agents.creation`; the other verbs are admitted in `tenure.app.agents.verbs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import UNSET

from tenure.app.agents import agent_rows, creation, ownership, verbs
from tenure.app.agents.spec import AgentSpec, spec_to_dict
from tenure.app.agents.subject import agent_event_row
from tenure.app.agents.views import etag, get_agent_row
from tenure.app.events import acknowledgements
from tenure.app.operations.admission import Admission, OperationRequest, submit
from tenure.app.operations.handle import encode
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.app.tenancy import audit, quotas
from tenure.core.agent import AgentState
from tenure.core.edge import EdgeKind
from tenure.core.errors import PreconditionFailed
from tenure.core.ids import uuid7
from tenure.core.records import AgentRecord
from tenure.core.roles import Caller, Role, require
from tenure.core.verb import VerbName
from tenure.plans.agents.delete import DeleteOptions
from tenure.plans.agents.inputs import AgentInput, VerbOptions, plain_fields
from tenure.plans.agents.lifecycle import VERBS
from tenure.plans.agents.stop import StopOptions
from tenure.plans.agents.suspend import SuspendOptions
from tenure.ports.store import Writes


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of a request that are the same for every verb.

    Args:
        idempotency_key: the same key and request answer with the same operation for a day.
        if_match: the agent's etag as the caller knows it; PreconditionFailed if it has changed.
        queue: if another operation has the agent's lock, wait for it; without this the request
            is refused.
    """

    idempotency_key: str = ""
    if_match: str = ""
    queue: bool = False


DEFAULT_OPTIONS = RequestOptions()


async def create_agent(
    plane: Plane,
    caller: Caller,
    spec: AgentSpec,
    *,
    request_options: RequestOptions = DEFAULT_OPTIONS,
) -> OperationView:
    """Create an agent; its name must be free, or belong to an agent whose create failed."""
    require(caller, Role.OPERATOR)
    spec_data = spec_to_dict(spec)
    runtime: Mapping[str, object] = {}
    request = _operation_request(
        VerbName.CREATE,
        caller,
        target="",
        body={"spec": spec_data},
        request_options=request_options,
    )

    async def admit(now: float, operation: str) -> Admission:
        nonlocal runtime  # resolved once, and not at all if the key has an operation already
        runtime = runtime or await creation.resolve_runtime(plane, spec_data)
        uid = uuid7(now, plane.entropy.bits())
        guards, writes = await creation.claim_name(plane, caller, spec.name, uid, now=now)
        guards += (await acknowledgements.require_acknowledgements(plane, caller.tenant)).guards
        parent = None if spec.parent is None else await get_agent_row(plane, caller, spec.parent)
        quota = await quotas.reserve(plane, caller.tenant, agent=uid, operation=operation, now=now)
        row = AgentRecord(
            uid,
            tenant=caller.tenant,
            generation=1,
            name=spec.name,
            state=AgentState.CREATING,
            operation=operation,
            next=None,
            epoch=1,
            parent=None if parent is None else parent.uid,
            spec=encode({"spec": spec_data, "runtime": runtime}),
            serving=None,
            created_at=now,
            updated_at=now,
        )
        if parent is not None:
            guards += await ownership.guards_of_new_owner(plane, parent)
            owned = await creation.parent_edge(plane, caller, parent.uid, uid, spec, now=now)
            writes += (owned,)
        granter = await ownership.requesting_agent(plane, caller)
        if granter is not None:
            guards += await ownership.guards_of_new_owner(plane, granter)
            edge = creation.resource_edge(
                plane, caller, EdgeKind.GRANT, granter.uid, uid, slot="access", now=now
            )
            writes += (edge,)
        if spec.credentials:
            edge = creation.resource_edge(
                plane, caller, EdgeKind.CREDENTIAL, uid, uid, slot="credentials", now=now
            )
            writes += (edge,)
        values = AgentInput(
            name=spec.name, spec=spec_data, runtime=runtime, principal=caller.principal
        )
        writes += (*quota.writes, *_new_agent(caller, row, spec.name, operation=operation, now=now))
        return Admission(uid, 1, guards + quota.guards, writes, plain_fields(values))

    return await submit(plane, request, admit)


def _new_agent(
    caller: Caller, row: AgentRecord, name: str, *, operation: str, now: float
) -> Writes:
    """The row of a new agent, its first event and its entry in the audit log."""
    uid, state, verb = row.uid, AgentState.CREATING, VERBS[VerbName.CREATE]
    return (
        agent_rows.put_agent(row),
        agent_event_row(caller.tenant, uid, operation, state, name=name, verb=verb.name, now=now),
        audit.audit_line(caller, verb.audit, target=uid, now=now, name=name, operation=operation),
    )


async def suspend_agent(
    plane: Plane,
    caller: Caller,
    name: str,
    *,
    keep_runtime: bool = False,
    drain_seconds: float | None = None,
    request_options: RequestOptions = DEFAULT_OPTIONS,
) -> OperationView:
    """Close the agent now, drain it, close its credentials, and remove its runtime."""
    options = SuspendOptions(keep_runtime=keep_runtime, drain_seconds=drain_seconds)
    return await _request(
        plane, caller, VerbName.SUSPEND, name, options, request_options=request_options
    )


async def stop_agent(
    plane: Plane, caller: Caller, name: str, *, request_options: RequestOptions = DEFAULT_OPTIONS
) -> OperationView:
    """Stop the agent in an emergency: close it, revoke its tokens, kill its runtime; no drain."""
    return await _request(
        plane, caller, VerbName.STOP, name, StopOptions(), request_options=request_options
    )


async def resume_agent(
    plane: Plane, caller: Caller, name: str, *, request_options: RequestOptions = DEFAULT_OPTIONS
) -> OperationView:
    """Bring a suspended agent back; callers can reach it once its runtime answers."""
    return await _request(
        plane, caller, VerbName.RESUME, name, VerbOptions(), request_options=request_options
    )


async def delete_agent(
    plane: Plane,
    caller: Caller,
    name: str,
    *,
    drain_seconds: float | None = None,
    retention: str | None = None,
    cascade_operation: str = "",
    request_options: RequestOptions = DEFAULT_OPTIONS,
) -> OperationView:
    """Close the agent now, delete the agents that only it owns, then remove its resources.

    `cascade_operation` is the operation that deletes an owner of this agent.  That operation walks
    the graph of owners for both.
    """
    options = DeleteOptions(
        drain_seconds=drain_seconds,
        retention=retention,
        cascade_operation=cascade_operation or UNSET,
    )
    return await _request(
        plane, caller, VerbName.DELETE, name, options, request_options=request_options
    )


async def recover_runtime(
    plane: Plane, caller: Caller, name: str, *, request_options: RequestOptions = DEFAULT_OPTIONS
) -> OperationView:
    """Give a READY agent a new runtime in place of one that died, and then remove the old one."""
    return await _request(
        plane, caller, VerbName.RECOVER, name, VerbOptions(), request_options=request_options
    )


# --- a verb on an agent that exists ---------------------------------------------------------------


async def _request(
    plane: Plane,
    caller: Caller,
    verb: VerbName,
    name: str,
    options: VerbOptions,
    *,
    request_options: RequestOptions,
) -> OperationView:
    require(caller, Role.OPERATOR)
    request = _operation_request(
        verb, caller, target=name, body=plain_fields(options), request_options=request_options
    )

    async def admit(now: float, operation: str) -> Admission:
        row = await get_agent_row(plane, caller, name)
        if request_options.if_match and request_options.if_match != etag(row):
            raise PreconditionFailed(
                f"the agent is {etag(row)} now, not {request_options.if_match}"
            )
        return await verbs.admit_verb(
            plane,
            caller,
            VERBS[verb],
            row,
            options,
            now=now,
            operation=operation,
            queue=request_options.queue,
        )

    return await submit(plane, request, admit)


def _operation_request(
    verb: VerbName,
    caller: Caller,
    *,
    target: str,
    body: Mapping[str, object],
    request_options: RequestOptions,
) -> OperationRequest:
    # A repeated key must come with the same choice.  The admission replaces this input.
    choice = {"queue": True} if request_options.queue else {}
    return OperationRequest(
        plan=verb,
        target=target,
        input={**body, **choice},
        tenant=caller.tenant,
        principal=caller.principal,
        idempotency_key=request_options.idempotency_key,
        route=verb,
    )
