"""Lists: the rows of a table page by page, and how large a page a caller gets."""

from collections.abc import AsyncIterator, Mapping

from tenure.core.limits import PAGE_MAX
from tenure.core.records.table import key_of
from tenure.ports.store import Key, R, Store, Value


async def every(
    store: Store, record: type[R], columns: Mapping[str, Value] | None = None, *, after: Key = ()
) -> AsyncIterator[R]:
    """Every row of a table with these values, in key order; each page as it is then."""
    last = after
    while True:
        rows = await store.list_rows(record, columns or {}, after=last, limit=PAGE_MAX)
        for row in rows:
            yield row
        if len(rows) < PAGE_MAX:
            return
        last = key_of(rows[-1])


async def list_all(store: Store, record: type[R], columns: Mapping[str, Value]) -> list[R]:
    """Every row of a table with these values, in key order, for a caller who needs the whole list.

    It costs less than an `every` that is read to its end: no asynchronous generator is run.
    """
    found: list[R] = []
    last: Key = ()
    while True:
        rows = await store.list_rows(record, columns, after=last, limit=PAGE_MAX)
        found += rows
        if len(rows) < PAGE_MAX:
            return found
        last = key_of(rows[-1])


def page_of(limit: int) -> int:
    """The requested number of rows, at least one and at most PAGE_MAX."""
    return max(1, min(limit, PAGE_MAX))
