"""The epoch file, whose fields an older release reads by their names."""

import json

from tenure.home.epoch_file import EpochFile
from tenure.ports.epoch import Memo


def test_the_reason_of_a_pause_is_held_in_the_file(tmp_path):
    file = EpochFile(tmp_path)
    file.write(Memo(2, "restored", position=7, head="seven"))
    assert json.loads(file.path.read_text()) == {
        "epoch": 2, "held": "restored", "restoring": "", "position": 7, "head": "seven",
    }  # fmt: skip
    file.path.write_text('{"epoch": 3, "held": "by an older release"}')
    assert file.read() == Memo(3, "by an older release")
