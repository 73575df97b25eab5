"""The directory of one key: its owner, its launch file, the keeper's state and the agent's output.

    <root>/<zone>/<key>/   owner.json orders lock state.json keeper.err log.<offset> work/ bundle/
    <root>/burned/<key>    the burn mark of a key: removed, stopped or refused
    <root>/ports/<port>    the key that has reserved this port
    <root>/logs/<key>/     the logs of the last removed runtimes
    <root>/trash/          directories that are being deleted

Files are replaced atomically.  Nothing here starts or ends a process.
"""

import json
import os
import shutil
import subprocess
import zlib
from contextlib import suppress
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
    """The owner of a directory; `refused` is the last generation that was refused."""

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
    """The state file of a keeper; its keys are stored."""

    start: int
    """The number of the start, as in the launch file."""
    boot: str
    keeper: int
    pid: int
    port: int
    exit: int | None
    stopped: bool
    said: str
    swept: bool = False
    """Whether the processes that a killed keeper has left were killed."""

    @property
    def address(self) -> str:
        """The address on which the agent has to listen."""
        return f"127.0.0.1:{self.port}"


NO_STATE = KeeperState(0, "", 0, 0, 0, None, stopped=False, said="")


class RuntimeDir:
    """One key's directory, which need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / keeper.WORK
        self.bundle = path / keeper.BUNDLE

    def owner(self) -> RuntimeOwner | None:
        """The owner; None if none was written completely."""
        try:
            return RuntimeOwner(**json.loads((self.path / OWNER).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def is_foreign_to(self, key: ResourceKey) -> bool:
        """Whether the directory has content that does not belong to this key's owner."""
        owner = self.owner()
        if owner is None and self._has_content():
            owner = self.owner()  # the owner is written first, so it must be there by now
            if owner is None:
                return self._has_content()
        return owner is not None and not owner.has(key)

    def _has_content(self) -> bool:
        """Whether the directory has more than an incomplete owner file."""
        try:
            names = {path.name for path in self.path.iterdir()}
            if OWNER in names and not (self.path / OWNER).stat().st_size:
                return False  # an own write that a power failure cut off
            return bool(names - {f"{OWNER}.new"})
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            return True

    def write_owner(self, owner: RuntimeOwner, *, flush: bool = True) -> None:
        """Write the owner."""
        row = json.dumps(owner._asdict()).encode()
        keeper.write_whole(str(self.path / OWNER), row, flush=flush)

    def flush(self) -> None:
        """Flush the owner and the launch file to the disk."""
        for name in (OWNER, keeper.LAUNCH_FILE):
            file = os.open(self.path / name, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def launch_config(self) -> keeper.LaunchConfig:
        """The launch file of the last keeper; empty if there was none."""
        try:
            return keeper.LaunchConfig((self.path / keeper.LAUNCH_FILE).read_bytes())
        except OSError:
            return keeper.LaunchConfig(b"")

    def write_launch_config(self, config: list[tuple[str, str]]) -> None:
        """Write the launch file of the next keeper."""
        data = keeper.encode(config)
        keeper.write_whole(str(self.path / keeper.LAUNCH_FILE), data, flush=False)

    def state(self) -> KeeperState:
        """The state that the last keeper has written."""
        try:
            return KeeperState(**json.loads((self.path / keeper.STATE).read_bytes()))
        except (OSError, ValueError, TypeError):
            return NO_STATE

    def mark_swept(self, state: KeeperState) -> None:
        """Record that no process of this run is left."""
        row = json.dumps(state._replace(swept=True)._asdict()).encode()
        keeper.write_whole(str(self.path / keeper.STATE), row)

    def errors(self) -> str:
        """The end of the error output of a keeper that failed."""
        try:
            return plain((self.path / keeper.ERRORS).read_bytes()[-500:])
        except OSError:
            return ""


def reason_of(state: KeeperState) -> str:
    """A sentence on why the agent does not run any more."""
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
    last_lines = data[-TAIL_BYTES_MAX:].splitlines(keepends=True)[-lines:] if lines > 0 else []
    return b"".join(last_lines).decode(errors="replace")


def part(directory: Path, since: int) -> LogPart:
    """The log from this offset on; deleted parts are skipped."""
    for base, path in _files(directory):
        size = path.stat().st_size
        if since < base + size:
            start = max(since - base, 0)
            data = _read(path, PART_BYTES_MAX, start)
            data = data[: len(data) - _incomplete_bytes(data)] or data
            return LogPart(data.decode(errors="replace"), base + start + len(data))
    return LogPart("", max(since, 0))


def _incomplete_bytes(data: bytes) -> int:
    """Number of bytes at the end that are an incomplete character."""
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
    """`count` bytes from `start`; a negative count reads the last ones."""
    try:
        with path.open("rb") as file:
            if count < 0:
                start = max(os.fstat(file.fileno()).st_size + count, 0)
            file.seek(start)
            return file.read(abs(count))
    except OSError:  # the keeper has just rotated it
        return b""


def with_last_lines(reason: str, directory: Path) -> str:
    """A reason, followed by as many of the last log lines as fit."""
    space = SAID_BYTES_MAX - len(reason) - 1
    lines = plain(tail(directory, 20).encode()).strip()
    return f"{reason}\n{lines[-space:]}" if lines and space > 0 else reason[:SAID_BYTES_MAX]


def plain(data: bytes) -> str:
    """Text that is safe on a terminal: no control characters except line ends."""
    text = data.decode(errors="replace")
    return "".join(c if c == "\n" or c.isprintable() else " " for c in text)


def keep_logs(directory: RuntimeDir, into: Path, *, count: int) -> None:
    """Move the log files to `into` and delete all but the newest `count` runtimes there."""
    if count <= 0:
        return
    target = into / directory.path.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for _, path in _files(directory.path):
        path.rename(target / path.name)
    by_time = sorted((_modified_at(path), path) for path in into.iterdir())
    for _, path in by_time[:-count]:
        shutil.rmtree(path, ignore_errors=True)


def delete_older(directory: Path, *, seconds: float) -> None:
    """Delete files that are older than this, by the file system's own clock."""
    probe = directory / ".now"
    probe.touch()
    oldest = _modified_at(probe) - seconds
    probe.unlink(missing_ok=True)
    for path in directory.iterdir():
        if _modified_at(path) < oldest:
            path.unlink(missing_ok=True)


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process has just deleted it
        return 0.0


def delete_tree(path: Path) -> None:
    """Delete a directory of any depth."""
    with suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        command = ["rm", "-rf", "--", str(path)]
        subprocess.run(command, check=False, capture_output=True)  # noqa: S603 (our own path)


def group_of(directory: RuntimeDir) -> str:
    """The name of a runtime's control groups, which depends on its key and its root."""
    return f"tenure-{directory.path.name}-{zlib.crc32(str(directory.path).encode()):08x}"
