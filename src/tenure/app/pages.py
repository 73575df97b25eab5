"""Lists: the rows of a table page by page, and how large a page a caller gets."""

from collections.abc import AsyncIterator, Mapping
from typing import cast

from tenure.core.limits import PAGE_MAX
from tenure.ports.store import TABLES, Key, Row, Store, Value


async def every(
    store: Store, table: str, said: Mapping[str, Value] | None = None, *, after: Key = ()
) -> AsyncIterator[Row]:
    """Every row of a table that says this, in key order; each page as it is then."""
    last = after
    while True:
        rows = await store.list_rows(table, said or {}, after=last, limit=PAGE_MAX)
        for row in rows:
            yield row
        if len(rows) < PAGE_MAX:
            return
        last = tuple(cast("str | int", rows[-1][column]) for column in TABLES[table].key)


def page_of(limit: int) -> int:
    """As many rows as were asked for, but one at least and no more than there are in a page."""
    return max(1, min(limit, PAGE_MAX))
