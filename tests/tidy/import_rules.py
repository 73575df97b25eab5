"""Which room may import which, and what the kernel must not know.

As in `tests/tidy/checks.py`, a function returns its complaints, and what is checked is handed in.
"""

import sys
from collections.abc import Mapping, Sequence

from tests.tidy.sources import Source, imports, is_within

# What each room may import besides itself. A dotted name opens one module and no more of its room.
MAY_IMPORT = {
    "core": (),
    "concurrency": (),
    "atomic_file": ("core",),
    "ports": ("core",),
    "plans": ("core", "ports"),
    "app": ("core", "concurrency", "ports", "plans", "telemetry.counters"),
    "delivery": ("core", "concurrency", "ports", "app"),
    "reconcilers": ("core", "concurrency", "ports", "app"),
    "adapters": ("core", "concurrency", "ports", "sqlite", "home.key_file", "home.lock_holder"),
    "home": ("core", "ports", "atomic_file", "sqlite.location"),
    "sqlite": ("core", "ports", "atomic_file"),
    "upkeep": ("core", "ports", "plans", "sqlite", "home", "atomic_file"),
    "telemetry": ("core", "settings"),
    "testing": ("core", "ports", "plans", "app", "sqlite"),
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
    "src/tenure/faces/cli/commands/up.py": (*STARTS, "atomic_file"),
    "src/tenure/faces/cli/commands/worker.py": STARTS,
    **{
        f"src/tenure/adapters/engine/{engine}/engine.py": ("adapters.engine.waiters",)
        for engine in ("embedded", "temporal")
    },
    **{
        f"src/tenure/faces/cli/commands/{verb}.py": ("wiring", "upkeep")
        for verb in ("backup", "restore", "upgrade")
    },
    "src/tenure/faces/cli/commands/migrate_store.py": ("wiring",),
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
    "src/tenure/ports/lock_rows.py",
    "src/tenure/ports/operation_rows.py",
    "src/tenure/ports/operator_command.py",
    "src/tenure/ports/engine.py",
    "src/tenure/ports/store.py",
)
# Everything in these folders belongs to a capability, except the modules that are named.
KERNEL_MODULES = {
    "tenure.app": ("operations", "pages"),
    "tenure.plans": ("catalogue", "steps"),
    "tenure.core.records": ("operation", "outbox", "plane", "table"),
    "tenure.delivery": (),
    "tenure.reconcilers": (),
    "tenure.faces": (),
    "tenure.wiring": (),
}
# Of these folders only the modules that are named belong to a capability.
CAPABILITY_MODULES = {
    "tenure.core": ("agent", "agent_events", "edge", "egress", "finding", "subscription", "verb"),
    "tenure.ports": (
        "access", "bus", "credentials", "identity", "invoker", "marks", "plane_api", "runtime",
    ),
}  # fmt: skip
# The stores create, copy and compare every table, so they know the list of all record types.
SCHEMA = "tenure.core.records"
KNOW_THE_SCHEMA = "src/tenure/adapters/store/"
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


def unused_permissions(sources: Sequence[Source]) -> list[str]:
    """Every opening of MAY_IMPORT and ALSO is used by a file that it was made for."""
    complaints = []
    for files, opened in [
        *(([one for one in sources if one.room == room], MAY_IMPORT[room]) for room in MAY_IMPORT),
        *(([one for one in sources if one.path == path], ALSO[path]) for path in ALSO),
    ]:
        used = {name.partition(".")[2] for one in files for _, name in imports(one)}
        complaints += [
            files[0].complain(1, f"nothing here imports {prefix}: close it in import_rules.py")
            for prefix in opened
            if files and not any(is_within(name, prefix) for name in used)
        ]
    return complaints


def capability_imports(source: Source, sources: Sequence[Source]) -> list[str]:
    """The kernel, the engines and the stores reach no capability by imports, however indirectly.

    An import leads to the module that it names, and from there to what that module imports, inside
    functions and for type checkers too.  As in other tools it does not lead to the packages above.
    A path that leads through another module of the kernel is the complaint of that module.
    """
    if not source.path.startswith(KERNEL):
        return []
    modules = {one.module: one for one in sources}
    complaints = []
    reached = {source.module}
    paths: list[tuple[int, tuple[str, ...]]] = [
        (line, (source.module, name)) for line, name in _named_modules(source, modules)
    ]
    while paths:
        line, path = paths.pop(0)
        last = path[-1]
        if last in reached:
            continue
        reached.add(last)
        if _is_capability(last):
            sentence = f"the kernel may not import {last}, which belongs to a capability"
            if last == SCHEMA:
                sentence = f"the kernel imports a record from its own module, not from {last}"
            way = f": {' → '.join(path)}" if len(path) > 2 else ""
            complaints.append(source.complain(line, sentence + way))
        elif last in modules and not modules[last].path.startswith(KERNEL):
            paths += [(line, (*path, name)) for _, name in _named_modules(modules[last], modules)]
    return complaints


def _named_modules(source: Source, modules: Mapping[str, Source]) -> list[tuple[int, str]]:
    """The modules of ours that a file imports, each with its line."""
    found = []
    for line, name in imports(source):
        module = name.rpartition(".")[0] if name not in modules else name
        module = module if module in modules else name
        is_ours = is_within(name, "tenure")
        if is_ours and not (module == SCHEMA and source.path.startswith(KNOW_THE_SCHEMA)):
            found.append((line, module))
    return found


def _is_capability(name: str) -> bool:
    for folder, kernel in KERNEL_MODULES.items():
        if is_within(name, folder):
            return not any(is_within(name, f"{folder}.{one}") for one in kernel)
    return any(
        is_within(name, f"{folder}.{one}")
        for folder, capability in CAPABILITY_MODULES.items()
        for one in capability
    )
