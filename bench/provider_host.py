"""The provider host: cost of a call from another process, takeover after kill -9, a mark's cost.

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
from tenure.app.safety.pause import Pause
from tenure.core.errors import ProviderError
from tenure.core.ids import resource_key
from tenure.settings import Settings
from tenure.wiring import open_embedded_providers

AT_ONCE = 50
SPEC = {"roles": ["reader"], "granted_by": "bench"}


def key(name):
    return resource_key("bench", tenant="t", agent="a", generation=1, slot="access", name=name)


def shared_providers(home):
    settings = Settings(home=str(home), sandbox="off")
    opening = partial(open_embedded_providers, settings, home, Pause())
    return open_shared_providers(home, opening, clock=SystemClock())


async def time_inspects(access, count):
    """Microseconds of one inspect after the other, and the rate of many at once."""
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


def time_marks(in_flight, count):
    begun = time.perf_counter()
    for _ in range(count):
        with in_flight.count_one("agent"):
            pass
    return round((time.perf_counter() - begun) / count * 1e6, 2)


async def measure(count):
    found = {}
    home = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
    async with shared_providers(home) as own:
        found["direct"], found["direct_per_second"] = await time_inspects(own["access"], count)
    words = [sys.executable, __file__, "--serve", str(home)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:  # noqa: ASYNC220 (it is brief)
        await asyncio.to_thread(other.stdout.readline)
        async with shared_providers(home) as guests:
            access = guests["access"]
            found["guest"], found["guest_per_second"] = await time_inspects(access, count)
            begun = time.perf_counter()
            other.kill()
            while True:
                try:
                    await access.ensure(key("two"), SPEC)
                    break
                except ProviderError:
                    await asyncio.sleep(0)
            found["served_again_ms"] = round((time.perf_counter() - begun) * 1e3, 1)
            found["guest_that_serves"], _ = await time_inspects(access, count)
    marks = FileMarks(home)
    found["invocation_marked"] = time_marks(InFlight(marks), 20 * count)
    found["invocation_unmarked"] = time_marks(InFlight(), 20 * count)
    marks.close()
    return found


async def serve(home):
    async with shared_providers(home):
        print("serving", flush=True)
        await asyncio.Event().wait()


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--count", type=int, default=5_000)
    words.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = words.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.serve:
            runner.run(serve(options.serve))
        else:
            print(json.dumps(runner.run(measure(options.count))))


if __name__ == "__main__":
    main()
