"""What holds for every process of a home, whoever of them serves the providers."""

import asyncio
import json

import pytest

from tenure.adapters.clock.system import SystemClock
from tenure.core.errors import Invalid, StoreError
from tenure.home import shared_settings as module
from tenure.home.shared_settings import SharedSettings, SharedSettingsFile

TOLD = SharedSettings("", "", "http://127.0.0.1:7450", "require")


def test_a_home_keeps_its_name_and_takes_the_word_of_who_opens_it(tmp_path):
    file = SharedSettingsFile(tmp_path)
    assert file.read() is None
    first = file.update(TOLD, "")
    assert first.home
    assert first == TOLD._replace(home=first.home) == file.read()
    assert file.path.stat().st_mode & 0o077 == 0
    again = file.update(TOLD._replace(sandbox="off", issuer="http://127.0.0.1:8000"), "")
    assert (again.home, again.sandbox, again.issuer) == (first.home, "off", "http://127.0.0.1:8000")


def test_who_joins_keeps_what_holds_and_everybody_the_issuer_that_others_have(tmp_path):
    file = SharedSettingsFile(tmp_path)
    first = file.update(TOLD, "")
    assert file.update(None, "") == first
    other = TOLD._replace(issuer="http://127.0.0.1:8000")
    assert file.update(other, first.issuer) == first == file.read_agreed(None)


@pytest.mark.parametrize(
    "change",
    [
        {"sandbox": "auto"},
        {"webhooks_here": True},
        {"drift": "report"},
        {"keep_findings_days": 1.0},
        {"keep_operations_days": 0.0},
        {"keep_events_per_tenant": 1_000},
    ],
)
def test_who_was_told_otherwise_than_those_who_run_is_refused(tmp_path, change):
    file = SharedSettingsFile(tmp_path)
    file.update(TOLD, "")
    assert file.read_agreed(TOLD).sandbox == "require"
    ((option, word),) = change.items()
    with pytest.raises(
        Invalid, match=rf"has {option}={word}: use the same value, or stop all of them"
    ):
        file.read_agreed(TOLD._replace(**change))


def test_a_plane_whose_store_is_elsewhere_has_none_in_its_home(tmp_path):
    file = SharedSettingsFile(tmp_path)
    file.refuse_store_here()
    there = file.update(TOLD._replace(store="postgresql://tenure@db/tenure (schema tenure)"), "")
    with pytest.raises(Invalid, match=r"store is postgresql://tenure@db/tenure \(schema tenure\):"):
        file.refuse_store_here()
    with pytest.raises(Invalid, match="a new plane needs a home of its own"):
        file.read_agreed(TOLD)  # it was begun meanwhile
    assert file.read_agreed(None) == file.read_agreed(there) == there


def test_what_a_newer_release_has_written_besides_is_left_to_it(tmp_path):
    file = SharedSettingsFile(tmp_path)
    first = file.update(TOLD, "")
    newer = json.dumps({**first._asdict(), "patience": 1.0})
    file.path.write_text(newer)
    assert file.read() == first == file.read_agreed(TOLD) == file.update(TOLD, "")
    assert file.path.read_text() == newer


def test_terms_that_are_gone_or_odd_are_not_guessed(tmp_path):
    file = SharedSettingsFile(tmp_path)
    with pytest.raises(Invalid, match="was removed"):
        file.update(None, "")
    with pytest.raises(Invalid, match="was removed"):
        file.read_agreed(TOLD)
    file.path.write_text("[]")
    with pytest.raises(StoreError, match="cannot be used"):
        file.read()


def test_who_joins_waits_for_who_begins_and_not_for_ever(tmp_path, monkeypatch):
    file = SharedSettingsFile(tmp_path / "home")

    async def begin_late():
        waiting = asyncio.ensure_future(file.wait_for_first_start(SystemClock()))
        await asyncio.sleep(0)
        assert not waiting.done()
        file.path.parent.mkdir()
        file.update(TOLD, "")
        await waiting

    asyncio.run(begin_late())
    monkeypatch.setattr(module, "FIRST_START_SECONDS", 0.0)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    wrong = SharedSettingsFile(tmp_path / "wrong")
    with pytest.raises(Invalid, match="by --home or TENURE_HOME"):
        asyncio.run(wrong.wait_for_first_start(SystemClock()))
    assert not wrong.path.parent.exists()
