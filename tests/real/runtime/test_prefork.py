"""The keeper that waits for the next start: it saves time, and nothing else depends on it.

Goal: no keeper that waits outlives its plane, and a start succeeds whatever became of it.
Method: real processes; who waits and who keeps is read from the process table.
"""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from tenure.adapters.runtime.process.prefork import KeeperPool
from tenure.ports.provider import Presence
from tenure.testing.contracts.provider import key
from tests.real.support import runtimes
from tests.real.support.runtimes import agent, open_runtime, start_and_wait

pytestmark = pytest.mark.timeout(300)

HOST = """
import sys, time
from pathlib import Path
from tenure.adapters.runtime.process.prefork import KeeperPool
KeeperPool(Path(sys.argv[1])).prepare()
print("waits", flush=True)
time.sleep(600)
"""


def test_after_a_start_a_keeper_waits_and_keeps_the_next_one(root):
    async def life():
        with open_runtime(root) as runtime:
            await runtime.ensure(key(), agent())
            assert (await runtime.wait_ready(key(), seconds=60)).presence is Presence.READY
            waiting = await asyncio.to_thread(runtimes.until, lambda: runtimes.spares(root))
            second = key("agent-2")
            await runtime.ensure(second, agent())
            assert waiting[0] in runtimes.keepers(root)
            assert (await runtime.wait_ready(second, seconds=60)).presence is Presence.READY
            for one in (key(), second):
                await runtime.remove(one)
        assert runtimes.until(lambda: not runtimes.spares(root))

    asyncio.run(life())


def test_a_keeper_that_died_while_it_waited_is_replaced(root):
    with open_runtime(root) as runtime:
        runtime._root.keepers.prepare()
        (waiting,) = runtimes.until(lambda: runtimes.spares(root))
        os.kill(waiting, signal.SIGKILL)
        assert runtimes.until(lambda: not runtimes.is_alive(waiting))
        start_and_wait(runtime, agent())
        assert waiting not in runtimes.keepers(root)


def test_a_keeper_that_waits_ends_with_its_plane(root):
    command = [sys.executable, "-c", HOST, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as plane:
        assert plane.stdout is not None
        assert plane.stdout.readline() == "waits\n"
        (waiting,) = runtimes.until(lambda: runtimes.spares(root))
        plane.kill()
    assert runtimes.until(lambda: not runtimes.is_alive(waiting))


def test_no_keeper_waits_after_the_end(root):
    spares = KeeperPool(root)
    spares.prepare()
    spares.prepare()
    assert len(runtimes.until(lambda: runtimes.spares(root))) == 1
    spares.close()
    assert not runtimes.spares(root)
    spares.prepare()
    assert not runtimes.spares(root)
