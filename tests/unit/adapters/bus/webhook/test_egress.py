"""Where a caller's URL may lead: the public internet by https, and nowhere else."""

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from typing import Self

import pytest
from aiohttp import web

from tenure.adapters.bus.webhook import WebhookBus
from tenure.adapters.bus.webhook import bus as webhook_bus
from tenure.adapters.clock.system import SystemClock
from tenure.core.egress import is_public, refuse_private, target_of
from tenure.core.errors import Invalid
from tenure.core.retry import RetryPolicy
from tenure.ports.bus import DeliveryVerdict, Destination
from tenure.testing.contracts.bus import event_of
from tenure.testing.servers import lasting_port

HOSTILE_URLS = """
http://example.com/
http://127.0.0.1/
ftp://example.com/
file:///etc/passwd
gopher://127.0.0.1:70/_x
//example.com/
example.com/hook
javascript:alert(1)
https://
https:///hook
https://:443/
https://./
https://user@example.com/
https://user:secret@example.com/
https://example.com@127.0.0.1/
https://127.0.0.1@example.com/
https://example.com#@127.0.0.1/
https://example.com/#fragment
https://example.com:0/
https://example.com:99999/
https://example.com:port/
https://example.com\\@127.0.0.1/
https://exa mple.com/
https://exam_ple.com/
https://-example.com/
https://example..com/
https://ex%61mple.com/
https://localhost/
https://LOCALHOST/
https://localhost./
https://a.localhost/
https://printer.local/
https://metadata.google.internal/
https://127.0.0.1/
https://127.1/
https://2130706433/
https://0x7f000001/
https://0x7f.1/
https://017700000001/
https://0177.0.0.1/
https://127.0.0.01/
https://0/
https://0.0.0.0/
https://10.0.0.1/
https://10.255.255.255/
https://172.16.0.1/
https://172.31.255.255/
https://192.168.0.1/
https://100.64.0.1/
https://169.254.169.254/latest/meta-data/
https://192.0.0.192/
https://192.0.2.1/
https://198.18.0.1/
https://198.51.100.7/
https://203.0.113.9/
https://224.0.0.1/
https://239.255.255.250/
https://240.0.0.1/
https://255.255.255.255/
https://[::]/
https://[::1]/
https://[::ffff:127.0.0.1]/
https://[::ffff:169.254.169.254]/
https://[::ffff:8.8.8.8]/
https://[::127.0.0.1]/
https://[64:ff9b::7f00:1]/
https://[64:ff9b::a9fe:a9fe]/
https://[64:ff9b:1::1]/
https://[2002:7f00:1::]/
https://[2001::1]/
https://[2001:db8::1]/
https://[2001:20::1]/
https://[3fff::1]/
https://[3fff:fff:ffff::1]/
https://[5f00::1]/
https://[100::1]/
https://[100:0:0:1::1]/
https://[4000::1]/
https://[fc00::1]/
https://[fd00:ec2::254]/
https://[fe80::1]/
https://[fe80::1%25eth0]/
https://[fec0::1]/
https://[ff02::1]/
https://[::1
https://1.2.3.4.5/
https://256.1.1.1/
https://１２７.0.0.1/
https://ⓔxample.com/
""".strip().splitlines()


def test_there_are_enough_of_them():
    assert len(set(HOSTILE_URLS)) >= 60


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_a_hostile_url_is_refused_before_anybody_is_asked(url):
    with pytest.raises(Invalid, match="url: "):
        target_of(url)


@pytest.mark.parametrize("host", ["a" * 40, "a" * 250, "a-" * 120, "a." * 900, "a" * 10_000])
def test_a_long_and_hostile_host_is_refused_with_bounded_work(host):
    """Backtracking over ways to part it into labels would take longer than the universe is old."""
    for end in ("_", "-", "._", "..a"):
        with pytest.raises(Invalid, match="url: "):
            target_of(f"https://{host}{end}/")


def test_a_host_is_labels_of_63_characters_and_of_253_in_all():
    assert target_of(f"https://{'a' * 63}.example/").host
    assert target_of(f"https://{'a.' * 126}a/").host
    for host in ("a" * 64 + ".example", "a." * 126 + "aa", "a..example", "a-.example"):
        with pytest.raises(Invalid, match="neither a name nor a plainly written address"):
            target_of(f"https://{host}/")


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook",
        "https://hooks.example.co.uk:8443/a/b?c=d",
        "https://8.8.8.8/",
        "https://[2606:4700:4700::1111]/",
        "https://xn--bcher-kva.example/",
        "https://EXAMPLE.com./",
    ],
)
def test_a_public_https_url_may_be_called(url):
    assert target_of(url).scheme == "https"


def test_this_machine_is_for_development_only():
    for url in ("http://127.0.0.1:8080/hook", "http://localhost/", "https://[::1]/"):
        assert target_of(url, loopback=True)
        with pytest.raises(Invalid, match=r"is this machine, .* tenure up --webhooks-here"):
            target_of(url)
    for url in ("http://10.0.0.1/", "http://127.0.0.2/", "http://example.com/"):
        with pytest.raises(Invalid):
            target_of(url, loopback=True)


@pytest.mark.parametrize(
    "found", [["8.8.8.8", "127.0.0.1"], ["10.0.0.1"], [], ["2606:4700:4700::1111", "::1"]]
)
def test_every_address_of_a_name_must_be_public(found):
    with pytest.raises(Invalid):
        refuse_private("example.com", found)
    with pytest.raises(Invalid):  # a name that turns out to be this machine is not development
        refuse_private("example.com", found, loopback=True)


def test_public_addresses_pass():
    assert all(map(is_public, refuse_private("example.com", ["8.8.8.8", "2606:4700:4700::1111"])))


# --- on the wire ----------------------------------------------------------------------------------


class Trap:
    """A server that nobody may reach; it counts who does."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.port = lasting_port()
        self.hits = 0
        self.headers: dict[str, str] = {}
        self.answer: Callable[[], web.Response] = lambda: web.Response(status=204)
        self.slow = False
        self._tls = tls
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._hit)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._tls).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _hit(self, request: web.Request) -> web.StreamResponse:
        self.hits += 1
        self.headers = {name.lower(): value for name, value in request.headers.items()}
        if self.slow:
            await asyncio.sleep(3_600)
        return self.answer()


async def call(url, **more):
    bus = WebhookBus(clock=SystemClock(), **more)
    try:
        (receipt,) = await bus.publish(Destination("d", url, (b"k" * 32,)), [event_of("a")])
        return receipt
    finally:
        await bus.close()


def test_a_name_that_rebinds_is_resolved_once_and_leads_nowhere_inside(monkeypatch):
    """The first answer is public, every later one is this machine: only looked-at ones count."""
    asked = []

    async def main():
        async with Trap() as trap:

            async def rebinding(host, port):
                asked.append(host)
                return ["127.0.0.1"] if len(asked) > 1 else ["192.0.2.1"]

            first = await call(f"https://rebind.example:{trap.port}/", resolve=rebinding)
            second = await call(f"https://rebind.example:{trap.port}/", resolve=rebinding)
            assert first.verdict is second.verdict is DeliveryVerdict.UNAVAILABLE
            assert "not a public address" in second.why
            assert trap.hits == 0
            assert asked == ["rebind.example"] * 2

    asyncio.run(main())


def test_a_name_with_one_private_address_among_public_ones_is_not_called():
    async def both(host, port):
        return ["8.8.8.8", "169.254.169.254"]

    receipt = asyncio.run(call("https://both.example/", resolve=both))
    assert receipt.verdict is DeliveryVerdict.UNAVAILABLE
    assert "not a public address" in receipt.why
    assert "169.254" not in receipt.why  # whoever subscribed reads it, and is told nothing of us


def test_a_redirect_to_this_machine_is_not_followed():
    async def main():
        async with Trap() as inside, Trap() as outside:
            there = f"http://127.0.0.1:{inside.port}/"
            outside.answer = lambda: web.Response(status=307, headers={"location": there})
            url = f"http://127.0.0.1:{outside.port}/"
            receipt = await call(url, loopback=True)
            assert receipt.verdict is DeliveryVerdict.UNAVAILABLE
            assert "redirects are not followed" in receipt.why
            assert (outside.hits, inside.hits) == (1, 0)

    asyncio.run(main())


def test_an_endpoint_that_hangs_ends_in_time():
    async def main():
        async with Trap() as trap:
            trap.slow = True
            receipt = await call(f"http://127.0.0.1:{trap.port}/", loopback=True, call_seconds=0.2)
            assert receipt.verdict is DeliveryVerdict.UNAVAILABLE
            assert "within 0.2 s" in receipt.why
            assert trap.hits == 1

    asyncio.run(main())


def test_an_endless_answer_is_not_read():
    async def main():
        async with Trap() as trap:
            trap.answer = lambda: web.Response(body=b"x" * 10_000_000)
            receipt = await call(f"http://127.0.0.1:{trap.port}/", loopback=True)
            assert receipt.verdict is DeliveryVerdict.DELIVERED

    asyncio.run(main())


def test_the_connection_goes_to_the_looked_at_address_under_the_names_certificate(
    tmp_path, monkeypatch
):
    """The name has one address; the certificate and Host are the name's, not the address's."""
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            key,
            "-out",
            chain,
            "-days",
            "2",
            "-subj",
            "/CN=hooks.example",
            "-addext",
            "subjectAltName=DNS:hooks.example",
        ],
        check=True,
        capture_output=True,
    )
    serves = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serves.load_cert_chain(chain, key)
    trusts = ssl.create_default_context(cafile=str(chain))
    # This machine stands for the public internet: what is looked at is shown by the tests above.
    monkeypatch.setattr(webhook_bus, "refuse_private", lambda host, found, *, loopback: list(found))

    async def here(host, port):
        return ["127.0.0.1"]

    async def main():
        async with Trap(tls=serves) as trap:
            good = await call(
                f"https://hooks.example:{trap.port}/x", resolve=here, ssl_context=trusts
            )
            assert good.verdict is DeliveryVerdict.DELIVERED, good.why
            assert trap.headers["host"] == f"hooks.example:{trap.port}"
            assert trap.headers["content-type"] == "application/cloudevents+json"
            other = await call(
                f"https://other.example:{trap.port}/x", resolve=here, ssl_context=trusts
            )
            assert other.verdict is DeliveryVerdict.UNAVAILABLE
            assert trap.hits == 1

    asyncio.run(main())


def test_an_endpoint_that_fails_again_and_again_is_left_alone(monkeypatch):
    async def main():
        async with Trap() as trap:
            trap.answer = lambda: web.Response(status=500)
            bus = WebhookBus(clock=SystemClock(), loopback=True)
            there = Destination("d", f"http://127.0.0.1:{trap.port}/")
            told = [(await bus.publish(there, [event_of("a", n)]))[0] for n in range(20)]
            assert {receipt.verdict for receipt in told} == {DeliveryVerdict.UNAVAILABLE}
            assert trap.hits == webhook_bus.BREAKER_FAILURES
            assert told[-1].retry_seconds > 0
            assert told[-1].why.startswith("it answered 500; it failed 5 times in a row")
            other = there._replace(id="other")
            assert (await bus.publish(other, [event_of("a")]))[0].retry_seconds == 0
            await bus.close()

    asyncio.run(main())


def test_an_open_breaker_follows_its_retry_policy(monkeypatch):
    policy = RetryPolicy(10.0, 30.0, factor=2.0)
    monkeypatch.setattr(webhook_bus, "WEBHOOK_BREAKER", policy)
    clock = SystemClock()
    bus, breaker, pauses = WebhookBus(clock=clock, loopback=True), webhook_bus._CLOSED_BREAKER, []
    for _ in range(webhook_bus.BREAKER_FAILURES + 3):
        breaker = bus._after_failure(breaker, clock.monotonic(), "it answered 500")
        pauses.append(max(0.0, round(breaker.open_until - breaker.failed_at, 3)))
    assert pauses == [*[0.0] * (webhook_bus.BREAKER_FAILURES - 1), 10.0, 20.0, 30.0, 30.0]


def test_calls_that_fail_together_are_one_failure():
    """An endpoint that was away for a moment is called again as soon as its turn comes."""

    async def main():
        async with Trap() as trap:
            trap.answer = lambda: web.Response(status=500)
            bus = WebhookBus(clock=SystemClock(), loopback=True)
            there = Destination("d", f"http://127.0.0.1:{trap.port}/")
            events = [event_of(f"a{n}") for n in range(webhook_bus.ENDPOINT_CALLS_MAX)]
            failed = await bus.publish(there, events)
            assert {receipt.retry_seconds for receipt in failed} == {0}
            trap.answer = lambda: web.Response(status=204)
            (receipt,) = await bus.publish(there, events[:1])
            assert receipt.verdict is DeliveryVerdict.DELIVERED, receipt.why
            await bus.close()

    asyncio.run(main())


def test_only_failing_endpoints_are_remembered_and_no_more_than_so_many(monkeypatch):
    monkeypatch.setattr(webhook_bus, "BREAKERS_MAX", 3)

    async def main():
        async with Trap() as trap:
            bus = WebhookBus(clock=SystemClock(), loopback=True)

            async def publish(name, status):
                trap.answer = lambda: web.Response(status=status)
                there = Destination(name, f"http://127.0.0.1:{trap.port}/")
                await bus.publish(there, [event_of("a")])
                return list(bus._breakers)

            assert await publish("well", 200) == []
            for name in "abcde":
                await publish(name, 500)
            assert await publish("c", 500) == ["d", "e", "c"], "the one that failed first goes"
            assert await publish("e", 400) == ["d", "c"], "it answers, whatever it says"
            await bus.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, "delivered"),
        (204, "delivered"),
        (301, "unavailable"),
        (400, "refused"),
        (401, "refused"),
        (404, "refused"),
        (408, "unavailable"),
        (410, "unavailable"),
        (422, "refused"),
        (429, "unavailable"),
        (500, "unavailable"),
        (503, "unavailable"),
    ],
)
def test_what_an_answer_means(status, verdict):
    async def main():
        async with Trap() as trap:
            trap.answer = lambda: web.Response(status=status, headers={"retry-after": "7"})
            receipt = await call(f"http://127.0.0.1:{trap.port}/", loopback=True)
            assert receipt.verdict == verdict
            if status in {429, 503}:
                assert receipt.retry_seconds == 7.0

    asyncio.run(main())
