"""The house: one serves, the others are guests; what a call ends with when who serves is gone."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from tenure.adapters.access.local import build
from tenure.adapters.clock.system import SystemClock
from tenure.adapters.house import unix
from tenure.adapters.house.unix import client, door, guest, server, shared, wire
from tenure.adapters.house.unix.wire import Word
from tenure.core.errors import (
    Invalid,
    OutcomeUnknown,
    Rejected,
    StoreError,
    StoreLocked,
    Unavailable,
)
from tenure.ports.access import Access
from tenure.ports.provider import Owned, Provider
from tenure.storage.place import Lock
from tenure.testing.contracts.access import access_key, access_spec
from tenure.testing.patches import patched
from tests.contract.visited import Nobody

CLOCK = SystemClock()
ISSUER = "https://first.example"


def opening_access(home: Path, opened: list[str] | None = None) -> unix.Open:
    """Opens the real provider of access, and nobody else."""

    @asynccontextmanager
    async def opening(issuer: str) -> AsyncIterator[Mapping[str, Provider]]:
        if opened is not None:
            opened.append(issuer)
        known = Nobody()
        known.issuer = issuer or ISSUER
        access = build(home / "access.db", clock=CLOCK)
        try:
            yield cast(
                "Mapping[str, Provider]",
                {"identity": known, "access": access, "credentials": known, "runtime": known},
            )
        finally:
            await access.close()

    return opening


def holding(home: Path, access: object) -> Any:
    """A house with this in the place of access."""

    @asynccontextmanager
    async def opening(_: str) -> AsyncIterator[Mapping[str, Provider]]:
        known = Nobody()
        named = {"identity": known, "access": access, "credentials": known, "runtime": known}
        yield cast("Mapping[str, Provider]", named)

    return shared(home, opening, clock=CLOCK)


def run(work) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(4.5):
            await work()

    asyncio.run(bounded())


def access_of(providers: Mapping[str, Provider]) -> Access:
    return cast(Access, providers["access"])


async def met(home: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A guest that speaks for itself, and was welcomed."""
    reader, writer = await asyncio.open_unix_connection(sock=door.knock(home))
    message = await wire.read(reader)
    assert message is not None
    assert message[0] == Word.WELCOME
    return reader, writer


# --- who serves -----------------------------------------------------------------------------------


def test_who_is_alone_has_the_providers_themselves(tmp_path):
    async def main() -> None:
        alone = object()
        async with holding(tmp_path, alone) as providers:
            assert providers["access"] is alone

    run(main)


def test_when_who_serves_leaves_another_does_and_no_call_is_hurt(tmp_path):
    opened: list[str] = []

    async def main() -> None:
        opening = opening_access(tmp_path, opened)
        first = shared(tmp_path, opening, clock=CLOCK)
        await first.__aenter__()
        async with shared(tmp_path, opening, clock=CLOCK) as guests:
            access = access_of(guests)
            names = [f"n{n}" for n in range(200)]
            calls = [
                asyncio.create_task(access.ensure(access_key(name=name), access_spec("reader")))
                for name in names
            ]
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            leaving = asyncio.create_task(first.__aexit__(None, None, None))
            late = [access.ensure(access_key(name=f"late{n}"), {}) for n in range(50)]
            await asyncio.gather(*calls, *late)
            await leaving
            listed = [item.key async for item in access.list_owned(access_key().plane)]
            assert len(listed) == len(set(listed)) == 250
            assert opened == ["", ISSUER]
            assert cast(Any, guests["identity"]).issuer == ISSUER
            assert cast(Any, guests["runtime"]).zones == ("nowhere",)
            async with shared(tmp_path, opening, clock=CLOCK) as third:
                assert await access_of(third).check("t", "a", role="reader")
                assert cast(Any, third["identity"]).issuer == ISSUER

    run(main)


def test_of_many_guests_one_serves_next(tmp_path):
    opened: list[str] = []

    async def main() -> None:
        opening = opening_access(tmp_path, opened)
        first = shared(tmp_path, opening, clock=CLOCK)
        await first.__aenter__()
        guests = [shared(tmp_path, opening, clock=CLOCK) for _ in range(5)]
        providers = [access_of(await one.__aenter__()) for one in guests]
        await first.__aexit__(None, None, None)
        specs = [one.ensure(access_key(name=f"{n}"), {}) for n, one in enumerate(providers)]
        await asyncio.gather(*specs)
        assert len(opened) == 2
        for one in guests:
            await one.__aexit__(None, None, None)

    run(main)


def test_who_cannot_open_the_providers_lets_others_try_and_says_why(tmp_path):
    async def main() -> None:
        good = opening_access(tmp_path)

        @asynccontextmanager
        async def bad(_: str) -> AsyncIterator[Mapping[str, Provider]]:
            if tmp_path.exists():
                raise StoreError("the disk is odd")
            yield {}

        first = shared(tmp_path, good, clock=CLOCK)
        await first.__aenter__()
        async with shared(tmp_path, bad, clock=CLOCK) as guests:
            await first.__aexit__(None, None, None)
            with (
                patched(guest, PATIENCE_SECONDS=0.3),
                pytest.raises(Unavailable, match="the disk is odd"),
            ):
                await access_of(guests).ensure(access_key(), {})
            async with shared(tmp_path, good, clock=CLOCK):
                await access_of(guests).ensure(access_key(), {})

    run(main)


def test_the_files_of_who_was_killed_may_be_held_a_moment_longer(tmp_path):
    async def main() -> None:
        held = Lock.take(tmp_path / "access.db")
        asyncio.get_running_loop().call_later(0.2, held.release)
        async with shared(tmp_path, opening_access(tmp_path), clock=CLOCK) as own:
            await access_of(own).ensure(access_key(), {})

    run(main)


def test_who_has_the_lock_and_does_not_serve_is_named(tmp_path):
    async def main() -> None:
        lock = Lock.take(tmp_path / "providers")
        with (
            patched(unix, START_SECONDS=0.2),
            pytest.raises(StoreLocked, match=r"providers\.lock is held"),
        ):
            await shared(tmp_path, opening_access(tmp_path), clock=CLOCK).__aenter__()
        lock.release()

    run(main)


def test_without_the_lock_two_would_open_one_file(tmp_path):
    """The ablation of the house's own lock: the providers' files then say that they are taken."""

    class Free:
        def release(self) -> None:
            pass

        @classmethod
        def take(cls, _: Path) -> "Free":
            return cls()

    async def main() -> None:
        opening = opening_access(tmp_path)
        with patched(unix, Lock=Free, RELEASE_SECONDS=0.1):
            async with shared(tmp_path, opening, clock=CLOCK):
                with pytest.raises(StoreLocked):
                    await shared(tmp_path, opening, clock=CLOCK).__aenter__()

    run(main)


# --- the socket -----------------------------------------------------------------------------------


def test_the_socket_is_for_its_owner_and_gone_when_nobody_serves(tmp_path):
    async def main() -> None:
        async with holding(tmp_path, Nobody()):
            mode = (tmp_path / door.NAME).stat().st_mode
            assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
        assert not (tmp_path / door.NAME).exists()

    run(main)


@pytest.mark.parametrize("left", ["socket", "file", "half"])
def test_what_was_left_in_its_place_is_replaced(tmp_path, left):
    dead = socket.socket(socket.AF_UNIX)
    match left:
        case "socket":
            dead.bind(str(tmp_path / door.NAME))
        case "half":
            dead.bind(str(tmp_path / door.NEW))
        case _:
            (tmp_path / door.NAME).write_text("left")
    dead.close()

    async def main() -> None:
        opening = opening_access(tmp_path)
        async with (
            shared(tmp_path, opening, clock=CLOCK),
            shared(tmp_path, opening, clock=CLOCK) as guests,
        ):
            await access_of(guests).ensure(access_key(), {})

    run(main)


def test_a_home_may_lie_deeper_than_a_sockets_address_has_room_for(tmp_path):
    home = tmp_path / ("d" * 100) / ("e" * 100)
    home.mkdir(parents=True)

    async def main() -> None:
        opening = opening_access(home)
        async with (
            shared(home, opening, clock=CLOCK),
            shared(home, opening, clock=CLOCK) as guests,
        ):
            await access_of(guests).ensure(access_key(), {})
        assert not (home / door.NAME).exists()

    run(main)


def test_another_user_is_not_served(tmp_path):
    async def main() -> None:
        serving = server.Server({}, uid=os.geteuid() + 1)
        await serving.start(door.open_door(tmp_path))
        reader, writer = await asyncio.open_unix_connection(sock=door.knock(tmp_path))
        assert await reader.read() == b""
        writer.close()
        await serving.stop()

    run(main)


def test_another_user_is_not_asked(tmp_path):
    async def main() -> None:
        async with holding(tmp_path, Nobody()):
            with (
                patched(door, peer_uid=lambda _: os.geteuid() + 1),
                pytest.raises(PermissionError, match="who is another"),
            ):
                door.knock(tmp_path)

    run(main)


@pytest.mark.parametrize(
    "data", [b"\0\0\0", b"\xff\xff\xff\xff", b'\0\0\0\x08["what"]', b"\0\0\0\x0bno json text"]
)
def test_who_speaks_badly_or_stops_half_way_holds_up_nobody(tmp_path, data):
    async def main() -> None:
        opening = opening_access(tmp_path)
        async with (
            shared(tmp_path, opening, clock=CLOCK),
            shared(tmp_path, opening, clock=CLOCK) as guests,
        ):
            _, writer = await met(tmp_path)
            writer.write(data)
            await access_of(guests).ensure(access_key(), {})
            writer.close()

    run(main)


def test_who_asks_and_never_reads_is_waited_for_by_nobody(tmp_path):
    class Long(Nobody):
        asked = 0

        async def list_team_roles(self, tenant: str, team: str) -> list[str]:
            self.asked += 1
            return ["x" * 10_000]

    async def main() -> None:
        long = Long()
        with patched(server, CALLS_MAX=50):
            async with holding(tmp_path, long) as _, holding(tmp_path, long) as guests:
                _, writer = await met(tmp_path)
                arguments = {"tenant": "t", "team": "x"}
                for number in range(2_000):
                    words = [Word.CALL, number, "access", "list_team_roles", arguments]
                    writer.write(wire.encode(words))
                assert len((await access_of(guests).list_team_roles("t", "x"))[0]) == 10_000
                assert long.asked < 1_000
                writer.transport.abort()

    with patched(server, LEAVE_SECONDS=0.1):
        run(main)


# --- how a call ends ------------------------------------------------------------------------------


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


def test_what_the_house_does_not_know_is_unavailable(tmp_path):
    async def main() -> None:
        async with holding(tmp_path, Nobody()):
            reader, writer = await met(tmp_path)
            for name in ("conquer", "__class__", "close"):
                writer.write(wire.encode([Word.CALL, 1, "access", name, {}]))
                assert (await wire.read(reader))[2] == "unavailable"  # type: ignore[index]
            writer.write(wire.encode([Word.CALL, 1, "access", "ensure", {"key": 7, "spec": {}}]))
            assert (await wire.read(reader))[2] == "rejected"  # type: ignore[index]
            writer.close()

    run(main)


@asynccontextmanager
async def played(
    home: Path, *, protocol: int = wire.PROTOCOL, hangs_up: bool
) -> AsyncIterator[None]:
    """Somebody who has the lock, welcomes, and then hangs up on the first call or never answers."""
    lock = Lock.take(home / "providers")
    said = {"protocol": protocol, "process": 1, "identity": {"issuer": ISSUER}}
    writers: list[asyncio.StreamWriter] = []

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(wire.encode([Word.WELCOME, said]))
        await wire.read(reader)
        if hangs_up:
            lock.release()
            serving.close()
            writer.close()

    serving = await asyncio.start_unix_server(welcome, sock=door.open_door(home))
    try:
        yield
    finally:
        serving.close()
        lock.release()
        for writer in writers:
            writer.close()


def test_a_call_whose_answer_was_lost_may_have_been_applied_unless_it_only_reads(tmp_path):
    async def main(asked: str) -> None:
        async with (
            played(tmp_path, hangs_up=True),
            shared(tmp_path, opening_access(tmp_path), clock=CLOCK) as guests,
        ):
            access = access_of(guests)
            kind = Unavailable if asked == "inspect" else OutcomeUnknown
            work = access.inspect(access_key()) if asked == "inspect" else access.ensure(
                access_key(), {}
            )  # fmt: skip
            with pytest.raises(kind, match="has gone before it answered"):
                await work
            await access.ensure(access_key(), {})  # served by ourselves now

    for asked in ("inspect", "ensure"):
        run(lambda asked=asked: main(asked))


def test_a_listing_whose_end_was_lost_is_unavailable(tmp_path):
    async def main() -> None:
        async with (
            played(tmp_path, hangs_up=True),
            shared(tmp_path, opening_access(tmp_path), clock=CLOCK) as guests,
        ):
            with pytest.raises(Unavailable):
                _ = [item async for item in access_of(guests).list_owned("p")]
            assert [item async for item in access_of(guests).list_owned("p")] == []

    run(main)


def test_who_never_answers_ends_a_call_at_its_deadline(tmp_path):
    async def main() -> None:
        async with (
            played(tmp_path, hangs_up=False),
            shared(tmp_path, opening_access(tmp_path), clock=CLOCK) as guests,
        ):
            with patched(client, CALL_SECONDS=0.05):
                with pytest.raises(OutcomeUnknown, match="has not answered"):
                    await access_of(guests).ensure(access_key(), {})
                with pytest.raises(Unavailable, match="has not answered"):
                    await access_of(guests).inspect(access_key())

    run(main)


def test_who_serves_in_another_way_is_named(tmp_path):
    async def main() -> None:
        async with played(tmp_path, protocol=99, hangs_up=False):
            with (
                patched(unix, START_SECONDS=0.2),
                pytest.raises(StoreLocked, match="the same Tenure"),
            ):
                await shared(tmp_path, opening_access(tmp_path), clock=CLOCK).__aenter__()

    run(main)


def test_what_cannot_be_sent_is_refused_here(tmp_path):
    async def main() -> None:
        opening = opening_access(tmp_path)
        async with (
            shared(tmp_path, opening, clock=CLOCK),
            shared(tmp_path, opening, clock=CLOCK) as guests,
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

    async def list_owned(self, plane: str) -> AsyncIterator[Owned]:
        for number in range(2_300):
            self.given = number + 1
            yield Owned(f"{plane}{number}", "a", 1, 0.5)


def test_a_listing_is_read_by_pages_and_no_further_than_it_is_asked_for(tmp_path):
    async def main() -> None:
        listing = Listing()
        async with holding(tmp_path, listing), holding(tmp_path, listing) as guests:
            access = access_of(guests)
            items = [item async for item in access.list_owned("p")]
            assert items == [Owned(f"p{n}", "a", 1, 0.5) for n in range(2_300)]
            listing.given = 0
            some = access.list_owned("p")
            assert (await anext(some)).key == "p0"
            for _ in range(5):
                await access.list_owned("q").__anext__()  # others go on
            assert listing.given <= 2 * wire.PAGE
            with suppress(RuntimeError):
                await cast(Any, some).aclose()

    run(main)
