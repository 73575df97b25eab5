"""`tenure doctor`: checks everything that a plane needs, and gives advice.

It changes nothing, neither here nor on servers.  Each check is a function that returns results; a
failure makes the exit code 1, a warning does not.
"""

import asyncio
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from tenure.core.errors import TenureError
from tenure.faces.cli import where
from tenure.faces.cli.client import DOCTOR, Client, path
from tenure.faces.cli.exits import CommandExit, Exit, ServerRefusal, Unreachable
from tenure.faces.cli.options import examples, output_option, server_location, server_options
from tenure.faces.cli.output import Column, Item, Noun, show_all, table_with_text
from tenure.faces.cli.scale import Scale, scale_options

if TYPE_CHECKING:
    from tenure.settings import Settings

OK, WARN, FAIL = "ok", "warn", "fail"
PYTHON = (3, 11)
SQLITE = (3, 51, 3)
"""The first SQLite whose WAL cannot be reset under a reader; the store refuses older ones."""
MIB = 1 << 20
ROOM_FAIL_MIB, ROOM_WARN_MIB = 100, 1_024
PROBE_SECONDS = 5.0
PORT, PORT_MAX = 7450, 65_535
WAITS = "operations are accepted and wait; they continue when it is back"


class CheckResult(NamedTuple):
    """The result of one check."""

    check: str
    result: str
    found: str
    advice: str = ""


FINDING = Noun(
    (
        Column("CHECK", lambda one: str(one["check"])),
        Column("RESULT", lambda one: str(one["result"])),
        Column("FOUND", lambda one: str(one["found"])),
        Column("ADVICE", lambda one: str(one["advice"])),
    ),
    lambda one: str(one["check"]),
)


@click.command(
    "doctor",
    epilog=examples(
        "tenure doctor",
        "tenure doctor --home /srv/tenure",
        "tenure doctor --store postgresql://tenure@db/tenure --engine temporal --temporal db:7233",
    ),
)
@output_option
@scale_options
@server_options
@click.pass_context
def command(context: click.Context, *, scale: Scale, form: str) -> None:
    """Check everything that a control plane needs; exit 1 if a check fails.

    With the options of `up` for store, engine and bus it checks these servers too.
    """
    place = server_location(context)
    found = [
        *python(),
        *sqlite(),
        *home(place.directory()),
        *epoch(place.directory()),
        *providers(place.directory()),
        *bubblewrap(),
        *scaled_out(scale),
        *server(place),
    ]
    show_all([one._asdict() for one in found], FINDING, form=form, text=describe_results)
    if any(one.result == FAIL for one in found):
        raise CommandExit(Exit.FAILED)


def describe_results(found: Sequence[Item]) -> str:
    """The results with their advice, wrapped to the width of the terminal."""
    rows = [
        [one["check"], one["result"], "\n  ".join(filter(None, [one["found"], one["advice"]]))]
        for one in found
    ]
    return table_with_text(["CHECK", "RESULT", "FOUND"], rows)


def python() -> Iterator[CheckResult]:
    """The interpreter."""
    words = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= PYTHON:
        yield CheckResult("python", OK, words)
    else:
        yield CheckResult("python", FAIL, words, "Tenure needs Python 3.11 or newer")
    if not sys.platform.startswith("linux"):
        yield CheckResult("system", WARN, sys.platform, "agents as local processes need Linux")


def sqlite() -> Iterator[CheckResult]:
    """The store's library."""
    try:
        import apsw
    except ImportError as error:
        yield CheckResult("sqlite", FAIL, str(error), "pip install apsw")
        return
    words = apsw.sqlite_lib_version()
    number = tuple(int(part) for part in words.split("."))
    if number >= SQLITE:
        yield CheckResult("sqlite", OK, f"SQLite {words}, apsw {apsw.apsw_version()}")
    else:
        advice = "it can corrupt a file in WAL mode: pip install --upgrade apsw"
        yield CheckResult("sqlite", FAIL, f"SQLite {words}", advice)


def home(directory: Path) -> Iterator[CheckResult]:
    """The home, its files and the free space on its disk."""
    above = next(one for one in (directory, *directory.absolute().parents) if one.exists())
    if not directory.exists():
        yield CheckResult("home", WARN, f"{directory} does not exist yet", "tenure up makes it")
    elif not directory.is_dir():
        yield CheckResult(
            "home", FAIL, f"{directory} is not a directory", "name another: --home DIR"
        )
    else:
        yield private("home", directory, 0o077)
        token = directory / "token"
        if token.exists():
            yield private("token file", token, 0o077)
    if not os.access(above, os.W_OK | os.X_OK):
        yield CheckResult(
            "writable", FAIL, f"{above} cannot be written", "name another: --home DIR"
        )
    free = shutil.disk_usage(above).free // MIB
    result = FAIL if free < ROOM_FAIL_MIB else WARN if free < ROOM_WARN_MIB else OK
    advice = "" if result == OK else "free some disk space: new work is refused on a full disk"
    yield CheckResult("disk", result, f"{free} MiB free", advice)


def epoch(directory: Path) -> Iterator[CheckResult]:
    """The epoch file, and whether a restore has paused the plane; older homes have no such file."""
    from tenure.home.epoch_file import EpochFile

    file = EpochFile(directory)
    try:
        memo = file.read()
    except TenureError as error:
        yield CheckResult("epoch", FAIL, str(error), "tenure restore --hold begins a new one")
        return
    if memo is None:
        return
    yield private("epoch file", file.path, 0o077)
    if memo.restoring:
        advice = "the plane does not start: run tenure restore again"
        yield CheckResult("epoch", FAIL, f"a restore of {memo.restoring} was interrupted", advice)
    elif memo.pause_reason:
        yield CheckResult(
            "held", WARN, memo.pause_reason, "operations are paused: tenure restore --confirm"
        )
    else:
        yield CheckResult("epoch", OK, f"epoch {memo.epoch}")


def providers(directory: Path) -> Iterator[CheckResult]:
    """The provider host, if one runs, and whether it answers."""
    from tenure.home.lock_holder import current_holder, stopped_mark

    process = current_holder(directory / "providers")
    if process and stopped_mark(process) is not None:
        advice = f"kill -9 {process}: another takes over; or kill -CONT {process}: it continues"
        yield CheckResult("providers", FAIL, f"process {process} has them and is stopped", advice)
    elif process:
        yield CheckResult("providers", OK, f"served by process {process}")


def private(check: str, file: Path, others: int) -> CheckResult:
    """Whether only its owner can use a file, and the owner is the current user."""
    seen = file.stat()
    mode = stat.S_IMODE(seen.st_mode)
    if seen.st_uid != os.geteuid():
        advice = "run the command as that user"
        return CheckResult(check, WARN, f"{file} belongs to user {seen.st_uid}", advice)
    if mode & others:
        fix = f"chmod {mode & ~others:o} {file}"
        return CheckResult(check, FAIL, f"{file} is accessible to other users ({mode:04o})", fix)
    return CheckResult(check, OK, f"{file} ({mode:04o})")


def bubblewrap() -> Iterator[CheckResult]:
    """The sandbox of agents, which is used if it works."""
    found = shutil.which("bwrap")
    if found is None:
        yield CheckResult(
            "bubblewrap", WARN, "not found", "agents run without a sandbox; install bubblewrap"
        )
        return
    probe = [found, "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "/bin/true"]
    try:
        code = subprocess.run(  # noqa: S603 (a fixed command)
            probe,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PROBE_SECONDS,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        code = -1
    if code:
        advice = "agents run without a sandbox; are user namespaces allowed?"
        yield CheckResult("bubblewrap", WARN, f"{found} does not work here", advice)
    else:
        yield CheckResult("bubblewrap", OK, found)


def scaled_out(scale: Scale) -> Iterator[CheckResult]:
    """The shared servers that the options name."""
    from tenure.settings import Settings
    from tenure.wiring import probe_bus, probe_engine, probe_store, probe_workers

    settings = Settings(**scale)
    probes: tuple[tuple[str, Callable[[Settings], Awaitable[str]]], ...] = (
        ("store", probe_store),
        ("engine", probe_engine),
        ("bus", probe_bus),
    )
    for name, probe in probes:
        if name not in scale:
            continue
        found = asyncio.run(_probe(name, probe(settings)))
        yield found
        if name == "store" and found.result == OK:
            yield asyncio.run(_replication(settings))
        if name == "engine" and found.result == OK:
            workers = asyncio.run(_probe("workers", probe_workers(settings)))
            if workers.result != OK:
                yield workers._replace(result=WARN, advice="start one: tenure worker")
            elif workers.found:
                yield workers


async def _probe(name: str, probing: Awaitable[str]) -> CheckResult:
    try:
        return CheckResult(name, OK, await probing)
    except TenureError as error:
        return CheckResult(name, FAIL, str(error))


async def _replication(settings: "Settings") -> CheckResult:
    """Whether a failover to a standby of the store's server would lose acknowledged work."""
    from tenure.wiring import probe_replication

    try:
        keeps_commits, found, advice = await probe_replication(settings)
    except TenureError as error:
        return CheckResult("replication", FAIL, str(error))
    return CheckResult("replication", OK if keeps_commits else WARN, found, advice)


def server(place: where.ServerLocation) -> Iterator[CheckResult]:
    """The server, if one runs: whether it answers and accepts the token."""
    client = Client(place)
    client.timeout = PROBE_SECONDS
    try:
        address = client.server.address
        ready = client.get("/readyz")
        yield CheckResult("server", OK, f"{address} is ready")
        if isinstance(ready, dict) and "engine" in ready:
            yield CheckResult("its engine", WARN, str(ready["engine"]), WAITS)
        client.get(path("agents"), {"limit": 1})
        yield CheckResult("token", OK, "the server knows it")
    except Unreachable as error:
        advice = error.advice.removesuffix(DOCTOR).removesuffix("; ")
        yield CheckResult("server", WARN, error.sentence, advice)
        if not place.address:
            yield from port(os.environ.get("TENURE_PORT") or str(PORT))
    except ServerRefusal as error:
        name = "token" if error.code is Exit.AUTHENTICATION else "server"
        yield CheckResult(name, FAIL, error.sentence, error.advice)
    except CommandExit as error:
        yield CheckResult("token", FAIL, error.sentence, error.advice)
    finally:
        client.close()


def port(words: str) -> Iterator[CheckResult]:
    """Whether the port is free, if no server runs yet."""
    if not words.isdecimal() or int(words) > PORT_MAX:
        yield CheckResult(
            "port", FAIL, f"TENURE_PORT is {words!r}", f"0 to {PORT_MAX}, or unset it"
        )
        return
    number = int(words)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError as error:
            advice = f"another program has it: tenure up --port {number + 1}"
            yield CheckResult("port", WARN, f"{number}: {error.strerror}", advice)
        else:
            yield CheckResult("port", OK, f"{number} is free")
