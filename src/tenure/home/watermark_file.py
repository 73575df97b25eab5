"""The watermark of a shared store, in a file of the home: one line of JSON.

It records how far the store was when a process last read it.  Several processes of a home replace
the file atomically under its lock.  It only rises; a watermark of a newer epoch replaces any of an
earlier one.
"""

import asyncio
import json
from pathlib import Path

from tenure.atomic_file import replace_atomically
from tenure.core.errors import StoreError
from tenure.home.epoch_file import wait_for_lock
from tenure.ports.epoch import Watermark

NAME = "watermark"


class WatermarkFile:
    """See `tenure.ports.epoch.WatermarkStorage`."""

    def __init__(self, home: Path) -> None:
        """In this home."""
        self.path = home / NAME

    def read(self) -> tuple[int, Watermark] | None:
        """The epoch and its watermark; None if there is no file; StoreError if it is not valid."""
        try:
            content = json.loads(self.path.read_bytes())
            watermark = Watermark(
                int(content["number"]), float(content["at"]), str(content["word"])
            )
            return int(content["epoch"]), watermark
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError, KeyError):
            raise StoreError(
                f"{self.path} cannot be read: nothing was touched. If you are sure that the store"
                " has lost nothing, delete the file; else delete it and say tenure restore --hold."
            ) from None

    async def write(self, epoch: int, watermark: Watermark) -> None:
        """Replace the file if this watermark is newer; the event loop is not blocked."""
        await asyncio.to_thread(self._write, epoch, watermark)

    def _write(self, epoch: int, watermark: Watermark) -> None:
        lock = wait_for_lock(self.path)
        try:
            last = self.read()
            if last is None or (last[0], last[1].number) < (epoch, watermark.number):
                content = {"epoch": epoch, **watermark._asdict()}
                replace_atomically(self.path, json.dumps(content) + "\n")
        finally:
            lock.release()
