"""What `tenure upgrade --check` tells of homes that earlier releases wrote."""

import json

import apsw
import pytest

from proofs.releases.any_release import PLAN
from proofs.releases.upgrades import GOLDEN, RELEASES, load
from tenure.core.errors import Invalid
from tenure.faces.cli import main as cli
from tenure.home.shared_settings import SharedSettings, SharedSettingsFile
from tenure.plans.agents.lifecycle import PLANS
from tenure.sqlite.migrations import Migration
from tenure.upkeep.upgrade import Pending, SharedStoreReport, inspect_home
from tenure.wiring import files_of_a_home

FILES = files_of_a_home()
ADDED = [
    Pending("tenure.db", one.name, only_adds=True) for one in FILES[0].migrations if one.only_adds
]


@pytest.mark.parametrize("name", RELEASES)
def test_what_an_earlier_release_wrote_is_told_and_left_as_it_is(name, tmp_path):
    load(GOLDEN / name, tmp_path / "home")
    before = (tmp_path / "home" / "tenure.db").read_bytes()
    seen = inspect_home(tmp_path / "home", FILES, [PLAN])
    kernel = name == "kernel"
    lifecycle = Pending("tenure.db", "0002_pre_lifecycle", only_adds=False)
    assert seen.pending == ([lifecycle, *ADDED] if kernel else ADDED)
    assert seen.can_go_back is not kernel
    assert (seen.open_operations, seen.missing, seen.refused) == (5, [], [])
    assert seen.is_possible
    assert (tmp_path / "home" / "tenure.db").read_bytes() == before


def test_steps_that_this_release_lacks_are_named(tmp_path):
    load(GOLDEN / "lifecycle", tmp_path / "home")
    seen = inspect_home(tmp_path / "home", FILES, PLANS)
    assert "golden@1/approval" in seen.missing
    assert not seen.is_possible


def test_a_newer_home_and_none_at_all_are_refused(tmp_path):
    load(GOLDEN / "lifecycle", tmp_path / "home")
    file = apsw.Connection(str(tmp_path / "home" / "tenure.db"))
    file.pragma("user_version", 99)
    file.close()
    seen = inspect_home(tmp_path / "home", FILES, [PLAN])
    assert "newer Tenure" in seen.refused[0]
    assert not seen.is_possible
    with pytest.raises(Invalid, match="has no plane"):
        inspect_home(tmp_path, FILES, [PLAN])


def test_the_command_says_it_by_its_exit_code(tmp_path, capsys):
    load(GOLDEN / "lifecycle", tmp_path / "home")
    asked = ["upgrade", "--check", "--home", str(tmp_path / "home")]
    assert cli.main([*asked, "-o", "json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["missing"]
    assert "let the earlier release finish the open operations" in said.err
    file = apsw.Connection(str(tmp_path / "home" / "tenure.db"))
    file.execute("UPDATE operation SET ended_at = 1.0")
    file.close()
    assert cli.main(asked) == 0
    assert "0003_pre_epoch, only adds" in capsys.readouterr().out
    assert cli.main([*asked, "--detailed-exitcode"]) == 3
    assert cli.main(["upgrade"]) == 2


def test_of_a_plane_whose_store_is_a_server_the_rest_is_told(tmp_path, capsys):
    load(GOLDEN / "lifecycle", tmp_path / "home")  # its tenure.db was left there
    SharedSettingsFile(tmp_path / "home").write(
        SharedSettings("home", "postgresql://tenure@db/tenure")
    )
    asked = ["upgrade", "--check", "--home", str(tmp_path / "home")]
    assert cli.main(asked) == 1
    out, err = capsys.readouterr()
    assert "open operations: unknown\n" in out
    assert out.endswith("going back:      unknown\n")
    assert "its store was not read: it is postgresql://tenure@db/tenure" in err
    assert "give --store URL, or TENURE_STORE" in err
    assert cli.main([*asked, "--store", "postgresql://127.0.0.1:1/none"]) == 1
    out, err = capsys.readouterr()
    assert "going back:      unknown\n" in out
    assert "it cannot be reached" in err


def test_a_store_elsewhere_is_compared_as_a_file_is(tmp_path):
    load(GOLDEN / "lifecycle", tmp_path / "home")  # its tenure.db was left there
    home = tmp_path / "home"
    SharedSettingsFile(home).write(SharedSettings("home", "postgresql://tenure@db/tenure"))
    body, lacks = PLAN.body(), [Migration(9, "0009_pre_more", "-- Only adds: a table")]
    kept = SharedStoreReport("home", lacks, [(PLAN.digest, body, 3), ("lost", None, 1)])
    seen = inspect_home(home, FILES, [PLAN], kept)
    assert seen.pending[0] == Pending("the store", "0009_pre_more", only_adds=True)
    assert (seen.open_operations, seen.missing, seen.store) == (4, ["plan lost"], "")
    assert (seen.is_possible, seen.can_go_back) == (False, True)
    seen = inspect_home(home, FILES, [PLAN], kept._replace(open_plans=[(PLAN.digest, None, 3)]))
    assert (seen.is_possible, seen.can_go_back) == (True, True)
    with pytest.raises(Invalid, match="belongs to another home"):
        inspect_home(home, FILES, [PLAN], kept._replace(home="other"))
