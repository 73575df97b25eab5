"""Agents in bubblewrap: what a sandboxed agent sees, and how its processes end.

Method: real keepers, real bubblewrap; without it these tests are skipped.
"""

import os
import shutil
import signal

import pytest

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.runtime.process import ProcessRuntime
from tenure.core.errors import Invalid
from tenure.testing.contracts.provider import key
from tests.real.support import runtimes
from tests.real.support.runtimes import (
    agent,
    all_ended,
    open_runtime,
    program,
    run,
    run_to_end,
    start_and_wait,
)

pytestmark = pytest.mark.timeout(300)

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap is here")


@pytest.fixture
def sandboxed_runtime(root, tmp_path):
    (tmp_path / "plane").mkdir()
    (tmp_path / "plane" / "token").write_text("secret")
    path = os.environ["PATH"]
    hidden = (tmp_path / "plane",)
    with open_runtime(root, sandbox="require", path=path, hidden=hidden) as runtime:
        yield runtime


@needs_bwrap
def test_a_sandboxed_agent_is_ready_and_goes_with_its_daemon(root, sandboxed_runtime):
    start_and_wait(sandboxed_runtime, agent("forks"))
    run(sandboxed_runtime.remove(key()))
    assert all_ended(root)


@needs_bwrap
def test_a_sandboxed_tree_dies_with_its_keeper(root, sandboxed_runtime):
    start_and_wait(sandboxed_runtime, agent("forks"))
    os.kill(runtimes.keepers(root)[0], signal.SIGKILL)
    assert runtimes.until(lambda: all_ended(root))
    run(sandboxed_runtime.remove(key()))


@needs_bwrap
def test_a_sandboxed_agent_sees_and_writes_its_own_alone(root, sandboxed_runtime, tmp_path):
    text = f"""
import os
def tried(work):
    try: return work()
    except OSError as error: return type(error).__name__
print(tried(lambda: open({str(tmp_path / "plane" / "token")!r}).read()))
print(tried(lambda: open("/etc/tenure-was-here", "w")))
print(tried(lambda: os.kill({os.getpid()}, 0)))
print(os.listdir({str(root)!r}), os.getpid() < 10)
open(os.environ["HOME"] + "/mine", "w").write("fine")
"""
    run_to_end(sandboxed_runtime, program(text))
    lines = run(sandboxed_runtime.logs(key())).splitlines()
    assert lines == [
        "FileNotFoundError",
        "OSError",
        "ProcessLookupError",
        "['local-a'] True",
    ]
    assert (root / "local-a" / key().text / "work" / "mine").read_text() == "fine"


def test_a_sandbox_that_is_required_and_not_there_is_an_error(tmp_path):
    with pytest.raises(Invalid, match="bubblewrap"):
        ProcessRuntime(tmp_path, clock=SystemClock(), sandbox="require", path="/nowhere")
