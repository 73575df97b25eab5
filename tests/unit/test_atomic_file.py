"""Small private files: made once or replaced, whole or not at all, over what a crash has left."""

import os

import pytest

from tenure.atomic_file import create_atomically, replace_atomically
from tenure.core.errors import StoreError


def test_a_file_is_made_once_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "key"
    (tmp_path / f"key.{os.getpid()}.part").write_bytes(b"left by a crash")
    for content in (b"one", b"another who came too late"):
        create_atomically(path, content)
        assert path.read_bytes() == b"one"
        assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["key"]


def test_a_file_is_replaced_for_its_owner_alone_and_no_link_is_followed(tmp_path):
    path, other = tmp_path / "token", tmp_path / "other"
    other.write_text("theirs")
    (tmp_path / f"token.{os.getpid()}.part").symlink_to(other)
    path.write_text("old")
    path.chmod(0o644)
    replace_atomically(path, "new\n")
    assert (path.read_text(), other.read_text()) == ("new\n", "theirs")
    assert path.stat().st_mode & 0o777 == 0o600
    assert {one.name for one in tmp_path.iterdir()} == {"token", "other"}


def test_what_cannot_be_replaced_stays_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "token"
    path.mkdir()
    with pytest.raises(StoreError, match="its old content stays"):
        replace_atomically(path, "new\n")
    assert [one.name for one in tmp_path.iterdir()] == ["token"]
