"""One worker process on a PostgreSQL store, for tests that kill it or cut it off.

usage: python -m tests.real.postgres_worker URL DIRECTORY LIFE [most]

It says `open`, `accepted ID LABEL` and `ended ID STATE`, a line each; its providers are shelves of
files in the directory, shared by all workers.
"""

import asyncio
import itertools
import sys
from pathlib import Path

from tenure.core.errors import StoreError
from tenure.settings import Settings
from tenure.testing.audit import PLANS, Wanted, shelves_of
from tenure.testing.kill9 import ask, say
from tenure.wiring import running

CLIENTS = 6
LEASE_TTL_SECONDS = 2.0


def settings_of(url: str) -> Settings:
    return Settings(store=url, lease_ttl_seconds=LEASE_TTL_SECONDS)


async def live(url: str, directory: Path, life: int, most: int) -> None:
    providers = shelves_of(directory, slow=0.05)
    async with running(settings_of(url), plans=PLANS, providers=providers) as plane:
        say("open")
        numbers = iter(range(most)) if most else itertools.count()

        async def client() -> None:
            for number in numbers:
                try:
                    await ask(plane, Wanted(life, number))
                except StoreError:
                    await asyncio.sleep(0.1)  # the server is away: what was asked was not kept

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        say("idle")
        await asyncio.Event().wait()


if __name__ == "__main__":
    url, directory, life, *most = sys.argv[1:]
    asyncio.run(live(url, Path(directory), int(life), int(most[0]) if most else 0))
