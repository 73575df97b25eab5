"""Small private files: whole or not at all, over what a crash has left."""

from tenure.storage.whole import write_whole


def test_a_file_is_replaced_whole_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "key"
    (tmp_path / "key.new").write_bytes(b"left by a crash")
    for content in (b"one", b"another"):
        write_whole(path, content)
        assert path.read_bytes() == content
        assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["key"]
