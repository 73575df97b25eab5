"""The OpenAPI 3.1 document, generated from the route table."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tenure.faces.http.problems import MEDIA, PROBLEMS, Problem
from tenure.faces.http.route_table import NAMES, WAIT_SECONDS_MAX, Route

Json = dict[str, Any]
JSON_MEDIA, EVENTS_MEDIA = "application/json", "text/event-stream"
EVENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": JSON_MEDIA},
    },
    "required": ["event", "data"],
}
"""One event of a stream."""


def document(routes: Sequence[Route], *, version: str) -> Json:
    """The whole document."""
    forms = _forms(routes)
    schemas, parts = msgspec.json.schema_components(
        forms, ref_template="#/components/schemas/{name}"
    )
    parts = _plain(parts)
    refs = {id(form): _plain(schema) for form, schema in zip(forms, schemas, strict=True)}
    paths: Json = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refs, parts)
    for route in routes:
        if route.query is not None:
            parts.pop(route.query.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tenure", "version": version},
        "paths": paths,
        "components": {
            "schemas": parts,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _forms(routes: Iterable[Route]) -> list[Any]:
    forms: list[Any] = [Problem]
    for route in routes:
        for form in (route.answer, route.body, route.query, *route.other_answers.values()):
            if form is not None and not any(form is known for known in forms):
                forms.append(form)
    return forms


def _plain(schema: Any) -> Any:  # noqa: ANN401 (a tree of JSON)
    """The schema with patterns as JSON Schema has them: without our look-ahead at the end."""
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_plain(value) for value in schema]
    if isinstance(schema, str):
        return schema.removesuffix(r"(?!\n)")
    return schema


def _operation(route: Route, refs: dict[int, Json], parts: Json) -> Json:
    result: Json = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.path.split("/")[2] if route.path.startswith("/v1/") else "plane"],
        "parameters": _parameters(route, parts),
        "responses": _responses(route, refs),
        "security": [] if route.role is None else [{"token": []}],
    }
    if route.role is not None:
        result["description"] = f"Needs the role `{route.role}`."
    if route.raw_body:
        result["requestBody"] = {
            "required": False,
            "description": route.raw_body,
            "content": {"*/*": {"schema": {}}},
        }
    elif route.body is not None:
        content = {JSON_MEDIA: {"schema": refs[id(route.body)]}}
        result["requestBody"] = {"required": not route.empty_body, "content": content}
    return result


def _parameters(route: Route, parts: Json) -> list[Json]:
    result: list[Json] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": f"^{NAMES[name]}$"},
        }
        for name in route.parameters
    ]
    if route.query is not None:
        form = parts[route.query.__name__]
        required = form.get("required", [])
        result += [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in form["properties"].items()
        ]
    result += [_header(name, use) for name, use in request_headers(route)]
    return result


def request_headers(route: Route) -> list[tuple[str, str]]:
    """The request headers that a route understands, each with its purpose."""
    result: list[tuple[str, str]] = []
    if route.idempotent:
        use = "The same key and request have one effect and get the same answer for a day."
        result.append(("Idempotency-Key", use))
    if route.conditional:
        result.append(
            ("If-Match", "Change the agent only if this is still its ETag; otherwise 412.")
        )
    if route.waits:
        result.append(
            (
                "Prefer",
                f"`wait=N`: wait until the operation is settled, {WAIT_SECONDS_MAX} s at most.",
            )
        )
    return [*result, *route.headers]


SHAPES = {
    "Idempotency-Key": {"type": "string", "pattern": r"^[!-~]([ -~]{0,253}[!-~])?$"},
    "If-Match": {"type": "string", "pattern": r'^(\*|"[!#-~]{1,64}")$'},
    "Last-Event-ID": {"type": "string", "pattern": r"^[0-9]{1,18}(-[0-9a-f]{1,64})?$"},
}


def _header(name: str, use: str) -> Json:
    shape = SHAPES.get(name, {"type": "string"})
    return {"name": name, "in": "header", "required": False, "description": use, "schema": shape}


def _responses(route: Route, refs: dict[int, Json]) -> Json:
    result: Json = {}
    for status, form in {route.status: route.answer, **route.other_answers}.items():
        answer: Json = {"description": route.summary}
        if form is not None or route.media != JSON_MEDIA:
            media = route.media if status == route.status else JSON_MEDIA
            shown = {} if form is None else refs[id(form)]
            by_media = {JSON_MEDIA: shown, EVENTS_MEDIA: EVENT}
            answer["content"] = {media: {"schema": by_media.get(media, {"type": "string"})}}
            if route.streams:
                answer["content"][EVENTS_MEDIA] = {"schema": EVENT}
        if status == 202:  # noqa: PLR2004 (an operation was accepted)
            answer["headers"] = {
                "Location": {"description": "The operation.", "schema": {"type": "string"}}
            }
        result[str(status)] = answer
    by_status: dict[int, list[str]] = {}
    for code in route.codes():
        by_status.setdefault(PROBLEMS[code].status, []).append(code)
    for status, codes in sorted(by_status.items()):
        result[str(status)] = {
            "description": ", ".join(f"`{code}`" for code in codes),
            "content": {MEDIA: {"schema": refs[id(Problem)]}},
        }
        if status in {429, 503}:
            result[str(status)]["headers"] = {
                "Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}
            }
    if route.raw_body:
        result["default"] = {"description": "The response of the agent's runtime, unchanged."}
    return result
