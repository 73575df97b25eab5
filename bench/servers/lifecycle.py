"""A whole plane behind its HTTP face, with a runtime that only remembers; for bench/lifecycle.py.

usage: servers/lifecycle.py HOME        prints one line of JSON with address and token, serves until
its standard input is closed, then prints what it cost.
"""

import asyncio
import json
import resource
import sys
import time

from tenure.app.tenancy import tokens
from tenure.core.errors import Rejected
from tenure.faces.http.server import Listen, serving
from tenure.faces.http.state import HttpState
from tenure.ports.provider import Observation, OwnedResource, Presence
from tenure.ports.runtime import LogPart, Status
from tenure.settings import Settings
from tenure.wiring import run_agent_plane

TOKEN = "tenure_bench"
REFERENCE = {"address": "127.0.0.1:9", "zone": "none"}


class Remembered:
    """A runtime whose agents are always ready: what is left is the control plane's own cost."""

    zones = ("none",)

    def __init__(self):
        self._held = {}
        self._burned = set()

    def check(self, spec):
        pass

    async def digest(self, spec):
        return spec

    async def ensure(self, key, spec):
        if key.text in self._burned:
            raise Rejected("burned")
        self._held[key.text] = key
        return REFERENCE

    async def inspect(self, key):
        if key.text not in self._held:
            return Observation(Presence.ABSENT)
        return Observation(Presence.READY, REFERENCE, key.plane, key.generation)

    async def remove(self, key):
        self._burned.add(key.text)
        self._held.pop(key.text, None)

    async def list_owned(self, plane):
        for key in self._held.values():
            yield OwnedResource(key.text, key.agent, key.generation, 0.0)

    async def status(self, key):
        return Status(Presence.READY if key.text in self._held else Presence.ABSENT)

    async def wait_ready(self, key, *, seconds):
        return await self.status(key)

    async def listens_at(self, key, address):
        return key.text in self._held and address == REFERENCE["address"]

    async def logs(self, key, *, lines=100):
        return ""

    async def follow(self, key, *, since):
        return LogPart("", since)

    async def stop(self, key):
        await self.remove(key)


async def main(home):
    settings = Settings(home=home, port=8450)
    async with run_agent_plane(settings, provider_overrides={"runtime": Remembered()}) as plane:
        await tokens.store_first_token(plane, TOKEN)
        http_state = HttpState(plane)
        async with serving(http_state, Listen(port=0)) as address:
            http_state.ready = True
            print(json.dumps({"address": address, "token": TOKEN}), flush=True)
            await asyncio.to_thread(sys.stdin.read)
            used = resource.getrusage(resource.RUSAGE_SELF)
            held = len(plane.providers["runtime"]._held)
            cost = {"cpu_seconds": time.process_time(), "peak_kib": used.ru_maxrss, "held": held}
            print(json.dumps(cost), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(sys.argv[1]))
