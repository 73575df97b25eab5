"""A process that shares a home with others: one line for all it does, on its standard output.

    opened            it opened the providers itself, and serves
    ready             it can ask them, and begins when it is told to by a line
    made NAME         a resource was made, or an agent's create has succeeded
    ended KIND        a call ended by this error
    finished          it has done its work; it stays until its standard input ends

usage: lodger.py HOME NAME stay|ensures|creates COUNT [--no-locks]
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import uvloop

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.provider_host.unix import Providers, open_shared_providers
from tenure.app.agents import commands as agents
from tenure.app.agents.commands import RequestOptions
from tenure.app.agents.spec import read_spec
from tenure.app.operations import reads
from tenure.app.safety.pause import Pause
from tenure.core.errors import OutcomeUnknown, ProviderError, Unavailable
from tenure.core.operation import ENDED_OR_STUCK
from tenure.core.roles import Caller, Role
from tenure.plans.agents.lifecycle import PLANS
from tenure.ports.access import Access
from tenure.ports.provider import Presence
from tenure.settings import Settings
from tenure.sqlite import location
from tenure.testing.contracts.access import access_key, access_spec
from tenure.wiring import open_embedded_providers, run_plane
from tests.real.support import runtimes

AT_ONCE = 40
CALLER = Caller("default", "somebody", Role.ADMIN)


def say(*words: str) -> None:
    print(*words, flush=True)


async def ensures(providers: Providers, name: str, count: int) -> None:
    """Make so many grants, many at once, as an engine would: what is unknown is looked at."""
    access = cast(Access, providers["access"])
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with room:
            key = access_key(f"{name}{number}")
            while True:
                try:
                    await access.ensure(key, access_spec("reader"))
                    break
                except ProviderError as error:
                    say("ended", type(error).__name__)
                    if isinstance(error, OutcomeUnknown) and await is_there(access, key):
                        break
                await asyncio.sleep(0.01)
        say("made", f"{name}{number}")

    await asyncio.gather(*(one(number) for number in range(count)))


async def is_there(access, key) -> bool:
    while True:
        try:
            return bool((await access.inspect(key)).presence is Presence.READY)
        except Unavailable:
            say("ended", "Unavailable")
            await asyncio.sleep(0.01)


async def creates(home: Path, providers: Providers, name: str, count: int) -> None:
    """Create so many agents on a plane of its own; asked again, they are the same ones."""
    settings = Settings(store=str(home / f"{name}.db"), plane=name, home=str(home))
    async with run_plane(settings, plans=PLANS, providers=providers) as plane:

        async def one(number: int) -> None:
            credentials = [{"audience": "https://mail.example", "scopes": ["read"]}]
            runtime = {**runtimes.agent(), "ready_seconds": 300.0}
            spec = read_spec(
                {
                    "name": f"a{number}",
                    "runtime": runtime,
                    "roles": ["reader"],
                    "credentials": credentials,
                }
            )
            asked = RequestOptions(idempotency_key=f"{name}{number}")
            made = None
            while made is None:
                try:
                    made = await agents.create_agent(plane, CALLER, spec, request_options=asked)
                except ProviderError as error:
                    say("ended", type(error).__name__)
                    await asyncio.sleep(0.01)
            say("accepted", f"{name}{number}")
            now = made
            while (
                now.state not in ENDED_OR_STUCK
            ):  # however long: whoever listens has a bound of his own
                now = await reads.wait(plane, CALLER.tenant, made.id)
            say("made" if now.state == "SUCCEEDED" else now.state, f"{name}{number}")

        await asyncio.gather(*(one(number) for number in range(count)))
        say("finished")
        await wait_for_end_of_input()


async def wait_for_end_of_input() -> None:
    """Return when nobody wants us any more."""
    await asyncio.to_thread(sys.stdin.read)


async def main(home: Path, name: str, work: str, count: int) -> None:
    settings = Settings(home=str(home), sandbox="off")

    @asynccontextmanager
    async def opening(issuer: str) -> AsyncIterator[Providers]:
        async with open_embedded_providers(settings, home, Pause(), issuer) as providers:
            say("opened")
            yield providers

    async with open_shared_providers(home, opening, clock=SystemClock()) as providers:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        if work == "creates":
            await creates(home, providers, name, count)
            return
        if work == "ensures":
            await ensures(providers, name, count)
        say("finished")
        await wait_for_end_of_input()


if __name__ == "__main__":
    logging.basicConfig(level="WARNING")
    if "--no-locks" in sys.argv:
        location.Lock.take = classmethod(lambda cls, path: cls(-1))  # type: ignore[assignment]
    words = sys.argv[1:5]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Path(words[0]), words[1], words[2], int(words[3])))
