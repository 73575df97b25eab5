"""Detects that a shared store has lost commits, by a watermark in the store and in the home.

Every few seconds each process raises the watermark: a number, the time and a random word.  It is
committed to one row of the store, with the ones before it, and then written to a file of the home.
A store whose row lacks the watermark of the home is older than it was: a standby that did not have
the last commits was promoted, or the store was replaced by an older copy.  No other row is read for
this, so a process detects it even if it was not running at that time, or if none of its own commits
is lost.
"""

from tenure.app.plane import Plane
from tenure.core.instant import in_utc
from tenure.core.records import PlaneRecord
from tenure.ports import plane_rows
from tenure.ports.epoch import Watermark
from tenure.ports.store import Change

ROW = ("watermarks",)
"""The key of the row of table `plane` that has the last watermarks in its column `name`."""
LISTED_MAX = 100
"""Watermarks in that row: a process that was stopped for a while finds its last one there."""


async def find_missing(plane: Plane) -> str:
    """Why the store is older than the watermark of the home; empty if nothing shows that.

    A watermark of another epoch is ignored, as a restore begins a new epoch.
    """
    expected = plane.pause.read_watermark()
    if expected is None:
        return ""
    row = await plane.store.find(PlaneRecord, ROW)
    listed = _parse(row.text) if row is not None else []
    if expected in listed or (listed and expected.number < listed[-1].number):
        return ""
    newest = f"the newest that it has is of {in_utc(listed[0].at)}" if listed else "it has none"
    return (
        f"the store lacks the watermark that was committed to it at {in_utc(expected.at)}:"
        f" {newest}. Changes that were acknowledged between these times are lost"
    )


async def raise_watermark(plane: Plane) -> None:
    """Commit the next watermark, then write it to the home.

    If another process commits one at the same time, that one serves as well.
    """
    row = await plane.store.find(PlaneRecord, ROW)
    before = row.text if row is not None else ""
    listed = _parse(before)
    number = listed[0].number + 1 if listed else 1
    raised = Watermark(number, round(plane.store.now(), 3), f"{plane.entropy.bits():x}")
    name = " ".join(map(_text, [raised, *listed][:LISTED_MAX]))
    change = (
        Change("", (), (plane_rows.put_plane_value(ROW, name),))
        if row is None
        else Change(
            "", (plane_rows.plane_value_is(ROW, before),), (plane_rows.set_plane_value(ROW, name),)
        )
    )
    if await plane.store.commit(change) is None:
        await plane.pause.write_watermark(raised)


def _parse(text: str) -> list[Watermark]:
    """The watermarks of a row, the newest first."""
    return [
        Watermark(int(number), float(at), word)
        for number, at, word in (one.split(":") for one in text.split())
    ]


def _text(watermark: Watermark) -> str:
    return f"{watermark.number}:{watermark.at:.3f}:{watermark.word}"
