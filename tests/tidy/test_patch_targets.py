"""The rule about patches can fail: it sees names that exist and names that do not."""

import pytest

from tests.tidy.patch_targets import patch_targets, stale_patches
from tests.tidy.sources import Source

IMPORTS = """\
import tenure.core.saga
from proofs.operations import mutations as switches
from tenure.core import saga
from tenure.testing.memory_store import MemoryStore
from tenure.testing.memory_store import tables as memory_tables
"""


def source(text: str) -> Source:
    return Source("tests/unit/test_one.py", IMPORTS + text)


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("patched(saga, settle_no_more=1)", "tenure.core.saga"),
        ("with patched(saga, decide_outcome=1), patched(saga, gone=2): ...", "tenure.core.saga"),
        ("def f(): return lambda: patched(MemoryStore, gone=1)", "tenure.testing.memory_store"),
        ("patched(memory_tables.Tables, gone=1)", "memory_store.tables.Tables"),
        ("patched(memory_tables.Gone, apply=1)", "memory_store.tables.Gone"),
        ("patched(switches, gone=1)", "proofs.operations.mutations"),
        ("patched(tenure.core.saga, gone=1)", "tenure.core.saga"),
        ("def f():\n    from tenure.core import plan\n    patched(plan, gone=1)", "core.plan"),
        ("monkeypatch.setattr(saga, 'gone', 1)", "tenure.core.saga"),
        ("monkeypatch.setattr('tenure.core.saga.gone', 1)", "tenure.core.saga"),
        ("patched(MemoryStore, __str__=1)", "MemoryStore has no __str__"),
    ],
)
def test_a_patch_of_a_name_that_is_gone_is_refused(text, owner):
    (complaint,) = stale_patches(source(text))
    assert complaint.startswith("tests/unit/test_one.py:")
    assert owner in complaint


@pytest.mark.parametrize(
    "text",
    [
        "patched(saga, decide_outcome=1, next_moves=2)",
        "patched(memory_tables.Tables, apply=1)",
        "monkeypatch.setattr('tenure.core.saga.decide_outcome', 1)",
        "monkeypatch.setattr(MemoryStore, '__str__', 1)",
    ],
)
def test_a_patch_of_a_name_that_exists_is_accepted(text):
    assert patch_targets(source(text))
    assert stale_patches(source(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f(saga): patched(saga, gone=1)",
        "def f():\n    saga = 1\n    patched(saga, gone=1)",
        "patched(type(engine), gone=1)",
        "patched(saga, **values)",
        "monkeypatch.setattr(saga, name, 1)",
        "monkeypatch.setattr('os.gone', 1)",
    ],
)
def test_an_owner_that_only_a_run_knows_is_left_alone(text):
    assert patch_targets(source(text)) == []
