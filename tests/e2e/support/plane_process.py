"""A control plane as a user starts it: a process of its own in a home of its own, always ended.

Commands are run as processes as well; nothing here reaches into Tenure.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.real.support.runtimes import end_all_after

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "02_agent"
TENURE = (sys.executable, "-m", "tenure")
END_SECONDS = 120.0
"""For a command, or a plane that is told to end, on a machine with much else to do."""


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would tell a command of another plane."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    return {**kept, "PYTHONUTF8": "1", **more}


def listens() -> None:
    """Let ctrl-c reach a child, also where whoever runs the tests in the background ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Plane:
    """One home, and the process that serves it."""

    def __init__(self, home: Path, tenure: tuple[str, ...] = TENURE) -> None:
        self.home = home
        self.tenure = tenure
        self.process: subprocess.Popen[str] | None = None

    def start(self, **env: str) -> str:
        """Start it; the line that it prints when it is ready."""
        self.process = subprocess.Popen(
            [*self.tenure, "up", "--home", str(self.home), "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=environment(**env),
            preexec_fn=listens,  # noqa: PLW1509 (one call, no lock)
        )
        out: IO[str] | None = self.process.stdout
        assert out is not None
        line = out.readline()
        assert "is ready at" in line, self.process.wait(END_SECONDS)
        return line

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to end; its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(END_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def run(
        self, *args: str, stdin: str | None = None, code: int | None = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one command against it; `code` is how it must end."""
        ran = subprocess.run(
            [*self.tenure, *args],
            capture_output=True,
            text=True,
            timeout=END_SECONDS,
            check=False,
            input=stdin or "",
            env=environment(TENURE_HOME=str(self.home), **env),
            cwd=self.home.parent,
        )
        assert code in {None, ran.returncode}, (args, ran.returncode, ran.stdout, ran.stderr)
        return ran

    def begin(self, *args: str) -> subprocess.Popen[str]:
        """Begin a command that takes its time."""
        return subprocess.Popen(
            [*self.tenure, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(TENURE_HOME=str(self.home)),
            start_new_session=True,
            preexec_fn=listens,  # noqa: PLW1509 (one call, no lock)
        )


@contextmanager
def home_at(home: Path, tenure: tuple[str, ...] = TENURE) -> Iterator[Plane]:
    """A home whose processes, the plane's and the agents', are gone at the end."""
    plane = Plane(home, tenure)
    with end_all_after(home / "runtimes"):
        try:
            yield plane
        finally:
            if plane.process is not None and plane.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(plane.process.pid, signal.SIGKILL)
                plane.process.wait(END_SECONDS)
            if plane.process is not None and plane.process.stdout is not None:
                plane.process.stdout.close()


def until(condition, seconds: float = END_SECONDS):
    """Wait until the condition is true; return its result."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return result
