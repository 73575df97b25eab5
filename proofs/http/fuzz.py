"""A generator of hostile requests over a route table, and what must hold of every answer.

The requests are made from what each route declares: some fit, most are bent somewhere (types,
sizes, Unicode, nesting, equal keys, paths, headers, ids of other tenants).  They go straight into
the ASGI application, so that thousands a second can be judged.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import inspect

App = Callable[[Any, Any, Any], Awaitable[None]]
AT_ONCE = 64
"""Requests under way at the same time."""
LEARNT_MAX = 200
"""Ids of one kind that are remembered from answers."""
LARGE = b'{"name": "' + b"x" * (1 << 20) + b'"}'


class Route(Protocol):
    """What is read of a route."""

    @property
    def method(self) -> str:
        """As HTTP has it."""
        ...

    @property
    def path(self) -> str:
        """As users see it, with names in braces."""
        ...

    @property
    def answer(self) -> Any:
        """The Struct of a success; None: no body."""
        ...

    @property
    def status(self) -> int:
        """The status of a success."""
        ...

    @property
    def other_answers(self) -> dict[int, Any]:
        """Further successes."""
        ...

    @property
    def body(self) -> Any:
        """The Struct of the body; None: it takes none."""
        ...

    @property
    def raw_body(self) -> str:
        """Not empty: the body is handed on as it is."""
        ...

    @property
    def query(self) -> Any:
        """The Struct of the query; None: it takes none."""
        ...

    @property
    def media(self) -> str:
        """What kind of thing a success is."""
        ...

    @property
    def parameters(self) -> list[str]:
        """The names in its path."""
        ...

    def codes(self) -> tuple[str, ...]:
        """Every problem it can answer with."""
        ...


class Party(NamedTuple):
    """Someone who asks: a tenant's token, and words that only others' things carry."""

    token: str
    canaries: tuple[str, ...]
    shown_all_at: frozenset[str] = frozenset()
    """Paths of routes that show the things of all tenants to this one, who owns the plane."""


@dataclass(slots=True)
class World:
    """What a fuzzer knows of the plane it asks."""

    parties: Sequence[Party]
    known: dict[str, list[str]]
    """What stands in paths, by the parameter's name: things of all parties."""
    tame: dict[str, Sequence[str]] = field(default_factory=dict)
    """Query parameters that are given only so: they would make the fuzzer wait."""
    given: dict[str, Any] = field(default_factory=dict)
    """Fields of bodies that are given so, if they are not bent: else too little would fit."""


class FuzzRequest(NamedTuple):
    """One request."""

    route: Route | None
    """None: of no route that we know of."""
    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    party: Party | None


class Complaint(AssertionError):
    """An answer that must not be."""


ODD_TEXT = (
    "", " ", "\x00", "a\x00b", "é", "日本", "😀", "\u202e", "a" * 300, "x" * 5_000, "..", "../..",
    "%2e%2e", "a/b", "a:b", "a\nb", "a\r\nX-Odd: 1", "' OR 1=1 --", '";DROP TABLE agent;--',
    "${7*7}", "{{7*7}}", "<script>", "null", "true", "-1", "0", "1e309", "NaN", "\ufeff", "\uffff",
    "$(id)",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 0.5, -0.0, 1e300,
    [], {}, [[]], [None], {"": ""}, {"a": {"b": {"c": []}}}, *ODD_TEXT,
)  # fmt: skip
ODD_BODIES = (
    b"", b"{", b"}", b"[]", b"null", b"1", b'""', b"\xff\xfe", b"\xef\xbb\xbf{}", b"{} {}", b"NaN",
    b'{"a": NaN}', b'{"a": 1e999}', b'{"a": ' + b"9" * 5_000 + b"}", b'{"a": 1, "a": 2}',
    b'{"name": "a", "name": "b"}', rb'{"name": "\ud800"}', rb'{"\udfff": 1}', b"[" * 100_000,
    b'{"a":' * 5_000, b"[" * 65 + b"]" * 65, b"a=b&c=d", b"\x80\x04K\x01.", b"\x00" * 10,
    b'{"lc": 2, "type": "constructor", "id": ["os", "system"]}',
)  # fmt: skip
ODD_HEADERS = (
    (b"content-type", b"text/plain"), (b"content-type", b"application/json; charset=utf-16"),
    (b"content-type", b""), (b"content-length", b"-1"),
    (b"content-length", b"99999999999999999999"),
    (b"idempotency-key", b""), (b"idempotency-key", b"\xff"), (b"idempotency-key", b"k" * 300),
    (b"idempotency-key", b"a\tb"), (b"if-match", b'"nonsense"'), (b"if-match", b"W/x"),
    (b"if-match", b""), (b"if-match", b'"'), (b"prefer", b"wait=x"), (b"prefer", b"\xff"),
    (b"last-event-id", b"x"), (b"last-event-id", b"99999999"), (b"authorization", b"Bearer x"),
    (b"authorization", b"Basic eDp4"), (b"authorization", b""), (b"host", b"elsewhere"),
    (b"x-http-method-override", b"DELETE"), (b"transfer-encoding", b"chunked"), (b"cookie", b"a=b"),
)  # fmt: skip
ODD_PATHS = (
    "/", "", "/v1", "/v1/", "//", "/v1/agents/", "/v1//agents", "/v1/agents/../operations", "/.env",
    "/v1/agents/a:unheard-of", "/v1/agents/a:", "/v1/operations/:cancel", "/v1/agents/%00",
    "/livez/",
    "/v1/agents/a/invocations/", "/V1/AGENTS", "/openapi.json/", "/v1/agents\x00", "/v1/é", "*",
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW", "get")


class Generator:
    """Requests, the same for the same seed and the same answers."""

    def __init__(self, routes: Sequence[Route], world: World, *, seed: int) -> None:
        """Over these routes, to this world."""
        self._routes = routes
        self._world = world
        self._random = random.Random(seed)
        self._forms: dict[Any, inspect.Type] = {}

    def request(self) -> FuzzRequest:
        """The next one."""
        lot = self._random
        if lot.random() < 0.02:
            return self._nowhere()
        route = lot.choice(self._routes)
        party = lot.choice(self._world.parties) if lot.random() < 0.97 else None
        method = route.method if lot.random() < 0.98 else lot.choice(METHODS)
        path = self._path(route)
        headers = self._headers(party)
        body = b""
        if route.body is not None or lot.random() < 0.03:
            body = self._body(route)
            headers.setdefault(b"content-type", b"application/json")
        headers.setdefault(b"content-length", b"%d" % len(body))
        query = self._query(route)
        return FuzzRequest(route, method, path, query, tuple(headers.items()), body, party)

    def learn(self, name: str, value: str) -> None:
        """Something there is now, to be named in later requests."""
        known = self._world.known.setdefault(name, [])
        known.append(value)
        if len(known) > LEARNT_MAX:
            known.pop(self._random.randrange(len(known)))

    def _nowhere(self) -> FuzzRequest:
        method, path = self._random.choice(METHODS), self._random.choice(ODD_PATHS)
        return FuzzRequest(None, method, path, b"", (), b"", None)

    def _path(self, route: Route) -> str:
        lot, path = self._random, route.path
        for name in route.parameters:
            known = self._world.known.get(name, ())
            if known and lot.random() < 0.9:
                value = lot.choice(known)
            else:
                absent = f"{lot.getrandbits(128):032x}"
                value = lot.choice(ODD_TEXT) if lot.random() < 0.5 else absent
            path = path.replace(f"{{{name}}}", value)
        return path

    def _headers(self, party: Party | None) -> dict[bytes, bytes]:
        lot = self._random
        headers: dict[bytes, bytes] = {}
        if party is not None:
            headers[b"authorization"] = b"Bearer " + party.token.encode()
        if lot.random() < 0.3:
            headers[b"idempotency-key"] = b"key-%d" % lot.randrange(20)
        if lot.random() < 0.1:
            headers[b"prefer"] = b"wait=0"
        if lot.random() < 0.1:
            name, value = lot.choice(ODD_HEADERS)
            headers[name] = value
        return headers

    def _query(self, route: Route) -> bytes:
        lot = self._random
        parts: list[tuple[str, str]] = []
        if route.query is not None:
            for one in self._form(route.query).fields:
                name = one.encode_name
                if name in self._world.tame:
                    parts.append((name, lot.choice(self._world.tame[name])))
                elif lot.random() < 0.4:
                    value = self._value(one.type, 0)
                    given = value if isinstance(value, list) else [value]
                    parts += [(name, _as_text(each)) for each in given]
        if parts and lot.random() < 0.2:
            at = lot.randrange(len(parts))
            if parts[at][0] not in self._world.tame:
                parts[at] = (parts[at][0], lot.choice(ODD_TEXT))
        if lot.random() < 0.04:
            parts.append((lot.choice(ODD_TEXT), lot.choice(ODD_TEXT)))
        if parts and lot.random() < 0.04:
            parts.append(lot.choice(parts))
        raw = "&".join(f"{_quote(name)}={_quote(text)}" for name, text in parts).encode()
        return raw if lot.random() < 0.99 else raw + b"&%ff=%"

    def _body(self, route: Route) -> bytes:
        lot = self._random
        chance = lot.random()
        if chance < 0.12:
            return lot.choice(ODD_BODIES) if chance > 0.0005 else LARGE
        tree = self._value(self._form(route.body), 0) if route.body is not None else {}
        if chance < 0.6:
            tree = self._bent(tree)
        return json.dumps(tree, ensure_ascii=lot.random() < 0.5).encode("utf-8", "surrogatepass")

    def _form(self, of: Any) -> Any:
        form = self._forms.get(of)
        if form is None:
            form = self._forms[of] = inspect.type_info(of)
        return form

    def _bent(self, tree: Any) -> Any:
        """The same with one thing changed somewhere."""
        lot = self._random
        if isinstance(tree, dict) and tree and lot.random() < 0.8:
            key = lot.choice(list(tree))
            chance = lot.random()
            if chance < 0.15:
                return {name: value for name, value in tree.items() if name != key}
            if chance < 0.35:
                return {**tree, lot.choice((*ODD_TEXT, f"{key}s")): lot.choice(ODD_VALUES)}
            return {**tree, key: self._bent(tree[key])}
        if isinstance(tree, list) and tree and lot.random() < 0.5:
            return [*tree[:-1], self._bent(tree[-1])]
        return lot.choice(ODD_VALUES)

    def _field(self, one: inspect.Field, depth: int) -> Any:
        """A field's value.  Only what is looked up and never kept names things of others."""
        if one.encode_name == "parent":
            return self._random.choice(self._world.known["agent"])
        if one.encode_name in self._world.given:
            return self._world.given[one.encode_name]
        return self._value(one.type, depth)

    def _value(self, form: inspect.Type, depth: int) -> Any:
        """Something that fits, more or less."""
        lot, given = self._random, self._world.given
        match form:
            case inspect.Metadata(type=inner):
                return self._value(inner, depth)
            case inspect.StructType(fields=fields):
                return {
                    one.encode_name: self._field(one, depth + 1)
                    for one in fields
                    if one.required or lot.random() < (0.8 if one.encode_name in given else 0.2)
                }
            case inspect.UnionType(types=types):
                return self._value(lot.choice(types), depth)
            case inspect.StrType(max_length=most):
                if most and lot.random() > 0.98:
                    return lot.choice(LETTERS) * most
                return "".join(lot.choices(LETTERS, k=4))
            case inspect.IntType(ge=least, le=most) | inspect.FloatType(ge=least, le=most):
                return lot.choice([n for n in (least, most, 1, 2) if n is not None])
            case inspect.BoolType():
                return lot.random() < 0.5
            case inspect.LiteralType(values=values):
                return lot.choice(values)
            case inspect.EnumType(cls=cls):
                return str(lot.choice(list(cls)))
            case inspect.VarTupleType(item_type=inner) | inspect.ListType(item_type=inner):
                return [self._value(inner, depth + 1) for _ in range(lot.randrange(3))]
            case inspect.DictType(key_type=key, value_type=inner):
                count = lot.randrange(3)
                return {
                    str(self._value(key, depth)): self._value(inner, depth) for _ in range(count)
                }
            case inspect.NoneType():
                return None
            case _:
                return lot.choice(ODD_VALUES)


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quote(text: str) -> str:
    return "".join(
        c if c.isascii() and c.isalnum() else "".join(f"%{b:02x}" for b in c.encode()) for c in text
    )


class Fuzzer:
    """Asks and judges; `run` raises the first Complaint."""

    def __init__(
        self, app: App, routes: Sequence[Route], world: World, *, problem: Any, seed: int = 0
    ) -> None:
        """Ask this application; `problem` is the Struct that every refusal must fit."""
        self._app = app
        self._make = Generator(routes, world, seed=seed)
        self._problem = msgspec.json.Decoder(problem)
        self._answers: dict[Any, msgspec.json.Decoder[Any]] = {}
        self.statuses: Counter[int] = Counter()

    async def run(self, count: int) -> None:
        """So many requests, many at once."""
        left = count

        async def ask() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self._one(self._make.request())

        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, count)):
                group.create_task(ask())

    async def _one(self, request: FuzzRequest) -> None:
        pieces: list[Any] = [{"type": "http.request", "body": request.body, "more_body": False}]
        told: list[Any] = []

        async def receive() -> Any:
            return pieces.pop() if pieces else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            told.append(message)

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
            "method": request.method, "path": request.path, "raw_path": request.path.encode(),
            "query_string": request.query, "root_path": "", "headers": list(request.headers),
            "client": None, "server": None,
        }  # fmt: skip
        await self._app(scope, receive, send)
        if not told:
            return  # whoever asked was gone
        self.statuses[told[0]["status"]] += 1
        headers = {name.lower(): value for name, value in told[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in told[1:])
        try:
            self._judge(request, told[0]["status"], headers, body)
        except (Complaint, msgspec.DecodeError) as error:
            target = f"{request.method} {request.path!r}?{request.query!r}"
            shown = f"{target} {request.headers} {request.body[:500]!r}"
            message = f"{error}: {told[0]['status']} {body[:500]!r} to {shown}"
            raise Complaint(message) from None

    def _judge(
        self, request: FuzzRequest, status: int, headers: dict[bytes, bytes], body: bytes
    ) -> None:
        if status >= 400:
            self._judge_problem(request, status, headers, body)
        elif request.route is not None and request.method == request.route.method:
            self._judge_success(request.route, status, headers, body)
        if b"Traceback" in body:
            raise Complaint("our insides are shown")
        owned = request.party is not None and request.path in request.party.shown_all_at
        if request.party is not None and not owned:
            asked = request.path.encode() + request.query + request.body
            for canary in request.party.canaries:
                word = canary.encode()
                if word not in asked and (
                    word in body or any(word in value for value in headers.values())
                ):
                    raise Complaint(f"{canary} belongs to another tenant")

    def _judge_problem(
        self, request: FuzzRequest, status: int, headers: dict[bytes, bytes], body: bytes
    ) -> None:
        if status == 500:
            raise Complaint("500")
        if request.method == "HEAD":
            return
        if headers[b"content-type"] != b"application/problem+json":
            raise Complaint("no problem")
        problem = self._problem.decode(body)
        if problem.code == "store":
            raise Complaint("the store is well, and was asked what it cannot answer")
        if problem.status != status:
            raise Complaint("another status than in the body")
        if status in {429, 503} and b"retry-after" not in headers:
            raise Complaint("no Retry-After")
        same = request.route is not None and request.method == request.route.method
        if request.route is not None and same and problem.code not in request.route.codes():
            odd_path = status in {404, 405} and problem.code in {"not_found", "method_not_allowed"}
            if not odd_path:
                raise Complaint(f"{problem.code} is not declared")

    def _judge_success(
        self, route: Route, status: int, headers: dict[bytes, bytes], body: bytes
    ) -> None:
        expected = {route.status: route.answer, **route.other_answers}
        if route.raw_body:
            return
        if status not in expected:
            raise Complaint(f"{status} is not declared")
        if route.media != "application/json" or expected[status] is None:
            return
        decoder = self._answers.get(expected[status])
        if decoder is None:
            decoder = self._answers[expected[status]] = msgspec.json.Decoder(expected[status])
        answer = decoder.decode(body)
        if status == 202:
            self._make.learn("operation", answer.id)
            self._make.learn("agent", answer.agent)
            if headers.get(b"location") != f"/v1/operations/{answer.id}".encode():
                raise Complaint("it is not said where the operation is")
