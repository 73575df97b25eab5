"""The disks that other tests fill: none stays mounted, also if somebody still uses it."""

from pathlib import Path

import pytest

from tests.real.support.disks import mount_disk

pytestmark = pytest.mark.timeout(300)


def test_a_disk_that_is_in_use_is_unmounted():
    with mount_disk("1m") as folder:
        file = (folder / "open").open("w")
    with file:
        assert not folder.exists()
        assert str(folder) not in Path("/proc/self/mounts").read_text()
