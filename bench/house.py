"""The house: what a guest pays for a question, who serves after kill -9 and when, a mark's cost.

Prints one JSON line; times in microseconds unless their name says otherwise.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import uvloop

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.provider_host.unix import FileMarks, open_shared_providers
from tenure.app.agents.in_flight import InFlight
from tenure.core.errors import ProviderError
from tenure.core.ids import resource_key
from tenure.settings import Settings
from tenure.wiring import open_embedded_providers

AT_ONCE = 50
SPEC = {"roles": ["reader"], "granted_by": "bench"}


def key(name):
    return resource_key("bench", tenant="t", agent="a", generation=1, slot="access", name=name)


def house(home):
    opening = partial(open_embedded_providers, Settings(home=str(home), sandbox="off"), home)
    return open_shared_providers(home, opening, clock=SystemClock())


async def asked(access, count):
    """What one question takes after the other, and how many a second many at once."""
    one = key("one")
    await access.ensure(one, SPEC)
    for _ in range(count // 10):
        await access.inspect(one)
    begun = time.perf_counter()
    for _ in range(count):
        await access.inspect(one)
    each = (time.perf_counter() - begun) / count * 1e6
    begun = time.perf_counter()
    for _ in range(count // AT_ONCE):
        await asyncio.gather(*(access.inspect(one) for _ in range(AT_ONCE)))
    return round(each, 1), round(count / (time.perf_counter() - begun))


def marked(in_flight, count):
    begun = time.perf_counter()
    for _ in range(count):
        with in_flight.one("agent"):
            pass
    return round((time.perf_counter() - begun) / count * 1e6, 2)


async def measure(count):
    found = {}
    home = Path(tempfile.mkdtemp(prefix="tenure-bench-house-"))
    async with house(home) as own:
        found["direct"], found["direct_per_second"] = await asked(own["access"], count)
    words = [sys.executable, __file__, "--serve", str(home)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:  # noqa: ASYNC220 (it is brief)
        await asyncio.to_thread(other.stdout.readline)
        async with house(home) as guests:
            access = guests["access"]
            found["guest"], found["guest_per_second"] = await asked(access, count)
            begun = time.perf_counter()
            other.kill()
            while True:
                try:
                    await access.ensure(key("two"), SPEC)
                    break
                except ProviderError:
                    await asyncio.sleep(0)
            found["served_again_ms"] = round((time.perf_counter() - begun) * 1e3, 1)
            found["guest_that_serves"], _ = await asked(access, count)
    marks = FileMarks(home)
    found["invocation_marked"] = marked(InFlight(marks), 20 * count)
    found["invocation_unmarked"] = marked(InFlight(), 20 * count)
    marks.close()
    return found


async def serve(home):
    async with house(home):
        print("serving", flush=True)
        await asyncio.Event().wait()


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--count", type=int, default=5_000)
    words.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    asked_for = words.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if asked_for.serve:
            runner.run(serve(asked_for.serve))
        else:
            print(json.dumps(runner.run(measure(asked_for.count))))


if __name__ == "__main__":
    main()
