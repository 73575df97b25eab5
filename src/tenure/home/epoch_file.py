"""The epoch's file in a plane's home: one line of JSON, replaced whole, flushed, and private.

It lies beside the store and is no part of it: a copy of the store that is put back does not bring
an older epoch with it.  Several processes of a home write it: who builds on what it says holds its
lock from the reading to the writing.
"""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from tenure.core.errors import StoreError, StoreLocked
from tenure.home.atomic_file import replace_whole
from tenure.ports.epoch import Memo
from tenure.sqlite.location import Lock

NAME = "epoch"
LOCK_SECONDS = 5.0
"""How long another process may hold the file; it takes one write and one flush."""
PAUSE_SECONDS = 0.002


class EpochFile:
    """See `tenure.ports.epoch.EpochKeeper`."""

    def __init__(self, home: Path) -> None:
        self.path = home / NAME

    def read(self) -> Memo | None:
        """What the file says; StoreError if it says nothing that makes sense."""
        try:
            said = json.loads(self.path.read_bytes())
            memo = Memo(**said)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._odd(error.strerror or "unreadable") from None
        except (ValueError, TypeError):
            raise self._odd("it is not what Tenure wrote") from None
        if not isinstance(memo.epoch, int) or memo.epoch < 1:
            raise self._odd("it names no epoch")
        return memo

    def write(self, memo: Memo) -> None:
        """Beside it first, then in its place."""
        replace_whole(self.path, json.dumps(memo._asdict()) + "\n")

    async def revise(self, revised: Callable[[Memo | None], Memo | None]) -> None:
        """Under the file's lock; StoreLocked if another process keeps it.  The loop goes on."""
        await asyncio.to_thread(self._revise, revised)

    def _revise(self, revised: Callable[[Memo | None], Memo | None]) -> None:
        lock = wait_for_lock(self.path)
        try:
            after = revised(self.read())
            if after is not None:
                self.write(after)
        finally:
            lock.release()

    def _odd(self, why: str) -> StoreError:
        return StoreError(
            f"{self.path} cannot be used ({why}): nothing was touched. Move it away and say"
            " tenure restore --hold, which begins a new epoch."
        )


def wait_for_lock(path: Path) -> Lock:
    """The lock of this file; StoreLocked if another process keeps it for too long."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return Lock.take(path)
        except StoreLocked:
            if time.monotonic() > until:
                raise
        time.sleep(PAUSE_SECONDS)
