"""A real NATS server with JetStream, on loopback, in a process group of its own."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tenure.testing.servers import lasting_port

BINARY = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or ""


class NatsServer:
    """Started and stopped as often as one likes, on one directory and one port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = lasting_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [BINARY, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self._folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.01)
        raise TimeoutError("nats-server does not listen")

    def stop(self, sig: int = signal.SIGKILL) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, sig)
            process.wait()
