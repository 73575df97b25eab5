"""Every refusal has one shape, and every error of ours a code in the table."""

import inspect

import msgspec
import pytest

from tenure.core import errors
from tenure.core.errors import (
    CommitUnknown,
    Conflict,
    ConflictCode,
    Invalid,
    StoreError,
    StoreFull,
    TenureError,
)
from tenure.faces.http import problems
from tenure.faces.http.problems import PROBLEMS, ProblemError


@pytest.mark.parametrize("code", PROBLEMS)
def test_every_problem_has_the_same_shape(code):
    made, headers = problems.problem(code, "why", field="a.b", operation="0" * 32)
    seen = msgspec.json.decode(msgspec.json.encode(made))
    retry = {"retry_after": 1} if PROBLEMS[code].status in {429, 503} else {}
    assert seen == {
        "type": f"urn:tenure:problem:{code}",
        "title": PROBLEMS[code].title,
        "status": PROBLEMS[code].status,
        "code": code,
        "detail": "why",
        "field": "a.b",
        "operation": "0" * 32,
        **retry,
    }
    assert dict(headers) == ({b"retry-after": b"1"} if retry else {})


def test_what_is_not_known_of_a_problem_is_left_out():
    seen = msgspec.to_builtins(problems.problem("not_found").problem)
    assert set(seen) == {"type", "title", "status", "code"}


OURS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, TenureError) and kind is not TenureError
]


@pytest.mark.parametrize("kind", OURS)
def test_every_error_of_ours_is_a_problem_or_our_own_bug(kind):
    answer = problems.of_error(kind("a sentence"))
    if kind.__name__ in {"Defect", "CallerError"}:
        assert answer is None
    else:
        assert answer is not None
        kept_back = issubclass(kind, StoreError)
        assert ("a sentence" in answer.problem.detail) is not kept_back, "where the store is"
        assert answer.problem.status != 500


def answer_for(error: TenureError) -> problems.ProblemAnswer:
    answer = problems.of_error(error)
    assert answer is not None
    return answer


def test_an_error_says_what_it_knows():
    holder = "a" * 32
    made, _ = answer_for(Conflict("busy", code=ConflictCode.OPERATION_IN_PROGRESS, holder=holder))
    assert (made.status, made.code, made.operation) == (409, "operation_in_progress", holder)
    made, _ = answer_for(Conflict("odd", holder=holder))
    assert (made.status, made.code, made.operation) == (409, "conflict", holder)
    made, headers = answer_for(StoreFull("no room"))
    assert (made.status, made.retry_after, dict(headers)[b"retry-after"]) == (503, 1, b"1")
    made, _ = answer_for(Invalid("runtime.env[0]: give a command"))
    assert (made.status, made.field) == (400, "runtime.env[0]")
    made, _ = answer_for(Invalid("An agent: no field is named here"))
    assert made.field == ""


def test_a_lost_commit_names_the_operation():
    lost = CommitUnknown(f"EIO. The next start shows whether operation {'b' * 32} was accepted.")
    made, headers = problems.of_lost_commit(lost)
    assert (made.status, made.operation) == (503, "b" * 32)
    assert dict(headers)[b"retry-after"] == b"2"
    assert "EIO" not in made.detail


def test_a_refusal_names_the_methods_that_would_do():
    made, headers = problems.of_problem_error(ProblemError("method_not_allowed", allow="GET, HEAD"))
    assert made.status == 405
    assert headers == ((b"allow", b"GET, HEAD"),)
