"""Restate: its server, one Python handler on granian, and a client that calls it over HTTP.

Server, handler and client share the machine, as they would in a small installation; their CPU time
is counted together. The log of a single node is flushed before a step is acknowledged, as shipped.
"""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import aiohttp
import meter

from engines import servers


@contextlib.contextmanager
def serving(program: Path, options: meter.Options) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The ingress URL of a fresh server with the handler registered, and who works behind it."""
    ingress, admin, node, handler = (servers.free_port() for _ in range(4))
    environment = {
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_LOG_FILTER": "error",
    }
    server = servers.running(
        [program, "--no-logo", "--base-dir", options.directory / "restate"],
        log=options.directory / "restate.log",
        ready=lambda: servers.answers(f"http://127.0.0.1:{admin}/health"),
        environment=environment,
    )
    serve = [
        sys.executable,
        "-m",
        "granian",
        "engines.restate_handler:app",
        "--interface",
        "asginl",
    ]
    serve += ["--http", "2", "--loop", "uvloop", "--no-ws"]
    granian = servers.running(
        [*serve, "--host", "127.0.0.1", "--port", str(handler)],
        log=options.directory / "granian.log",
        ready=lambda: servers.accepts(handler),
        stop=signal.SIGKILL,  # it holds nothing, and would wait for its connections to end
        environment={"OPERATIONS_SINK": str(options.sink)},
    )
    with granian as worker, server as restate:
        request = urllib.request.Request(
            f"http://127.0.0.1:{admin}/deployments",
            data=json.dumps({"uri": f"http://127.0.0.1:{handler}"}).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            reply.read()
        yield f"http://127.0.0.1:{ingress}", (restate.pid, worker.pid)


async def measure(url: str, options: meter.Options, server_pids: tuple[int, ...]) -> meter.Measured:
    wanted = "compensated" if options.fail else "succeeded"
    connector = aiohttp.TCPConnector(limit=options.in_flight)
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as client:

        async def perform(name: str) -> None:
            request = {"name": name, "fail": options.fail}
            headers = {"idempotency-key": name}
            async with client.post("/Operations/perform", json=request, headers=headers) as reply:
                reply.raise_for_status()
                outcome = (await reply.json())["outcome"]
            if outcome != wanted:
                raise RuntimeError(f"{name} ended as {outcome}")

        return await meter.drive(perform, options, servers=server_pids)


def main() -> None:
    parser = meter.parser("Restate with a Python handler on granian")
    parser.add_argument("--server", type=Path, required=True, help="the restate-server program")
    arguments = parser.parse_args()
    options = meter.options(arguments)
    with serving(arguments.server, options) as (url, server_pids):
        measured = asyncio.run(measure(url, options, server_pids))
    told = subprocess.check_output([arguments.server, "--version"], text=True)
    versions = {
        "restate-server": told.split()[-1],
        "restate_sdk": metadata.version("restate_sdk"),
        "granian": metadata.version("granian"),
    }
    meter.emit(meter.summary("restate", options, measured, versions=versions, records="journal"))


if __name__ == "__main__":
    main()
