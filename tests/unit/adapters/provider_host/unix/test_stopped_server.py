"""One that has the host and stands stopped: its guests say so, and end it after a while.

Who serves is a process of its own, since a stopped one says nothing.  Method: SIGSTOP, then what
guests are answered, and the process table.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.adapters.provider_host import unix
from tenure.adapters.provider_host.unix import open_shared_providers, proxy, stopped_server
from tenure.core.errors import StoreLocked, Unavailable
from tenure.home import lock_holder
from tenure.testing.contracts.access import access_key, access_spec
from tenure.testing.patches import patched
from tests.unit.support.provider_hosts import CLOCK, access_of, opening_access

ROOT = Path(__file__).parents[5]
SERVES = """
import asyncio, sys
from pathlib import Path
from tests.unit.support.provider_hosts import CLOCK, opening_access
from tenure.adapters.provider_host.unix import open_shared_providers

async def main(home):
    async with open_shared_providers(home, opening_access(home), clock=CLOCK):
        print("serves", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main(Path(sys.argv[1])))
"""


@contextmanager
def host_process(home: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has the host; it is gone afterwards."""
    words = [sys.executable, "-c", SERVES, str(home)]
    child = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"serves\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def stop(child: "subprocess.Popen[bytes]") -> None:
    """Stop it, and go on when it is."""
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)


async def wait_logged(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """Go on when a guest has said so."""
    for _ in range(1_000):
        if words in caplog.text:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(caplog.text)


def run(work) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(50):
            await work()

    with patched(stopped_server, POLL_SECONDS=0.02):
        asyncio.run(with_deadline())


def test_one_that_stays_stopped_is_killed_and_a_guest_serves(tmp_path, caplog):
    async def main() -> None:
        with host_process(tmp_path) as first:
            opening = opening_access(tmp_path)
            async with open_shared_providers(
                tmp_path, opening, clock=CLOCK, stopped_seconds=0.2
            ) as guests:
                access = access_of(guests)
                await access.ensure(access_key(name="before"), access_spec("reader"))
                stop(first)
                with patched(proxy, PATIENCE_SECONDS=10.0):
                    with pytest.raises(Unavailable, match="ended before it answered"):
                        await access.check("t", "before", role="reader")  # sent, and lost with it
                    await access.ensure(access_key(name="after"), access_spec("reader"))
                assert first.wait() == -signal.SIGKILL
                assert lock_holder.current_holder(tmp_path / "providers") == os.getpid()
                listed = [item.key async for item in access.list_owned(access_key().plane)]
                assert len(listed) == 2
        assert f"process {first.pid} served the embedded providers" in caplog.text

    run(main)


def test_who_is_told_not_to_kill_says_who_stands_still_and_what_to_do(tmp_path, caplog):
    async def main() -> None:
        with host_process(tmp_path) as first:
            async with open_shared_providers(
                tmp_path, opening_access(tmp_path), clock=CLOCK
            ) as guests:
                access = access_of(guests)
                stop(first)
                await wait_logged(caplog, "cannot be asked")
                with patched(proxy, PATIENCE_SECONDS=0.3), pytest.raises(Unavailable) as refused:
                    await access.ensure(access_key(), {})
                assert f"process {first.pid}" in unix.outage_of(guests)
                words = f"process {first.pid}, which serves them, is stopped (SIGSTOP): kill -9"
                assert words in str(refused.value)
                assert "Nothing was sent" in str(refused.value)
                first.send_signal(signal.SIGCONT)
                await access.ensure(access_key(), {})
                assert not unix.outage_of(guests)
                assert lock_holder.current_holder(tmp_path / "providers") == first.pid

    run(main)


def test_one_that_goes_on_in_time_keeps_the_host(tmp_path, caplog):
    async def main() -> None:
        with host_process(tmp_path) as first:
            opening = opening_access(tmp_path)
            async with open_shared_providers(
                tmp_path, opening, clock=CLOCK, stopped_seconds=3.0
            ) as guests:
                stop(first)
                await wait_logged(caplog, "if it stays so for 3 s it is killed")
                first.send_signal(signal.SIGCONT)
                await access_of(guests).ensure(access_key(), {})
                assert first.poll() is None
                assert lock_holder.current_holder(tmp_path / "providers") == first.pid

    run(main)


def test_one_that_is_stopped_and_let_go_again_and_again_has_not_stood_still(tmp_path):
    with host_process(tmp_path) as first:
        there = stopped_server.ServerWatch(tmp_path, first.pid)
        stop(first)
        there.stopped_for()
        assert there.stopped_for() > 0
        for _ in range(5):
            first.send_signal(signal.SIGCONT)
            os.waitid(os.P_PID, first.pid, os.WCONTINUED)
            stop(first)
            assert there.stopped_for() == 0
        there.close()


def test_nobody_is_killed_whom_the_locks_file_does_not_name(tmp_path):
    with host_process(tmp_path) as first:
        (tmp_path / "providers.lock").write_text(f"{os.getpid()}\n")
        there = stopped_server.ServerWatch(tmp_path, first.pid)
        assert not there.kill()
        there.close()
        assert first.poll() is None


def test_one_that_has_gone_or_cannot_be_seen_is_not_killed(tmp_path):
    with host_process(tmp_path) as first:
        there = stopped_server.ServerWatch(tmp_path, first.pid)
    assert there.can_kill()
    assert not there.kill()
    there.close()
    there.close()
    unseen = stopped_server.ServerWatch(tmp_path, 0)
    assert (unseen.stopped_for(), unseen.kill()) == (0, False)
    unseen.close()


def test_a_start_beside_one_that_stands_stopped_names_it(tmp_path):
    async def main() -> None:
        with host_process(tmp_path) as first:
            stop(first)
            with (
                patched(unix, START_SECONDS=0.2),
                pytest.raises(StoreLocked, match=rf"is stopped .* kill -9 {first.pid}\."),
            ):
                await open_shared_providers(
                    tmp_path, opening_access(tmp_path), clock=CLOCK
                ).__aenter__()

    run(main)


def test_a_lock_that_nobody_holds_has_no_holder(tmp_path):
    assert lock_holder.current_holder(tmp_path / "providers") == 0
    (tmp_path / "providers.lock").write_text("odd\n")
    assert lock_holder.recorded_holder(tmp_path / "providers") == 0
    assert lock_holder.current_holder(tmp_path / "providers") == 0
