"""Safeguards that a harness can switch off, to show that its checks would notice.

A check that nothing can fail proves nothing.  Each `Ablation` takes one safeguard out of the real
code, by patching it inside a `with`, and names a mix of lives (`proofs.operations.profiles`) in
which that matters.  With the safeguard the mix must pass; without it some seed must fail, and soon.
No setting of the product reaches any of this.

usage: python -m proofs.operations.ablations [--seeds 300] [--only NAME]
                                          [--write docs/reference/ablations.md]
"""

import argparse
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import apsw

from proofs.operations import mutations, store_mutations
from proofs.operations.life import Lived, live
from proofs.operations.profiles import MIXES
from tenure.testing import loop
from tenure.testing.patches import Off, patched

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


PROVED = "proof"
"""Stands for a mix where the proof of the promise notices, and no life."""


def by_name(ablations: Iterable[Ablation]) -> Mapping[str, Ablation]:
    """Each under its name; two of one name would hide one of them."""
    named: dict[str, Ablation] = {}
    for ablation in ablations:
        if named.setdefault(ablation.name, ablation) is not ablation:
            raise ValueError(f"two safeguards are called {ablation.name}: rename one")
    return named


# --- all of them -------------------------------------------------------------------------------

_TABLE = (
    Ablation(
        "undo_covers_intended",
        "Compensation covers every intended step, not only those known to be done.",
        "S1", (2,), "undo", mutations.owed(lambda p, steps: [s for s in steps if s.name in p.done]),
    ),
    Ablation(
        "undo_covers_refused",
        "Compensation covers a refused step too: an earlier call of it may still arrive.",
        "S1 S4", (2,), "late",
        mutations.owed(lambda p, steps: [s for s in steps if s.name not in p.refused]),
    ),
    Ablation(
        "undo_newest_first",
        "What stands on another is removed first.",
        "S15", (2,), "undo", mutations.owed(lambda _, steps: steps[::-1]),
    ),
    Ablation(
        "undo_until_gone",
        "A failing undo is tried again until it is done.",
        "S18", (2,), "undo", mutations.settle(mutations.undo_once),
    ),
    Ablation(
        "stuck_is_said",
        "An undo that keeps failing is STUCK: listed, with what is left.",
        "S18", (2,), "stuck", mutations.settle(after=mutations.say_nothing_of_stuck),
    ),
    Ablation(
        "decision_before_undo",
        "The decision to compensate is recorded before the first undo.",
        "S5", (2,), "decision", mutations.performing(mutations.undo_at_once),
    ),
    Ablation(
        "do_ends_before_undo",
        "A step is undone only when no call of its do is under way.",
        "S4", (2,), "late", mutations.undo_beside_do,
    ),
    Ablation(
        "derived_keys",
        "A resource's key is derived, so that it is known before the call and after a crash.",
        "S2", (2,), "undo", mutations.random_keys,
    ),
    Ablation(
        "new_generation",
        "Each operation has keys of its own: a burned key is never used again.",
        "S4", (2,), "generations", mutations.same_generation,
    ),
    Ablation(
        "inspect_first",
        "A call whose end is unknown is asked about before it is repeated.",
        "S3", (6,), "effects", mutations.moves(mutations.repeat_unasked),
    ),
    Ablation(
        "visible_window",
        "What a provider may not show yet is not taken for lost.",
        "S3", (6,), "effects", mutations.settle(mutations.at_once_visible),
    ),
    Ablation(
        "unknown_waits",
        "An effect that nobody can ask about stops as unknown and waits for a person.",
        "S19", (6,), "effects", mutations.moves(mutations.repeat_unknown),
    ),
    Ablation(
        "timeout_is_no_refusal",
        "A timeout is not a failure.",
        "S3 S17", (6,), "pivot", mutations.settle(mutations.timeout_is_refusal),
    ),
    Ablation(
        "refused_look_is_no_refusal",
        "A refused look says nothing of the call it asks about.",
        "S3 S17", (6,), "looks", mutations.look_taken_for_call,
    ),
    Ablation(
        "pivot_doubted",
        "A pivot is refused only when no earlier call of it can still arrive.",
        "S3 S17", (6,), "late_pivot", mutations.refused_though_called,
    ),
    Ablation(
        "unknown_pivot_stays",
        "A pivot whose end is unknown is never compensated.",
        "S17", (6,), "unknown_pivot", mutations.pivot_turned_back,
    ),
    Ablation(
        "own_calls_remembered",
        "What only this process knows of its calls survives a fresh read.",
        "S19", (6,), "interrupted", mutations.own_calls_forgotten,
    ),
    Ablation(
        "stuck_keeps_unknown",
        "STUCK keeps since when the outcome is unknown.",
        "S19", (6,), "interrupted", mutations.settle(after=mutations.forget_unknown),
    ),
    Ablation(
        "claim_makes_unknown",
        "After a takeover whatever was intended may have been called.",
        "S3 S6", (6, 7), "effects", store_mutations.claims(store_mutations.as_if_called_by_nobody),
    ),
    Ablation(
        "commit_error_stops",
        "A COMMIT that failed has no known end: the process stops and recovers.",
        "S26", (1, 6), "commit_errors", store_mutations.commit_error_is_failure,
    ),
    Ablation(
        "cancel_before_pivot",
        "A cancel is refused once the pivot is intended.",
        "S17", (2,), "pivot", mutations.late_cancel,
    ),
    Ablation(
        "fence_token",
        "Every record guards the token of its claim, and whoever has lost it stops.",
        "S6", (7,), "zombies", mutations.no_fence,
    ),
    Ablation(
        "claim_raises_token",
        "A claim raises the token, so that the last holder's is worthless.",
        "S6", (7,), "zombies", store_mutations.claims(store_mutations.same_token),
    ),
    Ablation(
        "revision_guard",
        "A change is applied only to what it was decided on.",
        "S5 S12", (2, 7), "abandoned", store_mutations.without_guards("operation", "revision"),
    ),
    Ablation(
        "claim_raises_revision",
        "A claim raises the revision, so that a cancel cannot think it unclaimed.",
        "S5 S6", (2, 7), "front", store_mutations.claims(store_mutations.same_revision),
    ),
    Ablation(
        "store_judges_leases",
        "Leases expire by the store's clock and no other.",
        "S7", (7,), "clocks", store_mutations.claim_by_own_clock,
    ),
    Ablation(
        "one_operation_per_agent",
        "An agent has one mutating operation at a time.",
        "S11", (2,), "generations", store_mutations.without_guards("agent", "operation"),
    ),
    Ablation(
        "recovery_resumes_undos",
        "A takeover resumes every open operation, those going back as well.",
        "S18", (2,), "crashes", store_mutations.claim_forward_only,
    ),
    Ablation(
        "later_look",
        "A deadline passes only after a look later than it.",
        "S5", (2,), "readiness", mutations.performing(mutations.look_no_more),
    ),
    Ablation(
        "deadline_from_record",
        "Deadlines are measured from records, so that a crash loop ends.",
        "S18", (2,), "crash_loop", mutations.from_the_claim,
    ),
    Ablation(
        "reads_are_repeated",
        "A disk that refuses to be read does not end what is under way.",
        "S26", (2,), "busy_disk", mutations.reads_not_repeated,
    ),
    Ablation(
        "records_take_turns",
        "Steps that end at the same time are recorded one after the other.",
        "S5", (2,), "stuck_together", mutations.interleaved,
    ),
    Ablation(
        "due_elsewhere",
        "What was recorded by another process is found at the next look round.",
        "S10", (2,), "signals", store_mutations.nothing_is_due,
    ),
    Ablation(
        "early_signals_kept",
        "A signal that comes before anyone waits for it is kept.",
        "S10", (1,), "signals", mutations.early_signals_dropped,
    ),
    Ablation(
        "signals_as_given",
        "A signal that came during a call was not seen by that call.",
        "S10", (2,), "signals_meanwhile", mutations.unseen_signals,
    ),
    Ablation(
        "ack_after_commit",
        "Nothing is acknowledged before it is durable.",
        "S26", (1,), "acceptance", store_mutations.ack_first,
    ),
    Ablation(
        "event_in_commit",
        "An event commits with the change it tells of.",
        "S21", (1,), "crashes", store_mutations.in_a_commit_of_its_own("outbox"),
    ),
    Ablation(
        "intent_in_commit",
        "A step's intent is durable before its call leaves.",
        "S1", (1, 2), "crashes", store_mutations.in_a_commit_of_its_own("intent", admits=False),
    ),
    Ablation(
        "key_in_commit",
        "An idempotency key commits with its operation.",
        "S20", (1,), "acceptance", store_mutations.in_a_commit_of_its_own("idempotency"),
    ),
    Ablation(
        "refusal_leaves_nothing",
        "A change is applied whole or not at all.",
        "S20", (1,), "acceptance", store_mutations.leftovers,
    ),
    Ablation(
        "tombstones",
        "A removed key is burned: what arrives late is refused (a provider's safeguard).",
        "S4", (2,), "late", store_mutations.no_tombstones,
    ),
    Ablation(
        "keys_honoured",
        "The same key twice is one resource (a provider's safeguard).",
        "S2 S3", (2,), "undo", store_mutations.keys_not_honoured,
    ),
    Ablation(
        "foreign_not_adopted",
        "What belongs to somebody else is never taken for ours.",
        "S2", (2,), "foreign", store_mutations.foreign_adopted,
    ),
    Ablation(
        "seeded_order",
        "The order of a run comes from its seed.",
        "1", (22,), "usual", store_mutations.unseeded_order, Oracle.REPLAY,
    ),
    Ablation(
        "seeded_ids",
        "Ids and jitter come from the seed.",
        "1", (22,), "usual", store_mutations.unseeded_ids, Oracle.REPLAY,
    ),
)  # fmt: skip
ABLATIONS = by_name(_TABLE)
"""Every safeguard that can be switched off, by name."""


class Caught(NamedTuple):
    """Lives of one ablation."""

    seeds: int
    caught: int
    first: int | None
    """The first seed that noticed."""
    sentences: Counter[str]
    """Which sentences were broken, in how many lives."""


def hunt(
    ablation: Ablation,
    seeds: Sequence[int],
    *,
    all_of_them: bool = False,
    noticed: Callable[[Ablation, int], list[str]] | None = None,
) -> Caught:
    """Live these without the safeguard, to the first that notices or all of them."""
    noticed = noticed or _noticed
    lived = caught = 0
    first: int | None = None
    sentences: Counter[str] = Counter()
    with patched(loop, TURNS_MAX=TURNS_MAX), ablation.off():
        for seed in seeds:
            lived += 1
            wrong = noticed(ablation, seed)
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


# --- the table ---------------------------------------------------------------------------------

LEFT_OUT = {
    "lease_margin": "a worker that was paused for too long lets go by itself. Behind it stands the"
    " fence token, which refuses whatever it would still write.",
    "interrupt": "a cancel stops the calls of do's that are under way. Without it they end at their"
    " call limit, and what arrives later finds a burned key.",
    "provider_fence": "a provider refuses a generation older than the last it has seen. A key holds"
    " its generation, so that no two generations meet under one key.",
    "revision_guard_of_records": "a record is refused if another came first. The journal's own key"
    " refuses two records of one number; what only the guard keeps apart is polls and ends, which"
    " `revision_guard` shows.",
    "dead_ports": "after a kill every port is dead (the harness's own safeguard). Nothing in the"
    " product cleans up in a `finally`, so that there is nothing to fake.",
}
"""Safeguards that no life can miss, as another stands behind each, and which one that is."""

PAGE = """# Ablations: what each safeguard is for

Each safeguard below is switched off by the test harness, by patching the real code; no setting of
the product can do that. Lives of a plane are then drawn from seeds, in the mix that aims at it, and
the checks must notice. A row says in how many lives they did, and which sentences were broken most.
`tests/simulation/test_ablations.py` fails if a safeguard is not missed within 1,000 seeds.

Made on {today} with {versions} by

```
{command}
```

With every safeguard on, the same {seeds} seeds of each of these mixes ({calm:,} lives) had {failed}
failures.

| safeguard | what it is for | keeps | mix | noticed | first seed | broken without it |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

The last two are about the simulator itself: they are noticed by living a seed twice and comparing
trace hashes.

## Left out

A safeguard behind which another stands cannot be missed. No life failed without the first three
of these (1,000 lives each); the last two are left out by argument:

{left}
"""


def row_of(ablation: Ablation, caught: Caught) -> str:
    """One line of the table."""
    share = f"{caught.caught} of {caught.seeds}"
    first = "–" if caught.first is None else str(caught.first)
    by = ", ".join(f"`{name}`" for name, _ in caught.sentences.most_common(2)) or "–"
    promises = " ".join(f"P{number}" for number in ablation.promises)
    rules = ablation.rules if ablation.rules.startswith("S") else "RULES 1"
    cells = (f"`{ablation.name}`", ablation.protects, f"{rules}, {promises}")
    return " | ".join(("", *cells, f"`{ablation.mix}`", share, first, by, "")).strip()


def likely_first(name: str, page: str, seeds: Iterable[int]) -> list[int]:
    """These seeds; the one that this page calls the first to notice an ablation comes first."""
    told = re.search(rf"^\| `{name}` \|.*\| \d+ of \d+ \| (\d+) \|", page, re.MULTILINE)
    return sorted(seeds, key=lambda seed: told is None or seed != int(told[1]))


def page(rows: Sequence[str], *, command: str, seeds: int, calm: int, failed: int) -> str:
    """The page that shows the table."""
    return PAGE.format(
        today=datetime.now(UTC).date().isoformat(),
        versions=f"Python {platform.python_version()} and SQLite {apsw.sqlite_lib_version()}",
        command=command,
        seeds=seeds,
        calm=calm,
        failed=failed,
        rows="\n".join(rows),
        left="\n".join(f"- `{name}`: {why}" for name, why in LEFT_OUT.items()),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure how often each ablation is noticed, and write the page if asked."""
    parser = argparse.ArgumentParser(prog="ablations", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=300, help="lives of each")
    parser.add_argument("--only", choices=sorted(ABLATIONS), help="this one alone")
    parser.add_argument("--write", type=Path, help="the page to write")
    asked = parser.parse_args(arguments)
    chosen = [ABLATIONS[asked.only]] if asked.only else list(ABLATIONS.values())
    seeds = range(asked.seeds)
    calm, failed = 0, 0
    for mix in sorted({ablation.mix for ablation in chosen}):
        wrong = [seed for seed in seeds if live(seed, MIXES[mix]).wrong]
        calm, failed = calm + asked.seeds, failed + len(wrong)
        print(f"all on, {mix}: {len(wrong)} of {asked.seeds} {wrong[:5] or ''}", flush=True)
    rows, missed = [], []
    for ablation in chosen:
        began = time.perf_counter()
        caught = hunt(ablation, seeds, all_of_them=True)
        rows.append(row_of(ablation, caught))
        missed += [] if caught.caught else [ablation.name]
        share = f"noticed in {caught.caught} of {caught.seeds}"
        print(f"{ablation.name}: {share}, {time.perf_counter() - began:.1f} s", flush=True)
    if asked.write is not None:
        module = "proofs.operations.ablations"
        command = f"python -m {module} --seeds {asked.seeds} --write {asked.write}"
        text = page(rows, command=command, seeds=asked.seeds, calm=calm, failed=failed)
        asked.write.write_text(text, encoding="utf-8")
    if missed or failed:
        print(f"not noticed: {', '.join(missed) or 'none'}; failures with all on: {failed}")
    return 1 if missed or failed else 0


if __name__ == "__main__":
    sys.exit(main())
