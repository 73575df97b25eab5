"""Shows that each house rule can fail.

Every check is handed something bad and must complain, and something good that looks alike and must
not.
"""

import inspect

import pytest

from tests.tidy import checks, import_rules, migrations, signposts
from tests.tidy.sources import Source

HERE = "/" + "work" + "/"  # in pieces, because the rule about machines reads this file too
REGISTRY = "pypi" + ".org"
LATER = "FIX" + "ME"


def source(path: str, text: str) -> Source:
    return Source(f"src/tenure/{path}", text)


def complaints_about(rule, path, text):
    """Hands one snippet to a rule, with a small project around it where the rule compares files."""
    at = source(path, text)
    match rule.__name__:
        case "banned_names":
            return rule([at.path])
        case "open_markers" | "sql_asking_time" | "machine_traces":
            return rule(at.path, text)
        case "dead_modules":
            user = Source(
                "tests/unit/test_a.py", "from tenure.core import agent\nRUN = 'tenure.core.child'\n"
            )
            return rule([at], [user], "run: ; python -m tenure.testing.prove")
        case "capability_imports":
            typing = "if TYPE_CHECKING:\n    from tenure.core.finding import FindingKind\n"
            around = [
                source("core/ids.py", "def f():\n    from tenure.core import plain\n"),
                source("core/plain.py", typing),
                source("core/errors.py", "from enum import Enum\n"),
                source("core/records/__init__.py", "import tenure.core.records.agent\n"),
            ]
            return rule(at, [at, *around])
        case "unused_permissions":
            return rule([at])
        case "gone_names":
            there = source("core/saga.py", '"""Decides."""\ndef next_moves(): ...\n')
            paths = [at.path, there.path, "tests/tidy/checks.py"]
            return rule(at, [at, there], paths)
        case "gone_paths":
            tree = ["src/tenure/core/saga.py", "src/tenure/faces/api/routes/agents.py"]
            return rule(path, text, [*tree, "tests/tidy/checks.py"])
        case "missing_from_page":
            names = checks.event_names(at) if "event" in path else checks.error_names(at)
            return rule(
                names, "docs/reference/page.md", "`NotFound` is raised. `agent.created` follows."
            )
        case "misnamed_migrations":
            return rule("src/tenure/store", text.split())
        case "misread_columns":
            return rule("src/tenure/store", text.split("=>"))
        case "twin_differences":
            one, other = text.split("=>")
            return rule("sqlite", "postgres", ([one], [other]))
        case _:
            return rule(at)


LONG = "def f():\n" + "    pass\n" * 70
# In pieces, because no file may hold a path of a machine.
WORK, ROOT_HOME = "work", "root"

BAD = [
    # rule, file under src/tenure, what it says, a word of the complaint
    (import_rules.forbidden_imports, "core/saga.py", "import os", "core may not import os"),
    (import_rules.forbidden_imports, "core/saga.py", "def f():\n    import asyncio.tasks", ":2:"),
    (import_rules.forbidden_imports, "core/saga.py", "import msgspec", "msgspec"),
    (
        import_rules.forbidden_imports,
        "core/saga.py",
        "from tenure.ports import store",
        "tenure.ports.store",
    ),
    (
        import_rules.forbidden_imports,
        "core/saga.py",
        "from ..ports import store",
        "tenure.ports.store",
    ),
    (import_rules.forbidden_imports, "core/__init__.py", "from .. import ports", "tenure.ports"),
    (import_rules.forbidden_imports, "core/saga.py", "import tenure", "tenure"),
    (
        import_rules.forbidden_imports,
        "ports/store.py",
        "from tenure.app import agents",
        "tenure.app",
    ),
    (
        import_rules.forbidden_imports,
        "plans/create.py",
        "import tenure.app.agents.commands",
        "tenure.app",
    ),
    (
        import_rules.forbidden_imports,
        "app/agents/commands.py",
        "from tenure.adapters.store import sqlite",
        "sqlite",
    ),
    (
        import_rules.forbidden_imports,
        "app/agents/commands.py",
        "from tenure.sqlite import sqlite",
        "tenure.sqlite",
    ),
    (
        import_rules.forbidden_imports,
        "app/agents/commands.py",
        "import importlib\nimportlib.import_module('tenure.adapters.x')",
        ":2:",
    ),
    (
        import_rules.forbidden_imports,
        "app/agents/commands.py",
        "from tests.unit import test_a",
        "tests.unit",
    ),
    (import_rules.forbidden_imports, "app/agents/commands.py", "import pytest", "pytest"),
    (
        import_rules.forbidden_imports,
        "adapters/store/sqlite/rows.py",
        "from tenure.adapters.store import postgres",
        "postgres",
    ),
    (
        import_rules.forbidden_imports,
        "adapters/store/sqlite/rows.py",
        "from tenure.app import plane",
        "tenure.app",
    ),
    (
        import_rules.forbidden_imports,
        "adapters/store/__init__.py",
        "from tenure.adapters.store import postgres",
        "postgres",
    ),
    (
        import_rules.forbidden_imports,
        "sqlite/sqlite.py",
        "from tenure.adapters.store import postgres",
        "postgres",
    ),
    (
        import_rules.forbidden_imports,
        "telemetry/spans.py",
        "from tenure.ports import store",
        "tenure.ports",
    ),
    (
        import_rules.forbidden_imports,
        "testing/fakes.py",
        "from tenure.faces import cli",
        "tenure.faces",
    ),
    (
        import_rules.forbidden_imports,
        "faces/http/server.py",
        "from tenure import wiring",
        "tenure.wiring",
    ),
    (
        import_rules.forbidden_imports,
        "faces/http/server.py",
        "from tenure.ports import store",
        "tenure.ports",
    ),
    (
        import_rules.forbidden_imports,
        "faces/http/server.py",
        "from tenure.adapters.bus import local",
        "tenure.adapters",
    ),
    (
        import_rules.forbidden_imports,
        "__init__.py",
        "from tenure.adapters.store import postgres",
        "postgres",
    ),
    (import_rules.forbidden_imports, "attic/old.py", "", "no room"),
    (checks.overlong, "core/saga.py", "\n" * 501, "501 lines"),
    (checks.overlong, "core/saga.py", LONG, "f has 71 lines"),
    (
        checks.overlong,
        "core/saga.py",
        "class A:\n  async " + LONG.replace("\n", "\n  ").rstrip(),
        "f has 71",
    ),
    (import_rules.unused_permissions, "ports/a.py", "import os", "nothing here imports core"),
    (
        import_rules.forbidden_imports,
        "testing/loop.py",
        "from tenure.adapters.store import postgres",
        "testing may not import tenure.adapters.store.postgres",
    ),
    *((checks.banned_names, f"core/{name}.py", "", name) for name in sorted(checks.BANNED_NAMES)),
    (checks.banned_names, "adapters/common/x.py", "", "common"),
    (checks.banned_names, "core/_utils.py", "", "utils"),
    (
        import_rules.capability_imports,
        "app/operations/executor.py",
        "from tenure.app.agents import subject",
        "agents",
    ),
    (
        import_rules.capability_imports,
        "app/operations/executor.py",
        "import os\nfrom tenure.core.ids import uuid7",
        (
            ":2: the kernel may not import tenure.core.finding.FindingKind, which belongs to a"
            " capability: tenure.app.operations.executor → tenure.core.ids → tenure.core.plain →"
            " tenure.core.finding.FindingKind"
        ),
    ),
    (
        import_rules.capability_imports,
        "app/operations/views.py",
        "from tenure.core.records import OperationRecord",
        "tenure.core.records",
    ),
    (
        import_rules.capability_imports,
        "adapters/engine/embedded/engine.py",
        "from tenure.app.runs import queue",
        "tenure.app.runs",
    ),
    (
        import_rules.capability_imports,
        "app/operations/commands.py",
        "from tenure.app.tenancy.audit import audit_line",
        "tenancy.audit",
    ),
    (
        import_rules.capability_imports,
        "core/saga.py",
        "from tenure.core.agent import State",
        "core.agent",
    ),
    (
        import_rules.capability_imports,
        "adapters/store/sqlite/store.py",
        "import tenure.plans.agents.create",
        "plans.agents",
    ),
    (checks.misnamed_reads, "app/a.py", "async def find_row():\n    raise NotFound('no')", "get_"),
    (checks.misnamed_reads, "app/a.py", "def get_row() -> Row | None: ...", "find_"),
    (checks.open_markers, "core/saga.py", f"x = 1  # {LATER}: later", LATER),
    (checks.open_markers, "core/saga.py", "# TO" + "DO", ":1:"),
    (checks.dead_modules, "core/grave.py", "", "nothing imports or runs"),
    (
        checks.dead_modules,
        "core/grave.py",
        "from tenure.core import grave",
        "nothing imports or runs",
    ),
    (checks.dead_modules, "core/agents.py", "", "nothing imports or runs"),
    (checks.dead_modules, "plans/agents/pieces.py", "", "nothing imports or runs"),
    (
        checks.dead_modules,
        "plans/__init__.py",
        "from tenure.plans import catalogue",
        "nothing imports",
    ),
    (checks.missing_docstring, "core/saga.py", "x = 1", "no docstring"),
    (checks.missing_docstring, "core/__init__.py", "", "no docstring"),
    (checks.gone_names, "core/a.py", '"""See tenure.core.sagas for more."""', "tenure.core.sagas"),
    (checks.gone_names, "core/a.py", '"""See tenure.core.saga.last_moves."""', "last_moves"),
    (checks.gone_names, "core/a.py", '"""See `core.sagas`."""', "tenure.core.sagas"),
    (checks.gone_names, "core/a.py", '"""See `sagas.py`."""', "sagas.py"),
    (checks.gone_names, "core/a.py", '"""A test in testing/contracts/runtime.py."""', "runtime.py"),
    (checks.gone_names, "core/a.py", 'def f():\n    """As `tests/tidy/rules.py`."""', ":2:"),
    (checks.sql_asking_time, "q.sql", "SELECT\n  CURRENT_TIMESTAMP", ":2:"),
    (checks.sql_asking_time, "q.sql", "SELECT strftime('%s', 'now')", "strftime"),
    (checks.sql_asking_time, "q.sql", "SELECT datetime( 'now' )", "datetime"),
    (checks.sql_asking_time, "q.sql", "UPDATE t SET at = now()", "now()"),
    (
        checks.sql_asking_time,
        "q.sql",
        "CREATE TABLE t (at REAL DEFAULT (unixepoch()))",
        "unixepoch",
    ),
    (
        checks.literals_asking_time,
        "sqlite/a.py",
        "Q = 'SELECT current_timestamp'",
        "current_timestamp",
    ),
    (checks.literals_asking_time, "sqlite/a.py", "Q = f'SELECT now() FROM {t}'", "now()"),
    (checks.banned_calls, "core/a.py", "import time\ntime.time()", "time.time"),
    (checks.banned_calls, "core/a.py", "from time import time as clock\nclock()", "time.time"),
    (
        checks.banned_calls,
        "app/a.py",
        "import datetime as dt\ndt.datetime.now(dt.UTC)",
        "datetime.datetime.now",
    ),
    (checks.banned_calls, "app/a.py", "from datetime import datetime\ndatetime.utcnow()", "utcnow"),
    (checks.banned_calls, "app/a.py", "import random\nrandom.Random(1).random()", "random.Random"),
    (
        checks.banned_calls,
        "adapters/engine/embedded/a.py",
        "from uuid import uuid4\nf = g(factory=uuid4)",
        "uuid.uuid4",
    ),
    (checks.banned_calls, "adapters/store/sqlite/a.py", "import os\nos.urandom(8)", "os.urandom"),
    (checks.banned_calls, "app/a.py", "import secrets\nsecrets.token_hex()", "secrets.token_hex"),
    (checks.unordered_loops, "core/a.py", "for x in set(y):\n    pass", "no order"),
    (checks.unordered_loops, "core/a.py", "for x in {1, 2}:\n    pass", "no order"),
    (checks.unordered_loops, "app/a.py", "z = [x for x in frozenset(y) - w]", "no order"),
    (checks.unordered_loops, "app/a.py", "z = list(set(y))", "no order"),
    (
        checks.unordered_loops,
        "app/a.py",
        "async def f():\n    async for x in {y for y in z}:\n        pass",
        ":2:",
    ),
    (
        checks.unordered_waits,
        "app/a.py",
        "import asyncio\nawait_ = asyncio.wait(tasks)",
        "# sorted:",
    ),
    (
        checks.unordered_waits,
        "adapters/engine/embedded/a.py",
        "from asyncio import wait\nwait(tasks)",
        ":2:",
    ),
    (
        checks.missing_from_page,
        "core/errors.py",
        "class NotFound(Exception): ...\nclass Lost(Exception): ...",
        "Lost",
    ),
    (
        checks.missing_from_page,
        "core/events.py",
        "class Event(StrEnum):\n    GONE = 'agent.gone'",
        "agent.gone",
    ),
    (
        checks.missing_from_page,
        "core/events.py",
        "class Event(enum.StrEnum):\n    GONE = enum.auto()",
        "gone",
    ),
    (
        checks.missing_from_page,
        "core/events.py",
        "CREATE: Final = 'agent.create'",
        "agent.create is",
    ),
    (checks.missing_from_page, "core/events.py", "class AgentCreated: ...", "AgentCreated"),
    (checks.machine_traces, "notes.md", f"see {HERE}main", "one machine"),
    (checks.machine_traces, "notes.md", f"--index-url https://{REGISTRY}/simple", REGISTRY),
    (
        signposts.gone_paths,
        "notes.md",
        "see\n`core/gone.py`",
        "notes.md:2: core/gone.py is named here and gone",
    ),
    (signposts.gone_paths, "notes.md", "`src/tenure/core/<noun>/saga.py`", "gone"),
    (signposts.gone_paths, "notes.md", "tests/real/ has them", "tests/real"),
    (signposts.gone_paths, "notes.md", "`app/{a,b}.py` and core/a|b", "app/{a,b}.py"),
    (migrations.misnamed_migrations, "", "1_add.sql", "called like"),
    (migrations.misnamed_migrations, "", "0001_pre_a.sql 0001_pre_b.sql", "without a gap"),
    (migrations.misnamed_migrations, "", "0001_pre_a.sql 0003_post_b.sql", "without a gap"),
    (
        migrations.misread_columns,
        "",
        "CREATE TABLE t (a TEXT);",
        "t.a is read from the text, or made",
    ),
    (
        migrations.misread_columns,
        "",
        "CREATE TABLE t (\n    a TEXT\n); => DROP TABLE IF EXISTS t;",
        "t.a",
    ),
    (
        migrations.twin_differences,
        "",
        "CREATE TABLE t (\n    a TEXT\n) => CREATE TABLE t (\n    a TEXT,\n    b TEXT\n)",
        "t.b is only in postgres",
    ),
    (
        migrations.twin_differences,
        "",
        "CREATE TABLE t (\n    a TEXT\n) => ",
        "t.a is only in sqlite",
    ),
]

GOOD = [
    (
        import_rules.forbidden_imports,
        "core/saga.py",
        "import enum\nfrom tenure.core import states\nfrom . import agent",
    ),
    (
        import_rules.forbidden_imports,
        "app/agents/commands.py",
        "import asyncio\nfrom tenure.plans import catalogue",
    ),
    (
        import_rules.forbidden_imports,
        "adapters/store/sqlite/rows.py",
        "from tenure.sqlite import sqlite\nfrom . import reads",
    ),
    (
        import_rules.forbidden_imports,
        "testing/loop.py",
        "import pytest\nfrom tenure.sqlite.guards import meets",
    ),
    (
        import_rules.unused_permissions,
        "plans/a.py",
        "from tenure.core import a\nimport tenure.ports",
    ),
    (
        import_rules.forbidden_imports,
        "wiring/store.py",
        "from tenure.adapters.store import sqlite\nfrom tenure import settings",
    ),
    (import_rules.forbidden_imports, "faces/cli/commands/up.py", "from tenure import wiring"),
    (checks.overlong, "core/saga.py", LONG[: -len("    pass\n")]),
    (checks.banned_names, "core/database.py", ""),
    (
        import_rules.capability_imports,
        "app/agents/subject.py",
        "from tenure.core.agent import State",
    ),
    (
        import_rules.capability_imports,
        "adapters/store/sqlite/store.py",
        "from tenure.core.records import TABLES\nfrom tenure.core.errors import StoreError",
    ),
    (
        checks.misnamed_reads,
        "app/a.py",
        "def get_row() -> Row:\n    raise NotFound('no')\ndef find_row() -> Row | None: ...",
    ),
    (checks.misnamed_reads, "faces/cli/main.py", "def get_command() -> Command | None: ..."),
    (checks.open_markers, "core/saga.py", "METHODOLOGY = 1"),
    (checks.dead_modules, "core/agent.py", ""),
    (checks.dead_modules, "core/child.py", ""),
    (checks.dead_modules, "plans/agents/wake.py", "VERB = LifecycleVerb()"),
    (checks.dead_modules, "core/__init__.py", ""),
    (checks.dead_modules, "testing/prove.py", ""),
    (checks.missing_docstring, "core/saga.py", '"""Decides."""'),
    (
        checks.gone_names,
        "core/a.py",
        '"""As tenure.core.saga.next_moves, `core.saga` and `tests/tidy/checks.py`."""',
    ),
    (
        checks.gone_names,
        "core/a.py",
        '"""In `saga.py`, tenure.core.saga, `plane.clock` and contracts/<port>.py."""',
    ),
    (checks.sql_asking_time, "q.sql", "-- never now()\nSELECT :now, current_state FROM knowledge"),
    (
        checks.literals_asking_time,
        "sqlite/a.py",
        "def f():\n    'Never now().'\n    return 'ask store.now() first'",
    ),
    (
        checks.banned_calls,
        "core/a.py",
        "from datetime import timedelta\nclock.time()\ntimedelta(1)",
    ),
    (checks.banned_calls, "adapters/clock/system/__init__.py", "import time\ntime.time()"),
    (checks.unordered_loops, "core/a.py", "for x in sorted(set(y)):\n    pass"),
    (
        checks.unordered_waits,
        "app/a.py",
        "import asyncio\nasyncio.wait(tasks)  # sorted: by operation below",
    ),
    (
        checks.missing_from_page,
        "core/errors.py",
        "class NotFound(Exception): ...\nclass _Inner: ...",
    ),
    (
        checks.missing_from_page,
        "core/events.py",
        "class Event(StrEnum):\n    CREATED = 'agent.created'",
    ),
    (checks.missing_from_page, "core/events.py", ""),
    (checks.machine_traces, "notes.md", f"the frame/{WORK}/s of ${{dir}}/{ROOT_HOME}/x"),
    (
        signposts.gone_paths,
        "notes.md",
        "`core/saga.py` core/saga `core/saga.next_moves` core/ src/tenure/core/{saga,plan}.py.",
    ),
    (
        signposts.gone_paths,
        "notes.md",
        "faces/api/routes/<noun>.py faces/api|oauth/routes and/or tests/tidy [a](core/gone.md)",
    ),
    (migrations.misnamed_migrations, "", "0001_pre_a.sql 0002_post_b.sql"),
    (
        migrations.misread_columns,
        "",
        "CREATE TABLE t (\n    a TEXT -- why\n); => ALTER TABLE t ADD COLUMN b TEXT; => CREATE TABLE u (\n    a TEXT\n); => DROP TABLE t;",
    ),
    (
        migrations.twin_differences,
        "",
        "CREATE TABLE t (\n    a REAL\n) => CREATE TABLE t (\n    a DOUBLE PRECISION\n)",
    ),
]


@pytest.mark.parametrize(
    "case", range(len(BAD)), ids=[f"{b[0].__name__}-{n}" for n, b in enumerate(BAD)]
)
def test_a_rule_complains_about_what_breaks_it(case):
    rule, path, text, word = BAD[case]
    found = complaints_about(rule, path, text)
    assert found, "the rule said nothing"
    assert any(word in complaint for complaint in found), found


@pytest.mark.parametrize(
    "case", range(len(GOOD)), ids=[f"{g[0].__name__}-{n}" for n, g in enumerate(GOOD)]
)
def test_a_rule_lets_pass_what_only_looks_alike(case):
    rule, path, text = GOOD[case]
    assert complaints_about(rule, path, text) == []


def test_every_rule_has_been_seen_to_fail_and_to_pass():
    rules = {
        rule
        for module in (checks, import_rules, migrations, signposts)
        for name, rule in inspect.getmembers(module, inspect.isfunction)
        if rule.__module__ == module.__name__
        and not name.startswith("_")
        and inspect.signature(rule).return_annotation == list[str]
    } - {checks.error_names, checks.event_names}
    assert {rule.__name__ for rule in rules} == {case[0].__name__ for case in BAD}
    assert {rule.__name__ for rule in rules} == {case[0].__name__ for case in GOOD}
