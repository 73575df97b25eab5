"""A tour in under a minute, on real processes, with the commands that you would type.

usage: python examples/03_lifecycle/demo.py

A control plane is started with `tenure up`. An agent is created and invoked; a creation fails at
its credentials and undoes itself; the control plane is killed with -9 in the middle of a creation,
started again, and finishes it; everything is deleted. Then code that does not use Tenure counts the
remaining resources, in each provider's own file and in the process table. All files are in a
temporary directory, which is removed.
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

AGENT = Path(__file__).resolve().parents[1] / "02_agent" / "agent.py"
PROVIDERS = ("identity", "access", "credentials")
SLOW_SECONDS = 3
"""How long the agent that survives the kill takes to start."""


def spec(name, *, audience="https://mail.example", start_seconds=0):
    """The text of an agent's file."""
    return textwrap.dedent(f"""\
        name: {name}
        owner: demo
        roles: [reader]
        runtime:
          command: [sh, -c, "sleep {start_seconds}; exec python3 {AGENT}"]
        credentials:
          - audience: {audience}
            scopes: [mail:read]
        """)


class Demo:
    """One control plane in one directory, and the commands that it gets."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.home = self.directory / "home"
        # The shell may have the variables of another plane: this one must not use them.
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith("TENURE_")
        }
        self.environment = {**plain, "TENURE_HOME": str(self.home), "COLUMNS": "100"}
        self.plane = None

    def up(self):
        """Start the control plane and wait until it answers."""
        say("$ tenure up &")
        log_path = self.directory / "plane.log"
        with log_path.open("wb") as log:
            self.plane = subprocess.Popen(
                [sys.executable, "-m", "tenure", "up", "--port", "0"],
                env=self.environment,
                start_new_session=True,
                stdout=log,
                stderr=log,
            )

        def answers():
            ended = self.plane.poll()
            must(ended is None, f"the plane ended with code {ended}:\n{log_path.read_text()}")
            return self.tenure("agent", "list", quiet=True) == 0

        wait_for(answers, "the plane to start", output=log_path.read_text)

    def tenure(self, *arguments, quiet=False):
        """Run one command; its exit code."""
        if not quiet:
            say(f"$ tenure {' '.join(arguments)}")
        out = subprocess.DEVNULL if quiet else None
        return subprocess.run(
            [sys.executable, "-m", "tenure", *arguments],
            env=self.environment,
            cwd=self.directory,
            stdout=out,
            stderr=out,
            check=False,
        ).returncode

    def output_of(self, *arguments):
        """The standard output of a command."""
        return subprocess.run(
            [sys.executable, "-m", "tenure", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def write(self, name, **more):
        """Write the agent's file."""
        (self.directory / f"{name}.yaml").write_text(spec(name, **more))

    def kill(self):
        """Kill only the control plane, with -9."""
        os.kill(self.plane.pid, signal.SIGKILL)
        self.plane.wait()

    def end(self):
        """Stop the control plane."""
        if self.plane is not None and self.plane.poll() is None:
            os.killpg(self.plane.pid, signal.SIGTERM)
            try:
                self.plane.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.plane.pid, signal.SIGKILL)
                self.plane.wait()

    def count_resources(self):
        """How many resources each provider has: rows of its file, and for the runtime processes."""
        counts = {}
        for provider in PROVIDERS:
            base = sqlite3.connect(f"file:{self.home / provider}.db?mode=ro", uri=True)
            with contextlib.closing(base):
                (counts[provider],) = base.execute(
                    "SELECT count(*) FROM resource WHERE state = 'PRESENT'"
                ).fetchone()
        return {**counts, "processes": len(self.processes())}

    def processes(self):
        """Agents' processes below this home, found by the tag in their environment."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                tagged = b"TENURE_KEY=" in (entry / "environ").read_bytes()
                if tagged and (entry / "cwd").readlink().is_relative_to(self.home):
                    found.append(int(entry.name))
        return found


def say(line=""):
    print(line, flush=True)


def scene(title):
    say(f"\n--- {title} " + "-" * max(0, 90 - len(title)))


def must(condition, sentence):
    if not condition:
        sys.exit(f"The demo failed: {sentence}")


def wait_for(condition, what, seconds=60, output=lambda: ""):
    until = time.monotonic() + seconds
    while not condition():
        must(time.monotonic() < until, f"waited {seconds} s for {what}\n{output()}")
        time.sleep(0.05)


def tour(demo):
    scene("A control plane, and an agent that really runs")
    demo.up()
    demo.write("alpha")
    must(demo.tenure("agent", "create", "-f", "alpha.yaml") == 0, "alpha was not created")
    must(demo.tenure("agent", "invoke", "alpha", '{"prompt": "hello"}') == 0, "no answer")
    say()
    say(f"The providers hold: {demo.count_resources()}")

    scene("A creation that fails at its credentials, and undoes itself")
    demo.write("beta", audience="http://mail.example")
    must(demo.tenure("agent", "create", "-f", "beta.yaml") == 1, "beta was not refused")
    say(f"The providers hold: {demo.count_resources()}: beta left nothing")

    scene("kill -9 in the middle of a creation")
    demo.write("gamma", start_seconds=SLOW_SECONDS)
    before = set(demo.processes())
    must(demo.tenure("agent", "create", "-f", "gamma.yaml", "--no-wait") == 0, "not accepted")
    operation = demo.output_of("operation", "list", "-o", "name").split()[-1]
    wait_for(lambda: set(demo.processes()) - before, "gamma's process")
    say(f"$ kill -9 {demo.plane.pid}    # the control plane; gamma's process is starting")
    demo.kill()
    say(f"No control plane now. Agents' processes still there: {len(demo.processes())}")
    demo.up()
    must(demo.tenure("operation", "watch", operation) == 0, "gamma was not created")
    must(demo.tenure("agent", "invoke", "gamma", '{"prompt": "still there?"}') == 0, "no answer")
    say()

    scene("Deletion, with nothing left behind")
    for name in ("alpha", "beta", "gamma"):
        must(demo.tenure("agent", "delete", name) == 0, f"{name} was not deleted")
    demo.tenure("audit", "verify")
    left = demo.count_resources()
    say(f"The providers hold: {left}")
    must(not any(left.values()), f"something was left: {left}")


def main():
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as directory:
        demo = Demo(directory)
        try:
            tour(demo)
        finally:
            demo.end()
            for process in demo.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
    took = time.monotonic() - began
    say(f"\nDone in {took:.0f} s. Next: README.md, docs/tutorial, `tenure --help`.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
