"""Who is held to the bus contract: functions of this process, webhooks, NATS JetStream."""

import asyncio
import re
import shutil

import pytest
from aiohttp import web

from tenure.adapters.bus.local import LocalBus
from tenure.adapters.bus.webhook import WebhookBus
from tenure.adapters.bus.webhook import bus as webhook_bus
from tenure.adapters.clock.system import SystemClock
from tenure.app.events.subscriptions import secret_text
from tenure.core.errors import Invalid, Unavailable
from tenure.core.retry import WEBHOOK_BREAKER
from tenure.ports.bus import DeliveryVerdict, Destination, Outgoing
from tenure.testing.contracts.bus import BusCase, BusContract, Scenario, event_of
from tenure.testing.servers import lasting_port
from tenure_agent import verify
from tests.contract.support.nats_server import BINARY, NatsServer

pytestmark = pytest.mark.timeout(300)
SECRET = b"0123456789abcdef0123456789abcdef"


class TestLocalBus(BusContract):
    @pytest.fixture
    def run_scenario(self):
        def run_scenario(scenario: Scenario) -> None:
            async def on() -> None:
                seen: list[tuple[str, bytes]] = []
                bad: set[str] = set()
                away: list[bool] = []

                async def take(event: Outgoing) -> None:
                    if away:
                        raise ConnectionError("nobody is there")
                    if event.agent in bad:
                        raise Invalid("not this one")
                    seen.append((event.id, event.body))

                async def list_received() -> list[tuple[str, bytes]]:
                    return seen

                async def stop() -> None:
                    away.append(True)

                async def start() -> None:
                    away.clear()

                bus = LocalBus({"mine": take})
                there = Destination("d", "mine")
                await scenario(BusCase(bus, there, list_received, stop, start, bad.add))

            asyncio.run(on())

        return run_scenario


class Receiver:
    """A webhook's other end: a server of its own that verifies what it is sent."""

    def __init__(self) -> None:
        self.port = lasting_port()
        self.seen: list[tuple[str, bytes]] = []
        self.bad: set[str] = set()
        self.secret = SECRET
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/hook", self._take)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        name = verify(request.headers, body, secret_text(self.secret))
        if any(name.startswith(f"{agent}-") for agent in self.bad):
            return web.Response(status=422)
        self.seen.append((name, body))
        return web.Response(status=204)


class TestWebhookBus(BusContract):
    @pytest.fixture
    def run_scenario(self, monkeypatch):
        monkeypatch.setattr(webhook_bus, "WEBHOOK_BREAKER", WEBHOOK_BREAKER.scaled_to(0.01))

        def run_scenario(scenario: Scenario) -> None:
            async def on() -> None:
                receiver = Receiver()
                await receiver.start()
                bus = WebhookBus(clock=SystemClock(), loopback=True)
                there = Destination("d", f"http://127.0.0.1:{receiver.port}/hook", (SECRET,))

                async def list_received() -> list[tuple[str, bytes]]:
                    return receiver.seen

                try:
                    await scenario(
                        BusCase(
                            bus,
                            there,
                            list_received,
                            receiver.stop,
                            receiver.start,
                            receiver.bad.add,
                        )
                    )
                finally:
                    await bus.close()
                    await receiver.stop()

            asyncio.run(on())

        return run_scenario


@pytest.mark.skipif(not BINARY, reason="nats-server is not installed")
class TestNatsBus(BusContract):
    @pytest.fixture
    def run_scenario(self, tmp_path):
        from tenure.adapters.bus.nats import NatsBus

        def run_scenario(scenario: Scenario) -> None:
            async def on() -> None:
                server = NatsServer(tmp_path / "nats")
                server.start()
                bus = NatsBus(server.url)

                async def list_received() -> list[tuple[str, bytes]]:
                    return await read_stream(server.url)

                async def stop() -> None:
                    server.stop()

                async def start() -> None:
                    server.start()

                try:
                    there = Destination("d", "")
                    await scenario(BusCase(bus, there, list_received, stop, start, None))
                finally:
                    await bus.close()
                    server.stop()
                    shutil.rmtree(tmp_path / "nats", ignore_errors=True)

            asyncio.run(on())

        return run_scenario

    def test_a_second_copy_is_dropped_by_the_server(self, run_scenario) -> None:
        async def scenario(world: BusCase) -> None:
            for _ in range(3):
                receipts = await world.bus.publish(world.destination, [event_of("a")])
                assert receipts[0].verdict is DeliveryVerdict.DELIVERED
            other = world.destination._replace(id="mine", target="mine")
            await world.bus.publish(other, [event_of("a")])
            names = [name for name, _ in await world.list_received()]
            assert sorted(names) == ["a-1", "a-1/mine"]

        run_scenario(scenario)

    def test_what_is_too_large_is_refused_alone(self, run_scenario) -> None:
        async def scenario(world: BusCase) -> None:
            huge = event_of("a", body=b"x" * 2_000_000)
            receipts = await world.bus.publish(world.destination, [huge, event_of("b")])
            assert [one.verdict for one in receipts] == [
                DeliveryVerdict.REFUSED,
                DeliveryVerdict.DELIVERED,
            ]

        run_scenario(scenario)

    def test_a_stream_that_is_gone_takes_nothing_and_a_closed_bus_says_so(
        self, run_scenario
    ) -> None:
        async def scenario(world: BusCase) -> None:
            import nats

            await world.bus.publish(world.destination, [event_of("a")])
            url = world.bus._url  # type: ignore[attr-defined]
            client = await nats.connect(url, connect_timeout=60)
            await client.jetstream().delete_stream("TENURE")
            (receipt,) = await world.bus.publish(world.destination, [event_of("b")])
            assert receipt.verdict is DeliveryVerdict.UNAVAILABLE
            assert "no stream" in receipt.why
            await client.close()
            await world.bus.close()
            (receipt,) = await world.bus.publish(world.destination, [event_of("c")])
            assert "closed" in receipt.why

        run_scenario(scenario)

    def test_what_would_be_found_there_is_said_in_a_sentence(self, run_scenario) -> None:
        async def scenario(world: BusCase) -> None:
            from tenure.adapters.bus.nats import probe

            url = world.bus._url  # type: ignore[attr-defined]
            told = await probe(url)
            assert re.match(
                r"NATS \d+\.\d+\S* with JetStream; the first event creates stream", told
            )
            await world.bus.publish(world.destination, [event_of("a")])
            assert "has 1 events" in await probe(url)
            await world.stop()
            with pytest.raises(Unavailable, match="check that it runs there"):
                await probe(url)
            await world.start()

        run_scenario(scenario)


async def read_stream(url: str) -> list[tuple[str, bytes]]:
    """Everything in the stream, read by a consumer of its own."""
    import nats

    client = await nats.connect(url, connect_timeout=60)
    try:
        stream = client.jetstream(timeout=60)
        count = (await stream.stream_info("TENURE")).state.messages
        found = [await stream.get_msg("TENURE", seq=n + 1) for n in range(count)]
        return [((one.headers or {})["Nats-Msg-Id"], one.data or b"") for one in found]
    finally:
        await client.close()
