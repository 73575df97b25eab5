"""Routes of agents: create, list, show, suspend, stop, resume, delete, invoke."""

from collections.abc import Sequence
from functools import partial
from typing import cast

from msgspec import UNSET

from tenure.app.agents import cascade, creation, identities, invocations, owned_kinds, ownership
from tenure.app.agents import commands as agents
from tenure.app.agents import views as agent_views
from tenure.app.agents.commands import RequestOptions
from tenure.app.agents.spec import AgentSpec, check_spec
from tenure.core.roles import Role
from tenure.core.verb import VerbName
from tenure.faces.api.routes.operations import reply_accepted
from tenure.faces.api.schemas import agents as schemas
from tenure.faces.api.schemas.operations import Operation
from tenure.faces.http import invoke
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.route_table import HttpRequest, Repeat, Reply, Route, Stream

CASCADE_MAX = 10_000
"""The maximum of edges (owned or granted things) that a dry run of a delete shows."""


def options_of(request: HttpRequest) -> RequestOptions:
    """The options of a verb from the request; `If-Match: *` matches every existing agent."""
    etag = request.if_match
    if etag and etag != "*" and not (etag[0] == etag[-1] == '"' and len(etag) > 1):
        detail = 'If-Match must be one ETag, such as "1-READY"'
        raise ProblemError("invalid_header", detail, "If-Match")
    queue = getattr(request.query, "queue", False)
    return RequestOptions(
        request.idempotency_key, "" if etag == "*" else etag.strip('"'), queue=queue
    )


async def _preview(request: HttpRequest, verb: VerbName, *, warnings: Sequence[str] = ()) -> Reply:
    """The answer to a dry run: the plan of the verb; nothing is changed."""
    row = None
    if "agent" in request.names:
        row = await agent_views.get_agent_row(request.plane, request.caller, request.names["agent"])
    plan, steps = agent_views.preview_plan(request.plane, verb, row)
    below: list[cascade.CascadeEdge] = []
    if verb is VerbName.DELETE and row is not None:
        below = await cascade.tree(request.plane, row, limit=CASCADE_MAX)
    return Reply(
        schemas.PlanPreview(
            kind=verb,
            plan=plan.name,
            version=plan.version,
            steps=[schemas.StepPreview(**step._asdict()) for step in steps],
            cascade=[_show_edge(one) for one in below],
            warnings=list(warnings),
        ),
        200,
    )


def _show_edge(edge: cascade.CascadeEdge) -> schemas.CascadeBranch:
    fields = edge._asdict()
    effect = fields.pop("effect")
    return schemas.CascadeBranch(**fields, fate=effect)


async def create_agent(request: HttpRequest) -> Reply:
    """Create an agent."""
    spec = cast(AgentSpec, request.body)
    check_spec(spec)
    if cast(schemas.DryRunQuery, request.query).dry_run:
        return await _preview(
            request, VerbName.CREATE, warnings=await creation.missing_files(request.plane, spec)
        )
    operation = await agents.create_agent(
        request.plane, request.caller, spec, request_options=options_of(request)
    )
    return await reply_accepted(request, operation)


async def list_agents(request: HttpRequest) -> schemas.Agents:
    """A page of the tenant's agents."""
    query = cast(schemas.ListAgents, request.query)
    labels: dict[str, str] = {}
    for label in query.label:
        key, _, value = label.partition("=")
        if labels.setdefault(key, value) != value:
            return schemas.Agents(items=[], next=None)  # no agent has two values of one label
    found = await agent_views.list_agents(
        request.plane,
        request.caller,
        states=query.state,
        labels=labels,
        after=query.after,
        limit=query.limit,
    )
    items = [schemas.agent(view) for view in found]
    return schemas.Agents(items=items, next=items[-1].name if len(items) == query.limit else None)


async def get_agent(request: HttpRequest) -> Reply:
    """One agent."""
    view = await agent_views.get_agent(request.plane, request.caller, request.names["agent"])
    return Reply(schemas.agent(view), headers=((b"etag", f'"{view.etag}"'.encode()),))


async def list_resources(request: HttpRequest) -> schemas.AgentResources:
    """The resources that providers hold for an agent."""
    found = await agent_views.list_resources(request.plane, request.caller, request.names["agent"])
    return schemas.AgentResources(items=[schemas.Resource(**one._asdict()) for one in found])


async def get_logs(request: HttpRequest) -> schemas.LogText:
    """The output of an agent."""
    query, name = cast(schemas.Logs, request.query), request.names["agent"]
    if query.since is UNSET:
        text = await agent_views.logs(request.plane, request.caller, name, lines=query.lines)
        return schemas.LogText(text=text)
    part = await agent_views.follow_logs(request.plane, request.caller, name, since=query.since)
    return schemas.LogText(text=part.text, next_offset=part.next_offset)


async def suspend_agent(request: HttpRequest) -> Reply:
    """Suspend an agent: close it, drain it, free its runtime."""
    if cast(schemas.QueueQuery, request.query).dry_run:
        return await _preview(request, VerbName.SUSPEND)
    body = cast(schemas.Suspend, request.body)
    operation = await agents.suspend_agent(
        request.plane,
        request.caller,
        request.names["agent"],
        keep_runtime=body.keep_runtime,
        drain_seconds=body.drain_seconds,
        request_options=options_of(request),
    )
    return await reply_accepted(request, operation)


async def stop_agent(request: HttpRequest) -> Reply:
    """Stop an agent at once: revoke its credentials, fence it, kill its runtime."""
    if cast(schemas.QueueQuery, request.query).dry_run:
        return await _preview(request, VerbName.STOP)
    operation = await agents.stop_agent(
        request.plane, request.caller, request.names["agent"], request_options=options_of(request)
    )
    return await reply_accepted(request, operation)


async def resume_agent(request: HttpRequest) -> Reply:
    """Resume a suspended agent."""
    if cast(schemas.QueueQuery, request.query).dry_run:
        return await _preview(request, VerbName.RESUME)
    operation = await agents.resume_agent(
        request.plane, request.caller, request.names["agent"], request_options=options_of(request)
    )
    return await reply_accepted(request, operation)


async def delete_agent(request: HttpRequest) -> Reply:
    """Delete an agent: close it and remove all its resources."""
    query = cast(schemas.Delete, request.query)
    if query.dry_run:
        return await _preview(request, VerbName.DELETE)
    operation = await agents.delete_agent(
        request.plane,
        request.caller,
        request.names["agent"],
        drain_seconds=None if query.drain_seconds is UNSET else query.drain_seconds,
        retention=None if query.retention is UNSET else query.retention,
        request_options=options_of(request),
    )
    return await reply_accepted(request, operation)


async def list_edges(request: HttpRequest) -> schemas.Edges:
    """A page of the edges of an agent."""
    query = cast(schemas.ListEdges, request.query)
    row = await agent_views.get_agent_row(request.plane, request.caller, request.names["agent"])
    found = await ownership.list_edges(request.plane, row, after=query.after, limit=query.limit)
    items = [_edge(one) for one in found]
    last = f"{items[-1].kind} {items[-1].target}" if len(items) == query.limit else None
    return schemas.Edges(items=items, next=last)


async def add_edge(request: HttpRequest) -> schemas.Edge:
    """Make an agent the owner of a thing; it may have other owners too."""
    body = cast(schemas.AddEdge, request.body)
    edge = await owned_kinds.own(
        request.plane,
        request.caller,
        request.names["agent"],
        kind=body.kind,
        target=body.target,
        on_delete=body.on_delete,
        idempotency=request.answered_by(_edge),
    )
    return _edge(edge)


def _edge(view: ownership.EdgeView) -> schemas.Edge:
    return schemas.Edge(**view._asdict())


async def invite_agent(request: HttpRequest) -> schemas.AgentInvitation:
    """Issue a one-time right to register the agent's keys."""
    invitation = await identities.invite(
        request.plane, request.caller, request.names["agent"], idempotency=request.idempotency
    )
    return schemas.AgentInvitation(**invitation._asdict())


async def invoke_agent(request: HttpRequest) -> Stream:
    """Pass the request through to the agent's runtime, and stream its response."""
    invocation = await invocations.admit(request.plane, request.caller, request.names["agent"])

    return Stream(partial(invoke.serve, request, invocation))


ONE = "/v1/agents/{agent}"
VERB_PROBLEMS = ("wrong_state", "operation_in_progress", "conflict", "illegal_transition")
"""Problems of every lifecycle verb."""
QUEUE_PROBLEMS = (*VERB_PROBLEMS, "queue_full")
"""Problems of a verb that can wait for the agent's lock."""
CLOSE_PROBLEMS = (*QUEUE_PROBLEMS, "plan_unknown")
"""Problems of a verb that closes an agent: it cancels the operation that has the lock, and only a
newer release may know that operation's plan.
"""


ROUTES = (
    Route(
        "POST", "/v1/agents", create_agent, "Create an agent",
        role=Role.OPERATOR, answer=Operation, status=202, other_answers={200: schemas.PlanPreview},
        body=AgentSpec, query=schemas.DryRunQuery, repeat=Repeat.RESULT, waits=True,
        problems=(
            "invalid", "name_taken", "quota_exceeded", "not_found", "limit_exceeded",
            "awaits_acknowledgement", *VERB_PROBLEMS,
            "rejected", "unavailable", "outcome_unknown",
        ),
    ),
    Route(
        "GET", "/v1/agents", list_agents, "List agents by name",
        role=Role.VIEWER, answer=schemas.Agents, query=schemas.ListAgents,
    ),
    Route(
        "GET", ONE, get_agent, "Show an agent, with its ETag in the header",
        role=Role.VIEWER, answer=schemas.Agent,
    ),
    Route(
        "DELETE", ONE, delete_agent, "Delete an agent: close it and remove all its resources",
        role=Role.OPERATOR, answer=Operation, status=202, other_answers={200: schemas.PlanPreview},
        query=schemas.Delete, waits=True, conditional=True,
        repeat=Repeat.RESULT, problems=CLOSE_PROBLEMS,
    ),
    Route(
        "POST", f"{ONE}:suspend", suspend_agent, "Suspend an agent: close it and free its runtime",
        role=Role.OPERATOR, answer=Operation, status=202, other_answers={200: schemas.PlanPreview},
        body=schemas.Suspend, empty_body=True, query=schemas.QueueQuery, repeat=Repeat.RESULT,
        waits=True, conditional=True, problems=CLOSE_PROBLEMS,
    ),
    Route(
        "POST", f"{ONE}:resume", resume_agent, "Resume a suspended agent",
        role=Role.OPERATOR, answer=Operation, status=202, other_answers={200: schemas.PlanPreview},
        query=schemas.QueueQuery, waits=True, conditional=True,
        repeat=Repeat.RESULT, problems=QUEUE_PROBLEMS,
    ),
    Route(
        "POST", f"{ONE}:stop", stop_agent, "Emergency stop: revoke, fence, kill",
        role=Role.OPERATOR, answer=Operation, status=202, other_answers={200: schemas.PlanPreview},
        query=schemas.QueueQuery, waits=True, conditional=True,
        repeat=Repeat.RESULT, problems=CLOSE_PROBLEMS,
    ),
    Route(
        "GET", f"{ONE}/edges", list_edges, "List the things that an agent owns or has granted",
        role=Role.VIEWER, answer=schemas.Edges, query=schemas.ListEdges,
    ),
    Route(
        "POST", f"{ONE}/edges", add_edge,
        "Let an agent own one more thing, alone or with other owners",
        role=Role.OPERATOR, answer=schemas.Edge, body=schemas.AddEdge,
        problems=("wrong_state", "invalid", "limit_exceeded", "not_found"),
    ),
    Route(
        "POST", f"{ONE}:invite", invite_agent,
        "Issue a one-time token to register the agent's keys at /oauth/register",
        role=Role.OPERATOR, answer=schemas.AgentInvitation, shows_secret=True,
        problems=("wrong_state", "rejected", "unavailable", "outcome_unknown"),
    ),
    Route(
        "GET", f"{ONE}/resources", list_resources,
        "List the resources that providers hold for an agent",
        role=Role.VIEWER, answer=schemas.AgentResources,
    ),
    Route(
        "GET", f"{ONE}/logs", get_logs, "Show the output of an agent",
        role=Role.VIEWER, answer=schemas.LogText, query=schemas.Logs,
        problems=("rejected", "unavailable", "outcome_unknown"),
    ),
    Route(
        "POST", f"{ONE}/invocations", invoke_agent, "Pass a request to the agent's runtime",
        role=Role.OPERATOR, raw_body="The agent defines its format; at most 100 MiB.",
        no_key="The request is passed to the agent unread; its effect is the agent's own.",
        problems=(
            "suspended", "wrong_state", "not_ready", "runtime_broken", "unavailable",
            "body_too_large",
        ),
        headers=(("X-Amzn-Bedrock-AgentCore-Runtime-Session-Id", "The session to continue."),),
    ),
)  # fmt: skip
