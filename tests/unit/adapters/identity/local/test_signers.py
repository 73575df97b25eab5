"""What lies on the disk: sealed keys, a file beside them, and what happens when either is odd."""

import asyncio
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from tenure.adapters.identity.local import LocalIdentity, build, jose, key_path
from tenure.core.errors import (
    Invalid,
    OutcomeUnknown,
    Rejected,
    StoreError,
    StoreUnsafe,
    Unavailable,
)
from tenure.home.key_file import KEY_BYTES
from tenure.ports.provider import Presence
from tenure.sqlite.commit_thread import Done, InlineRunner, Work
from tenure.testing.contracts.identity_client import START, key
from tenure.testing.contracts.store_rows import StoppedClock

ISSUER = "https://tenure.example"


def on(path: Path, scenario: Callable[[LocalIdentity], Awaitable[None]], flush=None) -> None:
    """Run a scenario on the server in this file."""

    async def main() -> None:
        clock = StoppedClock(START)
        local = build(path, issuer=ISSUER, clock=clock, flush=flush or InlineRunner())
        try:
            await scenario(local)
        finally:
            await local.close()

    asyncio.run(main())


async def signing(local: LocalIdentity) -> None:
    assert (await local.jwks())["keys"]


def change(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


def test_the_sealing_key_is_its_owners_alone_and_made_before_the_file(tmp_path):
    path = tmp_path / "identity.db"
    on(path, signing)
    assert stat.S_IMODE(key_path(path).stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def alpha(local):
    await local.ensure(key(), {"name": "alpha"})


def test_a_resource_without_its_client_is_broken_and_can_be_removed(tmp_path):
    path = tmp_path / "identity.db"

    async def read_rows(local):
        assert (await local.inspect(key())).presence is Presence.BROKEN
        with pytest.raises(Rejected, match="was deleted and cannot be made again"):
            await local.ensure(key(), {"name": "beta"})
        await local.remove(key())
        assert (await local.inspect(key())).presence is Presence.ABSENT

    on(path, alpha)
    change(path, "DELETE FROM client")
    on(path, read_rows)


def test_a_client_that_lost_its_resource_gets_it_again_and_keeps_its_own(tmp_path):
    path = tmp_path / "identity.db"

    async def again(local):
        assert (await local.inspect(key())).presence is Presence.ABSENT
        await alpha(local)
        assert (await local.inspect(key())).presence is Presence.READY

    on(path, alpha)
    change(path, "DELETE FROM resource; UPDATE client SET edition = 3")
    on(path, again)
    file = apsw.Connection(str(path))
    assert file.execute("SELECT edition FROM client").get == 3
    file.close()


def test_keys_open_again_after_a_restart(tmp_path):
    path, seen = tmp_path / "identity.db", []

    async def look(local: LocalIdentity) -> None:
        seen.append(await local.jwks())

    on(path, look)
    on(path, look)
    assert seen[0] == seen[1]


def test_a_file_that_lost_its_sealing_key_is_not_opened(tmp_path):
    path = tmp_path / "identity.db"
    on(path, signing)
    key_path(path).unlink()
    with pytest.raises(StoreError, match="Put the file back"):
        on(path, signing)
    assert not key_path(path).exists()


def test_a_sealing_key_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "identity.db"
    on(path, signing)
    key_path(path).chmod(0o640)
    with pytest.raises(StoreUnsafe, match="chmod 600"):
        on(path, signing)


def test_a_sealing_key_of_another_length_is_refused(tmp_path):
    path = tmp_path / "identity.db"
    on(path, signing)
    key_path(path).write_bytes(b"short")
    with pytest.raises(StoreError, match="not a sealing key"):
        on(path, signing)


def test_another_sealing_key_opens_nothing(tmp_path):
    path = tmp_path / "identity.db"
    on(path, signing)
    key_path(path).write_bytes(b"x" * KEY_BYTES)
    with pytest.raises(Unavailable, match="does not open"):
        on(path, signing)


def test_sealed_keys_cannot_be_swapped_between_rows(tmp_path):
    path = tmp_path / "identity.db"
    on(path, signing)
    give = "UPDATE signer SET sealed = (SELECT sealed FROM signer WHERE state = '{}')"
    change(path, give.format("NEXT"))
    with pytest.raises(Unavailable, match="another id"):
        on(path, signing)


def test_a_next_key_that_does_not_open_is_not_rotated_to(tmp_path):
    path = tmp_path / "identity.db"
    on(path, signing)
    change(path, "UPDATE signer SET sealed = 'x' WHERE state = 'NEXT'")

    async def scenario(local: LocalIdentity) -> None:
        before = await local.jwks()
        with pytest.raises(Unavailable, match="does not open"):
            await local.rotate()
        assert await local.jwks() == before

    on(path, scenario)
    on(path, signing)


def test_a_sealed_key_that_was_touched_does_not_open():
    sealing = b"s" * KEY_BYTES
    made = jose.make_signer(sealing)
    head, *rest = made.sealed.split(".")
    touched = ".".join([head, *rest[:-1], "A" * len(rest[-1])])
    with pytest.raises(Invalid, match="does not open"):
        jose.unseal_signer(sealing, made.kid, touched)
    assert jose.unseal_signer(sealing, made.kid, made.sealed).thumbprint() == made.kid


def test_a_key_set_that_is_not_whole_signs_nothing(tmp_path):
    path = tmp_path / "identity.db"
    on(path, signing)
    change(path, "DELETE FROM signer WHERE state = 'CURRENT'")
    with pytest.raises(Unavailable, match="incomplete"):
        on(path, signing)


class Failing:
    """A disk whose COMMIT fails once it is told to."""

    def __init__(self) -> None:
        self.fails = False

    def __call__(self, work: Work, on_done: Done) -> None:
        error = OSError("no disk") if self.fails else None
        self.fails = False
        if error is None:
            InlineRunner()(work, on_done)
        else:
            asyncio.get_running_loop().call_soon(on_done, error)

    def close(self) -> None:
        """Nothing is held."""


class LosingDisk(Failing):
    """A disk that carries COMMIT out and says that it failed."""

    def __call__(self, work: Work, on_done: Done) -> None:
        if self.fails:
            work()
        super().__call__(work, on_done)


def test_a_rotation_that_was_carried_out_all_the_same_is_seen(tmp_path):
    path, disk = tmp_path / "identity.db", LosingDisk()

    async def scenario(local: LocalIdentity) -> None:
        before = await local.jwks()
        disk.fails = True
        with pytest.raises(OutcomeUnknown):
            await local.rotate()
        assert len((await local.jwks())["keys"]) == len(before["keys"]) + 1  # type: ignore[arg-type]

    on(path, scenario, disk)


def test_a_key_that_is_over_verifies_nothing_and_goes_with_the_next_rotation(tmp_path):
    async def main() -> None:
        clock = StoppedClock(START)
        local = build(tmp_path / "identity.db", issuer=ISSUER, clock=clock, flush=InlineRunner())
        old = (await local._signers.ready()).kid
        await local.rotate()
        loaded = await local._signers.ready()
        assert local._signers.verifier(loaded, old) is not None
        clock.at += 911
        assert local._signers.verifier(loaded, old) is None
        await local.rotate()
        assert local._resources.find("signer", (old,)) is None
        await local.close()

    asyncio.run(main())


def test_after_a_rotation_of_unknown_outcome_the_file_is_asked(tmp_path):
    path, disk = tmp_path / "identity.db", Failing()

    async def scenario(local: LocalIdentity) -> None:
        before = await local.jwks()
        disk.fails = True
        with pytest.raises(OutcomeUnknown):
            await local.rotate()
        assert await local.jwks() == before
        await local.rotate()
        assert len((await local.jwks())["keys"]) == 3  # type: ignore[arg-type]

    on(path, scenario, disk)


def test_rotations_at_the_same_time_follow_each_other(tmp_path):
    async def scenario(local: LocalIdentity) -> None:
        chosen = await asyncio.gather(*(local.rotate() for _ in range(3)))
        assert len(set(chosen)) == 3
        assert len((await local.jwks())["keys"]) == 5  # type: ignore[arg-type]

    on(tmp_path / "identity.db", scenario)


@pytest.mark.parametrize(
    "issuer",
    [
        "tenure.example",
        "http://tenure.example",
        "https://tenure.example/",
        "ftp://x.example",
        "https://a@x.example",
        "https://x.example?a=b",
        "https://",
        "https://x:port",
        "http://127.0.0.1.x.example",
    ],
)
def test_an_issuer_is_an_origin_that_is_protected(tmp_path, issuer):
    with pytest.raises(Invalid, match="issuer"):
        build(tmp_path / "identity.db", issuer=issuer, clock=StoppedClock())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seconds", [0.0, -1.0, 901.0, float("nan")])
def test_a_token_lives_at_most_fifteen_minutes(tmp_path, seconds):
    with pytest.raises(Invalid, match="900"):
        build(tmp_path / "identity.db", issuer=ISSUER, clock=StoppedClock(), token_seconds=seconds)


def test_the_metadata_name_the_algorithms_that_are_checked(tmp_path):
    async def scenario(local: LocalIdentity) -> None:
        said = local.metadata()["token_endpoint_auth_signing_alg_values_supported"]
        assert said == list(jose.ALGORITHMS)

    on(tmp_path / "identity.db", scenario)


def test_cryptography_is_imported_at_first_use(tmp_path):
    code = (
        "import sys, asyncio\n"
        "from tenure.adapters.identity.local import build\n"
        "from tenure.adapters.clock.system import SystemClock\n"
        "import tenure.faces.oauth.routes\n"
        "from tenure.testing.contracts.provider import key\n"
        "async def main():\n"
        f"    local = build({str(tmp_path / 'identity.db')!r}, issuer={ISSUER!r},"
        " clock=SystemClock())\n"
        "    await local.ensure(key(), {'scopes': ['a']})\n"
        "    await local.invite(key())\n"
        "    await local.remove(key())\n"
        "    assert not {'joserfc', 'cryptography'} & set(sys.modules)\n"
        "    await local.jwks()\n"
        "    assert 'joserfc' in sys.modules\n"
        "    await local.close()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
