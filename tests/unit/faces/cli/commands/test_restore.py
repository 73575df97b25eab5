"""`tenure backup` and `tenure restore` on a home whose plane is stopped, as they are typed."""

import asyncio
import json

import pytest

from tenure.faces.cli import main as cli
from tenure.faces.cli.commands.restore import describe_review
from tenure.faces.cli.exits import Exit
from tenure.home.shared_settings import SharedSettingsFile
from tenure.settings import Settings
from tenure.wiring import run_agent_plane
from tests.unit.faces.cli.commands.test_agent import serve_face
from tests.unit.support.api_client import api_test


@pytest.fixture
def home(tmp_path):
    place = tmp_path / "home"

    async def main():
        async with run_agent_plane(Settings(home=str(place), sandbox="off")):
            pass

    asyncio.run(main())
    return place


def run_cli(capsys, home, *words):
    code = cli.main([*words, "--home", str(home)])
    return (code, *capsys.readouterr())


def test_a_home_is_backed_up_and_put_back_under_a_new_epoch(home, tmp_path, capsys):
    copy = tmp_path / "copy"
    assert run_cli(capsys, home, "backup", str(copy))[0] == 0
    assert run_cli(capsys, home, "backup", str(copy))[0] == 1, "nothing is written over"
    code, out, _ = run_cli(capsys, home, "restore", str(copy), "--yes", "-o", "json")
    assert code == 0
    assert json.loads(out)["epoch"] == 2
    code, out, told = run_cli(capsys, tmp_path / "new", "restore", str(copy))
    assert code == 0
    assert "restore --confirm" in told
    assert "epoch" in out


def test_a_backup_without_the_store_says_how_new_its_audit_head_is(home, tmp_path, capsys):
    code, out, _ = run_cli(capsys, home, "backup", str(tmp_path / "file"))
    assert (code, "as the home remembers" in out) == (0, False)
    terms = SharedSettingsFile(home).read()
    assert terms is not None
    SharedSettingsFile(home).write(
        terms._replace(store="postgresql://tenure@db/tenure (schema tenure)")
    )
    code, out, _ = run_cli(capsys, home, "backup", str(tmp_path / "without"))
    assert (code, "as last noted in the home" in out) == (0, True)
    code, out, told = run_cli(capsys, home, "restore", str(tmp_path / "without"), "--yes")
    assert (code, out) == (0, "the home is restored, its store is not; epoch 2\n")
    assert "and is unchanged: postgresql://tenure@db/tenure (schema tenure). If" in told
    assert f"next: tenure up --home {home} --store URL, before any worker, then" in told


def test_a_home_is_held_by_hand(home, capsys):
    code, out, _ = run_cli(capsys, home, "restore", "--hold", "--yes")
    assert code == 0
    assert "2" in out


def test_what_is_no_backup_and_what_says_too_much_is_refused(home, tmp_path, capsys):
    assert run_cli(capsys, home, "restore", str(tmp_path / "nowhere"))[0] in {1, 2}
    assert run_cli(capsys, home, "restore", "--hold", "--confirm")[0] == 2
    assert run_cli(capsys, home, "restore", "--review")[0] == 1, "no server runs there"


@api_test
async def test_a_held_plane_is_looked_at_and_let_go(face, typing):
    await face.plane.pause.update_memo(pause_reason="it was restored")
    async with serve_face(face) as address:
        tenure = typing(face, address, "admin")
        code, _, err = await tenure("agent", "suspend", "one")
        assert (code, "tenure restore --review, then" in err) == (Exit.FAILED, True), err
        face.plane.pause.must_restart = True
        _, _, err = await tenure("agent", "suspend", "one")
        assert "this process accepts no changes" in err, "another process is to be asked"
        face.plane.pause.must_restart = False
        code, out, _ = await tenure("restore", "--review")
        assert (code, "paused: it was restored" in out) == (0, True)
        code, out, _ = await tenure("restore", "--review", "-o", "json")
        assert json.loads(out)["held"] == "it was restored"
        code, _, err = await tenure("restore", "--confirm")
        assert (code, face.plane.pause.why) == (Exit.USAGE, "it was restored"), err
        code, out, _ = await tenure("restore", "--confirm", "--yes")
        assert (code, "the pause has ended" in out, face.plane.pause.why) == (0, True, "")
        code, _, err = await tenure("restore", "--confirm", "--yes")
        assert (code, "nothing to confirm" in err) == (Exit.FAILED, True)


def test_a_review_shows_the_first_of_many_and_says_that_there_are_more():
    missing = [{"name": f"a{n}", "slot": "runtime", "key": "k", "agent": "u"} for n in range(3)]
    seen = {
        "epoch": 2,
        "held": "",
        "open_operations": 0,
        "resumed": [],
        "missing_resources": 3,
        "missing": missing,
        "started_agents": 1,
        "started": [{"name": "a0", "tenant": "default", "agent": "u"}],
        "shut_agents": 0,
        "shut": [],
        "untold_agents": 1,
        "untold": [{"name": "b0", "tenant": "default", "agent": "w"}],
        "unknown_resources": 0,
        "unknown": [],
        "silent": ["identity does not answer"],
    }
    told = describe_review(seen, most=2)
    assert "a1" in told
    assert "a2" not in told
    assert "--review shows more" in told
    assert "not checked: identity does not answer" in told
    assert "paused: no" in told
    assert "1 agents lack only a running runtime and will be started again" in told
    assert "1 agents are READY in the store, and it is unknown whether they" in told
    assert "b0" in told


def test_a_file_that_cannot_be_written_is_named(home, tmp_path, capsys):
    copy = tmp_path / "copy"
    assert run_cli(capsys, home, "backup", str(copy))[0] == 0
    taken = tmp_path / "taken"
    taken.write_text("a file")
    code, _, err = run_cli(capsys, taken, "restore", str(copy), "--yes")
    assert code == Exit.FAILED
    assert "taken" in err
