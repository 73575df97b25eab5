"""Endpoints and names that mean harm: each holds up its own tenant at most, and never the loop."""

import asyncio
import resource
import socket
import threading
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from tenure.adapters.bus.webhook import WebhookBus
from tenure.adapters.bus.webhook import bus as webhook_bus
from tenure.adapters.bus.webhook import lookups as webhook_lookups
from tenure.adapters.bus.webhook.client import PIECE_BYTES, RESPONSES_MAX, BoundedResponses
from tenure.adapters.bus.webhook.lookups import Lookups, LookupsBusy, resolve_name
from tenure.adapters.clock.system import SystemClock
from tenure.ports.bus import DeliveryVerdict, Destination
from tenure.testing.contracts.bus import event_of

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
DONE = b"HTTP/1.1 204 No Content\r\n\r\n"


@asynccontextmanager
async def endpoint(answer):
    """A server that answers as it is told, by its host and port."""

    async def serve(reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        except ConnectionError:
            pass  # the caller has hung up
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def mute():
    """A server that answers nobody, by its host and port, and who has called it so far."""
    called: asyncio.Queue[None] = asyncio.Queue()

    async def hangs(writer):
        called.put_nowait(None)
        await asyncio.sleep(3_600)

    async with endpoint(hangs) as there:
        yield there, called


async def answers(writer):
    writer.write(DONE)
    await writer.drain()


@asynccontextmanager
async def bus_of(**more):
    bus = WebhookBus(clock=SystemClock(), **more)
    try:
        yield bus
    finally:
        await bus.close()


# --- answers --------------------------------------------------------------------------------------


class Wire(asyncio.Transport):
    """Notes whether it was closed."""

    def __init__(self):
        super().__init__()
        self.closed = False

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed


def test_of_interim_answers_without_end_few_are_read():
    async def main():
        wire, heads = Wire(), BoundedResponses(asyncio.get_running_loop())
        heads.connection_made(wire)
        heads.set_response_params()
        heads.data_received(CONTINUE * 100_000)
        assert len(heads) == RESPONSES_MAX
        assert wire.closed
        assert f"more than {RESPONSES_MAX} responses" in str(heads.exception())
        assert heads._responses <= RESPONSES_MAX + PIECE_BYTES // len(
            CONTINUE
        )  # no more was parsed

    asyncio.run(main())


def test_answers_are_counted_for_each_request_that_a_connection_carries():
    async def main():
        wire, heads = Wire(), BoundedResponses(asyncio.get_running_loop())
        heads.connection_made(wire)
        for _ in range(3 * RESPONSES_MAX):
            heads.set_response_params()
            heads.data_received(DONE)
            assert (await heads.read())[0].code == 204
        assert not wire.closed

    asyncio.run(main())


def test_an_endpoint_that_never_ends_its_interim_answers_has_failed():
    async def without_end(writer):
        while True:
            writer.write(CONTINUE * 1_000)
            await writer.drain()

    async def main():
        async with endpoint(without_end) as there, bus_of(loopback=True) as bus:
            (receipt,) = await bus.publish(Destination("d", f"http://{there}/"), [event_of("a")])
            assert receipt.verdict is DeliveryVerdict.UNAVAILABLE
            assert "responses to one request" in receipt.why

    asyncio.run(main())


def test_a_few_interim_answers_are_passed_over():
    async def main():
        async def answer(writer):
            writer.write(CONTINUE * (RESPONSES_MAX - 1) + DONE)
            await writer.drain()

        async with endpoint(answer) as there, bus_of(loopback=True) as bus:
            (receipt,) = await bus.publish(Destination("d", f"http://{there}/"), [event_of("a")])
            assert receipt.verdict is DeliveryVerdict.DELIVERED, receipt.why

    asyncio.run(main())


# --- calls at once --------------------------------------------------------------------------------


def test_endpoints_of_one_tenant_that_hang_are_in_nobody_elses_way(monkeypatch):
    """More calls than the client's own pool would let through hang, and all at one host."""
    monkeypatch.setattr(webhook_bus, "TENANT_CALLS_MAX", 120)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20_000, 20_000))
    events = [event_of(f"a{n}") for n in range(webhook_bus.ENDPOINT_CALLS_MAX)]

    async def main():
        async with (
            mute() as (slow, called),
            endpoint(answers) as quick,
            bus_of(loopback=True) as bus,
            asyncio.TaskGroup() as calls,
        ):
            hanging = [
                calls.create_task(
                    bus.publish(Destination(f"d{n}", f"http://{slow}/", tenant="mallory"), events)
                )
                for n in range(10)
            ]
            for _ in range(120):
                await called.get()
            vera = Destination("vera", f"http://{quick}/", tenant="vera")
            (receipt,) = await bus.publish(vera, events[:1])
            assert receipt.verdict is DeliveryVerdict.DELIVERED, receipt.why
            assert called.empty(), "no more than so many of one tenant's"
            there_too = vera._replace(id="too", target=f"http://{slow}/")
            hanging.append(calls.create_task(bus.publish(there_too, events[:1])))
            await called.get()
            for call in hanging:
                call.cancel()

    asyncio.run(main())


@pytest.mark.parametrize(("files", "calls"), [(64, 16), (8, 2), (resource.RLIM_INFINITY, 24)])
def test_endpoints_of_many_tenants_that_hang_leave_files_to_everybody_else(
    monkeypatch, files, calls
):
    """A quarter of the files that may be open, and no more than a fixed number of calls."""
    monkeypatch.setattr(webhook_bus, "CALLS_MAX", 24)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))

    async def main():
        async with (
            mute() as (slow, called),
            bus_of(loopback=True) as bus,
            asyncio.TaskGroup() as group,
        ):
            hanging = [
                group.create_task(
                    bus.publish(Destination(f"d{n}", f"http://{slow}/", tenant=f"t{n}"), some)
                )
                for n, some in enumerate([[event_of("a"), event_of("b"), event_of("c")]] * 20)
            ]
            for _ in range(calls):
                await called.get()
            await asyncio.sleep(0.05)
            assert called.empty()
            for call in hanging:
                call.cancel()

    asyncio.run(main())


def test_whoever_waits_for_a_turn_has_not_failed(monkeypatch):
    """A tenant has one call at once, and its hanging endpoint uses up the time of all its calls."""
    monkeypatch.setattr(webhook_bus, "TENANT_CALLS_MAX", 1)

    async def main():
        async def hangs(writer):
            await asyncio.sleep(3_600)

        async with (
            endpoint(hangs) as slow,
            endpoint(answers) as quick,
            bus_of(loopback=True, call_seconds=0.2) as bus,
        ):
            events = [event_of(f"a{n}") for n in range(3)]
            failed, well = await asyncio.gather(
                bus.publish(Destination("slow", f"http://{slow}/"), events),
                bus.publish(Destination("well", f"http://{quick}/"), events[:1]),
            )
            assert {one.verdict for one in failed} == {DeliveryVerdict.UNAVAILABLE}
            assert well[0].verdict is DeliveryVerdict.DELIVERED, well[0].why
            assert list(bus._breakers) == ["slow"]

    asyncio.run(main())


# --- names ----------------------------------------------------------------------------------------


class Names:
    """A name server that answers for some names only; it counts who asks."""

    def __init__(self):
        self.asked: Counter[str] = Counter()
        self.now = asyncio.Event()

    async def resolve(self, host, port):
        self.asked[host] += 1
        if host.startswith("slow"):
            await self.now.wait()
        if host.startswith("late"):
            raise TimeoutError("its server did not answer")
        return ["192.0.2.1"]


def test_names_of_one_tenant_that_hang_leave_lookups_to_others(monkeypatch):
    monkeypatch.setattr(webhook_lookups, "WAIT_SECONDS", 0.05)

    async def main():
        names = Names()
        lookups = Lookups(names.resolve)
        for n in range(100):
            with pytest.raises((TimeoutError, LookupsBusy)):
                async with asyncio.timeout(0.0 if n < 99 else None):
                    await lookups.addresses("mallory", f"slow{n}.example", 443)
        assert names.asked.total() == webhook_lookups.LOOKUPS_OF_TENANT
        assert await lookups.addresses("vera", "quick.example", 443) == ["192.0.2.1"]
        names.now.set()
        assert await lookups.addresses("mallory", "slow0.example", 443)
        await lookups.close()

    asyncio.run(main())


def test_a_name_that_is_being_looked_up_for_a_tenant_is_not_looked_up_again_for_it():
    async def main():
        names = Names()
        lookups = Lookups(names.resolve)
        for _ in range(50):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.0):
                    await lookups.addresses("mallory", "slow.example", 443)
        vera = asyncio.create_task(lookups.addresses("vera", "slow.example", 443))
        again = asyncio.create_task(lookups.addresses("mallory", "slow.example", 443))
        await asyncio.sleep(0.01)
        assert names.asked["slow.example"] == 2
        names.now.set()
        assert await again == await vera == ["192.0.2.1"]
        await asyncio.sleep(0)
        await lookups.addresses("vera", "slow.example", 443)
        assert names.asked["slow.example"] == 3, "what is known is not kept"
        with pytest.raises(TimeoutError, match="did not answer"):
            await lookups.addresses("vera", "late.example", 443)
        await lookups.close()

    asyncio.run(main())


def test_a_name_that_was_not_looked_up_is_no_failure_of_its_endpoint(monkeypatch):
    monkeypatch.setattr(webhook_lookups, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(webhook_lookups, "LOOKUPS_OF_TENANT", 1)

    async def main():
        names = Names()
        async with bus_of(resolve=names.resolve, call_seconds=0.1) as bus:

            async def publish(tenant, host):
                there = Destination(host, f"https://{host}/", tenant=tenant)
                (receipt,) = await bus.publish(there, [event_of("a")])
                assert receipt.verdict is DeliveryVerdict.UNAVAILABLE
                return receipt.why

            assert "did not answer" in await publish("mallory", "slow.example")
            assert "cannot be looked up now" in await publish("mallory", "quick.example")
            assert list(bus._breakers) == ["slow.example"]
            assert "not a public address" in await publish("vera", "quick.example")
            assert list(names.asked) == ["slow.example", "quick.example"]

    asyncio.run(main())


def test_a_name_is_looked_up_as_the_system_knows_it(monkeypatch):
    async def main():
        assert await resolve_name("127.0.0.1", 443) == ["127.0.0.1"]

        def nobody(*_, **__):
            raise socket.gaierror("nobody is called that")

        monkeypatch.setattr(socket, "getaddrinfo", nobody)
        with pytest.raises(OSError, match="nobody is called that"):
            await resolve_name("nobody.example", 443)

    asyncio.run(main())


def test_a_lookup_that_outlasts_whoever_asked_is_told_to_nobody(monkeypatch):
    go = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: go.wait() and [])

    async def main():
        before = set(threading.enumerate())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await resolve_name("slow.example", 443)
        return [one for one in threading.enumerate() if one not in before]

    (left,) = asyncio.run(main())  # the loop ends, though the lookup has not
    assert left.daemon, "nor does the process wait for it"
    go.set()
    left.join()
