"""`tenure backup` and `tenure restore` on a home whose plane is stopped, as they are typed."""

import asyncio
import json

import pytest

from tenure.faces.cli import main as cli
from tenure.settings import Settings
from tenure.wiring import managing

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def home(tmp_path):
    place = tmp_path / "home"

    async def main():
        async with managing(Settings(home=str(place), sandbox="off")):
            pass

    asyncio.run(main())
    return place


def typed(capsys, home, *words):
    code = cli.main([*words, "--home", str(home)])
    return (code, *capsys.readouterr())


def test_a_home_is_backed_up_and_put_back_under_a_new_epoch(home, tmp_path, capsys):
    copy = tmp_path / "copy"
    assert typed(capsys, home, "backup", str(copy))[0] == 0
    assert typed(capsys, home, "backup", str(copy))[0] == 1, "nothing is written over"
    code, out, _ = typed(capsys, home, "restore", str(copy), "--yes", "-o", "json")
    assert code == 0
    assert json.loads(out)["epoch"] == 2
    code, out, told = typed(capsys, tmp_path / "new", "restore", str(copy))
    assert code == 0
    assert "restore --confirm" in told
    assert "epoch" in out


def test_a_home_is_held_by_hand(home, capsys):
    code, out, _ = typed(capsys, home, "restore", "--hold", "--yes")
    assert code == 0
    assert "2" in out


def test_what_is_no_backup_and_what_says_too_much_is_refused(home, tmp_path, capsys):
    assert typed(capsys, home, "restore", str(tmp_path / "nowhere"))[0] in {1, 2}
    assert typed(capsys, home, "restore", "--hold", "--confirm")[0] == 2
    assert typed(capsys, home, "restore", "--review")[0] == 1, "no server runs there"
