"""What a runtime inherits: the working directory of an earlier one of the same agent that died.

It is moved and never copied, so at any instant there is one of it.  That it was to be moved stands
in the heir's orders, on the disk, before it is; if the heir is removed while the earlier one is
still there, it goes back: a repair that comes to nothing has changed nothing.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from tenure.adapters.runtime.process import proc
from tenure.adapters.runtime.process.runtime_dir import RuntimeDir
from tenure.core.ids import ResourceKey

Lock = Callable[[Path], AbstractContextManager[bool]]
"""Holds a directory against all others; False if there is none."""
ALIVE = "the runtime whose state it was to have still runs"


def take(key: ResourceKey, there: RuntimeDir, earlier: Sequence[RuntimeDir], *, lock: Lock) -> str:
    """Move the first that is there; a sentence if its runtime still runs, and nothing was moved."""
    for before in _ours(key, earlier):
        with lock(before.path) as held:
            if not held or not before.work.is_dir():
                continue
            if proc.is_kept(before.path):
                return ALIVE
            there.flush()
            with suppress(FileNotFoundError):
                before.work.rename(there.work)
                _flush(there.path, before.path)
            return ""
    return ""


def give_back(
    key: ResourceKey, there: RuntimeDir, earlier: Sequence[RuntimeDir], *, lock: Lock
) -> None:
    """Before the heir's directory goes: what it was given is the earlier one's again."""
    for before in _ours(key, earlier):
        with lock(before.path) as held:
            if held and not proc.is_kept(before.path):
                with suppress(OSError):  # it has one of its own again, or this one has none
                    there.work.rename(before.work)
                    _flush(before.path, there.path)
                return


def named_in(there: RuntimeDir) -> list[str]:
    """The earlier runtimes that the orders of this one name."""
    text = there.orders().text("spec")
    return [str(one) for one in json.loads(text).get("state_of", ())] if text else []


def _ours(key: ResourceKey, earlier: Sequence[RuntimeDir]) -> Iterator[RuntimeDir]:
    """Only what the same agent had: a key that somebody guessed names nothing."""
    return (one for one in earlier if one.owner() is not None and not one.is_foreign_to(key))


def _flush(*directories: Path) -> None:
    for path in directories:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
