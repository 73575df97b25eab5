"""Which room may import which, and what the kernel must not know.

As in `tests/tidy/checks.py`, a function returns its complaints, and what is checked is handed in.
"""

import sys

from tests.tidy.sources import Source, imports, is_within

# What each room may import besides itself. A dotted name opens one module and no more of its room.
MAY_IMPORT = {
    "core": (),
    "concurrency": (),
    "ports": ("core",),
    "plans": ("core", "ports"),
    "app": ("core", "concurrency", "ports", "plans", "telemetry.counters"),
    "delivery": ("core", "concurrency", "ports", "app", "reconcilers.leader"),
    "reconcilers": ("core", "concurrency", "ports", "app"),
    "adapters": ("core", "concurrency", "ports", "sqlite", "home"),
    "home": ("core", "ports", "sqlite.location"),
    "sqlite": ("core", "ports", "home.atomic_file"),
    "upkeep": ("core", "ports", "plans", "sqlite", "home"),
    "telemetry": ("core", "settings"),
    "testing": ("core", "ports", "plans", "app", "adapters", "sqlite"),
    "faces": ("core", "concurrency", "app", "ports.identity", "ports.invoker", "telemetry"),
    "settings": ("core",),
    "wiring": (
        "core", "concurrency", "ports", "plans", "app", "delivery", "reconcilers", "adapters",
        "sqlite", "home", "telemetry", "settings", "upkeep",
    ),
    "library": ("core", "ports", "app", "settings", "wiring"),
    "__init__": ("core", "ports", "plans", "app", "library"),
    "__main__": ("faces",),
}  # fmt: skip
STARTS = ("wiring", "settings", "telemetry")
ALSO = {
    "src/tenure/telemetry/counters.py": ("ports.bus",),
    "src/tenure/telemetry/scrape.py": ("app",),  # a scrape reads what the app counts and stores
    "src/tenure/faces/cli/commands/up.py": (*STARTS, "home.atomic_file"),
    "src/tenure/faces/cli/commands/worker.py": STARTS,
    **{
        f"src/tenure/adapters/engine/{engine}/engine.py": ("adapters.engine.waiters",)
        for engine in ("embedded", "temporal")
    },
    **{
        f"src/tenure/faces/cli/commands/{verb}.py": ("wiring", "upkeep")
        for verb in ("backup", "restore", "upgrade", "migrate_store")
    },
    "src/tenure/faces/cli/commands/doctor.py": (
        "home.epoch_file",
        "home.lock_holder",
        "wiring",
        "settings",
    ),
}
# Operations are recorded, executed and stored without knowing what they are about.
KERNEL = (
    "src/tenure/core/saga.py",
    "src/tenure/core/decisions.py",
    "src/tenure/core/operation.py",
    "src/tenure/core/plan.py",
    "src/tenure/core/progress.py",
    "src/tenure/app/operations/",
    "src/tenure/adapters/engine/",
    "src/tenure/adapters/store/",
    "src/tenure/sqlite/",
    "src/tenure/ports/subject.py",
    "src/tenure/ports/operator_rows.py",
    "src/tenure/ports/engine.py",
    "src/tenure/ports/store.py",
)
CAPABILITIES = (
    *(f"tenure.app.{room}" for room in ("agents", "events", "tenancy", "safety")),
    *(f"tenure.core.{noun}" for noun in ("agent", "edge", "finding", "subscription", "verb")),
    "tenure.plans.agents",
    "tenure.delivery",
    "tenure.reconcilers",
)
ROOMS = tuple(room for room in MAY_IMPORT if not room.startswith("__"))
NOT_IN_CORE = frozenset(
    "os io socket time random uuid threading asyncio logging subprocess".split()  # noqa: SIM905
)
NOT_SHIPPED = frozenset({"proofs", "tests", "bench", "examples"})
TEST_LIBRARIES = frozenset({"pytest", "hypothesis"})


def forbidden_imports(source: Source) -> list[str]:
    """Each room imports itself and what MAY_IMPORT opens; an adapter not even its neighbours."""
    room = source.room
    if room not in MAY_IMPORT:
        return [source.complain(1, f"src/tenure has no room called {room}")]
    own = room
    if room == "adapters":  # adapters/<port>/<technology>; above that nothing is imported
        parts = source.module.split(".")[1:4]
        own = ".".join(parts) if len(parts) > 2 else "adapters.*"
    allowed = (own, *MAY_IMPORT[room], *ALSO.get(source.path, ()))
    complaints = []
    for line, name in imports(source):
        top, _, rest = name.partition(".")
        if top == "tenure":
            wrong = not any(is_within(rest, prefix) for prefix in allowed)
        elif room == "core":
            wrong = top not in sys.stdlib_module_names or top in NOT_IN_CORE
        else:
            wrong = top in NOT_SHIPPED or (top in TEST_LIBRARIES and room != "testing")
        if wrong:
            complaints.append(source.complain(line, f"{room} may not import {name}"))
    return complaints


def capability_imports(source: Source) -> list[str]:
    """The kernel, the engines and the stores import no capability; see KERNEL for what they are."""
    if not source.path.startswith(KERNEL):
        return []
    return [
        source.complain(line, f"the kernel may not import {name}, which belongs to a capability")
        for line, name in imports(source)
        if any(is_within(name, one) for one in CAPABILITIES)
    ]
