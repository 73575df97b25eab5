"""The host: one serves, the others are guests, and who may come in."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tenure.adapters.provider_host import unix
from tenure.adapters.provider_host.unix import listener, open_shared_providers, proxy, server, wire
from tenure.adapters.provider_host.unix.wire import MessageType
from tenure.core.errors import (
    StoreError,
    StoreLocked,
    Unavailable,
)
from tenure.ports.provider import Provider
from tenure.sqlite.location import Lock
from tenure.testing.contracts.access import access_key, access_spec
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
        first = open_shared_providers(tmp_path, opening, clock=CLOCK)
        await first.__aenter__()
        async with open_shared_providers(tmp_path, opening, clock=CLOCK) as guests:
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
            async with open_shared_providers(tmp_path, opening, clock=CLOCK) as third:
                assert await access_of(third).check("t", "a", role="reader")
                assert cast(Any, third["identity"]).issuer == ISSUER

    run(main)


def test_of_many_guests_one_serves_next(tmp_path):
    opened: list[str] = []

    async def main() -> None:
        opening = opening_access(tmp_path, opened)
        first = open_shared_providers(tmp_path, opening, clock=CLOCK)
        await first.__aenter__()
        guests = [open_shared_providers(tmp_path, opening, clock=CLOCK) for _ in range(5)]
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

        first = open_shared_providers(tmp_path, good, clock=CLOCK)
        await first.__aenter__()
        async with open_shared_providers(tmp_path, bad, clock=CLOCK) as guests:
            await first.__aexit__(None, None, None)
            with (
                patched(proxy, PATIENCE_SECONDS=0.3),
                pytest.raises(Unavailable, match="the disk is odd"),
            ):
                await access_of(guests).ensure(access_key(), {})
            async with open_shared_providers(tmp_path, good, clock=CLOCK):
                await access_of(guests).ensure(access_key(), {})

    run(main)


def test_the_files_of_who_was_killed_may_be_held_a_moment_longer(tmp_path):
    async def main() -> None:
        held = Lock.take(tmp_path / "access.db")
        asyncio.get_running_loop().call_later(0.2, held.release)
        async with open_shared_providers(tmp_path, opening_access(tmp_path), clock=CLOCK) as own:
            await access_of(own).ensure(access_key(), {})

    run(main)


def test_who_has_the_lock_and_does_not_serve_is_named(tmp_path):
    async def main() -> None:
        lock = Lock.take(tmp_path / "providers")
        with (
            patched(unix, START_SECONDS=0.2),
            pytest.raises(StoreLocked, match=r"providers\.lock is held"),
        ):
            await open_shared_providers(
                tmp_path, opening_access(tmp_path), clock=CLOCK
            ).__aenter__()
        lock.release()

    run(main)


def test_without_the_lock_two_would_open_one_file(tmp_path):
    """The ablation of the host's own lock: the providers' files then say that they are taken."""

    class Free:
        def release(self) -> None:
            pass

        @classmethod
        def take(cls, _: Path) -> "Free":
            return cls()

    async def main() -> None:
        opening = opening_access(tmp_path)
        with patched(unix, Lock=Free, RELEASE_SECONDS=0.1):
            async with open_shared_providers(tmp_path, opening, clock=CLOCK):
                with pytest.raises(StoreLocked):
                    await open_shared_providers(tmp_path, opening, clock=CLOCK).__aenter__()

    run(main)


# --- the socket -----------------------------------------------------------------------------------


def test_the_socket_is_for_its_owner_and_gone_when_nobody_serves(tmp_path):
    async def main() -> None:
        async with holding(tmp_path, Nobody()):
            mode = (tmp_path / listener.NAME).stat().st_mode
            assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
        assert not (tmp_path / listener.NAME).exists()

    run(main)


@pytest.mark.parametrize("leftover", ["socket", "file", "half"])
def test_what_was_left_in_its_place_is_replaced(tmp_path, leftover):
    dead = socket.socket(socket.AF_UNIX)
    match leftover:
        case "socket":
            dead.bind(str(tmp_path / listener.NAME))
        case "half":
            dead.bind(str(tmp_path / listener.NEW))
        case _:
            (tmp_path / listener.NAME).write_text("left")
    dead.close()

    async def main() -> None:
        opening = opening_access(tmp_path)
        async with (
            open_shared_providers(tmp_path, opening, clock=CLOCK),
            open_shared_providers(tmp_path, opening, clock=CLOCK) as guests,
        ):
            await access_of(guests).ensure(access_key(), {})

    run(main)


def test_a_home_may_lie_deeper_than_a_sockets_address_has_room_for(tmp_path):
    home = tmp_path / ("d" * 100) / ("e" * 100)
    home.mkdir(parents=True)

    async def main() -> None:
        opening = opening_access(home)
        async with (
            open_shared_providers(home, opening, clock=CLOCK),
            open_shared_providers(home, opening, clock=CLOCK) as guests,
        ):
            await access_of(guests).ensure(access_key(), {})
        assert not (home / listener.NAME).exists()

    run(main)


def test_another_user_is_not_served(tmp_path):
    async def main() -> None:
        serving = server.Server({}, uid=os.geteuid() + 1)
        await serving.start(listener.listen(tmp_path))
        reader, writer = await asyncio.open_unix_connection(sock=listener.connect(tmp_path))
        assert await reader.read() == b""
        writer.close()
        await serving.stop()

    run(main)


def test_another_user_is_not_asked(tmp_path):
    async def main() -> None:
        async with holding(tmp_path, Nobody()):
            with (
                patched(listener, peer_uid=lambda _: os.geteuid() + 1),
                pytest.raises(PermissionError, match="who is another"),
            ):
                listener.connect(tmp_path)

    run(main)


@pytest.mark.parametrize(
    "data", [b"\0\0\0", b"\xff\xff\xff\xff", b'\0\0\0\x08["what"]', b"\0\0\0\x0bno json text"]
)
def test_who_speaks_badly_or_stops_half_way_holds_up_nobody(tmp_path, data):
    async def main() -> None:
        opening = opening_access(tmp_path)
        async with (
            open_shared_providers(tmp_path, opening, clock=CLOCK),
            open_shared_providers(tmp_path, opening, clock=CLOCK) as guests,
        ):
            _, writer = await connect_raw_client(tmp_path)
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
                _, writer = await connect_raw_client(tmp_path)
                arguments = {"tenant": "t", "team": "x"}
                for number in range(2_000):
                    words = [MessageType.CALL, number, "access", "list_team_roles", arguments]
                    writer.write(wire.encode(words))
                assert len((await access_of(guests).list_team_roles("t", "x"))[0]) == 10_000
                assert long.asked < 1_000
                writer.transport.abort()

    with patched(server, LEAVE_SECONDS=0.1):
        run(main)
