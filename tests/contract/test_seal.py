"""Who is held to the promises of the seal: a key in a file of its own."""

import stat

import pytest

from tenure.adapters.seal.local import LocalSeal
from tenure.core.errors import Invalid, StoreError, StoreUnsafe

SECRET = b"a secret that nobody may read"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "secrets.key"


def test_what_is_sealed_opens_again_also_in_another_process(path):
    sealed = LocalSeal(path).encrypt(SECRET, label="a")
    assert LocalSeal(path).decrypt(sealed, label="a") == SECRET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_says_nothing_to_who_has_no_key(path, tmp_path):
    seal = LocalSeal(path)
    sealed = seal.encrypt(SECRET, label="a")
    assert SECRET.decode() not in sealed
    assert seal.encrypt(SECRET, label="a") != sealed
    with pytest.raises(Invalid):
        LocalSeal(tmp_path / "other.key").decrypt(sealed, label="a")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s: s[:-4], id="cut"),
        pytest.param(lambda s: s[:5] + "AAAA" + s[9:], id="edited"),
        pytest.param(lambda s: "v9." + s[3:], id="another version"),
        pytest.param(lambda _: "", id="empty"),
        pytest.param(lambda _: "v1.?", id="nonsense"),
    ],
)
def test_what_was_changed_or_moved_does_not_open(path, change):
    seal = LocalSeal(path)
    sealed = seal.encrypt(SECRET, label="a")
    with pytest.raises(Invalid):
        seal.decrypt(change(sealed), label="a")
    with pytest.raises(Invalid):
        seal.decrypt(sealed, label="b")


def test_a_key_that_others_can_read_or_that_is_none_is_not_used(path):
    LocalSeal(path).encrypt(SECRET, label="a")
    path.chmod(0o644)
    with pytest.raises(StoreUnsafe):
        LocalSeal(path).encrypt(SECRET, label="a")
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(StoreError):
        LocalSeal(path).encrypt(SECRET, label="a")
