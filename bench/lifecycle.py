"""The lifecycle over real HTTP: create and delete cycles, overhead of one create, lists, start-up.

`--cycles` create+delete cycles run against a plane with a runtime that only remembers, so that the
control plane's own cost is left. One create at a time on real processes measures how much longer a
create takes than the runtime's own start: the same program by hand in the same sandbox. Then a
store with `--agents` agents is listed by pages and started from anew.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tenure.adapters.runtime.process import sandbox

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
AGENT = ROOT / "examples/02_agent/agent.py"
PAGE = 100
WARMING = 3


def head(method, path, token, body=b""):
    return (
        f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nPrefer: wait=60\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


class Line:
    """One kept-alive connection; as little of a client as HTTP allows, so that it costs little."""

    async def open(self, address):
        host, _, port = address.removeprefix("http://").rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    async def ask(self, request):
        self._writer.write(request)
        top = await self._reader.readuntil(b"\r\n\r\n")
        status = int(top[9:12])
        low = top.lower()
        at = low.index(b"content-length:")
        size = int(low[at + 15 : low.index(b"\r\n", at)])
        return status, await self._reader.readexactly(size)

    def close(self):
        self._writer.close()


@contextlib.contextmanager
def server(home):
    process = subprocess.Popen(
        [sys.executable, str(HERE / "servers/lifecycle.py"), str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield json.loads(process.stdout.readline()), process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def cycles(address, token, count, lines):
    """Full create+delete cycles: each request waits until its operation has ended."""
    names = iter(range(count))
    times = []

    async def worker():
        line = await Line().open(address)
        for number in names:
            name = f"agent-{number}"
            body = json.dumps(
                {
                    "name": name,
                    "runtime": {"command": ["true"]},
                    "roles": ["reader"],
                    "credentials": [{"audience": "https://a.example", "scopes": ["a:read"]}],
                }
            ).encode()
            began = time.perf_counter()
            for request, kind in (
                (head("POST", "/v1/agents", token, body), "create_agent"),
                (head("DELETE", f"/v1/agents/{name}", token), "delete_agent"),
            ):
                status, answer = await line.ask(request)
                told = json.loads(answer)
                if told.get("state") != "SUCCEEDED" or told["kind"] != kind:
                    raise RuntimeError(f"{kind} of {name}: {status} {answer[:300]}")
            times.append(time.perf_counter() - began)
        line.close()

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(lines)))
    return time.perf_counter() - began, times


async def fill(address, token, count):
    """So many agents that stay."""
    names = iter(range(count))

    async def worker():
        line = await Line().open(address)
        for number in names:
            body = json.dumps(
                {"name": f"kept-{number:06}", "runtime": {"command": ["true"]}}
            ).encode()
            status, answer = await line.ask(head("POST", "/v1/agents", token, body))
            if json.loads(answer).get("state") != "SUCCEEDED":
                raise RuntimeError(f"{status} {answer[:300]}")
        line.close()

    await asyncio.gather(*(worker() for _ in range(32)))


async def pages(address, token):
    """The time of each page of the list, first to last."""
    line = await Line().open(address)
    times, after, seen = [], "", 0
    while True:
        path = f"/v1/agents?limit={PAGE}" + (f"&after={after}" if after else "")
        began = time.perf_counter()
        _, answer = await line.ask(head("GET", path, token))
        times.append(time.perf_counter() - began)
        told = json.loads(answer)
        seen += len(told["items"])
        after = told["next"]
        if not after:
            line.close()
            return times, seen


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def own_start(words):
    """How long the agent alone takes from its start by hand to its first answer, behind `words`."""
    port = free_port()
    began = time.perf_counter()
    agent = subprocess.Popen(
        [*words, sys.executable, str(AGENT)],
        env={"PORT": str(port), "PATH": os.environ["PATH"]},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while True:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            line.request("GET", "/ping")
            if line.getresponse().status == 200:
                break
        except OSError:
            time.sleep(0.001)
        finally:
            line.close()
    took = time.perf_counter() - began
    agent.kill()
    agent.wait()
    return took


def sandbox_words(home):
    """The words that the process runtime puts before a command, or none where it has no sandbox."""
    found = sandbox.find(os.environ["PATH"])
    if not found:
        return []
    work = Path(home, "by-hand")
    work.mkdir()
    return sandbox.wrap(
        found,
        hidden=(str(Path(home, "runtimes")), str(home)),
        readable=(sys.executable, str(AGENT)),
        writable=(str(work),),
    )


class Up:
    """`tenure up` as a user starts it."""

    def __init__(self, home):
        self.home = Path(home)

    def __enter__(self):
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tenure",
                "up",
                "--new-token",
                "--home",
                str(self.home),
                "--port",
                "0",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        stale = (self.home / "address").read_text() if (self.home / "address").exists() else ""
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"tenure up ended with {self.process.returncode}")
            with contextlib.suppress(OSError, ValueError):
                self.address = (self.home / "address").read_text().strip()
                if self.address and self.address != stale.strip() and self._ready():
                    break
            time.sleep(0.002)
        self.seconds = time.perf_counter() - began
        self.token = (self.home / "token").read_text().strip()
        return self

    def _ready(self):
        host = self.address.removeprefix("http://")
        line = http.client.HTTPConnection(host, timeout=1)
        try:
            line.request("GET", "/readyz")
            return line.getresponse().status == 200
        finally:
            line.close()

    def resident_mib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


async def create(line, token, name):
    """One create on a real process, which is deleted again."""
    body = json.dumps({"name": name, "runtime": {"command": [sys.executable, str(AGENT)]}})
    began = time.perf_counter()
    _, answer = await line.ask(head("POST", "/v1/agents", token, body.encode()))
    took = time.perf_counter() - began
    if json.loads(answer).get("state") != "SUCCEEDED":
        raise RuntimeError(answer[:500])
    _, answer = await line.ask(head("DELETE", f"/v1/agents/{name}", token))
    if json.loads(answer).get("state") != "SUCCEEDED":
        raise RuntimeError(answer[:500])
    return took


async def overhead(up, count):
    """How much longer a create takes than the runtime's own start, one at a time.

    The runtime's own start is that of the same program by hand, until it first answers `/ping`: in
    the sandbox that it gets from us, and for comparison without any.  The three take turns, so
    that a busy machine is busy for all of them.
    """
    line = await Line().open(up.address)
    words = sandbox_words(up.home)
    plain, boxed, made = [], [], []
    for number in range(-WARMING, count):
        name = f"real-{number + WARMING}"
        times = (own_start([]), own_start(words), await create(line, up.token, name))
        if number >= 0:
            for taken, seconds in zip((plain, boxed, made), times, strict=True):
                taken.append(seconds)
        await asyncio.sleep(0.2)
    line.close()
    return {
        "own_start_p50_ms": median_ms(boxed),
        "own_start_without_sandbox_p50_ms": median_ms(plain),
        "create_p50_ms": median_ms(made),
        "create_overhead_ms": round(median_ms(made) - median_ms(boxed), 2),
        "create_beyond_start_without_sandbox_ms": round(median_ms(made) - median_ms(plain), 2),
    }


def median_ms(times):
    return round(1000 * statistics.median(times), 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=3_000)
    parser.add_argument("--lines", type=int, default=64, help="connections at once")
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--creates", type=int, default=30)
    parser.add_argument("--dir", type=Path, default=None, help="a directory on the disk under test")
    asked = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(dir=asked.dir) as home:
        with server(home) as (told, process):
            address, token = told["address"], told["token"]
            asyncio.run(cycles(address, token, asked.cycles // 10 + 1, asked.lines))
            seconds, times = asyncio.run(cycles(address, token, asked.cycles, asked.lines))
            found["cycles_per_second"] = round(asked.cycles / seconds, 1)
            found["cycle_p50_ms"] = median_ms(times)
            print(f"{found['cycles_per_second']} cycles/s, {asked.lines} at once", flush=True)
            asyncio.run(fill(address, token, asked.agents))
            times, seen = asyncio.run(pages(address, token))
            if seen != asked.agents:
                raise RuntimeError(f"{seen} agents listed, {asked.agents} are there")
            tenth = max(1, len(times) // 10)
            found["page_first_ms"] = median_ms(times[:tenth])
            found["page_last_ms"] = median_ms(times[-tenth:])
            found["page_last_vs_first"] = round(found["page_last_ms"] / found["page_first_ms"], 2)
            process.stdin.close()
            print(process.stdout.readline().strip(), flush=True)
            process.wait()
        starts = []
        for _ in range(3):
            with Up(home) as up:
                starts.append(up.seconds)
                time.sleep(1)
                found["resident_mib"] = round(up.resident_mib(), 1)
        found["up_to_ready_seconds"] = round(statistics.median(starts), 3)
        found["agents"] = asked.agents
    with tempfile.TemporaryDirectory(dir=asked.dir) as home, Up(home) as up:
        found |= asyncio.run(overhead(up, asked.creates))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
