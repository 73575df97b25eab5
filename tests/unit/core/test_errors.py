"""Errors: one tree, each with a stable code."""

import re
from pathlib import Path

import pytest

from tenure.core import errors
from tenure.core.errors import CommitUnknown, Conflict, ConflictCode, StaleToken, TenureError
from tenure.faces.http.problems import PROBLEMS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reference/errors.md"


def family(kind):
    return [kind, *(one for child in kind.__subclasses__() for one in family(child))]


ALL = [kind for kind in family(TenureError) if kind.__module__ == errors.__name__]
"""Not what a module makes of one for itself alone, which depends on what was imported."""


def test_every_error_has_a_code_of_its_own_that_is_one_word():
    codes = [kind.code for kind in ALL]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)


def test_the_module_opens_with_the_tree():
    tree = errors.__doc__ or ""
    for kind in [*ALL, StaleToken, CommitUnknown]:
        assert re.search(rf"\b{kind.__name__}\b", tree), kind


@pytest.mark.parametrize("kind", [StaleToken, CommitUnknown])
def test_control_flow_is_no_exception_that_could_be_eaten(kind):
    assert not issubclass(kind, Exception)


def test_a_conflict_says_what_stands_in_the_way():
    plain, named = Conflict("taken"), Conflict("taken", code=ConflictCode.PAST_PIVOT, holder="op1")
    assert (str(plain), plain.code, plain.holder) == ("taken", "conflict", "")
    assert (str(named), named.code, named.holder) == ("taken", "past_pivot", "op1")
    assert Conflict.code == "conflict"


def test_the_page_gives_every_error_its_code():
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == {kind.__name__: kind.code for kind in ALL}


def test_the_page_explains_every_conflict():
    rows = re.findall(r"^\| `(\w+)` \| the ", PAGE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(ConflictCode)


@pytest.mark.parametrize("code", ConflictCode)
def test_every_conflict_is_raised_somewhere_and_has_its_answer_over_http(code):
    sources = (path.read_text() for path in (ROOT / "src/tenure").rglob("*.py"))
    assert any(f"code=ConflictCode.{code.name}" in text for text in sources)
    if code is not ConflictCode.PLAN_EXISTS:  # plans are registered by code, not over HTTP
        assert code in PROBLEMS
