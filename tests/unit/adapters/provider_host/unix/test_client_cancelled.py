"""Calls that a guest waits for no more: they end in the host, as in one process."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure.adapters.provider_host.unix import client, server, wire
from tenure.core.errors import OutcomeUnknown
from tenure.ports.provider import Provider
from tenure.testing.contracts.access import access_key, access_spec
from tenure.testing.patches import patched
from tests.unit.support.provider_hosts import access_of, holding, run


class Slow:
    """A provider whose calls end only when they are told to, and take their time then."""

    def __init__(self) -> None:
        self.begun, self.let_go, self.tidied = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.over = asyncio.Event()
        self.said: list[str] = []

    async def ensure(self, key: object, spec: object, **_rest: object) -> Any:
        del key, spec
        self.begun.set()
        try:
            await self.let_go.wait()
            self.said.append("applied")
            self.over.set()
        except asyncio.CancelledError:
            await self.tidied.wait()
            self.said.append("cancelled")
            self.over.set()
            raise

    async def inspect(self, key: object) -> Any:
        return await self.ensure(key, {})


async def start_call(guests: Mapping[str, Provider], slow: Slow) -> asyncio.Task[Any]:
    call = asyncio.create_task(access_of(guests).ensure(access_key(), access_spec("reader")))
    await slow.begun.wait()
    return call


def test_a_call_that_is_cancelled_ends_in_the_host_before_its_caller_goes_on(tmp_path):
    async def main() -> None:
        slow = Slow()
        async with holding(tmp_path, slow), holding(tmp_path, object()) as guests:
            call = await start_call(guests, slow)
            call.cancel()
            for _ in range(20):
                await asyncio.sleep(0.005)
            assert not call.done()
            slow.tidied.set()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert slow.said == ["cancelled"]

    run(main)


def test_a_call_that_is_dropped_before_it_has_begun_ends_too(tmp_path):
    """Both words lie in the host's buffer: the call is cancelled before its first step."""

    async def main() -> None:
        reader, said = asyncio.StreamReader(), bytearray()
        asked = [wire.MessageType.CALL, 7, "access", "inspect", {}]
        for message in (asked, [wire.MessageType.DROP, 7]):
            reader.feed_data(wire.encode(message))
        reader.feed_eof()
        host: Any = SimpleNamespace(start_call=asyncio.ensure_future, is_stopping=False)
        way: Any = SimpleNamespace(write=said.extend, is_closing=lambda: False)
        guest = server._ClientSession(host, reader, way)
        await guest.serve()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert bytes(said) == wire.encode([wire.MessageType.ENDED, 7])
        assert guest._calls == {}

    run(main)


def test_who_is_cancelled_does_not_wait_for_ever_for_a_call_to_end(tmp_path):
    async def main() -> None:
        slow = Slow()
        async with holding(tmp_path, slow), holding(tmp_path, object()) as guests:
            with patched(client, DROP_SECONDS=0.05):
                call = await start_call(guests, slow)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            assert slow.said == []
            slow.tidied.set()

    run(main)


def test_who_only_reads_and_is_cancelled_goes_on_at_once(tmp_path):
    """Nothing could be overtaken by what follows."""

    async def main() -> None:
        slow = Slow()
        async with holding(tmp_path, slow), holding(tmp_path, object()) as guests:
            call = asyncio.create_task(access_of(guests).inspect(access_key()))
            await slow.begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert slow.said == []
            slow.tidied.set()
            await slow.over.wait()
            assert slow.said == ["cancelled"]

    run(main)


def test_a_call_whose_time_is_over_is_ended_in_the_host_too(tmp_path):
    async def main() -> None:
        slow = Slow()
        slow.tidied.set()
        async with holding(tmp_path, slow), holding(tmp_path, object()) as guests:
            with patched(client, CALL_SECONDS=0.05), pytest.raises(OutcomeUnknown):
                await (await start_call(guests, slow))
            await slow.over.wait()
            assert slow.said == ["cancelled"]

    run(main)


def test_a_call_goes_on_when_its_guest_is_gone(tmp_path):
    async def main() -> None:
        slow = Slow()
        async with holding(tmp_path, slow):
            visit = holding(tmp_path, object())
            call = await start_call(await visit.__aenter__(), slow)
            await visit.__aexit__(None, None, None)
            with pytest.raises(OutcomeUnknown):
                await call
            slow.let_go.set()
            await slow.over.wait()
            assert slow.said == ["applied"]

    run(main)


def test_who_is_cancelled_when_the_line_has_ended_goes_on_at_once(tmp_path):
    async def main() -> None:
        slow = Slow()
        async with holding(tmp_path, slow), holding(tmp_path, object()) as guests:
            call = await start_call(guests, slow)
            cast(Any, guests["access"])._current._server._writer.close()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            slow.let_go.set()

    run(main)
