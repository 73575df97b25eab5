"""`tenure worker` and `tenure up` as they are typed: they work, stop in time, and say why not."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from tenure.adapters.provider_host.unix import FileMarks
from tenure.adapters.store.postgres import PostgresStore
from tenure.app.agents import commands as agents
from tenure.app.agents.in_flight import InFlight
from tenure.app.agents.spec import read_spec
from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.admission import OperationRequest
from tenure.app.safety import epochs
from tenure.core.endings import Waiting
from tenure.core.errors import CommitUnknown, Invalid
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.faces.cli import main as cli
from tenure.faces.cli.commands import worker
from tenure.faces.cli.commands.up import OWNER, ensure_admin_token
from tenure.home import shared_settings
from tenure.home.shared_settings import SharedSettings, SharedSettingsFile
from tenure.ports.plane_rows import HOME_ROW
from tenure.ports.store import Key
from tenure.settings import Settings
from tenure.testing.operators import by
from tenure.testing.patches import patched
from tenure.testing.proxy import Behaviour, Proxy
from tenure.testing.servers import PostgresServer, lasting_port
from tenure.testing.temporal_server import TemporalServer, temporal_server
from tenure.upkeep.restore import hold
from tenure.wiring import files_of_a_home, providers, run_agent_plane, run_plane
from tests.e2e.support.plane_process import END_SECONDS, TENURE, environment
from tests.unit.support.scripted_planes import Script, step

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TENURE_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Path:
    """A home that `tenure up` has begun."""
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    SharedSettingsFile(place).update(SharedSettings("", "", "http://127.0.0.1:7450", "off"), "")
    return place


class CommandProcess:
    """One command in a process of its own."""

    def __init__(self, place: Path, *words: str) -> None:
        self.out, self.errors = place / f"{words[0]}.out", place / f"{words[0]}.err"
        with self.out.open("wb") as out, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*TENURE, *words], stdout=out, stderr=errors, env=environment(), cwd=place
            )

    def wait_ready(self) -> None:
        until = time.monotonic() + 120
        while not self.out.read_text():
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < until, self.errors.read_text()
            time.sleep(0.05)


@pytest.fixture
def own_temporal(tmp_path: Path) -> Iterator[TemporalServer]:
    with temporal_server(tmp_path) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("command", ["worker", "up"])
def test_it_stops_in_time_though_postgresql_and_temporal_are_gone(
    tmp_path: Path, own_postgres: PostgresServer, own_temporal: TemporalServer, command: str, tally
) -> None:
    words = ["--home", str(tmp_path / "home"), "--store", own_postgres.url, "--engine", "temporal"]
    words += ["--temporal", own_temporal.address]
    words += ["--port", "0", "--sandbox", "off"] if command == "up" else []
    typed = CommandProcess(tmp_path, command, *words)
    try:
        typed.wait_ready()
        own_postgres.kill()
        own_temporal.kill()
        tally.add("kills", 2)
        typed.process.send_signal(signal.SIGTERM)
        # By itself: not by the bound that ends it at last.
        assert typed.process.wait(END_SECONDS) == 0, typed.errors.read_text()[-3000:]
        assert "others take over" not in typed.errors.read_text()
        assert "\x1b[" not in typed.errors.read_text(), "a library writes lines of its own"
    finally:
        typed.process.kill()
        typed.process.wait()


@pytest.mark.slow
def test_it_stops_in_time_though_nobody_says_that_postgresql_is_gone(
    home: Path, tmp_path: Path, postgres_url: str
) -> None:
    """Its connections are half open: what waits for an answer is cut off by the bound."""
    parts = urlsplit(postgres_url)

    async def scenario() -> None:
        async with Proxy(parts.hostname or "", parts.port or 0) as proxy:
            near = parts._replace(netloc=f"tenure@127.0.0.1:{proxy.port}").geturl()
            typed = CommandProcess(tmp_path, "worker", "--home", str(home), "--store", near)
            try:
                await asyncio.to_thread(typed.wait_ready)
                proxy.behaviour = Behaviour(deaf=True, mute=True)
                typed.process.send_signal(signal.SIGTERM)
                code = await asyncio.to_thread(typed.process.wait, END_SECONDS)
                assert code == 0 or "others take over" in typed.errors.read_text()
            finally:
                typed.process.kill()
                typed.process.wait()

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("command", ["worker", "up"])
def test_started_before_its_postgresql_it_ends_with_a_sentence_and_starts_once_that_is_there(
    tmp_path: Path, own_postgres: PostgresServer, command: str
) -> None:
    words = ["--home", str(tmp_path / "home"), "--store", own_postgres.url]
    words += ["--port", "0", "--sandbox", "off"] if command == "up" else []
    own_postgres.halt()
    early = CommandProcess(tmp_path, command, *words)
    assert early.process.wait(END_SECONDS) == 1
    assert "cannot be reached" in early.errors.read_text()
    assert "Traceback" not in early.errors.read_text()
    own_postgres.start()
    again = CommandProcess(tmp_path, command, *words)  # as systemd starts it again
    try:
        again.wait_ready()
        again.process.send_signal(signal.SIGTERM)
        assert again.process.wait(END_SECONDS) == 0
    finally:
        again.process.kill()
        again.process.wait()


def stop_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal as soon as it says that it works."""

    def print_and_signal(line: str, *, flush: bool) -> None:
        sys.stdout.write(line)
        assert flush
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGTERM]).start()

    monkeypatch.setattr(worker, "print", print_and_signal, raising=False)


def test_a_worker_works_until_a_signal(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    stop_soon(monkeypatch)
    words = ["worker", "--home", str(tmp_path / "home"), "--store", postgres_url]
    assert cli.main(words) == 0
    assert f"tenure works for plane local in {tmp_path / 'home'}" in capsys.readouterr().out


def test_a_worker_tells_of_the_steps_it_has_performed(
    tmp_path: Path, home: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was accepted where nobody works is measured where it is performed."""
    token = home / "token"
    answers: list[tuple[int, str]] = []

    async def accept_operation() -> None:
        settings = Settings(
            home=str(home), store=postgres_url, is_worker=True, executes_operations=False
        )
        async with run_agent_plane(settings) as plane:
            await ensure_admin_token(plane, token)
            spec = read_spec({"name": "a", "runtime": {"command": ["/bin/false"]}})
            await agents.create_agent(plane, OWNER, spec)

    def fetch(address: str, path: str, bearer: str) -> tuple[int, str]:
        request = Request(f"{address}{path}", headers={"Authorization": f"Bearer {bearer}"})
        try:
            with urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, ""

    def look(address: str) -> None:
        try:
            admin, until = token.read_text().strip(), time.monotonic() + 120
            while "tenure_step_seconds_count" not in fetch(address, "/metrics", admin)[1]:
                assert time.monotonic() < until
            paths = (("/livez", ""), ("/readyz", ""), ("/metrics", ""), ("/v1/agents", admin))
            answers.extend(fetch(address, *one) for one in paths)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def looked_at(line: str, *, flush: bool) -> None:
        assert flush
        address = line.rpartition(" ")[2].removesuffix("/metrics")
        threading.Thread(target=look, args=[address]).start()

    asyncio.run(accept_operation())
    monkeypatch.setattr(worker, "print", looked_at, raising=False)
    words = ["worker", "--home", str(home), "--store", postgres_url, "--traces"]
    assert cli.main([*words, "--metrics", "127.0.0.1:0"]) == 0
    assert answers == [
        (200, '{"status":"alive"}'),
        (200, '{"status":"ready"}'),
        (401, ""),
        (404, ""),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metrics", "9450"], "--metrics is HOST:PORT"),
        (["--metrics", "127.0.0.1:x"], "--metrics is HOST:PORT"),
        (["--metrics", "0.0.0.0:0"], "0.0.0.0 can be reached from other machines"),
        (["--tls-cert", "chain.pem"], "are for --metrics HOST:PORT"),
    ],
)
def test_a_worker_tells_of_itself_only_where_it_can_and_may(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = "postgresql://127.0.0.1:1/none"
    assert cli.main(["worker", "--store", nowhere, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_worker_in_the_wrong_home_does_not_start(
    tmp_path: Path, home: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    stop_soon(monkeypatch)
    assert cli.main(["worker", "--home", str(home), "--store", postgres_url]) == 0
    monkeypatch.setattr(shared_settings, "FIRST_START_SECONDS", 0.0)
    nowhere = tmp_path / "nowhere"
    assert cli.main(["worker", "--home", str(nowhere), "--store", postgres_url]) == 1
    assert not nowhere.exists()
    assert "by --home or TENURE_HOME" in capsys.readouterr().err
    other = tmp_path / "other"  # of another plane
    other.mkdir(mode=0o700)
    SharedSettingsFile(other).update(SharedSettings("", "", "http://127.0.0.1:7450", "off"), "")
    assert cli.main(["worker", "--home", str(other), "--store", postgres_url]) == 1
    assert "belongs to a plane with another home" in capsys.readouterr().err


async def served_as_up_was_told(home: Path, url: str) -> None:
    """A worker is the first in the home; `up` was told of an issuer."""
    SharedSettingsFile(home).update(SharedSettings("", "", "https://plane.example", "off"), "")
    async with run_agent_plane(Settings(home=str(home), store=url, is_worker=True)) as plane:
        assert cast(Any, plane.providers["identity"]).issuer == "https://plane.example"
        told = Settings(home=str(home), store=url, sandbox="auto", is_worker=False)
        with pytest.raises(Invalid, match="sandbox=off, and this one has sandbox=auto"):
            async with run_agent_plane(told):
                pass
        told = replace(told, sandbox="off", keep_operations_days=1.0)
        with pytest.raises(Invalid, match=r"with keep_operations_days=90\.0, and this one has"):
            async with run_agent_plane(told):
                pass


def test_a_worker_that_comes_to_serve_the_providers_does_it_as_up_was_told(
    home: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        await served_as_up_was_told(home, postgres_url)
        SharedSettingsFile(home).update(
            SharedSettings("", "", "https://plane.example", "require"), ""
        )
        monkeypatch.setenv("PATH", str(home))  # where no bubblewrap is
        with pytest.raises(Invalid, match="bubblewrap is required"):
            async with run_agent_plane(
                Settings(home=str(home), store=postgres_url, is_worker=True)
            ):
                pass

    asyncio.run(main())


def test_a_plane_that_is_held_starts_as_often_as_it_likes_whoever_comes_first(
    home: Path, postgres_url: str
) -> None:
    """A restore, then a worker before `up`, then `up` twice; and it is let go."""
    up = Settings(home=str(home), store=postgres_url, sandbox="off")

    async def start(settings: Settings, *, confirms: bool = False) -> str:
        async with run_agent_plane(settings) as plane:
            why = plane.pause.why
            if confirms:
                await epochs.confirm(plane, OWNER)
            return why

    async def main() -> list[str]:
        assert await start(up) == ""
        hold(home, files_of_a_home())
        starts = [replace(up, is_worker=True), up, up]
        return [*[await start(one) for one in starts], await start(up, confirms=True)]

    assert asyncio.run(main()) == ["its store was restored by other means"] * 4
    assert asyncio.run(start(up)) == ""


def test_of_two_homes_that_begin_with_one_store_at_once_one_is_refused(postgres_url: str) -> None:
    find = PostgresStore.find

    async def begin(home: str) -> None:
        async with run_plane(Settings(store=postgres_url), plans=[], providers={}, home=home):
            pass

    async def main() -> tuple[BaseException | None, ...]:
        both = asyncio.Barrier(2)

        async def find_together(store: PostgresStore, table: Any, key: Key) -> Any:
            found = await find(store, table, key)
            if (table, key) == ("plane", HOME_ROW):
                await both.wait()  # neither has seen the other
            return found

        with patched(PostgresStore, find=find_together):
            return await asyncio.gather(begin("one"), begin("two"), return_exceptions=True)

    answers = asyncio.run(main())
    assert {type(answer) for answer in answers} == {Invalid, NoneType}


def test_an_older_process_starts_while_operations_of_newer_plans_are_open(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As in an upgrade, one process after the other: the old ones must bear a restart."""
    known = Plan("known", stages=(step("made", Script()),))
    newer = Plan("newer", stages=(step("asked", Script(Waiting("go"))),))
    settings = Settings(store=postgres_url)

    async def main() -> None:
        async with run_plane(settings, plans=[known, newer], providers={}) as plane:
            waits = (await admission.accept(plane, OperationRequest("newer"))).id
            async with run_plane(settings, plans=[known], providers={}) as older:
                mine = (await admission.accept(older, OperationRequest("known"))).id
                assert (await reads.wait(older, "default", mine)).state is OperationState.SUCCEEDED
            await operations.signal(plane, by("a friend"), waits, name="go")
            assert (await reads.wait(plane, "default", waits)).state is OperationState.SUCCEEDED

    asyncio.run(main())
    assert "left to processes of a newer release: 1; nobody here knows how" in caplog.text


def by_its_own_word() -> AbstractContextManager[None]:
    """Who joins says what holds, as `up` does."""
    told = providers.own_shared_settings
    return patched(
        providers, own_shared_settings=lambda settings: told(replace(settings, is_worker=False))
    )


def whatever_others_say() -> AbstractContextManager[None]:
    """Whoever runs already is not asked."""
    return patched(SharedSettingsFile, read_agreed=lambda file, _told: file.read())


@pytest.mark.parametrize("off", [by_its_own_word, whatever_others_say])
def test_ablation_processes_of_a_home_that_go_by_words_of_their_own_are_seen(
    home: Path, postgres_url: str, off: Callable[[], AbstractContextManager[None]], tally
) -> None:
    with off(), pytest.raises((AssertionError, pytest.fail.Exception)):
        asyncio.run(served_as_up_was_told(home, postgres_url))
    tally.add("ablations")


def test_an_invocation_through_one_process_ends_when_its_drain_in_another_is_over(
    home: Path, postgres_url: str
) -> None:
    async def main() -> None:
        settings = Settings(home=str(home), store=postgres_url, is_worker=True)
        async with run_agent_plane(settings) as plane:
            there = InFlight(FileMarks(home))  # as a worker has it
            with plane.in_flight.count_one("agent") as cut:
                assert there.count_of("agent") == 1
                there.abort("agent")
                await asyncio.wait_for(cut.wait(), 120)
            assert there.count_of("agent") == 0

    asyncio.run(main())


def test_a_worker_that_is_told_to_stop_before_it_works_ends_as_well(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_args: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)

    monkeypatch.setattr("tenure.app.safety.epochs.compare_with_memo", never)
    words = ["worker", "--home", str(tmp_path / "home"), "--store", postgres_url]
    assert cli.main(words) == 0


def test_a_worker_needs_a_store_that_is_shared_and_there(tmp_path: Path, capsys) -> None:
    assert cli.main(["worker", "--home", str(tmp_path)]) == 2
    assert "--store postgresql://" in capsys.readouterr().err
    away = f"postgresql://tenure@127.0.0.1:{lasting_port()}/postgres"
    assert cli.main(["worker", "--home", str(tmp_path / "home"), "--store", away]) == 1
    assert "cannot be reached" in capsys.readouterr().err


def test_a_worker_whose_last_changes_are_in_doubt_says_so(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    async def lose_commits(*_args: object) -> None:
        raise CommitUnknown("the server was lost")

    monkeypatch.setattr("tenure.app.safety.epochs.compare_with_memo", lose_commits)
    words = ["worker", "--home", str(tmp_path / "home"), "--store", postgres_url]
    assert cli.main(words) == 1
    message = capsys.readouterr().err
    assert "the outcome of the last commits is unknown" in message
    assert "start it again" in message
