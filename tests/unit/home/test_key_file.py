"""Files with a secret key: made once, and refused if they are not what was made."""

import pytest

from tenure.core.errors import StoreError, StoreUnsafe
from tenure.home.key_file import KEY_BYTES, make_key, read_key


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path):
    file = tmp_path / "key"
    key = make_key(file)
    assert (len(key), make_key(file), read_key(file)) == (KEY_BYTES, key, key)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_key_that_cannot_be_created_is_an_error_that_names_the_file(tmp_path):
    file = tmp_path / "no_folder" / "key"
    with pytest.raises(StoreError, match=r"no_folder/key cannot be created \(No such file"):
        make_key(file)


def test_a_file_that_is_not_the_key_is_refused(tmp_path):
    file = tmp_path / "key"
    with pytest.raises(StoreError, match=r"cannot be read \(No such file"):
        read_key(file)
    file.write_bytes(b"short")
    file.chmod(0o600)
    with pytest.raises(StoreError, match="it has 5 bytes"):
        read_key(file)
    file.chmod(0o644)
    with pytest.raises(StoreUnsafe, match="run chmod 600"):
        read_key(file)
