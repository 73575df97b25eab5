"""One path of the route table as an ASGI application.

It reads the request, calls the handler and sends the response.  Every request ends with a value, a
problem or a stream.  After a commit whose outcome is unknown the response is 503 with the id of the
operation, and the server stops.
"""

import logging
from contextlib import ExitStack
from typing import Any

from tenure.app.safety.pause import Pause
from tenure.core.errors import CommitUnknown, StoreError, TenureError
from tenure.core.ids import uuid7
from tenure.faces.http import problems, repeats
from tenure.faces.http.authenticate import CHALLENGE, authorise, caller_of
from tenure.faces.http.body import ClientDisconnected
from tenure.faces.http.problems import ProblemAnswer, ProblemError
from tenure.faces.http.route_table import (
    Headers,
    HttpRequest,
    Receive,
    Reply,
    Route,
    Scope,
    Send,
    Stream,
    encode,
    read_request,
    refuse_repeated_headers,
)
from tenure.faces.http.state import HttpState

log = logging.getLogger("tenure.api")
JSON = (b"content-type", b"application/json")
PROBLEM = (b"content-type", problems.MEDIA.encode())
SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
"""Headers of every response: it is not cached, and its media type is not guessed."""


class PathEndpoint:
    """All methods of one path."""

    def __init__(self, http_state: HttpState, path: str, routes: dict[str, Route]) -> None:
        self._http_state = http_state
        self._path = path
        self._routes = routes
        methods = {*routes, "OPTIONS", *(["HEAD"] if "GET" in routes else [])}
        self._allow = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method = scope["method"]
        route = self._routes.get("GET" if method == "HEAD" else method)
        if route is None:
            status = await self._other_method(method, send)
        else:
            status = await self._answer(route, scope, receive, send)
        self._http_state.requests[method if route else "OTHER", self._path, status] += 1

    async def _other_method(self, method: str, send: Send) -> int:
        if method == "OPTIONS":
            await _send(send, 204, ((b"allow", self._allow.encode()),), b"")
            return 204
        refusal = ProblemError("method_not_allowed", f"allowed: {self._allow}", allow=self._allow)
        return await send_problem(
            send, problems.of_problem_error(refusal), without_body=method == "HEAD"
        )

    async def _answer(self, route: Route, scope: Scope, receive: Receive, send: Send) -> int:
        with ExitStack() as until_sent:
            return await self._answer_within(route, scope, receive, send, until_sent)

    async def _answer_within(
        self, route: Route, scope: Scope, receive: Receive, send: Send, until_sent: ExitStack
    ) -> int:
        """Send the response; `until_sent` is closed after the last byte of it was sent."""
        http_state, without_body = self._http_state, scope["method"] == "HEAD"
        request = HttpRequest(http_state, scope, receive)
        try:
            refuse_repeated_headers(scope, request.headers)
            if route.role is not None:
                request.caller = await caller_of(
                    request.headers, authenticate=http_state.authenticate
                )
                until_sent.enter_context(http_state.rate_limiter.admit(request.tenant))
                authorise(request.caller, route.role)
            if http_state.plane.pause.why and route.stops_while_paused:
                raise ProblemError("held", _pause_reason(http_state.plane.pause))
            await read_request(route, request, scope["path_params"])
            value = await repeats.call(route, request)
        except ProblemError as refusal:
            return await send_problem(
                send, problems.of_problem_error(refusal), without_body=without_body
            )
        except ClientDisconnected:
            return 499
        except TenureError as error:
            if isinstance(error, StoreError):
                log.warning("%s %s: %s", route.method, route.path, error)
            answer = problems.of_error(error) or self._unforeseen(route, error)
            return await send_problem(send, answer, without_body=without_body)
        except CommitUnknown as error:
            log.critical("%s %s: %s", route.method, route.path, error)
            http_state.stop_after_unknown_commit(error)
            return await send_problem(
                send, problems.of_lost_commit(error), without_body=without_body
            )
        except Exception as error:  # noqa: BLE001 (the caller gets a response in any case)
            return await send_problem(
                send, self._unforeseen(route, error), without_body=without_body
            )
        if isinstance(value, Stream):
            return await value.write(send)
        return await self._send_value(route, value, send, without_body=without_body)

    def _unforeseen(self, route: Route, error: Exception) -> ProblemAnswer:
        """A bug of ours: the caller gets an id, the log gets the id and the traceback."""
        plane = self._http_state.plane
        error_id = uuid7(plane.store.now(), plane.entropy.bits())
        log.error("%s %s failed; error id %s", route.method, route.path, error_id, exc_info=error)
        return problems.problem("internal", f"look for {error_id} in the log")

    async def _send_value(self, route: Route, value: Any, send: Send, *, without_body: bool) -> int:  # noqa: ANN401 (the Struct that the route declares)
        status = route.status
        headers: Headers = ()
        if isinstance(value, Reply):
            status, headers, value = value.status or status, value.headers, value.value
        if isinstance(value, bytes):
            body, kind = value, (b"content-type", route.media.encode())
        else:
            body, kind = (b"", JSON) if value is None else (encode(value), JSON)
        length = (b"content-length", b"%d" % len(body))
        await _send(send, status, (kind, length, *headers), b"" if without_body else body)
        return status


def _pause_reason(pause: Pause) -> str:
    """Why mutations are refused, and which commands end the pause."""
    if pause.must_restart:
        return f"{pause.why}; this process accepts no changes"
    return (
        f"{pause.why}; no changes are accepted until the restore is confirmed:"
        " tenure restore --review, then tenure restore --confirm"
    )


async def send_problem(send: Send, answer: ProblemAnswer, *, without_body: bool = False) -> int:
    """Send a problem as the response; return its status."""
    status = answer.problem.status
    body = encode(answer.problem)
    headers: Headers = (PROBLEM, (b"content-length", b"%d" % len(body)), *answer.headers)
    if status == 401:  # noqa: PLR2004 (the only status that requires a challenge)
        headers += (CHALLENGE,)
    if status in {408, 413}:  # the rest of the body is not read
        headers += ((b"connection", b"close"),)
    await _send(send, status, headers, b"" if without_body else body)
    return status


async def _send(send: Send, status: int, headers: Headers, body: bytes) -> None:
    await send(
        {"type": "http.response.start", "status": status, "headers": [*headers, *SECURITY_HEADERS]}
    )
    await send({"type": "http.response.body", "body": body})
