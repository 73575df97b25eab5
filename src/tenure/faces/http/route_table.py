"""The route table: a route is declared once, and everything else is derived from it.

A `Route` determines the required role, the parsing and validation of the request, the response,
the OpenAPI document, the reference page and the fuzz generator.  A request passes these stages in
order: find the path, authenticate, authorise, check path parameters, query, headers and body, then
call the handler.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest, fingerprint
from tenure.app.plane import Plane
from tenure.core.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX, NAME_PATTERN
from tenure.core.roles import Caller, Role
from tenure.faces.http import body as bodies
from tenure.faces.http import query as queries
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.state import HttpState

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

WAIT_SECONDS_MAX = 60
ID = r"[0-9a-f]{32}"
NAMES: Final = {
    "agent": f"(?:{NAME_PATTERN}|{ID})",
    "operation": ID,
    "step": r"[a-z][a-z0-9_-]{0,62}",
    "token": ID,
    "finding": ID,
    "subscription": ID,
}
"""The pattern of each path parameter; a path with any other text is not found."""
NAME_MATCHERS: Final = {
    name: re.compile(f"(?:{pattern})\\Z").match for name, pattern in NAMES.items()
}
PREFERRED_WAIT = re.compile(r"(?:^|,)\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?:$|[,;])", re.IGNORECASE)
SINGLE_HEADERS = (
    b"authorization",
    b"idempotency-key",
    b"if-match",
    b"content-type",
    b"content-length",
)


class Repeat(Enum):
    """The response to a repeated request under the same idempotency key."""

    ANSWER = "answer"
    """The first answer, which is stored with the key: the same status and bytes."""
    RESULT = "result"
    """The current state of the object that the first request made; the key has its id."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method on one path."""

    method: str
    path: str
    """The path as the documentation shows it: `/v1/agents/{agent}:suspend`."""
    handler: "Handler"
    summary: str
    role: Role | None = None
    """The least role that may send it; None: no token is needed."""
    answer: Any = None
    """The Struct that is the body of a successful response; None: there is no body."""
    status: int = 200
    other_answers: dict[int, Any] = field(default_factory=dict)
    """Bodies of other successful responses by status, such as that of a dry run."""
    body: Any = None
    empty_body: bool = False
    """The body is optional; it is `{}` if it is missing."""
    raw_body: str = ""
    """The body is passed on unread; this text describes it in the OpenAPI document."""
    query: type[msgspec.Struct] | None = None
    problems: tuple[str, ...] = ()
    """Codes of problems that this route can answer with, besides those of every such route."""
    no_key: str = ""
    """Why a route that changes something takes no Idempotency-Key; empty: it takes one."""
    repeat: Repeat = Repeat.ANSWER
    shows_secret: bool = False
    """The response contains a secret: it is sealed while it is stored for a repeated request."""
    waits: bool = False
    """It takes `Prefer: wait=N`."""
    conditional: bool = False
    """It takes If-Match."""
    works_while_paused: bool = False
    """The route changes something and works even while the plane is paused after a restore."""
    media: str = "application/json"
    streams: bool = False
    """It answers with server-sent events if the request accepts them."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further request headers, each with its purpose."""

    @property
    def mutates(self) -> bool:
        """Whether it may change something."""
        return self.method not in {"GET", "HEAD"}

    @property
    def idempotent(self) -> bool:
        """Whether it takes an Idempotency-Key."""
        return self.mutates and not self.no_key

    @property
    def stops_while_paused(self) -> bool:
        """Whether it is refused while the plane is paused after a restore."""
        return self.mutates and not self.works_while_paused

    @property
    def name(self) -> str:
        """The handler's name: the operation id of the OpenAPI document."""
        return self.handler.__name__

    @property
    def parameters(self) -> list[str]:
        """The names in its path."""
        return re.findall(r"{(\w+)}", self.path)

    def codes(self) -> tuple[str, ...]:
        """The code of every problem that the route can answer with."""
        return tuple(dict.fromkeys(self._codes()))

    def _codes(self) -> Iterator[str]:
        if self.role is not None:
            yield from (
                "unauthenticated",
                "forbidden",
                "too_many_requests",
                "store",
                "store_closed",
                "commit_unknown",
            )
        if self.role is not None and self.stops_while_paused:
            yield "held"
        if self.parameters:
            yield "not_found"
        yield from ("invalid_header", "unknown_parameter", "not_utf8", "invalid_parameter")
        if self.query is not None:
            yield from ("duplicate_parameter", "invalid")
        if self.mutates and not self.raw_body:
            yield "request_timeout"
        if self.body is not None:
            yield from (
                "malformed_json",
                "not_utf8",
                "duplicate_key",
                "lone_surrogate",
                "too_deep",
                "number_out_of_range",
                "invalid_field",
                "missing_field",
                "unknown_field",
                "body_too_large",
                "unsupported_media_type",
            )
        elif self.mutates and not self.raw_body:
            yield from ("unexpected_body", "body_too_large")
        if self.idempotent:
            yield "idempotency_mismatch"
        if self.idempotent and self.repeat is Repeat.RESULT:
            yield "store_full"
        if self.idempotent and self.shows_secret:
            yield "invalid"
        if self.conditional:
            yield "precondition_failed"
        yield from self.problems
        yield "internal"


class HttpRequest:
    """One request as a handler sees it."""

    __slots__ = (
        "body", "caller", "headers", "http_state", "idempotency", "idempotency_key", "if_match",
        "names", "query", "receive", "scope", "wait_seconds",
    )  # fmt: skip

    def __init__(self, http_state: HttpState, scope: Scope, receive: Receive) -> None:
        self.http_state = http_state
        self.scope = scope
        self.receive = receive
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.caller: Caller
        self.names: dict[str, str] = {}
        """The path parameters."""
        self.query: Any = None
        self.body: Any = None
        """The body as the Struct that the route declares."""
        self.idempotency_key = ""
        self.idempotency = WITHOUT_KEY
        """The request under its key, where the route stores its answer."""
        self.if_match = ""
        self.wait_seconds: int | None = None
        """The seconds of the header `Prefer: wait`."""

    @property
    def tenant(self) -> str:
        """The tenant of the token; a request can reach no other tenant."""
        return self.caller.tenant

    @property
    def plane(self) -> Plane:
        """The control plane."""
        return self.http_state.plane

    def answered_by(self, show: Callable[[Any], Any]) -> IdempotentRequest:
        """The request under its key, for a command that stores the answer with its effect.

        `show` makes the answer from the command's result.
        """
        if self.idempotency.has_key:
            self.idempotency.encode_answer = lambda result: encode(show(result))
        return self.idempotency


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with a status or headers of its own."""

    value: Any
    status: int = 0
    """0: the status of the route."""
    headers: Headers = ()


class Stream:
    """A response that is sent in pieces: server-sent events, or an invocation."""

    __slots__ = ("write",)

    def __init__(self, write: Callable[[Send], Awaitable[int]]) -> None:
        """`write` sends the whole answer and returns its status."""
        self.write = write


Handler = Callable[[HttpRequest], Awaitable[Any]]
encode = msgspec.json.Encoder().encode


def refuse_repeated_headers(scope: Scope, headers: dict[bytes, bytes]) -> None:
    """Refuse a request that repeats a header which may occur only once."""
    pairs = scope["headers"]
    if len(pairs) == len(headers):
        return
    names = [name for name, _ in pairs]
    for name in SINGLE_HEADERS:
        if names.count(name) > 1:
            title = name.decode().title()
            raise ProblemError("invalid_header", f"the header {title} occurs twice", title)


async def read_request(route: Route, request: HttpRequest, names: dict[str, str]) -> None:
    """Read the parts of a request that its route declares; refuse any other part."""
    for name, value in names.items():
        if not NAME_MATCHERS[name](value):
            form = "id; an id is 32 digits of 0-9 and a-f" if NAMES[name] == ID else "name"
            raise ProblemError("not_found", f"there is no {name} with this {form}")
    request.names = names
    raw = request.scope["query_string"]
    if route.query is not None:
        request.query = queries.read(raw, route.query)
    elif raw:
        queries.refuse_any(raw)
    if route.idempotent:
        request.idempotency_key = _idempotency_key(request.headers)
    if route.conditional and b"if-match" in request.headers:
        request.if_match = _text(request.headers, b"if-match")
    if route.waits and b"prefer" in request.headers:
        wait = PREFERRED_WAIT.search(request.headers[b"prefer"].decode("latin-1"))
        if wait:
            request.wait_seconds = min(int(wait[1]), WAIT_SECONDS_MAX)
    tree = await _read_body(route, request) if route.mutates and not route.raw_body else None
    if request.idempotency_key and route.repeat is Repeat.ANSWER:
        request.idempotency = _identify(route, request, tree)


def _identify(route: Route, request: HttpRequest, tree: object) -> IdempotentRequest:
    """The request under its key; two requests are equal if their path, query and body are."""
    pairs = sorted(
        parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    )
    template = f"{route.method} {route.path}"
    scope = (request.tenant, request.caller.principal, template, request.idempotency_key)
    return IdempotentRequest(
        scope,
        fingerprint([request.names, pairs, tree]),
        has_secret=route.shows_secret,
        status=route.status,
    )


async def _read_body(route: Route, request: HttpRequest) -> object:
    """Read the body that the route declares; return it as the plain JSON tree that was sent."""
    seconds = request.http_state.bounds.body_seconds
    body = await bodies.read(request.receive, request.headers, seconds=seconds)
    if route.body is None:
        if body:
            raise ProblemError("unexpected_body", "this route takes no body")
        return None
    tree: object = {}
    if body or not route.empty_body:
        bodies.refuse_other_media(request.headers)
        tree = bodies.parse(body)
    request.body = bodies.convert(tree, route.body)
    return tree


def _text(headers: dict[bytes, bytes], name: bytes) -> str:
    text = headers[name].decode("latin-1")
    if not text or not text.isascii() or not text.isprintable():
        title = name.decode().title()
        detail = f"the header {title} must be printable ASCII and not empty"
        raise ProblemError("invalid_header", detail, title)
    return text


def _idempotency_key(headers: dict[bytes, bytes]) -> str:
    if b"idempotency-key" not in headers:
        return ""
    key = _text(headers, b"idempotency-key")
    if len(key) > IDEMPOTENCY_KEY_CHARACTERS_MAX:
        detail = f"an idempotency key has at most {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters"
        raise ProblemError("invalid_header", detail, "Idempotency-Key")
    return key
