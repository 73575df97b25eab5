"""The epoch file in a plane's home: one line of JSON, replaced atomically, flushed and private.

It is not part of the store, so a restored copy of the store does not bring an older epoch back.
Several processes of a home write it; each holds the file's lock from reading to writing.
"""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from tenure.atomic_file import replace_atomically
from tenure.core.errors import StoreError, StoreLocked
from tenure.ports.epoch import Memo
from tenure.sqlite.location import Lock

NAME = "epoch"
LOCK_SECONDS = 5.0
"""How long to wait for the lock; its holder needs it for one write and one flush."""
PAUSE_SECONDS = 0.002


class EpochFile:
    """See `tenure.ports.epoch.EpochStorage`."""

    def __init__(self, home: Path) -> None:
        self.path = home / NAME

    def read(self) -> Memo | None:
        """The content of the file; None if there is none; StoreError if it is not valid."""
        try:
            content = json.loads(self.path.read_bytes())
            memo = Memo(pause_reason=content.pop("held", ""), **content)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unusable(error.strerror or "unreadable") from None
        except (ValueError, TypeError):
            raise self._unusable("it is not what Tenure wrote") from None
        if not isinstance(memo.epoch, int) or memo.epoch < 1:
            raise self._unusable("it has no valid epoch")
        return memo

    def write(self, memo: Memo) -> None:
        """Replace the file atomically."""
        content = memo._asdict()
        content["held"] = content.pop("pause_reason")  # the name of the field in the file
        replace_atomically(self.path, json.dumps(content) + "\n")

    async def revise(self, revision: Callable[[Memo | None], Memo | None]) -> None:
        """Revise the file under its lock, on a thread; StoreLocked if it is not free in time."""
        await asyncio.to_thread(self._revise, revision)

    def _revise(self, revision: Callable[[Memo | None], Memo | None]) -> None:
        lock = wait_for_lock(self.path)
        try:
            after = revision(self.read())
            if after is not None:
                self.write(after)
        finally:
            lock.release()

    def _unusable(self, why: str) -> StoreError:
        return StoreError(
            f"{self.path} cannot be used ({why}): nothing was touched. Move it away and say"
            " tenure restore --hold, which starts a new epoch."
        )


def wait_for_lock(path: Path) -> Lock:
    """Wait for the lock of this file; StoreLocked after LOCK_SECONDS."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return Lock.take(path)
        except StoreLocked:
            if time.monotonic() > until:
                raise
        time.sleep(PAUSE_SECONDS)
