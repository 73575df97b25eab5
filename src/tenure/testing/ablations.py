"""Safeguards that a harness can switch off, to show that its checks would notice.

A check that nothing can fail proves nothing.  Each `Ablation` takes one safeguard out of the real code, by patching it
inside a `with`, and names a mix of lives (`tenure.testing.scenario`) in which that matters.  With the safeguard the mix
must pass; without it some seed must fail, and soon.  No setting of the product reaches any of this.

usage: python -m tenure.testing.ablations [--seeds 300] [--only NAME] [--write docs/reference/ablations.md]
"""

import argparse
import platform
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import apsw

from tenure.testing import loop, switches
from tenure.testing.life import Lived, live
from tenure.testing.mixes import MIXES
from tenure.testing.switches import Off, patched

TURNS_MAX = 150_000
"""Without a safeguard a life may turn for ever; no sound one comes near this."""


class Oracle(StrEnum):
    """Who is to notice."""

    INVARIANTS = "invariants"
    """The sentences that are checked at the end of a life."""
    REPLAY = "replay"
    """The trace hash of the same seed, lived again."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """One safeguard, and how to do without it."""

    name: str
    protects: str
    rules: str
    promises: tuple[int, ...]
    mix: str
    off: Off
    oracle: Oracle = Oracle.INVARIANTS


# --- all of them -------------------------------------------------------------------------------------------

ABLATIONS: Mapping[str, Ablation] = {
    ablation.name: ablation
    for ablation in (
        Ablation(
            "undo_covers_intended", "Compensation covers every intended step, not only those known to be done.",
            "S1", (2,), "undo", switches.owed(lambda p, steps: [s for s in steps if s.name in p.done]),
        ),
        Ablation(
            "undo_covers_refused", "Compensation covers a refused step too: an earlier call of it may still arrive.",
            "S1 S4", (2,), "late", switches.owed(lambda p, steps: [s for s in steps if s.name not in p.refused]),
        ),
        Ablation(
            "undo_newest_first", "What stands on another is removed first.",
            "S15", (2,), "undo", switches.owed(lambda _, steps: steps[::-1]),
        ),
        Ablation(
            "undo_until_gone", "A failing undo is tried again until it is done.",
            "S18", (2,), "undo", switches.settle(switches.undo_once),
        ),
        Ablation(
            "stuck_is_said", "An undo that keeps failing is STUCK: listed, with what is left.",
            "S18", (2,), "stuck", switches.settle(after=switches.say_nothing_of_stuck),
        ),
        Ablation(
            "decision_before_undo", "The decision to compensate is recorded before the first undo.",
            "S5", (2,), "decision", switches.performing(switches.undo_at_once),
        ),
        Ablation(
            "do_ends_before_undo", "A step is undone only when no call of its do is under way.",
            "S4", (2,), "late", switches.undo_beside_do,
        ),
        Ablation(
            "derived_keys", "A resource's key is derived, so that it is known before the call and after a crash.",
            "S2", (2,), "undo", switches.random_keys,
        ),
        Ablation(
            "new_generation", "Each operation has keys of its own: a burned key is never used again.",
            "S4", (2,), "generations", switches.same_generation,
        ),
        Ablation(
            "inspect_first", "A call whose end is unknown is asked about before it is repeated.",
            "S3", (6,), "effects", switches.moves(switches.repeat_unasked),
        ),
        Ablation(
            "visible_window", "What a provider may not show yet is not taken for lost.",
            "S3", (6,), "effects", switches.settle(switches.at_once_visible),
        ),
        Ablation(
            "unknown_waits", "An effect that nobody can ask about stops as unknown and waits for a person.",
            "S19", (6,), "effects", switches.moves(switches.repeat_unknown),
        ),
        Ablation(
            "timeout_is_no_refusal", "A timeout is not a failure.",
            "S3 S17", (6,), "pivot", switches.settle(switches.timeout_is_refusal),
        ),
        Ablation(
            "refused_look_is_no_refusal", "A refused look says nothing of the call it asks about.",
            "S3 S17", (6,), "looks", switches.settle(switches.look_is_call),
        ),
        Ablation(
            "unknown_pivot_stays", "A pivot whose end is unknown is never compensated.",
            "S17", (6,), "unknown_pivot", switches.pivot_turned_back,
        ),
        Ablation(
            "own_calls_remembered", "What only this process knows of its calls survives a fresh read.",
            "S19", (6,), "interrupted", switches.own_calls_forgotten,
        ),
        Ablation(
            "stuck_keeps_unknown", "STUCK keeps since when the outcome is unknown.",
            "S19", (6,), "interrupted", switches.settle(after=switches.forget_unknown),
        ),
        Ablation(
            "claim_makes_unknown", "After a takeover whatever was intended may have been called.",
            "S3 S6", (6, 7), "effects", switches.claims(switches.as_if_called_by_nobody),
        ),
        Ablation(
            "commit_error_stops", "A COMMIT that failed has no known end: the process stops and recovers.",
            "S26", (1, 6), "acceptance", switches.commit_error_is_failure,
        ),
        Ablation(
            "cancel_before_pivot", "A cancel is refused once the pivot is intended.",
            "S17", (2,), "pivot", switches.late_cancel,
        ),
        Ablation(
            "fence_token", "Every record guards the token of its claim, and whoever has lost it stops.",
            "S6", (7,), "zombies", switches.no_fence,
        ),
        Ablation(
            "claim_raises_token", "A claim raises the token, so that the last holder's is worthless.",
            "S6", (7,), "zombies", switches.claims(switches.same_token),
        ),
        Ablation(
            "revision_guard", "A change is applied only to what it was decided on.",
            "S5 S12", (2, 7), "abandoned", switches.without_guards("operation", "revision"),
        ),
        Ablation(
            "claim_raises_revision", "A claim raises the revision, so that a cancel cannot think it unclaimed.",
            "S5 S6", (2, 7), "front", switches.claims(switches.same_revision),
        ),
        Ablation(
            "store_judges_leases", "Leases expire by the store's clock and no other.",
            "S7", (7,), "clocks", switches.claim_by_own_clock,
        ),
        Ablation(
            "one_operation_per_agent", "An agent has one mutating operation at a time.",
            "S11", (2,), "generations", switches.without_put("active"),
        ),
        Ablation(
            "recovery_resumes_undos", "A takeover resumes every open operation, those going back as well.",
            "S18", (2,), "crashes", switches.claim_forward_only,
        ),
        Ablation(
            "later_look", "A deadline passes only after a look later than it.",
            "S5", (2,), "readiness", switches.performing(switches.look_no_more),
        ),
        Ablation(
            "deadline_from_record", "Deadlines are measured from records, so that a crash loop ends.",
            "S18", (2,), "crash_loop", switches.from_the_claim,
        ),
        Ablation(
            "reads_are_repeated", "A disk that refuses to be read does not end what is under way.",
            "S26", (2,), "busy_disk", switches.reads_not_repeated,
        ),
        Ablation(
            "records_take_turns", "Steps that end at the same time are recorded one after the other.",
            "S5", (2,), "stuck_together", switches.interleaved,
        ),
        Ablation(
            "due_elsewhere", "What was recorded by another process is found at the next look round.",
            "S10", (2,), "signals", switches.nothing_is_due,
        ),
        Ablation(
            "early_signals_kept", "A signal that comes before anyone waits for it is kept.",
            "S10", (1,), "signals", switches.early_signals_dropped,
        ),
        Ablation(
            "signals_as_given", "A signal that came during a call was not seen by that call.",
            "S10", (2,), "signals", switches.unseen_signals,
        ),
        Ablation(
            "ack_after_commit", "Nothing is acknowledged before it is durable.",
            "S26", (1,), "acceptance", switches.ack_first,
        ),
        Ablation(
            "event_in_commit", "An event commits with the change it tells of.",
            "S21", (1,), "crashes", switches.in_a_commit_of_its_own("outbox"),
        ),
        Ablation(
            "intent_in_commit", "A step's intent is durable before its call leaves.",
            "S1", (1, 2), "crashes", switches.in_a_commit_of_its_own("intent", admits=False),
        ),
        Ablation(
            "key_in_commit", "An idempotency key commits with its operation.",
            "S20", (1,), "acceptance", switches.in_a_commit_of_its_own("idempotency"),
        ),
        Ablation(
            "refusal_leaves_nothing", "A change is applied whole or not at all.",
            "S20", (1,), "acceptance", switches.leftovers,
        ),
        Ablation(
            "tombstones", "A removed key is burned: what arrives late is refused (a provider's safeguard).",
            "S4", (2,), "late", switches.no_tombstones,
        ),
        Ablation(
            "keys_honoured", "The same key twice is one resource (a provider's safeguard).",
            "S2 S3", (2,), "undo", switches.keys_not_honoured,
        ),
        Ablation(
            "foreign_not_adopted", "What belongs to somebody else is never taken for ours.",
            "S2", (2,), "foreign", switches.foreign_adopted,
        ),
        Ablation(
            "seeded_order", "The order of a run comes from its seed.",
            "1", (22,), "usual", switches.unseeded_order, Oracle.REPLAY,
        ),
        Ablation(
            "seeded_ids", "Ids and jitter come from the seed.",
            "1", (22,), "usual", switches.unseeded_ids, Oracle.REPLAY,
        ),
    )
}  # fmt: skip
"""Every safeguard that can be switched off, by name."""


class Caught(NamedTuple):
    """Lives of one ablation."""

    seeds: int
    caught: int
    first: int | None
    """The first seed that noticed."""
    sentences: Counter[str]
    """Which sentences were broken, in how many lives."""


def hunt(ablation: Ablation, seeds: Sequence[int], *, all_of_them: bool = False) -> Caught:
    """Live these without the safeguard, to the first that notices or all of them."""
    lived = caught = 0
    first: int | None = None
    sentences: Counter[str] = Counter()
    with patched(loop, TURNS_MAX=TURNS_MAX), ablation.off():
        for seed in seeds:
            lived += 1
            wrong = _noticed(ablation, seed)
            if not wrong:
                continue
            caught += 1
            first = seed if first is None else first
            sentences.update({sentence.partition(":")[0] for sentence in wrong})
            if not all_of_them:
                break
    return Caught(lived, caught, first, sentences)


def _noticed(ablation: Ablation, seed: int) -> list[str]:
    one: Lived = live(seed, MIXES[ablation.mix])
    if ablation.oracle is Oracle.INVARIANTS:
        return one.wrong
    again = live(seed, MIXES[ablation.mix])
    return ["same_trace: it differs"] if again.trace != one.trace else []
