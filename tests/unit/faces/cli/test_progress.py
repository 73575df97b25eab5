"""The picture of an operation: each fate of a step is told once, from whichever source."""

import io

from rich.console import Console

from tenure.faces.cli import drawing, progress
from tenure.faces.cli.progress import OperationProgress, ProgressLine, events, text

NAMES = ("identity", "runtime", "ready")


def operation(state="RUNNING", error="", **holds):
    return {
        "id": "0" * 32,
        "kind": "create_agent",
        "state": state,
        "error": error,
        "steps": [
            {
                "name": name,
                "state": holds.get(name),
                "stuck": holds.get(name) == "stuck",
                "detail": "",
            }
            for name in NAMES
        ],
    }


def record(seq, kind, step="", why="", state="RUNNING"):
    return {
        "seq": seq,
        "kind": kind,
        "step": step,
        "state": state,
        "at": 0.0,
        "body": {"why": why} if why else None,
    }


STORY = [
    record(1, "accepted"),
    record(2, "done", "identity"),
    record(3, "done", "runtime"),
    record(4, "refused", "ready", "ready was refused: it exited\nlast words", "COMPENSATING"),
    record(5, "undone", "runtime", state="COMPENSATING"),
    record(6, "undone", "identity", state="COMPENSATED"),
]


def play_records(progress_state, story):
    return [
        text(line, utf8=True).strip() for one in story for line in progress_state.apply_record(one)
    ]


def test_the_way_back_is_shown_step_by_step():
    assert play_records(OperationProgress.of(operation()), STORY) == [
        "✓ identity",
        "✓ runtime",
        "✗ ready was refused: it exited",
        "↺ undoing",
        "↺ runtime undone",
        "↺ identity undone",
    ]


def test_a_record_that_comes_again_is_not_told_again():
    progress_state = OperationProgress.of(operation())
    assert len(play_records(progress_state, STORY)) == 6
    assert play_records(progress_state, STORY) == []


def test_what_was_seen_is_not_heard_again_and_the_other_way_round():
    progress_state = OperationProgress.of(operation())
    assert play_records(progress_state, STORY[:2]) == ["✓ identity"]
    seen = operation(identity="PRESENT", runtime="INTENDED")
    assert progress_state.apply_operation(seen) == []
    assert progress_state.fates == {"identity": "done", "runtime": "running", "ready": ""}
    back = operation("COMPENSATED", "it broke", identity="BURNED", runtime="BURNED")
    lines = progress_state.apply_operation(back)
    assert lines == [
        ProgressLine("", "undoing", "it broke"),
        ProgressLine("identity", "undone"),
        ProgressLine("runtime", "undone"),
    ]
    assert play_records(progress_state, STORY[2:3]) == ["✓ runtime"]


def test_why_a_step_failed_stays_though_the_operation_does_not_repeat_it():
    progress_state = OperationProgress.of(operation())
    play_records(progress_state, STORY)
    progress_state.apply_operation(
        operation("COMPENSATED", ready="REFUSED", identity="BURNED", runtime="BURNED")
    )
    assert progress_state.details["ready"].startswith("ready was refused")


def test_a_stuck_step_says_so_until_it_is_tried_again():
    progress_state = OperationProgress.of(operation())
    assert play_records(
        progress_state, [record(1, "stuck", "identity", "nobody knows", "STUCK")]
    ) == ["! identity is stuck: nobody knows"]
    progress_state.apply_record(record(2, "retried"))
    assert progress_state.fates["identity"] == "running"


def test_a_step_that_is_marked_absent_is_done_again_or_counts_as_undone():
    progress_state = OperationProgress.of(operation())
    stuck, absent = (record(1, "stuck", "identity", "?"), record(2, "marked_absent", "identity"))
    assert play_records(progress_state, [stuck, absent]) == ["! identity is stuck: ?"]
    assert progress_state.fates["identity"] == "running"
    assert play_records(
        progress_state, [record(3, "compensating"), record(4, "marked_absent", "identity")]
    ) == [
        "↺ undoing",
        "↺ identity undone",
    ]


def test_what_is_waited_for_is_told_once():
    progress_state = OperationProgress.of(operation())
    seen = operation(runtime="INTENDED")
    assert progress_state.apply_operation(seen) == []
    seen["steps"][1]["detail"] = "waits for the acknowledgement of billing"
    (line,) = progress_state.apply_operation(seen)
    assert text(line, utf8=True) == "  … runtime: waits for the acknowledgement of billing"
    assert progress_state.apply_operation(seen) == []
    assert progress._why(seen) == ": waits for the acknowledgement of billing"
    assert progress._why(operation(runtime="INTENDED")) == ""


def test_what_nobody_has_claimed_has_no_step_that_runs():
    progress_state = OperationProgress.of(operation("PENDING"))
    assert progress_state.apply_operation(operation("PENDING", identity="INTENDED")) == []
    (line,) = progress_state.wait("it waits for a worker")
    assert text(line, utf8=True) == "  … it waits for a worker"
    assert progress_state.wait("it waits for a worker") == []
    head, *steps = draw(progress_state)
    assert " ".join(head) == "create_agent a 1.5 s it waits for a worker"
    assert steps == [["identity"], ["runtime"], ["ready"]]
    assert (
        progress_state.apply_operation(operation(identity="INTENDED"))
        == progress_state.wait("")
        == []
    )
    assert draw(progress_state)[:2] == [["create_agent", "a", "1.5", "s"], ["…", "identity"]]


def test_signs_have_a_form_without_utf8():
    for line in (
        ProgressLine("a", "done"),
        ProgressLine("a", "undone"),
        ProgressLine("", "undoing", "x"),
        ProgressLine("a", "refused", "y"),
    ):
        assert text(line, utf8=False).isascii()


def test_a_step_cannot_steer_the_terminal():
    assert "\x1b" not in text(ProgressLine("a", "refused", "\x1b[2J"), utf8=True)
    assert (
        text(ProgressLine("", "undoing", "it broke\nlast words"), utf8=True)
        == "  ↺ undoing: it broke"
    )


def test_events_are_read_as_the_server_sends_them():
    sent = (
        b'id: 1\nevent: operation.accepted\ndata: {"seq": 1}\n\n'
        b": heartbeat\n\n"
        b"event: settled\r\ndata: {\ndata: }\n\n"
        b"event: cut"
    )
    assert list(events(io.BytesIO(sent))) == [
        ("operation.accepted", '{"seq": 1}'),
        ("", ""),
        ("settled", "{\n}"),
    ]


def draw(progress_state, **more):
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    console.print(drawing.steps(progress_state, "create_agent a", seconds=1.5, utf8=True, **more))
    return [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_the_drawing_shows_what_runs_and_what_was_undone():
    progress_state = OperationProgress.of(operation())
    play_records(progress_state, STORY[:2])
    assert draw(progress_state) == [
        ["create_agent", "a", "1.5", "s"],
        ["✓", "identity"],
        ["…", "runtime"],
        ["ready"],
    ]
    play_records(progress_state, STORY)
    lines = draw(progress_state)
    assert lines[1] == ["↺", "identity", "undone"]
    assert lines[3] == ["✗", "ready", "ready", "was", "refused:", "it", "exited"]


def test_every_hold_of_a_step_has_a_mark():
    from tenure.core.operation import ENDED_OR_STUCK, IntentState

    assert set(progress.WORD_OF_STATE) == {str(hold) for hold in IntentState}
    assert set(progress.WORD_OF_STATE.values()) <= set(progress.MARKS)
    assert {str(state) for state in ENDED_OR_STUCK} == progress.SETTLED_STATES
