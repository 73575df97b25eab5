"""A plane of many processes on PostgreSQL and Temporal, hurt on purpose while clients use it.

Two `tenure up --api-only` and three `tenure worker` share one home.  Both servers are reached
through a `tenure.testing.proxy` that cuts, delays and half-opens connections.  Clients make agents,
suspend, resume and delete them by HTTP, each request under an Idempotency-Key of its own that is
sent again until it is answered.  Meanwhile workers, API processes and both servers are killed with
-9 and started again.  What is left is for `tests.real.support.resource_checker` to judge.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import asyncpg

from tenure.testing.proxy import PLAIN, Behaviour, Proxy
from tenure.testing.servers import PostgresServer, lasting_port
from tenure.testing.temporal_server import TemporalServer
from tests.real.support import resource_checker
from tests.real.support import runtimes as kept

APIS, WORKERS = 2, 3
SCHEMA = "chaos"
ASK_SECONDS = 10.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.3, 5.0
"""Before a request that was not answered is sent again; it doubles up to the most."""
ALONE_SECONDS = 2.0
"""For which one is not asked that has not answered."""
LOOK_SECONDS = 0.5
"""Between two looks at an operation that has not ended."""
BETWEEN_KILLS_SECONDS = 2.5
BETWEEN_KILLS, BETWEEN_DISTURBANCES = 80, 40
"""Answers between two of them, at least: on a busy machine there are no more for each answer."""
SETTLE_SECONDS = 240.0
TURNS = 12
"""Times that an agent is suspended and resumed before it is deleted."""
ENDS = {"SUCCEEDED", "COMPENSATED", "ABANDONED"}
AGENT = [sys.executable, "-I", "-S", str(Path(__file__).parent / "agents" / "quick.py")]
VICTIMS = ("worker",) * 7 + ("api",) * 2 + ("postgres",) + ("worker",) * 2 + ("temporal",)
"""Who is killed, in turn; without Temporal a worker in its place."""


class Answer(NamedTuple):
    status: int
    body: Any


class Process:
    """One process of the plane, started again on the same words after every kill."""

    def __init__(self, words: list[str], env: Mapping[str, str], log: Path) -> None:
        self._words, self._env, self._log = words, dict(env), log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> bool:
        """Kill -9; whether it lived until then."""
        if self._process is None:
            return False
        lived = self._process.poll() is None
        if lived:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return lived

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None


class Chaos:
    """All of it; `engine` is embedded or temporal, `ablate` what the API processes are without."""

    def __init__(
        self, place: Path, engine: str, *, clients: int, seed: int = 0, ablate: str = ""
    ) -> None:
        self.home = place / "home"
        self.home.mkdir()
        self.place = place
        self.engine = engine
        self.clients = clients
        self.chance = random.Random(seed)
        self.postgres = PostgresServer()
        self.temporal = TemporalServer(place, is_persistent=True) if engine == "temporal" else None
        self.stack = AsyncExitStack()
        self.proxies: list[Proxy] = []
        self.ports = [lasting_port() for _ in range(APIS)]
        self.apis: list[Process] = []
        self.workers: list[Process] = []
        self.promises: dict[str, resource_checker.Promise] = {}
        self.told: list[tuple[str, int, str]] = []
        """Agent, sequence and type of every event that somebody who follows them was told."""
        self.counts: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._ablate = ablate
        self._names = itertools.count()
        self._keys = itertools.count()
        self._mute: set[int] = set()
        """The ports that were not answered from just now."""
        self._starting: asyncio.Future[None] | None = None
        self._over = asyncio.Event()
        self._token = ""

    # ------------------------------------------------------------------------------------ its parts

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in (*self.apis, *self.workers):
            process.kill()
        if self._starting is not None:
            await asyncio.gather(self._starting, return_exceptions=True)
        await self.stack.aclose()
        if self.temporal is not None:
            self.temporal.kill()
        self.postgres.stop()

    async def _begin(self) -> None:
        await asyncio.to_thread(self.postgres.start)
        near = await self._behind(self.postgres.port)
        url = urlsplit(self.postgres.url)._replace(netloc=f"tenure@127.0.0.1:{near}").geturl()
        env = {name: one for name, one in os.environ.items() if not name.startswith("TENURE_")}
        env |= {
            "TENURE_STORE": f"{url}?schema={SCHEMA}",
            "TENURE_ENGINE": self.engine,
            "TENURE_HOME": str(self.home),
            "PYTHONUTF8": "1",
        }
        if self.temporal is not None:
            await asyncio.to_thread(self.temporal.start)
            env["TENURE_TEMPORAL"] = f"127.0.0.1:{await self._behind(self.temporal.port)}"
        tenure = [sys.executable, "-m", "tenure"]
        ablated = [sys.executable, "-m", "tests.real.support.ablated_command", self._ablate]
        for number, port in enumerate(self.ports):
            words = [*(ablated if self._ablate else tenure), "up", "--api-only", "--sandbox", "off"]
            words += ["--port", str(port), "--requests-per-second", "0"]
            self.apis.append(Process(words, env, self.place / f"api-{number}.log"))
            self.apis[-1].start()
            await self._ready(port)
        self._token = (self.home / "token").read_text().strip()
        for number in range(WORKERS):
            log = self.place / f"worker-{number}.log"
            self.workers.append(Process([*tenure, "worker"], env, log))
            self.workers[-1].start()

    async def _behind(self, port: int) -> int:
        proxy = await self.stack.enter_async_context(Proxy("127.0.0.1", port))
        self.proxies.append(proxy)
        return proxy.port

    async def _ready(self, port: int) -> None:
        async with asyncio.timeout(120):
            while (await self._request(port, "GET", "/readyz", None, "")).status != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    # -------------------------------------------------------------------------------------- asking

    async def _request(self, port: int, method: str, path: str, body: object, key: str) -> Answer:
        """One request on a connection of its own; status 0: nobody has answered it whole."""
        text = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: plane\r\nConnection: close\r\n"
            f"Authorization: Bearer {self._token}\r\nContent-Length: {len(text)}\r\n"
            + ("Content-Type: application/json\r\n" if text else "")
            + (f"Idempotency-Key: {key}\r\n" if key else "")
        )
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(ASK_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head.encode() + b"\r\n" + text)
                top, _, rest = (await reader.read(-1)).partition(b"\r\n\r\n")
                return Answer(int(top.split()[1]), json.loads(rest))
        except (OSError, TimeoutError, ValueError, IndexError):
            return Answer(0, None)
        finally:
            if writer is not None:
                writer.transport.abort()

    async def ask(self, method: str, path: str, body: object = None, *, key: str = "") -> Answer:
        """Ask one of the API processes after the other until one answers, and count both.

        One that did not answer is left alone for a while, as whoever balances requests does.
        """
        loop, pause = asyncio.get_running_loop(), PAUSE_SECONDS
        while True:
            heard = [port for port in self.ports if port not in self._mute]
            port = self.chance.choice(heard or self.ports)
            answer = await self._request(port, method, path, body, key)
            kind = "changes" if key else "looks"
            self.counts[kind] += 1
            if 0 < answer.status < 500 and answer.status != 429:
                self.counts[f"{kind}_answered"] += 1
                return answer
            self.counts[f"status_{answer.status}"] += 1
            if port not in self._mute:
                self._mute.add(port)
                loop.call_later(ALONE_SECONDS, self._mute.discard, port)
            await asyncio.sleep(pause * self.chance.uniform(0.5, 1.0))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _do(self, method: str, path: str, body: object = None) -> str:
        """Have something accepted and wait for its end; how it ended."""
        key = f"chaos-{next(self._keys)}"
        answer = await self.ask(method, path, body, key=key)
        if answer.status != 202:
            self.wrong.append(f"{method} {path} was answered {answer.status}: {answer.body}")
            return ""
        self._note_promise(answer)
        if self.chance.random() < 0.1:  # the same again, maybe to another process
            again = await self.ask(method, path, body, key=key)
            self.counts["again"] += 1
            if again.status != 202 or again.body["id"] != answer.body["id"]:
                self.wrong.append(f"{key} is {answer.body['id']} and then {again}")
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            found = await self.ask("GET", f"/v1/operations/{answer.body['id']}")
            if found.status == 404:
                self.wrong.append(f"operation {answer.body['id']} was accepted and is lost")
                return ""
            if found.status != 200:
                self.wrong.append(f"GET of {answer.body['id']} is answered {found}")
                return ""
            if found.body["state"] in ENDS:
                return str(found.body["state"])

    def _note_promise(self, answer: Answer) -> None:
        body = answer.body
        promise = resource_checker.Promise(body["id"], body["kind"], body["agent"])
        self.promises[body["id"]] = promise

    async def _client(self) -> None:
        """One agent after the other, through its whole life."""
        while not self._over.is_set():
            name = f"agent-{next(self._names)}"
            mode = "exits" if self.chance.random() < 0.1 else "healthy"
            spec = {
                "name": name,
                "roles": ["reader"],
                "runtime": {"command": AGENT, "env": {"MODE": mode}, "drain_seconds": 0.0},
                "credentials": [{"audience": "https://a.example", "scopes": ["a:read"]}],
            }
            path = f"/v1/agents/{name}"
            ended = await self._do("POST", "/v1/agents", spec)
            for turn in range(TURNS if ended == "SUCCEEDED" else 0):
                if self._over.is_set():
                    return
                shut = {"drain_seconds": 0.0, "keep_runtime": turn > 0}
                await self._do("POST", f"{path}:suspend", shut)
                if not self._over.is_set():
                    await self._do("POST", f"{path}:resume")
            if self._over.is_set() and self.chance.random() < 0.5:
                return  # so that some are there at the end
            await self._do("DELETE", f"{path}?drain_seconds=0")

    async def _follow(self) -> None:
        """Read events page by page, wherever one can, from the first to the last."""
        after = "0"
        while True:
            page = (await self.ask("GET", f"/v1/events?limit=1000&after={after}")).body
            if page["missed"]:
                self.wrong.append(f"events after {after} were missed")
            self.told += [
                (one["subject"], int(one["sequence"]), one["type"].removeprefix("tenure."))
                for one in page["items"]
            ]
            after = page["position"]
            if not page["next"]:
                await asyncio.sleep(1.0)

    # -------------------------------------------------------------------------------------- hurting

    async def _after(self, seconds: float, answers: int) -> None:
        """Return after so long, and when so many more requests were answered."""
        wanted = self.answers + answers
        await asyncio.sleep(seconds)
        while self.answers < wanted:  # noqa: ASYNC110 (they are counted, and told to nobody)
            await asyncio.sleep(0.05)

    async def _kill(self) -> None:
        """One victim after the other, as long as it lasts; all are started again."""
        for victim in itertools.cycle(VICTIMS):
            await self._after(self.chance.uniform(0.5, 1.5) * BETWEEN_KILLS_SECONDS, BETWEEN_KILLS)
            if victim == "postgres":
                self.postgres.kill()
                self.kills[victim] += 1
                await self._start(self.postgres)
            elif victim == "temporal" and self.temporal is not None:
                self.temporal.kill()
                self.kills[victim] += 1
                await self._start(self.temporal)
            else:
                one = self.chance.choice(self.apis if victim == "api" else self.workers)
                self.kills["api" if victim == "api" else "worker"] += one.kill()
                one.start()

    async def _start(self, server: PostgresServer | TemporalServer) -> None:
        """Start it, to the end: also if whoever has killed it is told to stop meanwhile."""
        self._starting = asyncio.ensure_future(asyncio.to_thread(server.start))
        await asyncio.shield(self._starting)

    async def _tend(self) -> None:
        """Start again who has ended by itself, as an init system does."""
        while True:
            await asyncio.sleep(0.5)
            for process in (*self.apis, *self.workers):
                if process.has_ended:
                    self.counts["ended_by_itself"] += 1
                    process.start()

    async def _disturb(self) -> None:
        """Treat connections badly, for a moment each time."""
        while True:
            await self._after(self.chance.uniform(0.5, 3.0), BETWEEN_DISTURBANCES)
            proxy = self.chance.choice(self.proxies)
            how = self.chance.choice(
                (
                    Behaviour(delay_seconds=self.chance.uniform(0.005, 0.05)),
                    Behaviour(mute=True),
                    Behaviour(deaf=True, mute=True),
                    Behaviour(refuses=True),
                    Behaviour(cut_after_sent=self.chance.randint(1, 20_000)),
                    Behaviour(cut_after_answered=self.chance.randint(1, 20_000)),
                )
            )
            proxy.behaviour = how
            self.counts["disturbances"] += 1
            await asyncio.sleep(self.chance.uniform(0.1, 0.6))
            proxy.behaviour = PLAIN
            if how.mute or how.deaf or self.chance.random() < 0.3:
                proxy.cut()  # what was swallowed would be waited for without end

    async def run(self, *, seconds: float, operations: int = 0, kills: int = 0) -> None:
        """Hurt it for so long, and until so much was accepted and killed; then let it end."""
        hurting = [asyncio.ensure_future(one()) for one in (self._kill, self._disturb)]
        living = [asyncio.ensure_future(one()) for one in (self._tend, self._follow)]
        clients = [asyncio.ensure_future(self._client()) for _ in range(self.clients)]
        try:
            began = time.monotonic()
            while (
                time.monotonic() < began + seconds
                or len(self.promises) < operations
                or self.kills.total() < kills
            ) and not self.wrong:
                await asyncio.sleep(0.2)
                for task in (*hurting, *living, *clients):
                    if task.done():
                        task.result()
            self.counts["seconds"] = int(time.monotonic() - began)
            await _cancel_all(hurting)
            await self._mend()
            self._over.set()
            if not self.wrong:
                await self._settle(clients)
        finally:
            await _cancel_all([*hurting, *living, *clients])

    async def _mend(self) -> None:
        """No more faults; whoever was being started is."""
        for proxy in self.proxies:
            proxy.behaviour = PLAIN
        if self._starting is not None:
            await self._starting
        if not await asyncio.to_thread(self.postgres._is_ready):
            await asyncio.to_thread(self.postgres.start)
        if self.temporal is not None and not await asyncio.to_thread(self.temporal._serves):
            self.temporal.kill()
            await asyncio.to_thread(self.temporal.start)

    async def _settle(self, clients: "Sequence[asyncio.Future[None]]") -> None:
        """Wait until the checker finds nothing wrong, for a bounded time."""
        began = time.monotonic()
        wrong = ["clients still wait for what they have asked"]
        while wrong and time.monotonic() < began + SETTLE_SECONDS:
            await asyncio.sleep(1.0)
            if all(client.done() for client in clients):
                wrong = await self.find_faults()
        self.counts["settled_seconds"] = int(time.monotonic() - began)
        self.wrong += wrong

    # -------------------------------------------------------------------------------------- judging

    async def find_faults(self) -> list[str]:
        """What is wrong, by the providers' files, the process table and the store's own tables."""
        store = await self._tables()
        answer = await self.ask("GET", "/v1/agents?limit=1000")
        listed = {one["name"]: one["state"] for one in answer.body["items"]}
        promises = list(self.promises.values())
        look = asyncio.to_thread(
            resource_checker.check, self.home, promises, listed_agents=listed, store=store
        )
        return [*(await look), *self._told_events(store)]

    async def _tables(self) -> dict[str, list[dict[str, Any]]]:
        """Every table, read from the server itself in one look."""
        base = await asyncpg.connect(self.postgres.url, server_settings={"search_path": SCHEMA})
        try:
            async with base.transaction(isolation="repeatable_read", readonly=True):
                names = await base.fetch(
                    "SELECT tablename FROM pg_tables WHERE schemaname = $1", SCHEMA
                )
                tables = {}
                for (name,) in names:
                    order = "ORDER BY position" if name in {"audit", "outbox"} else ""
                    rows = await base.fetch(f'SELECT * FROM "{name}" {order}')
                    tables[name] = [dict(row) for row in rows]
                return tables
        finally:
            await base.close()

    def _told_events(self, store: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
        """Every event was told once, those of an agent in order; none is gone before its time."""
        told: dict[str, list[int]] = {}
        for agent, sequence, _ in self.told:
            told.setdefault(agent, []).append(sequence)
        for row in store["counter"]:
            kind, _, agent = row["name"].partition("/")
            if kind == "event" and told.get(agent) != list(range(1, row["value"] + 1)):
                yield f"agent {agent} has {row['value']} events, told are {told.get(agent)}"[:500]
        kept = [(row["agent"], row["sequence"], row["type"]) for row in store["outbox"]]
        if kept != self.told:
            yield f"{len(kept)} events are kept and {len(self.told)} were told"

    @property
    def answered_share(self) -> float:
        """The share of all requests, sent once or again, that got an answer."""
        asked = self.counts["changes"] + self.counts["looks"]
        return self.answers / max(asked, 1)

    @property
    def answers(self) -> int:
        """Requests that got an answer so far."""
        return self.counts["changes_answered"] + self.counts["looks_answered"]


async def _cancel_all(tasks: "Sequence[asyncio.Future[None]]") -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


@contextmanager
def swept(place: Path) -> Iterator[None]:
    """Nothing of the agents is left afterwards."""
    with kept.end_all_after(place / "home" / "runtimes"):
        yield


__all__ = ["Chaos", "swept"]
