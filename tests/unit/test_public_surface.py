"""What `import tenure` offers is pinned: a name, a parameter or a field goes only on purpose.

Whoever changes one of these lists changes a promise to users: the changelog says so.
"""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tenure
from proofs import python_reference
from tenure.core import errors

ROOT = Path(__file__).parents[2]
VOCABULARY = """
    Absent Call ConflictCode Done IntentState NotYet Observation OpenPlane OperationState
    OperationView OwnedResource Plan Presence Provider ResourceKey Step StepKind StepLimits StepView
    Temporal Waiting __version__ nobody_knows nothing open_plane provided repeat
"""
ERRORS = """
    CallerError CommitUnknown Conflict Defect EngineError Forbidden IllegalTransition Invalid
    LimitExceeded NotFound NotReady OutcomeUnknown PlanUnknown PreconditionFailed ProviderError
    Rejected RuntimeBroken StoreClosed StoreError StoreForeign StoreFull StoreLocked StoreNewer
    StoreRewound StoreUnsafe TenureError Unauthenticated Unavailable
"""
OPEN_PLANE = (
    "store=tenure.db * plans providers=None tenant=default principal=local name=local"
    " execute_operations=True concurrency_max=2000 temporal=None"
)
METHODS = {
    "abandon": "operation * idempotency_key=",
    "acting_for": "* tenant= principal=",
    "adopt": "operation * step result=None idempotency_key=",
    "cancel": "operation * idempotency_key=",
    "get": "operation",
    "list": "* states=() agent= after= limit=100",
    "mark_absent": "operation * step idempotency_key=",
    "principal": "a property",
    "retry": "operation * idempotency_key=",
    "signal": "operation * name payload=None idempotency_key=",
    "start": "plan * input=None agent= idempotency_key=",
    "tenant": "a property",
    "wait": "operation * seconds=60.0",
}
FIELDS = {
    "OperationView": (
        "id plan_name agent agent_name generation state steps error created_at updated_at ended_at"
        " created done ended left result results updated"
    ),
    "StepView": (
        "name kind state key attempts due_at stuck unknown detail slot waiting_on result has_undo"
    ),
}


def parameters(function):
    """The names in order, a star where the keyword-only ones begin, defaults after `=`."""
    found = []
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.KEYWORD_ONLY and "*" not in found:
            found.append("*")
        default = "" if one.default is one.empty else f"={one.default}"
        found.append(one.name + default)
    return " ".join(name for name in found if name != "self")


def test_the_public_names_are_these():
    assert sorted(tenure.__all__) == sorted(f"{VOCABULARY} {ERRORS}".split())
    assert sorted(tenure.__all__) == tenure.__all__ == dir(tenure)


def test_every_public_name_is_there_and_no_other_one_is_invented():
    for name in tenure.__all__:
        assert getattr(tenure, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Opne'"):
        _ = tenure.Opne


def test_every_error_is_public_but_what_only_a_worker_meets():
    every = {
        name
        for name, one in vars(errors).items()
        if inspect.isclass(one) and issubclass(one, BaseException)
    }
    assert every - set(ERRORS.split()) == {"StaleToken"}


def test_a_plane_is_opened_with_these_arguments_and_has_these_methods():
    assert parameters(tenure.open_plane) == OPEN_PLANE
    public = {n: one for n, one in vars(tenure.OpenPlane).items() if not n.startswith("_")}
    found = {
        name: "a property" if isinstance(one, property) else parameters(one)
        for name, one in public.items()
    }
    assert found == METHODS


@pytest.mark.parametrize("name", FIELDS)
def test_a_view_has_these_fields(name):
    view = getattr(tenure, name)
    more = sorted(n for n, one in vars(view).items() if isinstance(one, property))
    assert " ".join([*view.__struct_fields__, *more]) == FIELDS[name]


def test_whoever_type_checks_sees_the_same_names():
    """`__init__` names them twice: for mypy, and to import them when they are used."""
    parsed = ast.parse((ROOT / "src/tenure/__init__.py").read_text())
    (checked,) = [one for one in parsed.body if isinstance(one, ast.If)]
    typed_imports = {
        alias.asname or alias.name: (str(one.module), alias.name)
        for one in checked.body
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
    }
    assert sorted([*typed_imports, "__version__"]) == tenure.__all__
    for public, (module, name) in typed_imports.items():
        assert getattr(tenure, public) is getattr(sys.modules[module], name), public


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("tenure", {"tenure.core", "msgspec", "asyncio", "apsw"}),
        ("tenure.Plan, tenure.Done, tenure.Conflict", {"tenure.app", "tenure.wiring", "apsw"}),
        (
            "tenure.Call, tenure.provided, tenure.OperationView",
            {"tenure.wiring", "apsw", "aiohttp"},
        ),
    ],
)
def test_an_import_brings_no_more_than_is_used(statement, absent):
    script = f"import sys, tenure; {statement}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not absent & set(ran.stdout.split())


def test_the_page_has_every_public_name_and_every_one_is_described():
    grouped = [name for names in python_reference.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(set(VOCABULARY.split()) - {"__version__"})
    assert python_reference.error_names() == ERRORS.split()
    for name in set(tenure.__all__) - {"__version__", "nothing", "repeat", "nobody_knows"}:
        assert getattr(tenure, name).__doc__, name
    for name in METHODS:
        assert getattr(tenure.OpenPlane, name).__doc__, name
