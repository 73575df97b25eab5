"""How a call to the host ends: its errors, its lost answers, its pages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from tenure.adapters.provider_host import unix
from tenure.adapters.provider_host.unix import client, listener, open_shared_providers, wire
from tenure.adapters.provider_host.unix.wire import MessageType
from tenure.core.errors import (
    Invalid,
    OutcomeUnknown,
    Rejected,
    StoreError,
    StoreLocked,
    Unavailable,
)
from tenure.ports.provider import OwnedResource
from tenure.sqlite.location import Lock
from tenure.testing.contracts.access import access_key
from tenure.testing.patches import patched
from tests.contract.support.hosted_providers import Nobody
from tests.unit.support.provider_hosts import (
    CLOCK,
    ISSUER,
    access_of,
    connect_raw_client,
    holding,
    opening_access,
    run,
)


def test_errors_arrive_as_the_port_says(tmp_path):
    class Odd(Nobody):
        raised: Exception

        async def remove(self, key: object) -> None:
            raise self.raised

    async def main() -> None:
        odd = Odd()
        async with holding(tmp_path, odd), holding(tmp_path, odd) as guests:
            for kind in (Unavailable, Rejected, OutcomeUnknown, Invalid):
                odd.raised = kind("because")
                with pytest.raises(kind, match="because"):
                    await access_of(guests).remove(access_key())
            for wrong in (KeyError("k"), RuntimeError("because"), StoreError("because")):
                odd.raised = wrong
                with pytest.raises(OutcomeUnknown, match=type(wrong).__name__):
                    await access_of(guests).remove(access_key())

    run(main)


def test_what_the_host_does_not_know_is_unavailable(tmp_path):
    async def main() -> None:
        async with holding(tmp_path, Nobody()):
            reader, writer = await connect_raw_client(tmp_path)
            for name in ("conquer", "__class__", "close"):
                writer.write(wire.encode([MessageType.CALL, 1, "access", name, {}]))
                assert (await wire.read(reader))[2] == "unavailable"  # type: ignore[index]
            writer.write(
                wire.encode([MessageType.CALL, 1, "access", "ensure", {"key": 7, "spec": {}}])
            )
            assert (await wire.read(reader))[2] == "rejected"  # type: ignore[index]
            writer.close()

    run(main)


@asynccontextmanager
async def scripted_host(
    home: Path, *, protocol: int = wire.PROTOCOL, hangs_up: bool
) -> AsyncIterator[None]:
    """Somebody who has the lock, welcomes, and then hangs up on the first call or never answers."""
    lock = Lock.take(home / "providers")
    said = {"protocol": protocol, "process": 1, "identity": {"issuer": ISSUER}}
    writers: list[asyncio.StreamWriter] = []

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(wire.encode([MessageType.WELCOME, said]))
        await wire.read(reader)
        if hangs_up:
            lock.release()
            serving.close()
            writer.close()

    serving = await asyncio.start_unix_server(welcome, sock=listener.listen(home))
    try:
        yield
    finally:
        serving.close()
        lock.release()
        for writer in writers:
            writer.close()


def test_a_call_whose_answer_was_lost_may_have_been_applied_unless_it_only_reads(tmp_path):
    async def main(verb: str) -> None:
        async with (
            scripted_host(tmp_path, hangs_up=True),
            open_shared_providers(tmp_path, opening_access(tmp_path), clock=CLOCK) as guests,
        ):
            access = access_of(guests)
            kind = Unavailable if verb == "inspect" else OutcomeUnknown
            work = (
                access.inspect(access_key())
                if verb == "inspect"
                else access.ensure(access_key(), {})
            )
            with pytest.raises(kind, match="ended before it answered"):
                await work
            await access.ensure(access_key(), {})  # served by ourselves now

    for verb in ("inspect", "ensure"):
        run(lambda verb=verb: main(verb))


def test_a_listing_whose_end_was_lost_is_unavailable(tmp_path):
    async def main() -> None:
        async with (
            scripted_host(tmp_path, hangs_up=True),
            open_shared_providers(tmp_path, opening_access(tmp_path), clock=CLOCK) as guests,
        ):
            with pytest.raises(Unavailable):
                _ = [item async for item in access_of(guests).list_owned("p")]
            assert [item async for item in access_of(guests).list_owned("p")] == []

    run(main)


def test_who_never_answers_ends_a_call_at_its_deadline(tmp_path):
    async def main() -> None:
        async with (
            scripted_host(tmp_path, hangs_up=False),
            open_shared_providers(tmp_path, opening_access(tmp_path), clock=CLOCK) as guests,
        ):
            with patched(client, CALL_SECONDS=0.05):
                with pytest.raises(OutcomeUnknown, match="has not answered"):
                    await access_of(guests).ensure(access_key(), {})
                with pytest.raises(Unavailable, match="has not answered"):
                    await access_of(guests).inspect(access_key())

    run(main)


def test_who_serves_in_another_way_is_named(tmp_path):
    async def main() -> None:
        async with scripted_host(tmp_path, protocol=99, hangs_up=False):
            with (
                patched(unix, START_SECONDS=0.2),
                pytest.raises(StoreLocked, match="the same Tenure"),
            ):
                await open_shared_providers(
                    tmp_path, opening_access(tmp_path), clock=CLOCK
                ).__aenter__()

    run(main)


def test_what_cannot_be_sent_is_refused_here(tmp_path):
    async def main() -> None:
        opening = opening_access(tmp_path)
        async with (
            open_shared_providers(tmp_path, opening, clock=CLOCK),
            open_shared_providers(tmp_path, opening, clock=CLOCK) as guests,
        ):
            with pytest.raises(Rejected, match="was not sent"):
                await access_of(guests).ensure(access_key(), {"x": "x" * (1 << 24)})
            with pytest.raises(Rejected, match="roles"):
                await access_of(guests).ensure(access_key(), {"roles": {1, 2}})
            with pytest.raises(TypeError):
                await cast(Any, access_of(guests)).ensure(access_key())

    run(main)


# --- listings -------------------------------------------------------------------------------------


class Listing(Nobody):
    """Has many, and counts how many were asked for."""

    given = 0

    async def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        for number in range(2_300):
            self.given = number + 1
            yield OwnedResource(f"{plane}{number}", "a", 1, 0.5)


def test_a_listing_is_read_by_pages_and_no_further_than_it_is_asked_for(tmp_path):
    async def main() -> None:
        listing = Listing()
        async with holding(tmp_path, listing), holding(tmp_path, listing) as guests:
            access = access_of(guests)
            items = [item async for item in access.list_owned("p")]
            assert items == [OwnedResource(f"p{n}", "a", 1, 0.5) for n in range(2_300)]
            listing.given = 0
            some = access.list_owned("p")
            assert (await anext(some)).key == "p0"
            for _ in range(5):
                await access.list_owned("q").__anext__()  # others go on
            assert listing.given <= 2 * wire.PAGE
            with suppress(RuntimeError):
                await cast(Any, some).aclose()

    run(main)
