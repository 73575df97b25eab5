"""Moves the working directory of an agent's earlier, dead runtime to its new runtime.

The directory is moved and never copied, so there is one of it at any time.  The new runtime's
orders name the earlier key and are flushed before the move.  If the new runtime is removed while
the earlier one still exists, the directory moves back: a repair that was undone has changed
nothing.
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
"""Locks a directory exclusively; False if there is none."""
STILL_RUNNING = "the runtime whose state it was to have still runs"


def move_from(
    key: ResourceKey, directory: RuntimeDir, earlier: Sequence[RuntimeDir], *, lock: Lock
) -> str:
    """Move the first working directory found; returns a reason if its runtime still runs."""
    for before in _of_same_agent(key, earlier):
        with lock(before.path) as exists:
            if not exists or not before.work.is_dir():
                continue
            if proc.has_keeper(before.path):
                return STILL_RUNNING
            directory.flush()
            with suppress(FileNotFoundError):
                before.work.rename(directory.work)
                _flush(directory.path, before.path)
            return ""
    return ""


def move_back(
    key: ResourceKey, directory: RuntimeDir, earlier: Sequence[RuntimeDir], *, lock: Lock
) -> None:
    """Move the working directory back, before the new runtime's directory is deleted."""
    for before in _of_same_agent(key, earlier):
        with lock(before.path) as exists:
            if exists and not proc.has_keeper(before.path):
                with suppress(OSError):  # the earlier one has a new one, or this one has none
                    directory.work.rename(before.work)
                    _flush(before.path, directory.path)
                return


def earlier_keys(directory: RuntimeDir) -> list[str]:
    """The keys of earlier runtimes in this runtime's launch file."""
    text = directory.launch_config().text("spec")
    return [str(one) for one in json.loads(text).get("state_of", ())] if text else []


def _of_same_agent(key: ResourceKey, earlier: Sequence[RuntimeDir]) -> Iterator[RuntimeDir]:
    """Only directories of the same agent, so that a guessed key gives no access."""
    return (one for one in earlier if one.owner() is not None and not one.is_foreign_to(key))


def _flush(*directories: Path) -> None:
    for path in directories:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
