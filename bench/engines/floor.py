"""The floor: four steps written by hand on SQLite with group commit, and nothing else.

No plan, no guards, no retries, no recovery: what remains is the price of making journal, state and
outbox durable. Every runnable operation hands over its rows; one transaction takes them all, and
while it commits the next batch collects. Two forms: COMMIT on the event loop, or in a thread. Two
libraries: sqlite3, which comes with Python, or apsw, which is faster and which Tenure uses.
"""

import asyncio
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import apsw
import meter

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

VERSIONS = {
    "sqlite3": {"sqlite": sqlite3.sqlite_version},
    "apsw": {"apsw": apsw.apsw_version(), "sqlite": apsw.sqlite_lib_version()},
}
OPEN, SUCCEEDED, COMPENSATED = 0, 1, 2
DID, REFUSED, UNDID = 0, 1, 2

Row = tuple[str, tuple[object, ...]]


class Committer:
    """Group commit on one connection; `commit` gives a future that is done when the rows are."""

    def __init__(self, path: str, *, library: str, in_thread: bool) -> None:
        self._database: apsw.Connection | sqlite3.Connection
        if library == "apsw":
            self._database = apsw.Connection(path)
        else:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in PRAGMAS:
            self._database.execute(f"PRAGMA {pragma}").fetchall()
        for table in SCHEMA.split(";"):
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
    parser = meter.parser("SQLite with group commit, by hand", forms=("loop", "thread"))
    parser.add_argument("--library", choices=VERSIONS, default="sqlite3")
    arguments = parser.parse_args()
    options, library = meter.options(arguments), arguments.library
    path, in_thread = str(options.directory / "floor.db"), options.form == "thread"
    committer = Committer(path, library=library, in_thread=in_thread)
    floor = Floor(committer, meter.Sink(options.sink), options)
    measured = await meter.drive(floor.perform, options)
    ended = committer.count(COMPENSATED if options.fail else SUCCEEDED)
    if ended != options.operations + options.alone + options.warm:
        raise RuntimeError(f"only {ended} operations ended as they should")
    versions = VERSIONS[library]
    records = "journal + state + outbox"
    meter.emit(meter.summary("floor", options, measured, versions=versions, records=records))


if __name__ == "__main__":
    asyncio.run(main())
