"""The directory of a key: whose it is while it is being made, and how its log is read."""

import threading

from tenure.adapters.runtime.process import keeper, runtime_dir
from tenure.adapters.runtime.process.runtime_dir import RuntimeDir, RuntimeOwner
from tenure.testing.contracts.provider import key

OURS = RuntimeOwner(key().plane, key().tenant, key().agent, 1, 0.0)


def test_what_is_being_made_is_never_taken_for_foreign(tmp_path):
    for number in range(60):
        place = RuntimeDir(tmp_path / str(number))
        place.path.mkdir()

        def furnish(place=place):
            place.write_owner(OURS)
            (place.path / keeper.LOCK).touch()

        maker = threading.Thread(target=furnish)
        maker.start()
        seen = {place.is_foreign_to(key()) for _ in range(20)}
        maker.join()
        assert seen == {False}


def test_a_name_that_cannot_be_read_is_foreign(tmp_path):
    place = RuntimeDir(tmp_path)
    assert not place.is_foreign_to(key())
    (tmp_path / "owner.json").write_text("not ours to read")
    assert place.is_foreign_to(key())
    (tmp_path / "owner.json").write_text("")  # what a failed power leaves of our own
    assert not place.is_foreign_to(key())
    place.write_owner(OURS._replace(agent="b"))
    assert place.is_foreign_to(key())
    place.write_owner(OURS)
    assert not place.is_foreign_to(key())


def test_a_character_is_not_torn_between_two_parts(tmp_path):
    (tmp_path / "log.100").write_bytes("é".encode() + "€".encode()[:2])
    text, offset = runtime_dir.part(tmp_path, 0)
    assert (text, offset) == ("é", 102)
    with (tmp_path / "log.100").open("ab") as file:
        file.write("€".encode()[2:])
    assert runtime_dir.part(tmp_path, offset) == ("€", 105)


def test_bytes_that_are_no_text_are_passed_over(tmp_path):
    (tmp_path / "log.0").write_bytes(b"a\xffb\xe2")
    assert runtime_dir.part(tmp_path, 0) == ("a�b�", 4)
    assert runtime_dir.tail(tmp_path, 1) == "a�b�"


def test_the_tail_of_a_log_spans_its_files(tmp_path):
    (tmp_path / "log.0").write_bytes(b"one\ntwo\n")
    (tmp_path / "log.8").write_bytes(b"three\n")
    assert runtime_dir.tail(tmp_path, 2) == "two\nthree\n"
    assert runtime_dir.tail(tmp_path, 0) == ""
    assert runtime_dir.part(tmp_path, 4) == ("two\n", 8)
    assert runtime_dir.part(tmp_path, 8) == ("three\n", 14)
    assert runtime_dir.part(tmp_path, 99) == ("", 99)


def test_orders_come_back_as_they_were_given():
    given = [("start", "7"), ("env", "A=b=c"), ("env", "N=line\nline"), ("command", "")]
    config = keeper.LaunchConfig(keeper.encode(given))
    assert config.number("start") == 7
    assert config.all("env") == ["A=b=c", "N=line\nline"]
    assert config.all("command") == [""]
    assert (config.text("none"), config.number("none")) == ("", 0)
