"""Kills a provider's process with -9 while it writes, again and again, and looks at its file.

Each child is forked, opens the file, and ensures, converges and removes resources with many calls
in flight; it says each key with one write once it was answered.  What is on disk at the end is read
by SQL alone.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import apsw

from tenure.adapters.clock.system import SystemClock
from tenure.core.ids import ResourceKey, resource_key
from tenure.ports.provider import Spec

KILLS = 25
WRITERS = 16
LIFE_SECONDS = 0.05
"""A child dies at a random instant of this, counted from its first answer."""


def spec_text(spec: Spec) -> str:
    """The spec as the file keeps it."""
    return json.dumps(spec, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Report:
    """What was found after the last kill."""

    kills: int
    acknowledged: int
    lost: list[str]
    """Answered and not on disk as it was answered, or later."""
    resources: list[tuple[str, str, str, str | None]]
    strays: int

    def odd(self, rows: Mapping[str, str | None]) -> list[tuple[str, str, str, str | None]]:
        """Resources whose own rows are not those of their spec; a burned one has none."""
        return [
            resource
            for resource in self.resources
            if resource[3] != (rows[resource[2]] if resource[1] == "PRESENT" else None)
        ]


def run(
    build: Callable[..., Any], path: Path, *, kinds: Sequence[Spec], whole: str, stray: str
) -> Report:
    """Kill as many times as `KILLS` says."""
    lots = random.Random(7)
    said: dict[str, int] = {}
    for life in range(KILLS):
        for key, step in _one_life(build, path, kinds=kinds, life=life, lots=lots):
            said[key] = max(step, said.get(key, 0))
    connection = apsw.Connection(str(path))
    try:
        assert connection.pragma("integrity_check") == "ok"
        resources: list[Any] = connection.execute(whole).fetchall()
        strays: Any = connection.execute(stray).get
    finally:
        connection.close()
    states = {key: state for key, state, _, _ in resources}
    burned = len(kinds)
    lost = [
        key
        for key, step in said.items()
        if key not in states or (step == burned and states[key] != "BURNED")
    ]
    return Report(KILLS, len(said), lost, resources, strays)


def _one_life(
    build: Callable[..., Any], path: Path, *, kinds: Sequence[Spec], life: int, lots: random.Random
) -> list[tuple[str, int]]:
    """One child from its birth to its death; what it said, key and step."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        _live(build, path, kinds, life, theirs)
    os.close(theirs)
    heard = os.read(ours, 4096)
    time.sleep(lots.uniform(0, LIFE_SECONDS))
    os.kill(child, signal.SIGKILL)
    while more := os.read(ours, 65_536):
        heard += more
    os.close(ours)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, "the child ended by itself"
    lines = [line.split() for line in heard.decode().splitlines()]
    return [(key, int(step)) for key, step in lines]


def _live(
    build: Callable[..., Any], path: Path, kinds: Sequence[Spec], life: int, pipe: int
) -> NoReturn:
    """Never returns to the test that was forked."""
    with suppress(BaseException):
        asyncio.run(_write(build(path, clock=SystemClock()), kinds, life, pipe))
    os._exit(1)


async def _write(provider: Any, kinds: Sequence[Spec], life: int, pipe: int) -> None:
    numbers = itertools.count()

    def key_of(number: int) -> ResourceKey:
        agent = f"{life:04}-{number:08}"
        return resource_key(
            "plane", tenant="t", agent=agent, generation=1, slot="thing", name="one"
        )

    async def writer() -> None:
        for number in numbers:
            key = key_of(number)
            for step, spec in enumerate(kinds):
                await provider.ensure(key._replace(generation=step + 1), spec)
                os.write(pipe, f"{key.text} {step}\n".encode())
            if number % 2:
                await provider.remove(key)
                os.write(pipe, f"{key.text} {len(kinds)}\n".encode())

    await asyncio.gather(*(writer() for _ in range(WRITERS)))
