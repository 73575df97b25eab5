"""The reference pages of the HTTP API, generated from its tables.

`make docs` writes them (`proofs.pages`); a test compares the pages with the tables.
"""

from collections.abc import Sequence

from tenure.faces.http.openapi import document, request_headers
from tenure.faces.http.problems import PROBLEMS
from tenure.faces.http.route_table import Route
from tenure.faces.http.server import ROUTES

GENERAL = {400, 401, 403, 413, 415, 500, 503}
"""Statuses that are not listed with each route: they follow from its parameters."""
HTTP = """\
# HTTP

This page is generated from the route table; `/openapi.json` has the same for machines, with every
schema.

A request carries `Authorization: Bearer TOKEN`. The token determines the tenant and the role:
`viewer` reads, `operator` changes, `approver` approves requests (nothing needs an approval yet),
`admin` issues tokens and reads the audit log. Each role includes the ones before it.
An object of another tenant looks the same as one that does not exist.

A body is JSON in UTF-8 of at most 1 MiB, nested at most 64 deep. Unknown fields and query
parameters, duplicate keys, halves of surrogate pairs, NUL, NaN and integers over 64 bits are
refused, and the refusal names the field. Times are seconds since 1970.

- A mutation of an agent answers 202 with an operation and `Location`, and finishes in the
  background. With `Prefer: wait=N` the response comes when the operation has ended or is stuck, or
  after N seconds (60 at most). `?dry_run=true` answers 200 with the plan and does nothing;
  `warnings` lists reasons for which a create would be undone, as far as its runtime can tell.
- One operation works on an agent at a time: a second mutation gets 409 with the first, unless it
  closes the agent. With `?queue=true` it waits for the agent lock instead. Only one operation can
  wait (`queue_full`). It changes nothing until it has the lock; it is then checked against the
  agent's state, and ends COMPENSATED if that state does not allow it. An operation that closes an
  agent closes it at once, also with `queue=true`; it replaces the queued operation, which ends
  COMPENSATED. A stop is never queued.
- Every route that changes something takes `Idempotency-Key` (at most 255 printable characters):
  the same key and request have one effect, and get the same answer for a day. If the answer is an
  operation or a subscription, a repeated request gets its current state. Any other answer is stored
  with the key and sent again unchanged, even if the object has been deleted since. An answer that
  contains a secret is sealed while it is stored. Another path, query or body under the same key
  gets 422. A key belongs to one principal and one route. A refusal is not stored: a repeated
  request is processed again. Invocations, which are passed to the agent unread, and the OAuth
  routes, whose standards have no such key, do not take it.
- `GET /v1/agents/{agent}` answers with an `ETag`; a mutation with `If-Match` gets 412 if the
  agent has changed since.
- Lists answer `{"items": […], "next": "…"}`; `?after=NEXT` gets the next page, `"next": null`
  marks the last one.
- `GET /v1/operations/{operation}/events` is a stream of server-sent events: one for each record
  of the journal with its number as `id`, then `settled` with the operation. `Last-Event-ID` resumes
  the stream after that record. A comment every 5 seconds keeps the connection open.
- `POST /v1/agents/{agent}/invocations` is passed through to the agent's runtime, streaming in both
  directions. The caller's token is never passed on. Only those headers are passed on that describe
  the body, the session and the trace, and `X-Amzn-Bedrock-AgentCore-Runtime-Custom-*`.
- `{agent}` is an agent's name or its uid.

Refusals are described in [problems.md](problems.md).

## Routes

| request | role | response | what it does |
| ------- | ---- | ------ | ------------ |
"""

PROBLEMS_HEAD = """\
# Problems

Every refusal is `application/problem+json` (RFC 9457): `type`, `title`, `status`, `code`, and
where they are known `detail`, `field` (the invalid part of the request), `operation` (the one that
conflicts, or whose outcome is unknown) and `retry_after` in seconds, which is also the header
`Retry-After`. The `code` is stable; `detail` is for people. 401 has the header `WWW-Authenticate`,
405 has `Allow`.

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
        f"| `{code}` | {meaning.status} | {meaning.title} | {meaning.advice} |\n"
        for code, meaning in PROBLEMS.items()
    )
    return PROBLEMS_HEAD + rows


def _answer(route: Route) -> str:
    if route.raw_body:
        return "as the runtime answers"
    shown = f" {route.answer.__name__}" if route.answer is not None else ""
    return f"{route.status}{shown}"


def _section(route: Route) -> str:
    described = document([route], version="0")["paths"][route.path][route.method.lower()]
    lines = [f"\n### {route.method} {route.path}\n", f"{route.summary}.\n"]
    if route.body is not None:
        optional = ", which may be left out" if route.empty_body else ""
        lines.append(f"Body: {route.body.__name__}{optional}: {_fields(route.body)}.\n")
    if route.raw_body:
        lines.append(f"Body: {route.raw_body}\n")
    parameters = [one["name"] for one in described["parameters"] if one["in"] == "query"]
    if parameters:
        lines.append(f"Query: {', '.join(f'`{name}`' for name in parameters)}.\n")
    headers = request_headers(route)
    if headers:
        lines.append(f"Headers: {', '.join(f'`{name}`' for name, _ in headers)}.\n")
    own = [code for code in route.codes() if PROBLEMS[code].status not in GENERAL]
    if own:
        lines.append(f"Problems: {', '.join(f'`{code}`' for code in own)}.\n")
    return "\n".join(lines)


def _fields(form: type) -> str:
    return ", ".join(f"`{name}`" for name in getattr(form, "__struct_fields__", ()))
