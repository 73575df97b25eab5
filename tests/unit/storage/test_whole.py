"""Small private files: made once, whole or not at all, over what a crash has left."""

import os

from tenure.storage.whole import make_whole


def test_a_file_is_made_once_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "key"
    (tmp_path / f"key.{os.getpid()}.new").write_bytes(b"left by a crash")
    for content in (b"one", b"another who came too late"):
        make_whole(path, content)
        assert path.read_bytes() == b"one"
        assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["key"]
