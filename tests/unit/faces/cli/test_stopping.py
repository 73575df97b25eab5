"""A process that was told to stop ends in time, and one that was not is left alone."""

import asyncio
import os
import signal
import threading

import pytest

from tenure.faces.cli import stopping
from tenure.faces.cli.exits import Exit


def test_what_does_not_end_in_time_is_ended(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    ended = threading.Event()
    codes: list[int] = []

    def over(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(os, "_exit", over)
    with stopping.exit_within(0.01) as on_stop:
        on_stop()
        assert ended.wait(30)
    assert codes == [Exit.FAILED]
    assert "others take over" in caplog.text


@pytest.mark.parametrize("with_signal", [True, False])
def test_what_ends_in_time_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, *, with_signal: bool
) -> None:
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail(f"ended with {code}"))
    with stopping.exit_within(60.0) as on_stop:
        if with_signal:
            on_stop()
    waiting = [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
    for one in waiting:
        one.join(5)
    assert not any(one.is_alive() for one in waiting)


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("has_started", [True, False])
def test_a_signal_stops_in_order_what_has_started_and_cancels_what_has_not(has_started, signals):
    ended: list[str] = []
    wrong: list[object] = []

    async def work(on_stop):
        asyncio.get_running_loop().set_exception_handler(
            lambda _, with_signal: wrong.append(with_signal)
        )
        then, over = stopping.at_signal(on_stop), asyncio.Event()
        if has_started:
            then(over.set)
        for _ in range(signals):  # several that come before the loop looks are as one
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(over.wait(), 30)
        assert [signal.getsignal(one) for one in stopping.SIGNALS] == [
            signal.default_int_handler,
            signal.SIG_DFL,
        ], "a second one does not wait"
        ended.append("in order")

    stopping.run(work)
    assert ended == (["in order"] if has_started else [])
    assert not wrong
