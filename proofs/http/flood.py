"""The proof that everything is bounded (P21): floods and slow clients on the HTTP face.

The product's own face and protocol stand on a plane over fakes, in virtual time; a connection is a
transport that remembers.  What counts is answers, connections and what the providers hold: a flood
of one tenant is refused beyond its allowance, nobody else's requests are, nothing that was accepted
is lost, and no client holds a connection by being slow.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from uvicorn import Config
from uvicorn.server import ServerState

from proofs.agents.lifecycle import CALLER, AgentCluster
from proofs.harness.ablation import BY_PROOF, Ablation, by_name
from proofs.harness.subject import Check, Checks, Proof, Subject
from tenure.app.operations import reads
from tenure.app.tenancy import tokens
from tenure.core.roles import Role
from tenure.faces.http import body
from tenure.faces.http.bounds import BURST_SECONDS, Bounds, Bucket, RateLimiter
from tenure.faces.http.protocol import BoundedProtocol, bounded_protocol
from tenure.faces.http.server import build
from tenure.faces.http.state import HttpState
from tenure.testing.loop import SeededLoop, run
from tenure.testing.patches import Off, patched

AGAIN = "python -m proofs.prove 21"
BOUNDS = Bounds(
    requests_per_second=10.0,
    requests_at_once=8,
    connections_max=64,
    head_seconds=5.0,
    head_bytes_max=16_384,
    body_seconds=10.0,
    write_seconds=10.0,
)
OVERLOAD = 10
"""Times what a tenant may ask for."""
FLOOD_SECONDS = 30
SLOW = 40
"""Slow clients at the same time."""
HIGH_WATER = 65_536


class Reply(NamedTuple):
    """One answer on the wire; status 0: the connection ended without it."""

    status: int
    headers: dict[str, str]
    body: bytes


class Pipe:
    """A connection as its client has it, and the transport that the server has of it."""

    def __init__(self, loop: SeededLoop, protocol: BoundedProtocol, *, reads: bool = True) -> None:
        """Connected; a client that does not read leaves everything where it is."""
        self._loop = loop
        self._protocol = protocol
        self._reads = reads
        self.unread = b""
        self.told = b""
        self.ended = asyncio.Event()
        self._came = asyncio.Event()
        self._closing = False
        protocol.connection_made(self)  # type: ignore[arg-type]

    # --- what a transport has ---------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Take what the server says."""
        if self.ended.is_set():
            return
        if self._reads:
            self.told += data
            self._came.set()
            return
        self.unread += data
        if len(self.unread) > HIGH_WATER:
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """What the client has not read."""
        return len(self.unread)

    def close(self) -> None:
        """End once all is read."""
        self._closing = True
        if not self.unread:
            self.abort()

    def abort(self) -> None:
        """End now."""
        if not self.ended.is_set():
            self._closing = True
            self.ended.set()
            self._came.set()
            self._loop.call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        """Whether it ends, or has."""
        return self._closing

    def pause_reading(self) -> None:
        """What is sent meanwhile waits in no test."""

    def resume_reading(self) -> None:
        """As above."""

    def get_extra_info(self, _name: str, default: object = None) -> object:
        """Nothing is known."""
        return default

    # --- what a client does -----------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Say so much."""
        if not self._closing:
            self._protocol.data_received(data)

    async def ask(self, token: str, method: str, path: str, body: bytes = b"") -> Reply:
        """One request and its answer."""
        self.told = b""
        self.send(request(token, method, path, body))
        return await self.answer()

    async def answer(self) -> Reply:
        """The next answer, when it is whole."""
        while (made := _parse_reply(self.told)) is None:
            if self.ended.is_set():
                return Reply(0, {}, b"")
            self._came.clear()
            await self._came.wait()
        return made


def request(token: str, method: str, path: str, body: bytes = b"", *, length: int = -1) -> bytes:
    """A request as it stands on the wire."""
    length = len(body) if length < 0 else length
    return (
        f"{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode() + body


def _parse_reply(data: bytes) -> Reply | None:
    head, blank, rest = data.partition(b"\r\n\r\n")
    if not blank:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    if len(rest) < int(headers.get("content-length", 0)):
        return None
    return Reply(int(first.split()[1]), headers, rest)


class FloodedPlane:
    """A face on a plane, the tokens of two tenants, and what went wrong."""

    def __init__(
        self, cluster: AgentCluster, http_state: HttpState, *, loud: str, quiet: str
    ) -> None:
        """Nobody is connected."""
        self.cluster = cluster
        self.loop = cluster.loop
        self.plane = http_state.plane
        self.loud = loud
        self.quiet = quiet
        self.wrong: list[str] = []
        self._state = ServerState()
        self._config = Config(
            build(http_state),
            http=bounded_protocol(BOUNDS),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
        )
        self._config.load()

    def connect(self, *, reads: bool = True) -> Pipe:
        """One more connection."""
        protocol = self._config.http_protocol_class(  # type: ignore[call-arg]
            config=self._config, server_state=self._state, app_state={}, _loop=self.loop
        )
        assert isinstance(protocol, BoundedProtocol)
        return Pipe(self.loop, protocol, reads=reads)

    @property
    def connections(self) -> int:
        """How many the server knows of."""
        return len(self._state.connections)

    async def politely(self, seconds: float) -> None:
        """The quiet tenant asks once a second, and must be answered every time."""
        pipe = self.connect()
        for _ in range(int(seconds)):
            status = (await pipe.ask(self.quiet, "GET", "/v1/agents")).status
            if status != 200:
                self.wrong.append(f"the quiet tenant was answered {status}")
                return
            await asyncio.sleep(1)
        pipe.abort()


async def _run_flood(loop: SeededLoop, case: "Case") -> list[str]:
    cluster = AgentCluster(loop)
    process = cluster.boot("plane")
    await process.start()
    cluster.serving.append(process)
    plane = process.plane
    made = [
        await tokens.create_token(plane, CALLER, tenant=t, principal="p", role=Role.OPERATOR)
        for t in ("loud", "quiet")
    ]
    one = FloodedPlane(cluster, HttpState(plane, bounds=BOUNDS), loud=made[0][1], quiet=made[1][1])
    polite = loop.create_task(one.politely(20.0))
    await asyncio.sleep(0.5)  # it is connected
    await case(one)
    await polite
    return one.wrong


Case = Callable[[FloodedPlane], Awaitable[None]]


# --- the cases ------------------------------------------------------------------------------------


async def _too_often(one: FloodedPlane) -> None:
    """Ten times what a tenant may ask for."""
    rate = BOUNDS.requests_per_second
    seen: Counter[int] = Counter()

    async def flood() -> None:
        pipe = one.connect()
        for _ in range(int(FLOOD_SECONDS * rate * OVERLOAD / 5)):
            reply = await pipe.ask(one.loud, "GET", "/v1/agents")
            seen[reply.status] += 1
            if reply.status == 429 and int(reply.headers.get("retry-after", 0)) < 1:
                one.wrong.append("a 429 does not say when to come again")
            await asyncio.sleep(5 / (rate * OVERLOAD))
        pipe.abort()

    await asyncio.gather(*(flood() for _ in range(5)))
    most = rate * (FLOOD_SECONDS + BURST_SECONDS) + 5
    if not 0.8 * rate * FLOOD_SECONDS <= seen[200] <= most:
        one.wrong.append(f"a flood was answered {seen[200]} times, and {most:g} are allowed")
    if set(seen) != {200, 429}:
        one.wrong.append(f"a flood was answered by {dict(seen)}")


async def _too_much_at_once(one: FloodedPlane) -> None:
    """More waits at the same time than there are places."""
    wanted = {"name": "slow", "runtime": {"command": ["agent"], "ready_seconds": 6.0}}
    made = await one.connect().ask(one.loud, "POST", "/v1/agents", json.dumps(wanted).encode())
    path = f"/v1/operations/{json.loads(made.body)['id']}/wait?seconds=4"
    pipes = [one.connect() for _ in range(2 * BOUNDS.requests_at_once)]
    waits = [asyncio.ensure_future(pipe.ask(one.loud, "GET", path)) for pipe in pipes]
    seen = Counter(reply.status for reply in await asyncio.gather(*waits))
    if seen != {200: BOUNDS.requests_at_once, 429: BOUNDS.requests_at_once}:
        one.wrong.append(f"{len(pipes)} waits at once were answered by {dict(seen)}")
    await asyncio.sleep(2)
    after = await pipes[0].ask(one.loud, "GET", "/v1/agents")
    if after.status != 200:
        one.wrong.append(f"after the waits the tenant is answered {after.status}")
    for pipe in pipes:
        pipe.abort()


async def _accepted_work_ends(one: FloodedPlane) -> None:
    """A flood of creates: what got 202 ends, what got 429 was never there."""
    accepted: list[str] = []
    refused = 0
    pipe = one.connect()
    for number in range(80):
        spec = {
            "name": f"agent-{number}",
            "roles": ["reader"],
            "runtime": {"command": ["agent"], "ready_seconds": 6.0},
            "credentials": [{"audience": "https://tool", "scopes": ["tool:use"]}],
        }
        reply = await pipe.ask(one.loud, "POST", "/v1/agents", json.dumps(spec).encode())
        if reply.status == 202:
            accepted.append(json.loads(reply.body)["id"])
        else:
            refused += reply.status == 429
    ends = [await reads.wait(one.plane, "loud", name, seconds=600) for name in accepted]
    if not accepted or not refused or len(accepted) + refused != 80:
        one.wrong.append(f"of 80 creates {len(accepted)} were accepted and {refused} refused")
    lost = [end.id for end in ends if end.state != "SUCCEEDED"]
    held = Counter(thing.key.agent for thing in one.cluster.world.things.values())
    if lost or len(held) != len(accepted) or set(held.values()) != {4}:
        one.wrong.append(f"{len(accepted)} accepted, {len(lost)} lost, {len(held)} agents hold")


async def _slow_heads(one: FloodedPlane) -> None:
    """Clients that say nothing, or a byte of a header a second."""
    pipes = [one.connect() for _ in range(SLOW)]
    for pipe in pipes[::2]:
        pipe.send(b"GET /v1/agents HTTP/1.1\r\nX: ")
    for _ in range(int(BOUNDS.head_seconds) + 1):
        for pipe in pipes[::2]:
            pipe.send(b"x")
        await asyncio.sleep(1)
    left = sum(not pipe.ended.is_set() for pipe in pipes)
    if left:
        one.wrong.append(f"{left} of {SLOW} clients that send no headers are still connected")


async def _slow_bodies(one: FloodedPlane) -> None:
    """Clients that send a byte of a body a second."""
    pipes = [one.connect() for _ in range(BOUNDS.requests_at_once)]
    for pipe in pipes:
        pipe.send(request(one.loud, "POST", "/v1/agents", b"{", length=1_000))
    for _ in range(int(BOUNDS.body_seconds) + 1):
        for pipe in pipes:
            pipe.send(b" ")
        await asyncio.sleep(1)
    seen = Counter(_parse_reply(pipe.told) and _parse_reply(pipe.told)[0] for pipe in pipes)  # type: ignore[index]
    if seen != {408: len(pipes)}:
        one.wrong.append(f"slow bodies were answered by {dict(seen)}")


async def _endless_heads(one: FloodedPlane) -> None:
    """Headers without an end, as fast as they can be sent."""
    pipe = one.connect()
    pipe.send(b"GET /v1/agents HTTP/1.1\r\n")
    for number in range(1_000):
        pipe.send(b"x-%d: %s\r\n" % (number, b"x" * 1_000))
    await asyncio.sleep(1)
    if not pipe.ended.is_set():
        one.wrong.append("a megabyte of headers was taken")


async def _never_read(one: FloodedPlane) -> None:
    """Clients that ask for a lot and read nothing."""
    pipes = [one.connect(reads=False) for _ in range(8)]
    for pipe in pipes[::2]:
        pipe.send(request(one.loud, "GET", "/openapi.json"))
    for pipe in pipes[1::2]:
        last = request(one.loud, "GET", "/v1/agents").replace(b"Host", b"Connection: close\r\nHost")
        pipe.send(last)
    await asyncio.sleep(BOUNDS.write_seconds + 1)
    left = sum(not pipe.ended.is_set() for pipe in pipes)
    if left:
        one.wrong.append(f"{left} clients that read nothing are still connected")


async def _too_many_connections(one: FloodedPlane) -> None:
    """Beyond the bound a connection is told to come again, and those before it live."""
    pipes = [one.connect() for _ in range(BOUNDS.connections_max - one.connections)]
    more = [one.connect() for _ in range(5)]
    seen = [await pipe.answer() for pipe in more]
    if any(r.status != 503 or "retry-after" not in r.headers for r in seen):
        one.wrong.append(f"connections beyond the bound were told {[r.status for r in seen]}")
    status = (await pipes[0].ask(one.loud, "GET", "/v1/agents")).status
    if status != 200:
        one.wrong.append(f"a connection within the bound was answered {status}")
    for pipe in pipes:
        pipe.abort()


def floods() -> Checks:
    """Every flood and every kind of slow client, while another tenant asks politely."""
    for case in (
        _too_often,
        _too_much_at_once,
        _accepted_work_ends,
        _slow_heads,
        _slow_bodies,
        _endless_heads,
        _never_read,
        _too_many_connections,
    ):
        for seed in range(3):
            name = f"{AGAIN} ({case.__name__.strip('_')}, seed {seed})"
            yield Check(name, run(seed, lambda loop, c=case: _run_flood(loop, c)))  # type: ignore[misc]


# --- what it rests on -----------------------------------------------------------------------------


def _always_full() -> Any:
    def bucket_of(self: RateLimiter, _tenant: str) -> Bucket:
        return Bucket(self._tokens_max, 0.0)

    return patched(RateLimiter, _bucket_of=bucket_of)


def _one_for_all() -> Any:
    real = RateLimiter._bucket_of  # noqa: SLF001
    return patched(RateLimiter, _bucket_of=lambda self, _tenant: real(self, ""))


def _nothing(owner: object, name: str) -> Off:
    """Without this method."""
    return lambda: patched(owner, **{name: lambda *_: None})


def _patient_bodies() -> Any:
    real = body.read

    async def read(receive: Any, headers: Any, *, seconds: float) -> bytes:
        return await real(receive, headers, seconds=seconds * 1_000)

    return patched(body, read=read)


def _any_head() -> Any:
    return patched(BoundedProtocol, data_received=BoundedProtocol.__mro__[1].data_received)  # type: ignore[attr-defined]


ABLATIONS = by_name(
    (
        Ablation(
            "allowance_ends",
            "A tenant has a limited request rate and a limited number of concurrent requests.",
            "T18",
            (21,),
            BY_PROOF,
            _always_full,
        ),
        Ablation(
            "allowance_of_tenant",
            "Every tenant has its own limits.",
            "T18",
            (21,),
            BY_PROOF,
            _one_for_all,
        ),
        Ablation(
            "heads_are_timed",
            "A client has a limited time to send its headers.",
            "T18",
            (21,),
            BY_PROOF,
            _nothing(BoundedProtocol, "_expect_head"),
        ),
        Ablation(
            "heads_are_bounded",
            "The headers of a request have a limited size.",
            "T18",
            (21,),
            BY_PROOF,
            _any_head,
        ),
        Ablation(
            "bodies_are_timed",
            "A client has a limited time to send a body that is read completely.",
            "T18",
            (21,),
            BY_PROOF,
            _patient_bodies,
        ),
        Ablation(
            "answers_are_timed",
            "A client that does not read its answer is disconnected.",
            "T18",
            (21,),
            BY_PROOF,
            _nothing(BoundedProtocol, "_abort"),
        ),
    )
)
"""What P21 rests on."""
SUBJECT = Subject("http", (Proof(21, checks=floods),), ABLATIONS)
