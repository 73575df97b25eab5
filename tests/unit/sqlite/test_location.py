"""What is found out about a file without opening it."""

from pathlib import Path

import pytest

from tenure.core.errors import StoreError
from tenure.sqlite.location import check_location, file_system, read_header

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:40 / /data rw - nfs4 server:/export rw
31 30 0:41 / /data/local rw master:7 shared:3 - xfs /dev/vdb rw
32 22 0:42 / /with\\040space\\134 rw - 9p share rw
33 22 0:43 / /twice rw - ext4 /dev/vdc rw
34 33 0:44 / /twice rw - fuse.sshfs me@there: rw
35 22 0:45 / /win rw - fuseblk /dev/sda1 rw
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/home/me", "ext4"),
        ("/database", "ext4"),
        ("/data", "nfs4"),
        ("/data/x/y", "nfs4"),
        ("/data/local/x", "xfs"),
        ("/with space\\/x", "9p"),
        ("/twice", "fuse.sshfs"),
        ("/win/x", "fuseblk"),
    ],
)
def test_the_innermost_and_latest_mount_tells(mounts: Path, folder: str, kind: str) -> None:
    assert file_system(Path(folder), mounts=mounts) == kind


def test_where_mounts_are_not_told_nothing_is_known(tmp_path: Path) -> None:
    assert file_system(tmp_path, mounts=tmp_path / "missing") == ""
    check_location(tmp_path / "x.db", mounts=tmp_path / "missing")


def test_this_machine_tells() -> None:
    assert file_system(Path("/proc")) == "proc"


def test_a_header_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        read_header(tmp_path)
