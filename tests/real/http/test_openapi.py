"""The OpenAPI document against the face that serves it: whatever fits is taken, the rest refused.

Schemathesis makes the requests and judges the answers; between them stands no network, only ASGI.
TENURE_CASES says how many requests there are in all.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import unquote, urlsplit

import hypothesis
import pytest
import requests
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from tenure.faces.http import openapi, server
from tests.unit.support.api_client import ADMIN, FaceClient, face

CASES = int(os.environ.get("TENURE_CASES", "5000"))
STREAMS = "/v1/operations/{operation}/events"
WAITS = "/v1/operations/{operation}/wait"
ROUTES = [route for route in server.ROUTES if not route.raw_body]
CALLS = [
    (route, mode)
    for route in ROUTES
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or route.parameters or route.query or route.body
]
EACH = -(-CASES * 5 // (4 * len(CALLS)))  # some routes have few requests


def schema() -> Any:
    """The document; who may ask is tested elsewhere, so here everybody may."""
    told = openapi.document(server.ROUTES, version="0")
    for methods in told["paths"].values():
        for operation in methods.values():
            operation["security"] = []
    read = schemathesis.openapi.from_dict(told)
    read.config.generation.update(allow_x00=False)  # NUL is refused wherever text is read
    return read


SCHEMA = schema()
ACCEPTANCE = checks.positive_data_acceptance
HELD_TO = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    ACCEPTANCE,
]
BY_MEANING = {
    "idempotency_mismatch",
    "invalid",
    "limit_exceeded",
    "number_out_of_range",
    "precondition_failed",
}
"""What is refused though it fits its schema: two fields that exclude each other, and the like."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + CASES // 10)]


class Host:
    """A face that lives while its loop is run from outside."""

    def __init__(
        self, runner: asyncio.Runner, one: FaceClient, known_ids: dict[str, list[str]]
    ) -> None:
        self.runner = runner
        self.face = one
        self.known = known_ids

    def ask(self, prepared_request: requests.PreparedRequest) -> Response:
        """Send it, and the answer as the judge wants it."""
        where = urlsplit(prepared_request.url or "")
        body = prepared_request.body or b""
        sent = body if isinstance(body, bytes) else str(body).encode()
        told = self.runner.run(
            self.face.ask(
                prepared_request.method or "",
                unquote(where.path),
                query=where.query,
                raw=sent,
                token="",
                headers={k: _text(v) for k, v in prepared_request.headers.items()},
            )
        )
        headers = {name: [value] for name, value in told.headers.items()}
        return Response(
            told.status, headers, told.body, prepared_request, elapsed=0.0, verify=False
        )


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


@pytest.fixture
def host(tmp_path) -> Iterator[Host]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start() -> tuple[FaceClient, dict[str, list[str]]]:
            one = await stack.enter_async_context(face(tmp_path))
            names = {plan: await one.accept(plan) for plan in ("make", "waits", "sticks")}
            await one.until(names["make"], "SUCCEEDED")
            await one.until(names["waits"], "WAITING")
            await one.until(names["sticks"], "STUCK")
            body = {"name": "known", "runtime": {"command": ["true"]}, "labels": {"a": "b"}}
            made = await one.ask("POST", "/v1/agents", body, headers={"prefer": "wait=60"})
            assert made.json["state"] == "SUCCEEDED"
            return one, {
                "operation": list(names.values()),
                "step": ["identity", "charge"],
                "agent": ["known", made.json["agent"]],
            }

        try:
            yield Host(runner, *runner.run(start()))
        finally:
            runner.run(stack.aclose())


@pytest.mark.parametrize(
    ("route", "mode"), CALLS, ids=[f"{route.name}-{mode}" for route, mode in CALLS]
)
def test_the_face_does_as_its_document_says(route, mode, host, tally):
    operation = SCHEMA[route.path][route.method]
    counts = {"cases": 0}

    @hypothesis.settings(
        max_examples=EACH,
        suppress_health_check=list(hypothesis.HealthCheck),
        database=None,
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(operation.as_strategy(mode), hypothesis.strategies.integers(0, 3))
    def judge(case, luck) -> None:
        counts["cases"] += 1
        if mode is GenerationMode.POSITIVE and luck:
            for name in route.parameters:
                if host.known.get(name):
                    among = host.known[name]
                    case.path_parameters[name] = among[luck % len(among)]
        if route.path == WAITS and mode is GenerationMode.POSITIVE:
            case.query["seconds"] = 0
        given = case.as_transport_kwargs(base_url="http://tenure.test")
        given.pop("cookies", None)
        prepared_request = requests.Request(**given).prepare()
        prepared_request.headers["Authorization"] = f"Bearer {ADMIN}"
        answer = host.ask(prepared_request)
        meant = answer.status_code in {400, 412, 422} and answer.json()["code"] in BY_MEANING
        held_to = [check for check in HELD_TO if not (meant and check is ACCEPTANCE)]
        case.validate_response(answer, checks=held_to)

    if route.path == STREAMS and mode is GenerationMode.POSITIVE:
        host.known["operation"] = host.known["operation"][:1]  # one that ends
    judge()
    tally.add("schemathesis_cases", counts["cases"])
