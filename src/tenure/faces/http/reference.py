"""The reference pages of this face, read from its tables.

`make docs` writes them (`proofs.pages`); a test holds the pages to the tables.
"""

from collections.abc import Sequence

from tenure.faces.http.openapi import document, request_headers
from tenure.faces.http.problems import PROBLEMS
from tenure.faces.http.server import ROUTES
from tenure.faces.http.table import Route

GENERAL = {400, 401, 403, 413, 415, 500, 503}
"""Statuses that need no mention with each route: they follow from what it takes."""
HTTP = """\
# HTTP

This page is made from the route table; `/openapi.json` says the same to machines, with every
schema.

A request carries `Authorization: Bearer TOKEN`. The token says whose things are asked for and how
far its role reaches: `viewer` looks, `operator` changes, `approver` says yes to what was asked
for (nothing needs a yes yet), `admin` hands out tokens and reads the audit log.
Each role may do what those before it may.
What belongs to another tenant looks the same as what is not there.

A body is JSON in UTF-8 of at most 1 MiB, nested at most 64 deep. Unknown fields and query
parameters, equal keys, halves of surrogate pairs, NUL, NaN and integers over 64 bits are refused by
the name of the field. Instants are seconds since 1970.

- A mutation of an agent answers 202 with an operation and `Location`, and finishes in the
  background. `Prefer: wait=N` answers when it has ended or is stuck, or after N seconds (60 at
  most). `?dry_run=true` answers 200 with the plan and does nothing; `warnings` are what a create
  would be undone for, as far as its runtime can say.
- One operation works on an agent at a time: a second mutation gets 409 with the first, unless it
  closes the agent. `?queue=true` lets it wait for its turn instead, in the one place there is
  (`queue_full`). It changes nothing before, is judged by how the agent stands then, and ends
  COMPENSATED if that has no such verb. What closes an agent closes it at once, also with
  `queue=true`, and takes the place of what is queued, which ends COMPENSATED. A stop is never
  queued.
- `Idempotency-Key` (at most 255 printable characters) is taken by every route that changes
  something: the same key and request have one effect, and get the same answer for a day. Where the
  answer is an operation or a subscription, it is shown as it is by then; any other answer is stored
  with the key and sent again as it was, also if its subject has been deleted since. An answer that
  shows a secret is sealed while it is stored. Another path, query or body under the same key gets
  422. A key belongs to one principal and one route. A refusal is not stored: the repeated request
  is judged anew. Exempt are invocations, which are passed to the agent unread, and the OAuth
  routes, whose standards have no such key.
- `GET /v1/agents/{agent}` answers with an `ETag`; a mutation with `If-Match` gets 412 once the
  agent has changed.
- Lists answer `{"items": […], "next": "…"}`; `?after=NEXT` goes on from there, `"next": null` is
  the end.
- `GET /v1/operations/{operation}/events` is a stream of server-sent events: one for each record
  of the journal with its number as `id`, then `settled` with the operation. `Last-Event-ID` goes
  on from there. A comment every 5 seconds keeps it open.
- `POST /v1/agents/{agent}/invocations` is passed through to the agent's runtime, streaming both
  ways. The caller's token is never passed on; of the headers only those that describe the body,
  the session and the trace are, and `X-Amzn-Bedrock-AgentCore-Runtime-Custom-*`.
- `{agent}` is an agent's name or its uid.

Refusals are described in [problems.md](problems.md).

## Routes

| request | role | answer | what it does |
| ------- | ---- | ------ | ------------ |
"""

PROBLEMS_HEAD = """\
# Problems

Every refusal is `application/problem+json` (RFC 9457): `type`, `title`, `status`, `code`, and
where they are known `detail`, `field` (the part of the request that does not fit), `operation`
(the one that stands in the way, or whose fate is not known) and `retry_after` in seconds, which
is the header `Retry-After` too. The `code` is stable; `detail` is for people. 401 carries
`WWW-Authenticate`, 405 `Allow`.

| code | status | what it means | what to do |
| ---- | ------ | ------------- | ---------- |
"""


def http_page(routes: Sequence[Route] = ROUTES) -> str:
    """docs/reference/http.md."""
    rows = "".join(
        f"| `{route.method} {route.path}` | {route.role or 'anyone'} | {_answer(route)} "
        f"| {route.summary} |\n"
        for route in routes
    )
    return HTTP + rows + "\n## Each route\n" + "".join(map(_section, routes))


def problems_page() -> str:
    """docs/reference/problems.md."""
    rows = "".join(
        f"| `{code}` | {told.status} | {told.title} | {told.advice} |\n"
        for code, told in PROBLEMS.items()
    )
    return PROBLEMS_HEAD + rows


def _answer(route: Route) -> str:
    if route.raw_body:
        return "as the runtime answers"
    shown = f" {route.answer.__name__}" if route.answer is not None else ""
    return f"{route.status}{shown}"


def _section(route: Route) -> str:
    told = document([route], version="0")["paths"][route.path][route.method.lower()]
    lines = [f"\n### {route.method} {route.path}\n", f"{route.summary}.\n"]
    if route.body is not None:
        optional = ", which may be left out" if route.empty_body else ""
        lines.append(f"Body: {route.body.__name__}{optional}: {_fields(route.body)}.\n")
    if route.raw_body:
        lines.append(f"Body: {route.raw_body}\n")
    asked = [one for one in told["parameters"] if one["in"] == "query"]
    if asked:
        named = ", ".join(f"`{one['name']}`" for one in asked)
        lines.append(f"Query: {named}.\n")
    headers = request_headers(route)
    if headers:
        lines.append(f"Headers: {', '.join(f'`{name}`' for name, _ in headers)}.\n")
    own = [code for code in route.codes() if PROBLEMS[code].status not in GENERAL]
    if own:
        lines.append(f"Problems: {', '.join(f'`{code}`' for code in own)}.\n")
    return "\n".join(lines)


def _fields(form: type) -> str:
    return ", ".join(f"`{name}`" for name in getattr(form, "__struct_fields__", ()))
