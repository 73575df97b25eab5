"""The safeguards of operations that the harness can switch off, to show that its checks notice.

`proofs.harness.ablation` says how; `proofs.operations.mutations` and
`proofs.operations.store_mutations` are the patches.
"""

from proofs.harness.ablation import Ablation, Oracle, by_name
from proofs.operations import mutations, store_mutations

_TABLE = (
    Ablation(
        "undo_covers_intended",
        "Compensation covers every intended step, not only those known to be done.",
        "S1", (2,), "undo",
        mutations.with_steps_to_undo(lambda p, steps: [s for s in steps if s.name in p.done]),
    ),
    Ablation(
        "undo_covers_refused",
        "Compensation covers a refused step too: an earlier call of it may still arrive.",
        "S1 S4", (2,), "late",
        mutations.with_steps_to_undo(
            lambda p, steps: [s for s in steps if s.name not in p.refused]
        ),
    ),
    Ablation(
        "undo_newest_first",
        "What stands on another is removed first.",
        "S15", (2,), "undo", mutations.with_steps_to_undo(lambda _, steps: steps[::-1]),
    ),
    Ablation(
        "undo_until_gone",
        "A failing undo is tried again until it is done.",
        "S18", (2,), "undo", mutations.decide_outcome(mutations.undo_once),
    ),
    Ablation(
        "stuck_is_said",
        "An undo that keeps failing is STUCK: listed, with what is left.",
        "S18", (2,), "stuck", mutations.decide_outcome(after=mutations.say_nothing_of_stuck),
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
        "S3", (6,), "effects", mutations.decide_outcome(mutations.at_once_visible),
    ),
    Ablation(
        "unknown_waits",
        "An effect that nobody can ask about stops as unknown and waits for a person.",
        "S19", (6,), "effects", mutations.moves(mutations.repeat_unknown),
    ),
    Ablation(
        "timeout_is_no_refusal",
        "A timeout is not a failure.",
        "S3 S17", (6,), "pivot", mutations.decide_outcome(mutations.timeout_is_refusal),
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
        "S19", (6,), "interrupted", mutations.decide_outcome(after=mutations.forget_unknown),
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
        "S5", (2,), "stuck_together", mutations.interleave_steps,
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
        "S1", (1, 2), "crashes",
        store_mutations.in_a_commit_of_its_own("intent", is_new_work=False),
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
"""Safeguards that no run can miss, since another stands behind each of them."""
