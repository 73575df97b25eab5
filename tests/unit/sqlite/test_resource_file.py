"""What embedded providers share, from inside: races, failed commits, full disks, odd specs."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw
import pytest

from tenure.core.errors import OutcomeUnknown, Rejected, StoreError, StoreForeign, Unavailable
from tenure.core.ids import ResourceKey
from tenure.core.limits import DEPTH_MAX, INPUT_BYTES_MAX
from tenure.ports.provider import Presence
from tenure.ports.store import Change, CommitRefusal, Is, Put, Row
from tenure.sqlite import resource_file
from tenure.sqlite.resource_file import ATTEMPTS_MAX, OWNED_PAGE, revision_guard
from tenure.testing.contracts.provider import ProviderCase, ProviderContract, Scenario, key
from tenure.testing.contracts.store_rows import scenario
from tests.unit.support.small_provider import (
    OWN,
    Failing,
    Things,
    ensure,
    names_of,
    open_small_provider,
    remove,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / "0001_pre_parts.sql").write_text(OWN)
    (tmp_path / "data").mkdir()
    return tmp_path


class TestHoldings(ProviderContract):
    @pytest.fixture
    def run_scenario(self, folder):
        def run_scenario(run: Scenario) -> None:
            async def main() -> None:
                resources = open_small_provider(folder, flush=None)
                things = Things(resources)

                async def plant(at: ResourceKey) -> None:
                    await things.ensure(at._replace(plane="another"), {})

                try:
                    await run(ProviderCase(things, plant))
                finally:
                    await resources.close()

            asyncio.run(main())

        return run_scenario


# ------------------------------------------------------------------------------------------- rows


@scenario
async def test_what_cannot_be_written_is_rejected_and_leaves_nothing(folder: Path) -> None:
    resources = open_small_provider(folder)
    with pytest.raises(Rejected):
        await ensure(resources, key(), "fine", "too big", size=1000)
    assert (await resources.inspect(key())).presence is Presence.ABSENT
    assert names_of(resources, key()) == []
    with pytest.raises(Rejected):
        await ensure(resources, key(), "fine")


@scenario
async def test_the_same_spec_again_writes_nothing(folder: Path) -> None:
    resources = open_small_provider(folder)
    await ensure(resources, key(), "a")
    before = resources.find("resource", (key().text,))
    assert await ensure(resources, key(), "a") == {"key": key().text}
    assert resources.find("resource", (key().text,)) == before


@scenario
async def test_another_spec_swaps_the_rows_and_keeps_reference_and_time(folder: Path) -> None:
    resources = open_small_provider(folder)
    await ensure(resources, key(), "a", "b")
    first = resources.find("resource", (key().text,))
    assert first is not None
    await ensure(resources, key()._replace(generation=2), "b", "c")
    second = resources.find("resource", (key().text,))
    assert second == {**first, "spec": '{"names":["b","c"]}', "generation": 2, "revision": 2}
    assert names_of(resources, key()) == ["b", "c"]


@scenario
async def test_a_burned_key_keeps_no_rows_and_no_spec(folder: Path) -> None:
    resources = open_small_provider(folder)
    await ensure(resources, key(), "a")
    await remove(resources, key())
    row = resources.find("resource", (key().text,))
    assert row is not None
    assert (row["state"], row["spec"], row["reference"]) == ("BURNED", "{}", "{}")
    assert names_of(resources, key()) == []


@scenario
async def test_a_guard_of_the_provider_holds_for_the_whole_change(folder: Path) -> None:
    resources = open_small_provider(folder)
    await ensure(resources, key("other"), "a")
    tried = []

    def extra_changes(_: Row | None) -> list[Is | Put]:
        tried.append(1)
        size = 2 if len(tried) == 1 else 1
        guard = Is("part", (key("other").text, "a"), {"size": size})
        return [guard, Put("part", (key().text, f"try {len(tried)}"), {"size": 1})]

    await resources.ensure(key(), {}, reference=dict, extra_changes=extra_changes)
    assert names_of(resources, key()) == ["try 2"]


@scenario
async def test_a_verb_that_never_gets_its_turn_is_unavailable(folder: Path) -> None:
    resources = open_small_provider(folder)
    tried = []

    def extra_changes(_: Row | None) -> list[Is]:
        tried.append(1)
        return [Is("part", ("nobody", "nothing"), {"size": 1})]

    with pytest.raises(Unavailable):
        await resources.ensure(key(), {}, reference=dict, extra_changes=extra_changes)
    assert len(tried) == ATTEMPTS_MAX
    await ensure(resources, key())
    with pytest.raises(Unavailable):
        await resources.remove(key(), extra_changes=extra_changes)
    assert (await resources.inspect(key())).presence is Presence.READY


# ------------------------------------------------------------------------------------------ races


@scenario
async def test_many_specs_at_once_leave_the_rows_of_one_of_them(folder: Path) -> None:
    resources = open_small_provider(folder)
    await asyncio.gather(*(ensure(resources, key(), f"{n}", f"{n}+") for n in range(10)))
    row = resources.find("resource", (key().text,))
    assert row is not None
    (first, second) = names_of(resources, key())
    assert row["spec"] == f'{{"names":["{first}","{second}"]}}'


@scenario
async def test_a_remove_takes_the_rows_of_an_ensure_that_was_quicker(folder: Path) -> None:
    resources = open_small_provider(folder)
    await ensure(resources, key(), "a")
    newer = key()._replace(generation=2)
    await asyncio.gather(ensure(resources, newer, "b"), remove(resources, key()))
    assert (await resources.inspect(key())).presence is Presence.ABSENT
    assert names_of(resources, key()) == []


@scenario
async def test_an_ensure_after_a_remove_that_was_quicker_is_rejected(folder: Path) -> None:
    resources = open_small_provider(folder)
    await ensure(resources, key(), "a")
    newer = key()._replace(generation=2)
    removed, refused = await asyncio.gather(
        remove(resources, key()), ensure(resources, newer, "b"), return_exceptions=True
    )
    assert removed is None
    assert isinstance(refused, Rejected)
    assert names_of(resources, key()) == []


@scenario
async def test_of_two_generations_at_once_the_later_one_stays(folder: Path) -> None:
    resources = open_small_provider(folder)
    await ensure(resources, key(), "a")
    second, third = (key()._replace(generation=n) for n in (2, 3))
    _, refused = await asyncio.gather(
        ensure(resources, third, "c"), ensure(resources, second, "b"), return_exceptions=True
    )
    assert isinstance(refused, Rejected)
    assert names_of(resources, key()) == ["c"]
    assert (await resources.inspect(key())).generation == 3


@scenario
async def test_rows_changed_by_another_way_are_seen_by_the_verbs(folder: Path) -> None:
    resources = open_small_provider(folder)
    await ensure(resources, key(), "a")
    row = resources.find("resource", (key().text,))
    assert row is not None
    guard, revise = revision_guard(row)
    another = Change("", (guard,), (revise, Put("part", (key().text, "b"), {"size": 1})))
    answer, _ = await asyncio.gather(resources.commit(another), remove(resources, key()))
    assert answer is None
    assert names_of(resources, key()) == []
    assert isinstance(await resources.commit(another), CommitRefusal)


# ---------------------------------------------------------------------------------------- refusals


def nested_lists(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "spec",
    [
        {"a": float("nan")},
        {"a": object()},
        {"a": b"bytes"},
        {"a": {1: 2}},
        {"a": nested_lists(DEPTH_MAX + 1)},
        {"a": "x" * INPUT_BYTES_MAX},
    ],
)
def test_a_spec_that_is_not_plain_is_refused_for_good(folder: Path, spec: Any) -> None:
    @scenario
    async def assert_refuses() -> None:
        resources = open_small_provider(folder)
        specs: tuple[Mapping[str, object], ...] = (spec, {})
        for this in specs:
            with pytest.raises(Rejected):
                await resources.ensure(key(), this, reference=dict)
        assert (await resources.inspect(key())).presence is Presence.ABSENT
        await resources.remove(key())

    assert_refuses()


@scenario
async def test_a_refusal_leaves_what_is_there(folder: Path) -> None:
    resources = open_small_provider(folder)
    await ensure(resources, key(), "a")
    with pytest.raises(Rejected, match="because"):
        await resources.refuse(key(), "because")
    assert (await resources.inspect(key())).presence is Presence.READY
    assert names_of(resources, key()) == ["a"]


@pytest.mark.parametrize("part", ["plane", "tenant", "agent"])
def test_what_carries_another_label_is_foreign(folder: Path, part: str) -> None:
    @scenario
    async def foreign() -> None:
        resources = open_small_provider(folder)
        theirs = key()._replace(**{part: "another"})  # type: ignore[arg-type]
        await ensure(resources, theirs, "a")
        assert (await resources.inspect(key())).presence is Presence.FOREIGN
        for verb in (ensure, remove):
            with pytest.raises(Rejected) as refused:
                await verb(resources, key())
            assert "another" not in str(refused.value).replace("another owner", "")
        assert names_of(resources, key()) == ["a"]

    foreign()


# ------------------------------------------------------------------------------------ the listing


@scenario
async def test_a_long_listing_lets_others_go_on(folder: Path) -> None:
    resources = open_small_provider(folder)
    count = 2 * OWNED_PAGE + 1
    keys = [key(f"{n:05}") for n in range(count)]
    await asyncio.gather(*(ensure(resources, one) for one in keys))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count_turns())
    listed = [item.key async for item in resources.list_owned(key().plane)]
    other.cancel()
    assert listed == [one.text for one in keys]
    assert turns == 2


# ----------------------------------------------------------------------------------- the disk


@scenario
async def test_a_full_disk_takes_no_new_resource_but_lets_go_of_old_ones(folder: Path) -> None:
    room = 1 << 30
    resources = open_small_provider(folder, free_bytes=lambda: room)
    await ensure(resources, key("old"))
    room = 0
    with pytest.raises(Unavailable):
        await ensure(resources, key())
    await remove(resources, key("old"))
    await remove(resources, key("unknown"))
    room = 1 << 30
    await ensure(resources, key())


@scenario
async def test_a_file_that_is_busy_is_unavailable_and_nothing_is_written(folder: Path) -> None:
    resources = open_small_provider(folder)
    other = apsw.Connection(str(folder / "data" / "it.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable):
        await ensure(resources, key())
    other.close()
    assert (await resources.inspect(key())).presence is Presence.ABSENT
    await ensure(resources, key())


@scenario
async def test_a_read_that_fails_is_unavailable(folder: Path) -> None:
    resources = open_small_provider(folder)
    with pytest.raises(Unavailable):
        resources.read("SELECT 1 FROM nothing")
    with pytest.raises(Rejected):
        resources.read("SELECT ?", ("\ud800",))


@pytest.mark.parametrize("is_kept", [True, False])
def test_after_a_commit_that_failed_the_next_call_opens_the_file_again(
    folder: Path, is_kept: bool
) -> None:
    @scenario
    async def commit_fails() -> None:
        flush = Failing()
        resources = open_small_provider(folder, flush=flush)
        await ensure(resources, key("before"), "a")
        flush.fail_after_write = is_kept
        ends = await asyncio.gather(
            *(ensure(resources, key(f"{n}"), "a") for n in range(3)), return_exceptions=True
        )
        assert [type(end) for end in ends] == [OutcomeUnknown] * 3
        there = Presence.READY if is_kept else Presence.ABSENT
        for n in range(3):
            assert (await resources.inspect(key(f"{n}"))).presence is there
            assert names_of(resources, key(f"{n}")) == ["a"] * is_kept
        await ensure(resources, key("0"), "b")
        assert names_of(resources, key("before")) == ["a"]
        assert names_of(resources, key("0")) == ["b"]
        await resources.close()

    commit_fails()


@scenario
async def test_one_who_hears_late_of_a_failed_commit_does_not_break_the_new_file(
    folder: Path,
) -> None:
    flush = Failing()
    resources = open_small_provider(folder, flush=flush)
    flush.fail_after_write = False
    opens, open_again = 0, resources._open_again

    def count_and_open() -> Any:
        nonlocal opens
        opens += 1
        return open_again()

    resources._open_again = count_and_open

    async def twice(name: str) -> None:
        with pytest.raises(OutcomeUnknown):
            await ensure(resources, key(name))
        await ensure(resources, key(name))

    await asyncio.gather(*(twice(f"{n}") for n in range(5)))
    assert opens == 1


@scenario
async def test_what_recovery_found_is_in_the_main_file_before_anyone_goes_on(folder: Path) -> None:
    flush = Failing()
    resources = open_small_provider(folder, flush=flush)
    flush.fail_after_write = True
    with pytest.raises(OutcomeUnknown):
        await ensure(resources, key(), "a")
    log = folder / "data" / "it.db-wal"
    assert log.stat().st_size > 0
    await resources.inspect(key())
    assert log.stat().st_size == 0


@scenario
async def test_a_file_that_cannot_be_opened_again_is_unavailable_until_it_can(folder: Path) -> None:
    flush = Failing()
    resources = open_small_provider(folder, flush=flush)
    await ensure(resources, key("before"))
    flush.fail_after_write = False
    with pytest.raises(OutcomeUnknown):
        await ensure(resources, key())
    (folder / "data").rename(folder / "away")
    for _ in range(2):
        with pytest.raises(Unavailable):
            await resources.inspect(key())
    (folder / "away").rename(folder / "data")
    assert (await resources.inspect(key("before"))).presence is Presence.READY
    await ensure(resources, key())


@scenario
async def test_nobody_goes_on_before_the_recovered_log_could_be_moved(folder: Path) -> None:
    flush = Failing()
    resources = open_small_provider(folder, flush=flush)
    flush.fail_after_write = True
    with pytest.raises(OutcomeUnknown):
        await ensure(resources, key(), "a")
    reader = apsw.Connection(str(folder / "data" / "it.db"))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM part").fetchall()
    for _ in range(2):
        with pytest.raises(Unavailable):
            await resources.inspect(key())
    reader.close()
    assert (await resources.inspect(key())).presence is Presence.READY


@scenario
async def test_a_file_that_lacks_a_table_is_refused_and_let_go(folder: Path) -> None:
    await open_small_provider(folder).close()
    other = apsw.Connection(str(folder / "data" / "it.db"))
    other.execute("ALTER TABLE batch RENAME TO away")
    with pytest.raises(StoreError, match=r"it\.db"):
        open_small_provider(folder)
    other.execute("ALTER TABLE away RENAME TO batch")
    other.close()
    await open_small_provider(folder).close()


@scenario
async def test_what_failed_and_was_closed_stays_closed(folder: Path) -> None:
    flush = Failing()
    resources = open_small_provider(folder, flush=flush)
    flush.fail_after_write = False
    with pytest.raises(OutcomeUnknown):
        await ensure(resources, key())
    await resources.close()
    with pytest.raises(Unavailable):
        await ensure(resources, key())
    await open_small_provider(folder).close()


@scenario
async def test_what_is_closed_is_unavailable_and_is_found_again(folder: Path) -> None:
    resources = open_small_provider(folder)
    await ensure(resources, key(), "a")
    await resources.close()
    await resources.close()
    for verb in (ensure, remove):
        with pytest.raises(Unavailable):
            await verb(resources, key())
    with pytest.raises(StoreForeign):
        open_small_provider(folder, application_id=8)
    again = open_small_provider(folder)
    assert (await again.inspect(key())).reference == {"key": key().text}
    assert names_of(again, key()) == ["a"]
    await again.close()


@scenario
async def test_a_call_handed_in_before_the_close_is_finished(folder: Path) -> None:
    resources = open_small_provider(folder)
    late = asyncio.create_task(ensure(resources, key(), "a"))
    await asyncio.sleep(0)
    await resources.close()
    assert await late == {"key": key().text}


def test_a_surprise_while_it_is_opened_lets_go_of_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(resource_file, "Committer", surprise)
        with pytest.raises(ZeroDivisionError):
            open_small_provider(folder)
    asyncio.run(open_small_provider(folder).close())
