"""The floor: four steps written by hand on SQLite with group commit, and nothing else.

No plan, no guards, no retries, no recovery: what remains is the price of making journal, state and
outbox durable. Every runnable operation hands over its rows; one transaction takes them all, and
while it commits the next batch collects. Two forms: COMMIT on the event loop, or in a thread. It is
written on sqlite3, which comes with Python; `--tuned` gives it what Tenure has found to be faster:
apsw, pages of 8 KiB, and Python's cycle collector looking seldom.
"""

import asyncio
import gc
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import apsw
import meter

from tenure.settings import Settings
from tenure.sqlite.durable_file import PAGE_BYTES

SCHEMA = """
CREATE TABLE operation(id TEXT PRIMARY KEY, plan TEXT, state INT, input BLOB, changed_at REAL)
    WITHOUT ROWID;
CREATE TABLE journal(operation TEXT, number INT, kind INT, step TEXT, result BLOB, at REAL,
    PRIMARY KEY(operation, number)) WITHOUT ROWID;
CREATE TABLE agent(id TEXT PRIMARY KEY, state TEXT, revision INT, body BLOB) WITHOUT ROWID;
CREATE TABLE outbox(position INTEGER PRIMARY KEY, topic TEXT, body BLOB);
"""
PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "cache_size=-65536",
    "wal_autocheckpoint=4000",
)
ACCEPT = "INSERT INTO operation VALUES(?,?,?,?,?)"
RECORD = "INSERT INTO journal VALUES(?,?,?,?,?,?)"
STATE = """INSERT INTO agent VALUES(?,?,1,?)
    ON CONFLICT(id) DO UPDATE SET state=excluded.state, revision=revision+1, body=excluded.body"""
EVENT = "INSERT INTO outbox(topic, body) VALUES(?,?)"
END = "UPDATE operation SET state=?, changed_at=? WHERE id=?"

OPEN, SUCCEEDED, COMPENSATED = 0, 1, 2
DID, REFUSED, UNDID = 0, 1, 2

Row = tuple[str, tuple[object, ...]]


class Committer:
    """Group commit on one connection; `commit` gives a future that is done when the rows are."""

    def __init__(self, path: str, *, tuned: bool, in_thread: bool) -> None:
        self._database: apsw.Connection | sqlite3.Connection
        if tuned:
            self._database = apsw.Connection(path)
            self._database.execute(f"PRAGMA page_size={PAGE_BYTES}")
            gc.set_threshold(Settings().collect_after, *gc.get_threshold()[1:])
        else:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in PRAGMAS:
            self._database.execute(f"PRAGMA {pragma}").fetchall()
        for table in filter(str.strip, SCHEMA.split(";")):
            self._database.execute(table)
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1) if in_thread else None
        self._waiting: list[tuple[list[Row], asyncio.Future[None]]] = []
        self._busy = False

    def commit(self, rows: list[Row]) -> asyncio.Future[None]:
        done = self._loop.create_future()
        self._waiting.append((rows, done))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._flush)
        return done

    def _flush(self) -> None:
        batch, self._waiting = self._waiting, []
        grouped: dict[str, list[tuple[object, ...]]] = {}
        for rows, _ in batch:
            for statement, values in rows:
                grouped.setdefault(statement, []).append(values)
        self._database.execute("BEGIN IMMEDIATE")
        for statement, many in grouped.items():
            self._database.executemany(statement, many)
        if self._thread is None:
            self._database.execute("COMMIT")
            self._settle(batch)
        else:
            self._thread.submit(self._commit_in_thread, batch)

    def _commit_in_thread(self, batch: list[tuple[list[Row], asyncio.Future[None]]]) -> None:
        self._database.execute("COMMIT")
        self._loop.call_soon_threadsafe(self._settle, batch)

    def _settle(self, batch: list[tuple[list[Row], asyncio.Future[None]]]) -> None:
        for _, done in batch:
            done.set_result(None)
        if self._waiting:
            self._loop.call_soon(self._flush)
        else:
            self._busy = False

    def count(self, state: int) -> int:
        """How many operations ended that way."""
        query = "SELECT count(*) FROM operation WHERE state=?"
        ((count,),) = self._database.execute(query, (state,)).fetchall()
        return int(count)


class Floor:
    """Performs operations: each await of a commit is one durable record."""

    def __init__(self, committer: Committer, sink: meter.Sink, options: meter.Options) -> None:
        self._commit = committer.commit
        self._sink = sink
        self._fail = options.fail
        self._undone = meter.RESIDUE_STEPS if options.residue else meter.UNDONE_STEPS

    async def perform(self, name: str) -> None:
        now = time.time
        request = f'{{"agent":"{name}"}}'.encode()
        await self._commit([(ACCEPT, (name, "create", OPEN, request, now()))])
        for number in (1, 2, 3, 4):
            result = await self._step(name, str(number))
            if self._fail and number == meter.REFUSED_STEP:
                await self._commit([(RECORD, (name, number, REFUSED, "step", result, now()))])
                await self._compensate(name, number)
                return
            rows: list[Row] = [
                (RECORD, (name, number, DID, "step", result, now())),
                (STATE, (name, f"did-{number}", result)),
                (EVENT, ("agent.step", result)),
            ]
            if number == len(meter.STEPS):
                rows.append((END, (SUCCEEDED, now(), name)))
            await self._commit(rows)

    async def _compensate(self, name: str, refused: int) -> None:
        now, recorded = time.time, refused
        for number in self._undone:
            result = await self._step(name, f"undo-{number}")
            recorded += 1
            rows: list[Row] = [
                (RECORD, (name, recorded, UNDID, "undo", result, now())),
                (STATE, (name, f"undid-{number}", result)),
                (EVENT, ("agent.undo", result)),
            ]
            if number == 1:
                rows.append((END, (COMPENSATED, now(), name)))
            await self._commit(rows)

    async def _step(self, name: str, step: str) -> bytes:
        self._sink.append(name, step)
        return f'{{"step":"{step}","operation":"{name}","ok":true}}'.encode()


async def main() -> None:
    words, forms = "SQLite with group commit, by hand", ("loop", "thread")
    parser = meter.parser(words, forms=forms, residue=True)
    parser.add_argument("--tuned", action="store_true", help="as Tenure is: apsw, 8 KiB, collector")
    arguments = parser.parse_args()
    options, tuned = meter.options(arguments), arguments.tuned
    path, in_thread = str(options.directory / "floor.db"), options.form == "thread"
    committer = Committer(path, tuned=tuned, in_thread=in_thread)
    floor = Floor(committer, meter.Sink(options.sink), options)
    measured = await meter.drive(floor.perform, options)
    ended = committer.count(COMPENSATED if options.fail else SUCCEEDED)
    if ended != options.operations + options.alone + options.warm:
        raise RuntimeError(f"only {ended} operations ended as they should")
    versions = {"sqlite": sqlite3.sqlite_version}
    if tuned:
        versions = {"apsw": apsw.apsw_version(), "sqlite": apsw.sqlite_lib_version()}
    records = "journal + state + outbox"
    meter.emit(meter.summary("floor", options, measured, versions=versions, records=records))


if __name__ == "__main__":
    asyncio.run(main())
