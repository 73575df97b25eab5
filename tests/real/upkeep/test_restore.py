"""Goal: after a restore nothing is deleted before it is confirmed, and nothing old is good again.

Method: the drill, with real providers and processes, a backup of a plane that runs, and kill -9;
then again with each safeguard taken out, which must show.
"""

import sys
from pathlib import Path

import pytest

from tests.e2e.support.plane_process import home_at
from tests.real.support.restore_drill import Drill

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
ABLATED = str(Path(__file__).parents[1] / "support" / "ablated_command.py")


def test_a_restored_plane_is_held_and_nothing_old_is_good_again(tmp_path):
    with home_at(tmp_path / "home") as plane:
        drill = Drill(plane, tmp_path / "backup")
        drill.before()
        drill.after()
        drill.restored()
        drill.confirmed()
        drill.goes_on()
        assert plane.stop() == 0


@pytest.mark.parametrize(
    ("safeguard", "shows"),
    [
        ("epoch_checked", "a token that was issued before the restore is dead"),
        ("held_until_confirmed", "the plane is held"),
        ("providers_stay", "a restore takes nothing away from a provider"),
    ],
)
def test_a_restore_without_a_safeguard_is_found_out(safeguard, shows, tmp_path):
    with home_at(tmp_path / "home", (sys.executable, ABLATED, safeguard)) as plane:
        drill = Drill(plane, tmp_path / "backup")
        drill.before()
        drill.after()
        with pytest.raises(AssertionError, match=shows):
            drill.restored()
