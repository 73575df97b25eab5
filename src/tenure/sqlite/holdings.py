"""What every embedded provider with a database shares: its own file, and its resources by key.

A row of `resource` is one key, there (PRESENT) or never again (BURNED).  A verb reads the row,
decides, and writes a change that holds only if the row is still what was read: its `revision`
says so, and whoever writes rows that belong to a resource raises it.  The provider's own rows
travel in the same change, so a crash leaves a resource with all of them or none.

Nothing but a ProviderError leaves a verb.  A COMMIT that fails has no known outcome: its callers
are told so, and the next call closes the file and opens it again.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import apsw
from msgspec.structs import replace

from tenure.core.errors import (
    CommitUnknown,
    Defect,
    Invalid,
    OutcomeUnknown,
    Rejected,
    StoreError,
    Unavailable,
)
from tenure.core.ids import ResourceKey
from tenure.core.limits import INPUT_BYTES_MAX
from tenure.core.plain import refuse_odd
from tenure.ports.clock import Clock
from tenure.ports.provider import Observation, OwnedResource, Presence, Spec
from tenure.ports.store import (
    Change,
    CommitRefusal,
    Drop,
    Header,
    Is,
    Key,
    Put,
    Row,
    Set,
    Shape,
    Value,
)
from tenure.sqlite.commit_thread import Flush, InThread
from tenure.sqlite.committer import Committer
from tenure.sqlite.gate import OpenFile, open_file
from tenure.sqlite.migrations import Migration, read_migrations
from tenure.sqlite.statements import Statements

RESOURCE = Shape(
    ("key",),
    ("plane", "tenant", "agent", "generation", "slot", "name", "state", "revision", "spec",
     "reference", "since"),
)  # fmt: skip
PRESENT, BURNED = "PRESENT", "BURNED"
ATTEMPTS_MAX = 20
"""How often a verb reads and decides again when another was quicker; then it is Unavailable."""
OWNED_PAGE = 100
"""Rows of a listing that are read at once, with the loop waiting."""

Part = Is | Put | Set | Drop
"""A guard or a write of the provider's own rows."""
Asked = Mapping[str, Value] | Sequence[Value]

_NEVER = (BURNED, "{}", "{}")
"""State, spec and reference of a key that never comes to anything."""
_NEW = Header("resource", RESOURCE.key, RESOURCE.columns, adds=True)
_OWNED = (
    "SELECT rowid, key, agent, generation, since FROM resource"
    " WHERE plane = ? AND state = 'PRESENT' AND rowid > ? ORDER BY rowid LIMIT ?"
)
_PRELUDE = Path(__file__).with_suffix(".sql")


class _Held(NamedTuple):
    """The file while it is open."""

    file: OpenFile
    committer: Committer
    reader: apsw.Cursor


class Holdings:
    """One provider's resources on one file; made by `open_holdings`."""

    def __init__(
        self,
        open_held: Callable[[], _Held],
        *,
        tables: Mapping[str, Shape],
        clock: Clock,
        flush: Flush,
    ) -> None:
        self.now = clock.now
        self._open_held = open_held
        self._held = open_held()
        self._flush = flush
        self._statements = Statements(tables)
        self._broken = False
        self._closed = False

    # ------------------------------------------------------------------------------------ verbs

    async def ensure(
        self,
        key: ResourceKey,
        spec: Spec,
        *,
        reference: Callable[[], Mapping[str, object]],
        also: Callable[[Row | None], Sequence[Part]] = lambda _: (),
    ) -> Mapping[str, object]:
        """Make the resource or converge it to `spec`; its reference, as it was first given.

        `also` is handed the row as it stands (None: there is none) and gives the provider's own
        guards and writes, or raises Rejected. It is called again whenever another was quicker, and
        not at all if nothing is to be done: the same spec under the same generation writes nothing.
        """
        try:
            wanted = encode(spec, "the spec")
        except Invalid as error:
            await self.refuse(key, str(error))
        for _ in range(ATTEMPTS_MAX):
            row = self._standing(key)
            try:
                if row is None:
                    given = encode(reference(), "the reference")
                    new = (PRESENT, wanted, given)
                    change = self._make(key, new, also(None))
                else:
                    given = str(row["reference"])
                    if row["spec"] == wanted and row["generation"] == key.generation:
                        return _decode(given)
                    now: Row = {"spec": wanted, "generation": key.generation}
                    change = _move(row, now, also(row))
                if await self.commit(change) is None:
                    return _decode(given)
            except Rejected as error:  # by `also`, or of rows that no table takes
                await self.refuse(key, str(error))
        raise _contended(key)

    async def inspect(self, key: ResourceKey) -> Observation:
        """What stands under this key, as committed."""
        row = self.find("resource", (key.text,))
        if row is None or row["state"] == BURNED:
            return Observation(Presence.ABSENT)
        owner, generation = str(row["plane"]), int(row["generation"])  # type: ignore[arg-type]
        if _is_foreign(key, row):
            return Observation(Presence.FOREIGN, {}, owner, 0)
        return Observation(Presence.READY, _decode(str(row["reference"])), owner, generation)

    async def remove(
        self, key: ResourceKey, *, also: Callable[[Row], Sequence[Part]] = lambda _: ()
    ) -> None:
        """Remove the resource and burn its key; twice, or of the unknown, succeeds.

        `also` is handed the row that goes, and gives what is to go with it.
        """
        for _ in range(ATTEMPTS_MAX):
            row = self.find("resource", (key.text,))
            if row is None:
                change = self._make(key, _NEVER)
            elif row["state"] == BURNED:
                return
            elif _is_foreign(key, row):
                raise _foreign(key)
            else:
                gone: Row = {"state": BURNED, "spec": "{}", "reference": "{}"}
                change = _move(row, gone, also(row))
            if await self.commit(change) is None:
                return
        raise _contended(key)

    async def refuse(self, key: ResourceKey, sentence: str) -> NoReturn:
        """Refuse an ensure for good: Rejected, and an unknown key is burned first.

        So a call of that key which is still on its way is refused as well. What is there stays.
        """
        if self.find("resource", (key.text,)) is None:
            # If another was quicker the key is known by now, and stays as it is.
            await self.commit(self._make(key, _NEVER))
        raise Rejected(sentence) from None

    async def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Everything of this plane, oldest first, read by pages: other work goes on in between."""
        after = 0
        while page := self.read(_OWNED, (plane, after, OWNED_PAGE)):
            for after, key, agent, generation, since in page:  # noqa: B007 (the next page's begin)
                yield OwnedResource(key, agent, generation, since)
            if len(page) < OWNED_PAGE:
                return
            await asyncio.sleep(0)

    # ------------------------------------------------------------------- the provider's own rows

    def find(self, table: str, key: Key) -> Row | None:
        """One row by its key, as committed."""
        columns = self._statements.columns(table)
        rows = self.read(self._statements.reads[table, *columns], key)
        return dict(zip(columns, rows[0], strict=True)) if rows else None

    def read(self, sql: str, asked: Asked = ()) -> list[tuple[Any, ...]]:
        """The rows a query gives, as committed; the loop waits, so they must be few."""
        reader = self._use().reader
        try:
            return reader.execute(sql, asked).fetchall()
        except apsw.Error as error:
            raise Unavailable(f"The provider's file cannot be read ({error}).") from None
        except UnicodeEncodeError:
            raise Rejected("What was asked for is not text that can be kept.") from None

    async def commit(self, change: Change) -> CommitRefusal | None:
        """Apply the change durably (None) or not at all (Refused).

        Rejected is a change that can never be written: a value that a table does not take.
        """
        held = self._use()
        try:
            return await held.committer.commit(change)
        except CommitUnknown as error:
            if held is self._held:  # and not one that was opened since
                self._broken = True
            raise OutcomeUnknown(str(error)) from None
        except StoreError as error:
            raise Unavailable(str(error)) from None
        except Defect as error:
            raise Rejected(str(error)) from None

    async def close(self) -> None:
        """Finish what was handed in, then let go. A second close does nothing."""
        if self._closed:
            return
        self._closed = True
        await self._held.committer.close()
        self._flush.close()
        self._held.file.close()

    # -------------------------------------------------------------------------------------- parts

    def _standing(self, key: ResourceKey) -> Row | None:
        """The row of a key that may be ensured; Rejected if it may not."""
        row = self.find("resource", (key.text,))
        if row is None:
            return None
        if row["state"] == BURNED:
            raise Rejected(f"{key.text} was removed or refused before and is never used again.")
        if _is_foreign(key, row):
            raise _foreign(key)
        if int(row["generation"]) > key.generation:  # type: ignore[arg-type]
            raise Rejected(
                f"{key.text} has generation {row['generation']!r}; {key.generation} is older."
            )
        return row

    def _make(
        self, key: ResourceKey, new: tuple[str, str, str], parts: Sequence[Part] = ()
    ) -> Change:
        """A new row: only one of those who try at the same time succeeds."""
        _, plane, tenant, agent, generation, slot, name = key
        state, spec, reference = new
        owner = plane, tenant, agent, generation, slot, name
        line = (key.text, *owner, state, 1, spec, reference, self.now())
        # Removals may use the last room on the disk; new resources may not.
        change = _change((), (), parts, admits=state == PRESENT)
        return replace(change, headers=(_NEW,), lines=(line,))

    def _use(self) -> _Held:
        """The file; opened again if its last COMMIT has failed."""
        if self._closed:
            raise Unavailable("The provider's file is closed: nothing was read or written.")
        if self._broken:
            try:
                self._held.file.close()
                self._held = _settled(self._open_held())
            except StoreError as error:
                raise Unavailable(str(error)) from None
            except apsw.Error as error:
                raise Unavailable(f"The provider's file fails ({error}).") from None
            self._broken = False
        return self._held


def open_holdings(
    path: Path | str,
    *,
    migrations: Path,
    tables: Mapping[str, Shape],
    application_id: int,
    clock: Clock,
    flush: Flush | None = None,
    room: Callable[[], int] | None = None,
) -> Holdings:
    """Open the provider's file (made if it is not there) and hold it until `close`.

    `migrations` and `tables` are the provider's own, beside `resource`; `flush` runs COMMIT, by
    default in a thread of this file's own; `room` tells the free bytes of its disk. Raises a
    StoreError that says what is the matter.
    """
    steps = steps_of(migrations.parent)
    tables = {"resource": RESOURCE, **tables}
    running = InThread(f"commit {Path(path).name}") if flush is None else flush

    def open_held() -> _Held:
        file = open_file(path, steps, application_id=application_id)
        try:
            committer = Committer(file.writer, tables, flush=running, room=room or file.room)
            return _Held(file, committer, file.reader().cursor())
        except BaseException as error:
            file.close()
            if isinstance(error, apsw.Error):
                raise StoreError(f"{file.path} cannot be used ({error}).") from None
            raise

    return Holdings(open_held, tables=tables, clock=clock, flush=running)


def steps_of(provider: Path) -> list[Migration]:
    """The migrations of a provider's file: first `resource`, then its own."""
    first = Migration(1, _PRELUDE.stem, _PRELUDE.read_text(encoding="utf-8"))
    own = read_migrations(provider / "migrations")
    return [first, *(one._replace(number=one.number + 1) for one in own)]


def encode(value: Mapping[str, object], what: str) -> str:
    """Plain data as text that is the same for the same data; Invalid names what is odd."""
    plain = dict(value)
    refuse_odd(plain, what)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    if len(text) > INPUT_BYTES_MAX:
        raise Invalid(f"{what} is {len(text)} bytes long; {INPUT_BYTES_MAX} is the most")
    return text


def revised(row: Row) -> tuple[Is, Set]:
    """That this resource is still what was read, and that it is changed: for changes of its rows.

    Whoever writes rows of a resource by another way than its verbs puts these in the change.
    """
    key = (str(row["key"]),)
    revision = int(row["revision"])  # type: ignore[arg-type]
    return Is("resource", key, {"revision": revision}), Set(
        "resource", key, {"revision": revision + 1}
    )


def differences(
    table: str, there: Mapping[Key, Row], wanted: Mapping[Key, Row]
) -> list[Put | Set | Drop]:
    """What makes the rows that are there those that are wanted; `at` is when a row first came."""
    parts: list[Put | Set | Drop] = [Drop(table, key) for key in there if key not in wanted]
    for key, row in wanted.items():
        known = there.get(key)
        if known is None:
            parts.append(Put(table, key, row))
            continue
        changed = {name: said for name, said in row.items() if name != "at" and known[name] != said}
        if changed:
            parts.append(Set(table, key, changed))
    return parts


def _move(row: Row, now: Mapping[str, Value], parts: Sequence[Part]) -> Change:
    """A row that changes, if it is still what was read."""
    guard, revise = revised(row)
    return _change((guard,), (replace(revise, row={**revise.row, **now}),), parts)


def _change(
    guards: tuple[Is, ...],
    writes: tuple[Set, ...],
    parts: Sequence[Part],
    *,
    admits: bool = False,
) -> Change:
    own = [part for part in parts if isinstance(part, Is)]
    others = [part for part in parts if not isinstance(part, Is)]
    return Change("", (*guards, *own), (*writes, *others), admits)


def _settled(held: _Held) -> _Held:
    """Write what recovery found in the log to the main file before anyone builds on it.

    After a flush that failed, the log may be whole in memory and not on the disk, and the system
    holds it for written.
    """
    try:
        held.file.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except BaseException:
        held.file.close()
        raise
    return held


def _is_foreign(key: ResourceKey, row: Row) -> bool:
    return (row["plane"], row["tenant"], row["agent"]) != (key.plane, key.tenant, key.agent)


def _foreign(key: ResourceKey) -> Rejected:
    return Rejected(f"{key.text} is held by another owner and was left alone.")


def _contended(key: ResourceKey) -> Unavailable:
    return Unavailable(f"Too many write {key.text} at the same time: nothing was written.")


def _decode(text: str) -> dict[str, object]:
    value: dict[str, object] = json.loads(text)
    return value
