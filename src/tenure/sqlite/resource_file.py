"""The base of every embedded provider with a database: its file, and its resources by key.

A row of `resource` is one key; it is PRESENT, or BURNED and never used again.  A method reads the
row, decides, and commits a change that is guarded by the row's `revision`; every change of rows
that belong to a resource increments it.  The provider's own rows are in the same change, so after a
crash a resource has all of them or none.

The methods raise only ProviderErrors.  A COMMIT that fails has no known outcome: its callers get
OutcomeUnknown, and the next call closes the file and opens it again.
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
from tenure.core.plain import require_plain_data
from tenure.core.records.table import TableShape
from tenure.ports.clock import Clock
from tenure.ports.provider import Observation, OwnedResource, Presence, Spec
from tenure.ports.store import (
    Change,
    CommitRefusal,
    Drop,
    Is,
    Key,
    PreparedWrite,
    Put,
    Row,
    Set,
    Value,
)
from tenure.sqlite.commit_thread import ThreadRunner, WorkRunner
from tenure.sqlite.committer import Committer
from tenure.sqlite.durable_file import OpenFile, open_file
from tenure.sqlite.migrations import Migration, read_migrations
from tenure.sqlite.statements import Statements

RESOURCE = TableShape(
    ("key",),
    ("plane", "tenant", "agent", "generation", "slot", "name", "state", "revision", "spec",
     "reference", "since"),
)  # fmt: skip
PRESENT, BURNED = "PRESENT", "BURNED"
ATTEMPTS_MAX = 20
"""How often a method retries after a concurrent change of its row; then it is Unavailable."""
OWNED_PAGE = 100
"""Rows of a listing that are read at once; the read blocks the event loop."""

GuardOrWrite = Is | Put | Set | Drop
"""A guard or a write of the provider's own rows."""
Parameters = Mapping[str, Value] | Sequence[Value]

_BURNED_VALUES = (BURNED, "{}", "{}")
"""State, spec and reference of a burned key."""
_PREPARED_INSERT = PreparedWrite("resource", RESOURCE.key, RESOURCE.columns, adds=True)
_LIST_OWNED = (
    "SELECT rowid, key, agent, generation, since FROM resource"
    " WHERE plane = ? AND state = 'PRESENT' AND rowid > ? ORDER BY rowid LIMIT ?"
)
_RESOURCE_SQL = Path(__file__).with_suffix(".sql")
_RESOURCE_MIGRATION = "holdings"
"""The name of this migration in the files; it is stored, so it stays."""


class _OpenResourceFile(NamedTuple):
    """The open file with its committer and its read cursor."""

    file: OpenFile
    committer: Committer
    reader: apsw.Cursor


class ResourceFile:
    """One provider's resources in one file; made by `open_resource_file`."""

    def __init__(
        self,
        open_again: Callable[[], _OpenResourceFile],
        *,
        tables: Mapping[str, TableShape],
        clock: Clock,
        flush: WorkRunner,
    ) -> None:
        self.now = clock.now
        self._open_again = open_again
        self._open = open_again()
        self._flush = flush
        self._statements = Statements(tables)
        self._needs_reopen = False
        self._is_closed = False

    # -------------------------------------------------------------------------- resource methods

    async def ensure(
        self,
        key: ResourceKey,
        spec: Spec,
        *,
        reference: Callable[[], Mapping[str, object]],
        extra_changes: Callable[[Row | None], Sequence[GuardOrWrite]] = lambda _: (),
    ) -> Mapping[str, object]:
        """Create the resource or converge it to `spec`; returns the reference of its creation.

        `extra_changes` gets the current row (None if there is none) and returns the provider's own
        guards and writes, or raises Rejected. It is called again after a concurrent change. It is
        not called if spec and generation are unchanged: nothing is written then.
        """
        try:
            spec_text = encode(spec, "the spec")
        except Invalid as error:
            await self.refuse(key, str(error))
        for _ in range(ATTEMPTS_MAX):
            row = self._find_for_ensure(key)
            try:
                if row is None:
                    reference_text = encode(reference(), "the reference")
                    new = (PRESENT, spec_text, reference_text)
                    change = self._insert_change(key, new, extra_changes(None))
                else:
                    reference_text = str(row["reference"])
                    if row["spec"] == spec_text and row["generation"] == key.generation:
                        return _decode(reference_text)
                    new_values: Row = {"spec": spec_text, "generation": key.generation}
                    change = _update_change(row, new_values, extra_changes(row))
                if await self.commit(change) is None:
                    return _decode(reference_text)
            except Rejected as error:  # by `extra_changes`, or for values that no table accepts
                await self.refuse(key, str(error))
        raise _contention_error(key)

    async def inspect(self, key: ResourceKey) -> Observation:
        """The committed state of this key."""
        row = self.find("resource", (key.text,))
        if row is None or row["state"] == BURNED:
            return Observation(Presence.ABSENT)
        owner, generation = str(row["plane"]), int(row["generation"])  # type: ignore[arg-type]
        if _is_foreign(key, row):
            return Observation(Presence.FOREIGN, {}, owner, 0)
        return Observation(Presence.READY, _decode(str(row["reference"])), owner, generation)

    async def remove(
        self,
        key: ResourceKey,
        *,
        extra_changes: Callable[[Row], Sequence[GuardOrWrite]] = lambda _: (),
    ) -> None:
        """Remove the resource and burn its key; succeeds also if it is unknown or burned already.

        `extra_changes` gets the row to remove and returns further writes of the same change.
        """
        for _ in range(ATTEMPTS_MAX):
            row = self.find("resource", (key.text,))
            if row is None:
                change = self._insert_change(key, _BURNED_VALUES)
            elif row["state"] == BURNED:
                return
            elif _is_foreign(key, row):
                raise _foreign_error(key)
            else:
                burned_row: Row = {"state": BURNED, "spec": "{}", "reference": "{}"}
                change = _update_change(row, burned_row, extra_changes(row))
            if await self.commit(change) is None:
                return
        raise _contention_error(key)

    async def refuse(self, key: ResourceKey, sentence: str) -> NoReturn:
        """Raise Rejected for an ensure; burn its key first if the key is unknown.

        A late call for that key is then refused too. An existing resource is not changed.
        """
        if self.find("resource", (key.text,)) is None:
            # After a concurrent change the key is known, and this commit is refused.
            await self.commit(self._insert_change(key, _BURNED_VALUES))
        raise Rejected(sentence) from None

    async def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Every resource of this plane, oldest first, read in pages; other tasks run in between."""
        after = 0
        while page := self.read(_LIST_OWNED, (plane, after, OWNED_PAGE)):
            for after, key, agent, generation, since in page:  # noqa: B007 (start of the next page)
                yield OwnedResource(key, agent, generation, since)
            if len(page) < OWNED_PAGE:
                return
            await asyncio.sleep(0)

    # ------------------------------------------------------------------- the provider's own rows

    def find(self, table: str, key: Key) -> Row | None:
        """The committed row with this key."""
        columns = self._statements.columns(table)
        rows = self.read(self._statements.reads[table, *columns], key)
        return dict(zip(columns, rows[0], strict=True)) if rows else None

    def read(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """The committed rows of a query; it blocks the event loop, so they must be few."""
        reader = self._get_open().reader
        try:
            return reader.execute(sql, parameters).fetchall()
        except apsw.Error as error:
            raise Unavailable(f"The provider's file cannot be read ({error}).") from None
        except UnicodeEncodeError:
            raise Rejected("A parameter is not text that can be stored.") from None

    async def commit(self, change: Change) -> CommitRefusal | None:
        """Apply the change durably and return None, or return the refusal.

        Raises Rejected for a change that can never be written, such as a value of a wrong type.
        """
        opened = self._get_open()
        try:
            return await opened.committer.commit(change)
        except CommitUnknown as error:
            if opened is self._open:  # and not a file that was opened again since
                self._needs_reopen = True
            raise OutcomeUnknown(str(error)) from None
        except StoreError as error:
            raise Unavailable(str(error)) from None
        except Defect as error:
            raise Rejected(str(error)) from None

    async def close(self) -> None:
        """Finish the changes handed in, then close the file. A second close does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._open.committer.close()
        self._flush.close()
        self._open.file.close()

    # ------------------------------------------------------------------------------------ helpers

    def _find_for_ensure(self, key: ResourceKey) -> Row | None:
        """The row of a key for `ensure`; Rejected if the key is burned, foreign or newer."""
        row = self.find("resource", (key.text,))
        if row is None:
            return None
        if row["state"] == BURNED:
            raise Rejected(f"{key.text} was removed or refused before and is never used again.")
        if _is_foreign(key, row):
            raise _foreign_error(key)
        if int(row["generation"]) > key.generation:  # type: ignore[arg-type]
            raise Rejected(
                f"{key.text} has generation {row['generation']!r}; {key.generation} is older."
            )
        return row

    def _insert_change(
        self, key: ResourceKey, new: tuple[str, str, str], parts: Sequence[GuardOrWrite] = ()
    ) -> Change:
        """A change that inserts the row; of concurrent inserts only one succeeds."""
        _, plane, tenant, agent, generation, slot, name = key
        state, spec, reference = new
        owner = plane, tenant, agent, generation, slot, name
        values = (key.text, *owner, state, 1, spec, reference, self.now())
        # Removals may use the reserved disk space; new resources may not.
        change = _change((), (), parts, is_new_work=state == PRESENT)
        return replace(change, prepared_writes=(_PREPARED_INSERT,), parameters=(values,))

    def _get_open(self) -> _OpenResourceFile:
        """The open file; it is opened again after a failed COMMIT."""
        if self._is_closed:
            raise Unavailable("The provider's file is closed: nothing was read or written.")
        if self._needs_reopen:
            try:
                self._open.file.close()
                self._open = _checkpoint(self._open_again())
            except StoreError as error:
                raise Unavailable(str(error)) from None
            except apsw.Error as error:
                raise Unavailable(f"The provider's file fails ({error}).") from None
            self._needs_reopen = False
        return self._open


def open_resource_file(
    path: Path | str,
    *,
    migrations: Path,
    tables: Mapping[str, TableShape],
    application_id: int,
    clock: Clock,
    flush: WorkRunner | None = None,
    free_bytes: Callable[[], int] | None = None,
) -> ResourceFile:
    """Open the provider's file, creating it if needed, and lock it until `close`.

    `migrations` and `tables` are the provider's own, in addition to `resource`; `flush` runs
    COMMIT, by default in a thread for this file; `free_bytes` returns the free bytes of its disk.
    Raises a StoreError that names the problem.
    """
    steps = provider_migrations(migrations.parent)
    tables = {"resource": RESOURCE, **tables}
    commit_thread = ThreadRunner(f"commit {Path(path).name}") if flush is None else flush

    def open_again() -> _OpenResourceFile:
        file = open_file(path, steps, application_id=application_id)
        try:
            committer = Committer(
                file.writer, tables, flush=commit_thread, free_bytes=free_bytes or file.free_bytes
            )
            return _OpenResourceFile(file, committer, file.reader().cursor())
        except BaseException as error:
            file.close()
            if isinstance(error, apsw.Error):
                raise StoreError(f"{file.path} cannot be used ({error}).") from None
            raise

    return ResourceFile(open_again, tables=tables, clock=clock, flush=commit_thread)


def provider_migrations(provider: Path) -> list[Migration]:
    """The migrations of a provider's file: first the one of `resource`, then its own."""
    first = Migration(1, _RESOURCE_MIGRATION, _RESOURCE_SQL.read_text(encoding="utf-8"))
    own = read_migrations(provider / "migrations")
    return [first, *(one._replace(number=one.number + 1) for one in own)]


def encode(value: Mapping[str, object], what: str) -> str:
    """Plain data as canonical JSON; Invalid names a value that is not plain data."""
    plain = dict(value)
    require_plain_data(plain, what)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    if len(text) > INPUT_BYTES_MAX:
        raise Invalid(f"{what} is {len(text)} bytes long; {INPUT_BYTES_MAX} is the most")
    return text


def revision_guard(row: Row) -> tuple[Is, Set]:
    """A guard on the resource's revision and a write that increments it.

    Every change of a resource's rows outside `ensure` and `remove` contains both.
    """
    key = (str(row["key"]),)
    revision = int(row["revision"])  # type: ignore[arg-type]
    return Is("resource", key, {"revision": revision}), Set(
        "resource", key, {"revision": revision + 1}
    )


def differences(
    table: str, current: Mapping[Key, Row], desired: Mapping[Key, Row]
) -> list[Put | Set | Drop]:
    """The writes that turn the current rows into the desired rows; `at` of a row never changes."""
    parts: list[Put | Set | Drop] = [Drop(table, key) for key in current if key not in desired]
    for key, row in desired.items():
        before = current.get(key)
        if before is None:
            parts.append(Put(table, key, row))
            continue
        changed = {
            name: value for name, value in row.items() if name != "at" and before[name] != value
        }
        if changed:
            parts.append(Set(table, key, changed))
    return parts


def _update_change(
    row: Row, new_values: Mapping[str, Value], parts: Sequence[GuardOrWrite]
) -> Change:
    """A change of the row, guarded by its revision."""
    guard, revise = revision_guard(row)
    return _change((guard,), (replace(revise, row={**revise.row, **new_values}),), parts)


def _change(
    guards: tuple[Is, ...],
    writes: tuple[Set, ...],
    parts: Sequence[GuardOrWrite],
    *,
    is_new_work: bool = False,
) -> Change:
    own = [part for part in parts if isinstance(part, Is)]
    others = [part for part in parts if not isinstance(part, Is)]
    return Change("", (*guards, *own), (*writes, *others), is_new_work)


def _checkpoint(opened: _OpenResourceFile) -> _OpenResourceFile:
    """Checkpoint the recovered WAL before the file is used again.

    After a failed flush the WAL may be complete in the page cache and not on the disk, although the
    kernel counts it as written.
    """
    try:
        opened.file.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except BaseException:
        opened.file.close()
        raise
    return opened


def _is_foreign(key: ResourceKey, row: Row) -> bool:
    return (row["plane"], row["tenant"], row["agent"]) != (key.plane, key.tenant, key.agent)


def _foreign_error(key: ResourceKey) -> Rejected:
    return Rejected(f"{key.text} belongs to another owner and was not changed.")


def _contention_error(key: ResourceKey) -> Unavailable:
    return Unavailable(f"Too many concurrent writes of {key.text}: nothing was written.")


def _decode(text: str) -> dict[str, object]:
    value: dict[str, object] = json.loads(text)
    return value
