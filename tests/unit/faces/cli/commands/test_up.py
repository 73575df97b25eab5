"""The owner's token: made once, kept private, made good after a crash, never brought back."""

import asyncio
import http.client
import os
import signal
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from threading import Barrier, BrokenBarrierError
from urllib.parse import urlsplit

import pytest

from tenure.app.tenancy import tokens
from tenure.core.errors import Invalid, Unauthenticated
from tenure.faces.cli import main as cli
from tenure.faces.cli import stopping, where
from tenure.faces.cli.commands import up
from tenure.settings import Settings
from tenure.sqlite.location import Lock
from tenure.wiring import run_plane


def on_a_plane(tmp_path, work):
    async def main():
        settings = Settings(store=str(tmp_path / "tenure.db"))
        async with run_plane(settings, plans=[], providers={}) as plane:
            return await work(plane)

    return asyncio.run(main())


def test_the_first_start_makes_a_token_that_only_its_owner_can_read(tmp_path):
    file = tmp_path / "token"

    async def work(plane):
        await up.ensure_admin_token(plane, file)
        caller = await tokens.authenticate(plane, file.read_text().strip())
        assert (caller.tenant, caller.role) == ("default", "admin")
        made = file.read_text()
        await up.ensure_admin_token(plane, file)
        assert file.read_text() == made
        assert len(await tokens.list_tokens(plane, up.OWNER)) == 1

    on_a_plane(tmp_path, work)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_token_that_was_written_before_a_crash_is_made_good(tmp_path):
    file = tmp_path / "token"
    file.write_text("tenure_written\n")

    async def work(plane):
        await up.ensure_admin_token(plane, file)
        assert file.read_text() == "tenure_written\n"
        await tokens.authenticate(plane, "tenure_written")

    on_a_plane(tmp_path, work)


def test_a_revoked_token_is_never_let_in_again(tmp_path):
    file = tmp_path / "token"

    async def work(plane):
        await up.ensure_admin_token(plane, file)
        old = file.read_text().strip()
        (view,) = await tokens.list_tokens(plane, up.OWNER)
        await tokens.revoke_token(plane, up.OWNER, view.id)
        await up.ensure_admin_token(plane, file)  # nobody is left who could let anybody in
        new = file.read_text().strip()
        assert new != old
        await tokens.authenticate(plane, new)
        with pytest.raises(Unauthenticated):
            await tokens.authenticate(plane, old)

    on_a_plane(tmp_path, work)


def test_no_second_token_is_made_while_an_admin_is_there_unless_asked_for(tmp_path, capsys):
    file = tmp_path / "token"

    async def work(plane):
        await up.ensure_admin_token(plane, file)
        first = file.read_text().strip()
        file.unlink()
        await up.ensure_admin_token(plane, file)
        assert not file.exists()
        assert "--new-token" in capsys.readouterr().err
        await up.ensure_admin_token(plane, file, new=True)
        await tokens.authenticate(plane, file.read_text().strip())
        await tokens.authenticate(plane, first)

    on_a_plane(tmp_path, work)


def test_a_host_that_cannot_be_listened_on_is_refused():
    with (
        pytest.raises(Invalid, match=r"cannot listen on 192\.0\.2\.1"),
        up.reserve_port("192.0.2.1"),
    ):
        pytest.fail("nobody can")


def test_a_port_that_is_held_can_be_listened_on_and_is_given_to_nobody_else():
    with up.reserve_port("127.0.0.1") as port:
        with pytest.raises(OSError, match="in use"), socket.socket() as stranger:
            stranger.bind(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", port)) as ours:
            socket.create_connection(ours.getsockname()).close()


def asked_for(home, **more):
    given = {"host": "127.0.0.1", "port": 0, "certificate": "", "key": "", "new_token": False}
    given |= {"traces": False, "sandbox": "auto", "works": True, "scale": {}}
    return up.UpOptions(home, **{**given, **more})


def status(address, path, token=""):
    to = http.client.HTTPConnection("127.0.0.1", urlsplit(address).port, timeout=30)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if path.startswith("/oauth"):
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        to.request("POST", path, b"token=x", {**headers, **kind})
    else:
        to.request("GET", path, None, headers)
    found = to.getresponse().status
    to.close()
    return found


def test_it_serves_until_a_signal_and_takes_its_address_away(tmp_path, capsys):
    home = tmp_path / "home"

    async def main():
        serving = asyncio.ensure_future(up.serve_plane(asked_for(home)))
        while not (home / "address").exists() and not serving.done():  # noqa: ASYNC110 (a file)
            await asyncio.sleep(0.01)
        address = (home / "address").read_text().strip()
        token = (home / "token").read_text().strip()
        for path, bearer, wanted in (
            ("/readyz", "", 200),
            ("/v1/agents", "", 401),
            ("/v1/agents", token, 200),
            ("/.well-known/oauth-authorization-server", "", 200),
            ("/oauth/introspect", "tenure_wrong", 401),
            ("/oauth/introspect", token, 200),
        ):
            found = await asyncio.to_thread(status, address, path, bearer)
            assert found == wanted, path
        os.kill(os.getpid(), signal.SIGTERM)
        await serving

    asyncio.run(main())
    assert "tenure is ready at http://127.0.0.1:" in capsys.readouterr().out
    assert not (home / "address").exists()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_a_bus_that_is_not_there_is_told_of_and_not_waited_for(tmp_path, caplog):
    async def main():
        scale = {"bus": "nats://127.0.0.1:1"}
        serving = asyncio.ensure_future(up.serve_plane(asked_for(tmp_path / "home", scale=scale)))
        said = "the bus does not answer; events are stored until it does: NATS cannot be used"
        while said not in caplog.text:  # noqa: ASYNC110 (a log)
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving

    asyncio.run(main())


def test_an_address_is_taken_away_only_by_the_server_that_wrote_it(tmp_path):
    file = tmp_path / "address"
    file.write_text("http://127.0.0.1:7450\n")  # of a server that runs
    with up._announce_address(file):
        pass  # its port was taken
    assert file.read_text() == "http://127.0.0.1:7450\n"
    with up._announce_address(file) as announce:
        announce("http://127.0.0.1:7461")
        with up._announce_address(file) as replacing:
            replacing("http://127.0.0.1:7462")
            file.write_text("http://127.0.0.1:7461\n")
        assert file.read_text() == "http://127.0.0.1:7461\n"
    assert not file.exists()


def test_servers_on_a_shared_store_each_have_a_line_and_take_only_theirs_away(tmp_path):
    file = tmp_path / "address"
    here = ("127.0.0.1", 0)
    with socket.create_server(here) as one, socket.create_server(here) as two:
        first, second = (f"http://127.0.0.1:{made.getsockname()[1]}" for made in (one, two))
        file.write_text("http://127.0.0.1:1\nnonsense\n")  # of one that was killed
        with up._announce_address(file, shared=True) as announce:
            announce(first)
            assert file.read_text() == f"{first}\n"
            with up._announce_address(file, shared=True) as beside:
                beside(second)
                assert where.addresses(tmp_path) == [second, first]
                assert where.first_listening([second, first]) == second
                two.close()
                assert where.first_listening([second, first]) == first
            assert file.read_text() == f"{first}\n"
            file.write_text(f"{second}\n{first}\n")  # as if it had been killed
    assert not file.exists()
    assert where.first_listening([second, first]) == second


def test_a_second_plane_in_a_home_is_told_where_the_first_is(tmp_path, capsys):
    taken = Lock.take(tmp_path / "tenure.db")
    up_here = ["up", "--home", str(tmp_path), "--port", "0"]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        (tmp_path / "address").write_text(f"{address}\n")
        assert cli.main(up_here) == 1
        said = f"already runs in {tmp_path}, at {address}: {tmp_path}/tenure.db is in use by"
        assert f"{said} process {os.getpid()}: nothing was touched" in capsys.readouterr().err
        (tmp_path / "tenure.db.lock").write_text("1\n")  # who listens there holds another home
        assert cli.main(up_here) == 1
        told = capsys.readouterr().err
        assert ("in use by process 1:" in told, address in told) == (True, False)
    assert cli.main(up_here) == 1
    assert "in use by process" in capsys.readouterr().err
    taken.release()
    assert not where.runtime_listens(str(os.getpid()), "http://127.0.0.1:1")
    assert not where.runtime_listens("unknown", address)


def test_servers_that_announce_themselves_at_once_all_have_their_line(tmp_path, monkeypatch):
    listens, both = where.listens, Barrier(2)

    def other_process_listens(address):  # between what was read and what is written
        with suppress(BrokenBarrierError):
            both.wait(0.2)
        return listens(address)

    monkeypatch.setattr(where, "listens", other_process_listens)
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        first, *others = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in made)
        (tmp_path / "address").write_text(f"{first}\n")
        servers = [up._announce_address(tmp_path / "address", shared=True) for _ in others]
        announce = [stack.enter_context(one) for one in servers]
        list(threads.map(lambda say, address: say(address), announce, others))
        assert sorted(where.addresses(tmp_path)) == sorted([first, *others])
        assert where.addresses(tmp_path)[-1] == first, "the newest first"


def test_a_signal_before_it_has_started_ends_it_as_well(tmp_path, monkeypatch, capsys):
    async def never(plane, file, *, new):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)

    monkeypatch.setattr(up, "ensure_admin_token", never)
    stopping.run(partial(up.serve_plane, asked_for(tmp_path / "home")))
    assert not (tmp_path / "home" / "address").exists()
    assert "is accessible to other users" not in capsys.readouterr().err
    (tmp_path / "home").chmod(0o755)
    stopping.run(partial(up.serve_plane, asked_for(tmp_path / "home")))
    assert f"is accessible to other users: chmod 700 {tmp_path / 'home'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--host", "0.0.0.0"], 2, "can be reached from other machines"),
        (["--tls-key", "k"], 2, "both a certificate and its key"),
        (["--store", "other.db"], 2, "the address of a PostgreSQL"),
        (["--api-only"], 2, "leaves the work to others"),
        (["--new-home"], 2, "replaces a lost home in a shared store"),
        (["--keep-operations", "-1"], 2, "--keep-operations"),
        (["--drift", "perhaps"], 2, "--drift"),
        (["--store", "postgresql://tenure@127.0.0.1:1/tenure"], 1, "it cannot be reached"),
        (["--engine", "temporal"], 1, "the Temporal engine needs a shared store"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_made(
    more, code, words, tmp_path, capsys
):
    assert cli.main(["up", "--home", str(tmp_path / "home"), *more]) == code
    assert words in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("chain", "words"),
    [(None, "chain.pem, which cannot be read: No such"), ("x", "in PEM format (")],
)
def test_a_certificate_that_is_none_is_refused_at_the_start(chain, words, tmp_path, capsys):
    file = tmp_path / "chain.pem"
    if chain is not None:
        file.write_text(chain)
    given = ["--port", "0", "--tls-cert", str(file), "--tls-key", str(file)]
    assert cli.main(["up", "--home", str(tmp_path / "home"), *given]) == 1
    told = capsys.readouterr()
    assert words in told.err
    assert "ready" not in told.out


def test_a_home_that_cannot_be_made_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["up", "--home", str(tmp_path / "file"), "--port", "0"]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err
