"""Reads blocks of SQL from files: each is headed `-- name: x` and a sentence on what it does."""

import re
from pathlib import Path

_HEAD = re.compile(r"^-- name: (\w+)\n(?:-- \S.*\n)+", re.MULTILINE)


def read_queries(folder: Path) -> dict[str, str]:
    """Every block of every `.sql` file in the folder, by its unique name."""
    queries: dict[str, str] = {}
    for path in sorted(folder.glob("*.sql")):
        _, *blocks = _HEAD.split(path.read_text(encoding="utf-8"))
        for name, sql in zip(blocks[::2], blocks[1::2], strict=True):
            if name in queries:
                raise ValueError(f"{path.name}: query {name!r} is defined twice")
            queries[name] = sql.strip()
            if not queries[name] or "-- name:" in sql:
                raise ValueError(f"{path.name}: a block near {name!r} has no sentence or no SQL")
    return queries
