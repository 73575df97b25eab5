"""The directory of one key: whose it is, what was ordered, what became of it, what was printed.

    <root>/<zone>/<key>/   owner.json orders lock state.json keeper.err log.<offset> work/ bundle/
    <root>/burned/<key>    this key was removed, stopped or refused and is never used again
    <root>/ports/<port>    the key that has this port
    <root>/logs/<key>/     what a removed runtime printed, of the last few
    <root>/trash/          what is being deleted

Files are replaced whole.  Nothing here starts or ends a process.
"""

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from tenure.adapters.runtime.process import keeper
from tenure.core.ids import ResourceKey
from tenure.ports.runtime import LogPart

OWNER = "owner.json"
SAID_BYTES_MAX = 2_048
TAIL_BYTES_MAX = 262_144
PART_BYTES_MAX = 65_536


class RuntimeOwner(NamedTuple):
    """Whose a directory is; `refused` is the last generation that was refused here."""

    plane: str
    tenant: str
    agent: str
    generation: int
    since: float
    refused: int = 0

    def has(self, key: ResourceKey) -> bool:
        """Whether this is the owner that the key names."""
        return (self.plane, self.tenant, self.agent) == (key.plane, key.tenant, key.agent)


class KeeperState(NamedTuple):
    """What a keeper wrote of itself and of the agent."""

    start: int
    boot: str
    keeper: int
    pid: int
    port: int
    exit: int | None
    stopped: bool
    said: str
    swept: bool = False

    @property
    def address(self) -> str:
        """Where the agent was told to listen."""
        return f"127.0.0.1:{self.port}"


NEVER = KeeperState(0, "", 0, 0, 0, None, stopped=False, said="")


class RuntimeDir:
    """One key's directory, which need not be there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / keeper.WORK
        self.bundle = path / keeper.BUNDLE

    def owner(self) -> RuntimeOwner | None:
        """Who owns it; None when nobody has finished to say so."""
        try:
            return RuntimeOwner(**json.loads((self.path / OWNER).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def is_foreign_to(self, key: ResourceKey) -> bool:
        """Whether something stands here that we did not put here for this key's owner."""
        owner = self.owner()
        if owner is None and self._is_furnished():
            owner = self.owner()  # the name comes first, so by now it must be there
            if owner is None:
                return self._is_furnished()
        return owner is not None and not owner.has(key)

    def _is_furnished(self) -> bool:
        """Whether there is more in it than an owner who has not finished to write its name."""
        try:
            names = {path.name for path in self.path.iterdir()}
            if OWNER in names and not (self.path / OWNER).stat().st_size:
                return False  # our own hand, stopped when the power failed
            return bool(names - {f"{OWNER}.new"})
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            return True

    def own(self, owner: RuntimeOwner, *, flush: bool = True) -> None:
        """Say whose it is."""
        row = json.dumps(owner._asdict()).encode()
        keeper.write_whole(str(self.path / OWNER), row, flush=flush)

    def flush(self) -> None:
        """Have on the disk whose it is and what was ordered."""
        for name in (OWNER, keeper.ORDERS):
            file = os.open(self.path / name, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def orders(self) -> keeper.Orders:
        """What the last keeper was told; empty when there was none."""
        try:
            return keeper.Orders((self.path / keeper.ORDERS).read_bytes())
        except OSError:
            return keeper.Orders(b"")

    def order(self, orders: list[tuple[str, str]]) -> None:
        """Tell the next keeper."""
        data = keeper.encode(orders)
        keeper.write_whole(str(self.path / keeper.ORDERS), data, flush=False)

    def state(self) -> KeeperState:
        """What the last keeper said of itself."""
        try:
            return KeeperState(**json.loads((self.path / keeper.STATE).read_bytes()))
        except (OSError, ValueError, TypeError):
            return NEVER

    def note_swept(self, state: KeeperState) -> None:
        """Remember that nothing of this life is left."""
        row = json.dumps(state._replace(swept=True)._asdict()).encode()
        keeper.write_whole(str(self.path / keeper.STATE), row)

    def errors(self) -> str:
        """The last words of a keeper that failed itself."""
        try:
            return plain((self.path / keeper.ERRORS).read_bytes()[-500:])
        except OSError:
            return ""


def reason_of(state: KeeperState) -> str:
    """Why it does not run any more, in a sentence."""
    if state.said:
        return state.said
    if state.exit is None:
        same = state.boot == keeper.boot()
        return "its keeper was killed" if same else "the machine was restarted"
    if state.exit < 0:
        return f"it was ended by signal {-state.exit}"
    return f"it exited with code {state.exit}"


def tail(directory: Path, lines: int) -> str:
    """The last lines of the log in a directory."""
    data = b""
    for _, path in reversed(_files(directory)):
        data = _read(path, -TAIL_BYTES_MAX) + data
        if data.count(b"\n") > lines or len(data) >= TAIL_BYTES_MAX:
            break
    kept = data[-TAIL_BYTES_MAX:].splitlines(keepends=True)[-lines:] if lines > 0 else []
    return b"".join(kept).decode(errors="replace")


def part(directory: Path, since: int) -> LogPart:
    """The log from this offset on; what is no longer kept is passed over."""
    for base, path in _files(directory):
        size = path.stat().st_size
        if since < base + size:
            start = max(since - base, 0)
            data = _read(path, PART_BYTES_MAX, start)
            data = data[: len(data) - _torn(data)] or data
            return LogPart(data.decode(errors="replace"), base + start + len(data))
    return LogPart("", max(since, 0))


def _torn(data: bytes) -> int:
    """How many bytes at the end begin a character that is not whole yet."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        is_last = error.reason == "unexpected end of data"
        return len(data) - error.start if is_last else 0
    return 0


def _files(directory: Path) -> list[tuple[int, Path]]:
    try:
        names = [path.name for path in directory.iterdir()]
    except OSError:
        return []
    numbers = (name.removeprefix(keeper.LOG) for name in names if name.startswith(keeper.LOG))
    bases = sorted(int(number) for number in numbers if number.isdigit())
    return [(base, directory / f"{keeper.LOG}{base}") for base in bases]


def _read(path: Path, count: int, start: int = 0) -> bytes:
    """So many bytes from `start`, or with a negative count the last ones."""
    try:
        with path.open("rb") as file:
            if count < 0:
                start = max(os.fstat(file.fileno()).st_size + count, 0)
            file.seek(start)
            return file.read(abs(count))
    except OSError:  # turned away under our eyes
        return b""


def with_last_lines(reason: str, directory: Path) -> str:
    """A reason, and below it as many of the last lines as may be said."""
    room = SAID_BYTES_MAX - len(reason) - 1
    lines = plain(tail(directory, 20).encode()).strip()
    return f"{reason}\n{lines[-room:]}" if lines and room > 0 else reason[:SAID_BYTES_MAX]


def plain(data: bytes) -> str:
    """Text that a terminal can be shown: no control characters but the end of a line."""
    text = data.decode(errors="replace")
    return "".join(c if c == "\n" or c.isprintable() else " " for c in text)


def keep_logs(home: RuntimeDir, into: Path, *, count: int) -> None:
    """Move the log aside and forget the oldest beyond so many."""
    if count <= 0:
        return
    place = into / home.path.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for _, path in _files(home.path):
        path.rename(place / path.name)
    kept = sorted((_age(path), path) for path in into.iterdir())
    for _, path in kept[:-count]:
        shutil.rmtree(path, ignore_errors=True)


def forget_old(directory: Path, *, seconds: float) -> None:
    """Delete the files of a directory that are older than this, by the file system's own clock."""
    probe = directory / ".now"
    probe.touch()
    oldest = _age(probe) - seconds
    probe.unlink(missing_ok=True)
    for path in directory.iterdir():
        if _age(path) < oldest:
            path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # somebody else has just forgotten it
        return 0.0
