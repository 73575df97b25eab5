"""The safeguards of operations that the harness can switch off, to show that its checks notice.

`proofs.harness.ablation` says how; `proofs.operations.mutations` and
`proofs.operations.store_mutations` are the patches.
"""

from proofs.harness.ablation import Ablation, Oracle, by_name
from proofs.operations import mutations, store_mutations

_TABLE = (
    Ablation(
        "undo_covers_intended",
        "Compensation undoes every intended step, not only the steps that are known to be done.",
        "S1", (2,), "undo",
        mutations.with_steps_to_undo(lambda p, steps: [s for s in steps if s.name in p.done]),
    ),
    Ablation(
        "undo_covers_refused",
        "Compensation also undoes a refused step, because an earlier call of it may still arrive.",
        "S1 S4", (2,), "late",
        mutations.with_steps_to_undo(
            lambda p, steps: [s for s in steps if s.name not in p.refused]
        ),
    ),
    Ablation(
        "undo_newest_first",
        "Compensation undoes the newest step first, because a step may depend on earlier ones.",
        "S15", (2,), "undo", mutations.with_steps_to_undo(lambda _, steps: steps[::-1]),
    ),
    Ablation(
        "undo_until_gone",
        "A failing undo is retried until it succeeds.",
        "S18", (2,), "undo", mutations.decide_outcome(mutations.undo_once),
    ),
    Ablation(
        "stuck_is_said",
        "An operation whose undo keeps failing becomes STUCK and lists the resources that are"
        " left.",
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
        "A call with an unknown outcome is inspected before it is repeated.",
        "S3", (6,), "effects", mutations.moves(mutations.repeat_unasked),
    ),
    Ablation(
        "visible_window",
        "A resource that the provider may not list yet is not treated as absent.",
        "S3", (6,), "effects", mutations.decide_outcome(mutations.at_once_visible),
    ),
    Ablation(
        "unknown_waits",
        "An effect that cannot be inspected becomes STUCK with an unknown outcome and waits for"
        " an operator.",
        "S19", (6,), "effects", mutations.moves(mutations.repeat_unknown),
    ),
    Ablation(
        "timeout_is_no_refusal",
        "A timeout of a call is not treated as a refusal.",
        "S3 S17", (6,), "pivot", mutations.decide_outcome(mutations.timeout_is_refusal),
    ),
    Ablation(
        "refused_look_is_no_refusal",
        "A refused inspect is not treated as a refusal of the call that it inspects.",
        "S3 S17", (6,), "looks", mutations.look_taken_for_call,
    ),
    Ablation(
        "pivot_doubted",
        "A refusal of a pivot is final only when no earlier call of it can still arrive.",
        "S3 S17", (6,), "late_pivot", mutations.refused_though_called,
    ),
    Ablation(
        "unknown_pivot_stays",
        "An operation whose pivot has an unknown outcome is never compensated.",
        "S17", (6,), "unknown_pivot", mutations.pivot_turned_back,
    ),
    Ablation(
        "own_calls_remembered",
        "A worker that reads its operation again keeps its own knowledge of the calls that it"
        " has sent.",
        "S19", (6,), "interrupted", mutations.own_calls_forgotten,
    ),
    Ablation(
        "stuck_keeps_unknown",
        "A step that becomes STUCK keeps the time since when its outcome is unknown.",
        "S19", (6,), "interrupted", mutations.decide_outcome(after=mutations.forget_unknown),
    ),
    Ablation(
        "claim_makes_unknown",
        "A worker that takes an operation over assumes that every intended step may have been"
        " called.",
        "S3 S6", (6, 7), "effects", store_mutations.claims(store_mutations.as_if_called_by_nobody),
    ),
    Ablation(
        "commit_error_stops",
        "A process stops after a failed COMMIT, whose outcome it cannot know, and recovers at"
        " its next start.",
        "S26", (1, 6), "commit_errors", store_mutations.commit_error_is_failure,
    ),
    Ablation(
        "cancel_before_pivot",
        "A cancel is refused after the pivot was intended.",
        "S17", (2,), "pivot", mutations.late_cancel,
    ),
    Ablation(
        "fence_token",
        "Every record guards the fence token of its claim, and a worker with an old token stops.",
        "S6", (7,), "zombies", mutations.no_fence,
    ),
    Ablation(
        "claim_raises_token",
        "A claim raises the fence token, so that the token of the last holder is no longer valid.",
        "S6", (7,), "zombies", store_mutations.claims(store_mutations.same_token),
    ),
    Ablation(
        "revision_guard",
        "A change is applied only to the revision that it was decided on.",
        "S5 S12", (2, 7), "abandoned", store_mutations.without_guards("operation", "revision"),
    ),
    Ablation(
        "claim_raises_revision",
        "A claim raises the revision, so that a concurrent cancel cannot treat the operation as"
        " unclaimed.",
        "S5 S6", (2, 7), "front", store_mutations.claims(store_mutations.same_revision),
    ),
    Ablation(
        "store_judges_leases",
        "Leases expire by the clock of the store, never by the clock of a worker.",
        "S7", (7,), "clocks", store_mutations.claim_by_own_clock,
    ),
    Ablation(
        "one_operation_per_agent",
        "An agent has one mutating operation at a time.",
        "S11", (2,), "generations", store_mutations.without_guards("agent", "operation"),
    ),
    Ablation(
        "recovery_resumes_undos",
        "A takeover also resumes operations that are being compensated.",
        "S18", (2,), "crashes", store_mutations.claim_forward_only,
    ),
    Ablation(
        "later_look",
        "A deadline takes effect only after an inspect that started later than the deadline.",
        "S5", (2,), "readiness", mutations.performing(mutations.look_no_more),
    ),
    Ablation(
        "deadline_from_record",
        "A deadline counts from a stored record, so that a process that keeps crashing does not"
        " extend it.",
        "S18", (2,), "crash_loop", mutations.from_the_claim,
    ),
    Ablation(
        "reads_are_repeated",
        "An operation survives a failed read of the disk: the read is repeated.",
        "S26", (2,), "busy_disk", mutations.reads_not_repeated,
    ),
    Ablation(
        "records_take_turns",
        "Steps that end at the same time are recorded one after the other.",
        "S5", (2,), "stuck_together", mutations.interleave_steps,
    ),
    Ablation(
        "due_elsewhere",
        "The engine finds work that another process has recorded at its next poll.",
        "S10", (2,), "signals", store_mutations.nothing_is_due,
    ),
    Ablation(
        "early_signals_kept",
        "A signal that arrives before its step waits for it is stored.",
        "S10", (1,), "signals", mutations.early_signals_dropped,
    ),
    Ablation(
        "signals_as_given",
        "A signal that arrives during a call counts as not yet seen by that call.",
        "S10", (2,), "signals_meanwhile", mutations.unseen_signals,
    ),
    Ablation(
        "ack_after_commit",
        "A request is acknowledged only when its operation is durable.",
        "S26", (1,), "acceptance", store_mutations.ack_first,
    ),
    Ablation(
        "event_in_commit",
        "An event is written in the commit of the change that it reports.",
        "S21", (1,), "crashes", store_mutations.in_a_commit_of_its_own("outbox"),
    ),
    Ablation(
        "intent_in_commit",
        "The intent of a step is durable before its call is sent.",
        "S1", (1, 2), "crashes",
        store_mutations.in_a_commit_of_its_own("intent", is_new_work=False),
    ),
    Ablation(
        "key_in_commit",
        "An idempotency key is written in the commit of its operation.",
        "S20", (1,), "acceptance", store_mutations.in_a_commit_of_its_own("idempotency"),
    ),
    Ablation(
        "refusal_leaves_nothing",
        "A change is applied completely or not at all.",
        "S20", (1,), "acceptance", store_mutations.leftovers,
    ),
    Ablation(
        "tombstones",
        "A provider burns a removed key and refuses calls that arrive later.",
        "S4", (2,), "late", store_mutations.no_tombstones,
    ),
    Ablation(
        "keys_honoured",
        "A provider makes one resource for two calls with the same key.",
        "S2 S3", (2,), "undo", store_mutations.keys_not_honoured,
    ),
    Ablation(
        "foreign_not_adopted",
        "A resource of another owner is never adopted.",
        "S2", (2,), "foreign", store_mutations.foreign_adopted,
    ),
    Ablation(
        "seeded_order",
        "The order of a simulation run is derived from its seed.",
        "1", (22,), "usual", store_mutations.unseeded_order, Oracle.REPLAY,
    ),
    Ablation(
        "seeded_ids",
        "The ids and the jitter of a simulation run are derived from its seed.",
        "1", (22,), "usual", store_mutations.unseeded_ids, Oracle.REPLAY,
    ),
)  # fmt: skip
ABLATIONS = by_name(_TABLE)
"""Every safeguard that can be switched off, by name."""

LEFT_OUT = {
    "lease_margin": "a worker that was paused for too long gives its operations up by itself."
    " Without it the fence token still refuses every record of that worker.",
    "interrupt": "a cancel stops the calls of a do that are under way. Without it they end at"
    " their call limit, and a call that arrives later finds a burned key.",
    "provider_fence": "a provider refuses a generation older than the newest that it has seen. A"
    " key contains its generation, so two generations never share a key.",
    "revision_guard_of_records": "a record is refused if another one was written first. The"
    " primary key of the journal already refuses two records with the same number. Only polls and"
    " ends have no other guard, and `revision_guard` shows those.",
    "dead_ports": "after a simulated kill every port raises (a safeguard of the harness). The"
    " product has no clean-up in a `finally` block, so nothing could act after the kill.",
}
"""Safeguards that no run can miss, since another one covers the same failure."""
