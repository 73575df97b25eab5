"""What a plane tells of its moves: trouble in the log, attempts in one trace, never a secret."""

import json
import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tenure.core.endings import Done, NotYet, PerformedMove
from tenure.core.errors import Defect, Rejected, StoreError, Unavailable
from tenure.settings import Settings
from tenure.telemetry import build_observer, combine, logs
from tenure.telemetry.spans import Spans, context_of

CANARY = "canary-7c1"


def move_result(ending, *, operation="op1", step="runtime"):
    return PerformedMove(
        operation, "north", "agent1", "create_agent", step, "do", ending, 2, 100.0, 100.5
    )


def lines_of(caplog):
    return [json.loads(logs.JsonLines().format(record)) for record in caplog.records]


def test_what_goes_well_writes_no_line(caplog):
    caplog.set_level(logging.DEBUG)
    for ending in (Done({"secret": CANARY}), NotYet(1.0, "soon")):
        logs.log_failure(move_result(ending))
    assert caplog.records == []


def test_trouble_is_told_with_the_ids_to_find_it_by(caplog):
    caplog.set_level(logging.DEBUG)
    logs.log_failure(move_result(Rejected(CANARY)))
    logs.log_failure(move_result(Unavailable("busy")))
    refused, again = lines_of(caplog)
    assert (refused["level"], again["level"]) == ("warning", "info")
    assert CANARY not in json.dumps(refused)
    assert {field: refused[field] for field in logs.FIELDS} == {
        "operation": "op1",
        "tenant": "north",
        "agent": "agent1",
        "plan": "create_agent",
        "step": "runtime",
        "act": "do",
        "attempt": 2,
        "ending": "rejected",
    }
    assert refused["message"] == "runtime.do of operation op1 ended as rejected"


def test_a_line_holds_only_what_is_allowed(caplog):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("x").warning("hello", extra={"password": CANARY, "step": "identity"})
    (line,) = lines_of(caplog)
    assert CANARY not in json.dumps(line)
    assert line["step"] == "identity"


def test_an_exception_is_one_line_too(caplog):
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("x").exception("it broke")
    text = logs.JsonLines().format(caplog.records[0])
    assert "\n" not in text
    assert "ValueError: odd" in json.loads(text)["exception"]


@pytest.fixture
def spans(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    told = Spans()
    monkeypatch.setattr(told, "_tracer", provider.get_tracer("tenure"))
    yield told, exporter
    provider.shutdown()


def test_every_attempt_of_an_operation_stands_in_its_one_trace(spans):
    told, exporter = spans
    told(move_result(Unavailable(CANARY)))
    told(move_result(Done({"secret": CANARY})))
    told(move_result(Done(), operation="op2"))
    first, second, other = exporter.get_finished_spans()
    trace = context_of("op1").trace_id
    assert {first.context.trace_id, second.context.trace_id} == {trace}
    assert other.context.trace_id != trace
    assert first.links[0].context == context_of("op1")
    assert (first.status.status_code, second.status.status_code) == (
        StatusCode.ERROR,
        StatusCode.UNSET,
    )
    assert (first.end_time - first.start_time) == 500_000_000
    assert second.name == "create_agent/runtime.do"
    assert CANARY not in first.to_json() + second.to_json()


def test_without_traces_only_the_log_is_told():
    assert build_observer(Settings()) is logs.log_failure
    heard: list[PerformedMove] = []
    build_observer(Settings(traces=True))(move_result(Done()))
    combine(heard.append, None, heard.append)(move_result(Done()))
    assert len(heard) == 2


def test_logging_goes_to_standard_error(capsys, monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    before = root.level
    try:
        logs.configure(json_lines=True, level="WARNING")
        logging.getLogger("y").info("quiet")
        logging.getLogger("y").warning("loud")
        heard: list[logging.LogRecord] = []
        root.addHandler(logging.NullHandler())
        root.handlers[-1].handle = heard.append  # type: ignore[method-assign,assignment]
        for words in ("one: %s", "two: %s"):
            logging.getLogger("y").warning(words, StoreError("it is away"))
    finally:
        root.setLevel(before)
    out, err = capsys.readouterr()
    assert out == ""
    assert [json.loads(line)["message"] for line in err.splitlines()] == [
        "loud",
        "one: it is away",
        "two: the same error of the store as above",
    ]
    assert [one.getMessage() for one in heard] == ["one: it is away", "two: it is away"]


def log(log_filter, message, at, *args, error=None, level=logging.WARNING):
    record = logging.LogRecord("x", level, "f", 1, message, args, None)
    record.created = at
    if error is not None:
        record.exc_info = (type(error), error, None)
    return record.getMessage() if log_filter.filter(record) else None, record.exc_info


def test_what_goes_on_for_long_is_written_once_a_minute_with_how_often_it_was():
    sparing = logs.RepeatFilter()
    assert log(sparing, "it is away", 100.0)[0] == "it is away"
    assert log(sparing, "it is away", 101.0)[0] is None
    assert log(sparing, "another", 101.5)[0] == "another"
    assert log(sparing, "it is away", 102.0)[0] is None
    assert log(sparing, "it is away", 161.0)[0] == "it is away (suppressed 2 more times since)"
    assert log(sparing, "it is away", 162.0)[0] is None
    for _ in range(2):
        assert log(sparing, "asked for", 162.0, level=logging.INFO)[0] == "asked for"


def test_what_is_remembered_of_lines_has_a_bound(monkeypatch):
    monkeypatch.setattr(logs, "LINES_MAX", 1)
    sparing = logs.RepeatFilter()
    for message in ("a", "b", "c", "a"):
        assert log(sparing, message, 100.0)[0] == message


def test_what_the_store_says_to_everybody_is_written_once_a_minute(monkeypatch):
    sparing, away = logs.RepeatFilter(), StoreError("The store cannot be used now: it is away.")
    assert log(sparing, "no lead: %s", 100.0, away)[0] == f"no lead: {away}"
    assert log(sparing, "no lead: %s", 101.0, away)[0] is None
    assert (
        log(sparing, "no lease (%s)", 102.0, away)[0]
        == "no lease (the same error of the store as above)"
    )
    assert (
        log(sparing, "not seen", 103.0, error=away)[0]
        == "not seen: the same error of the store as above"
    )
    other = StoreError("The store cannot be used now: it is full.")
    assert log(sparing, "not seen", 104.0, error=other)[0] == f"not seen: {other}"
    assert log(sparing, "no lead: %s", 161.0, away)[0] == (
        f"no lead: {away} (suppressed 1 more times since)"
    )
    assert log(sparing, "%(a)s", 161.0, {"a": away})[0] == str(away), "no more than it can"
    monkeypatch.setattr(logs, "LINES_MAX", 1)
    for words in ("one", "two"):
        assert log(sparing, "odd: %s", 170.0, StoreError(words))[0] == f"odd: {words}"


def test_an_error_of_ours_is_told_by_its_sentence_and_a_defect_by_its_place():
    sparing = logs.RepeatFilter()
    assert log(sparing, "not looked", 1e3, error=Unavailable("busy")) == (
        "not looked: busy",
        None,
    )
    for error in (ValueError("odd"), KeyError("other"), Defect("ours")):
        message, place = log(sparing, "not looked", 1e3, error=error)
        assert message == "not looked"
        assert place is not None
    assert log(sparing, "not looked", 1e3, error=KeyError("other"))[0] is None
