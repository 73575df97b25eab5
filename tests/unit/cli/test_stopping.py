"""A process that was told to stop ends in time, and one that was not is left alone."""

import os
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
    with stopping.bounded(0.01) as begun:
        begun()
        assert ended.wait(5)
    assert codes == [Exit.FAILED]
    assert "others take it over" in caplog.text


@pytest.mark.parametrize("told", [True, False])
def test_what_ends_in_time_is_left_alone(monkeypatch: pytest.MonkeyPatch, *, told: bool) -> None:
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail(f"ended with {code}"))
    with stopping.bounded(60.0) as begun:
        if told:
            begun()
    waiting = [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
    for one in waiting:
        one.join(5)
    assert not any(one.is_alive() for one in waiting)
