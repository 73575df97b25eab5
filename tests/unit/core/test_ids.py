"""Ids: time-ordered for what we make, derived for what providers hold."""

import re
from uuid import RFC_4122, UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.ids import resource_key, uuid7

instants = st.floats(0.0, 2_000_000_000.0)
bits = st.integers(0, 2**62 - 1)
texts = st.text(max_size=12)
parts = st.fixed_dictionaries(
    {
        "plane": texts,
        "tenant": texts,
        "agent": texts,
        "generation": st.integers(0, 99),
        "slot": texts,
        "name": texts,
    }
)


@given(instants, bits)
def test_a_uuid7_is_one_by_rfc_9562(now, random_bits):
    text = uuid7(now, random_bits)
    assert re.fullmatch(r"[0-9a-f]{32}", text)
    made = UUID(text)
    assert (made.version, made.variant) == (7, RFC_4122)
    assert abs((made.int >> 80) - now * 1_000) < 1.001
    assert made.int & (2**62 - 1) == random_bits


@given(instants, instants, bits, bits)
def test_uuid7s_sort_by_time_whatever_their_bits(one, two, some, others):
    earlier, later = sorted((one, two))
    if later - earlier > 0.000_001:
        assert uuid7(earlier, some) < uuid7(later, others)


def test_uuid7s_of_one_instant_differ_by_their_bits():
    assert uuid7(1.0, 1) < uuid7(1.0, 2)
    assert uuid7(1.0, 2**62 + 1) == uuid7(1.0, 1)


def test_ids_do_not_change_between_releases():
    assert uuid7(1_700_000_000.123456, 42) == "018bcfe5687b774c800000000000002a"


@settings(max_examples=50)
@given(parts)
def test_the_text_of_a_key_is_40_characters_at_most_of_the_plainest_kind(fields):
    key = resource_key(**fields)
    assert re.fullmatch(r"[a-z][a-z0-9]{1,39}", key.text)
    assert key._asdict() == {"text": key.text, **fields}
    assert key == resource_key(**fields)


@settings(max_examples=50)
@given(parts, parts)
def test_different_parts_never_give_the_same_text(one, two):
    assert (resource_key(**one).text == resource_key(**two).text) == (one == two)


def key_of(**fields):
    """A key of one runtime, but for what is said."""
    rest = {"tenant": "acme", "agent": "018b", "generation": 3, "slot": "runtime", "name": "main"}
    return resource_key("plane", **{**rest, **fields}).text


@given(st.sampled_from(["\n", ":", "', '", "/", "\0"]), texts, texts)
def test_nothing_can_be_moved_from_one_part_to_the_next(mark, left_part, right_part):
    one = key_of(tenant=f"{left_part}{mark}{right_part}", agent="x")
    two = key_of(tenant=left_part, agent=f"{right_part}{mark}x")
    assert one != two


def test_a_key_shows_its_slot_and_stays_the_same_between_releases():
    assert key_of(slot="agent_runtime").startswith("agentruntime")
    assert key_of(slot="").startswith("r")
    assert key_of(slot="9lives").startswith("r9lives")
    assert key_of() == "runtime6e5748599169247b386b6ad9e799"
