"""Holds the project to its own rules.

Each test walks the tree as it is now, however much of it exists, and fails with one line for each
complaint. Every file is read and parsed once, by whichever test comes first. That each rule can
fail at all is shown in `tests/tidy/test_checks.py`.
"""

import gc
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.tidy import (
    checks,
    counts,
    import_rules,
    migrations,
    patch_targets,
    signposts,
    table_writes,
    words,
)
from tests.tidy.sources import Source

ROOT = Path(__file__).resolve().parents[2]
NEVER_TRACKED = {".git", "__pycache__", "build", "dist", "htmlcov", "node_modules"}
# Far fewer than there are: a check that recognises none of them any more would find nothing wrong.
PATCHES_MIN = 250
STORE_CALLS_MIN = 200
GLOSSARY_WORDS_MAX = 80


def read(path: str) -> str:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else ""


@cache
def project_files() -> tuple[str, ...]:
    """Returns what is tracked or would be if it were added; without git, what lies there."""
    if (ROOT / ".git").exists() and (git := shutil.which("git")):
        asked = subprocess.run(
            [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode == 0:
            found = (path for path in asked.stdout.split("\0") if path)
            return tuple(sorted(path for path in found if (ROOT / path).is_file()))
    found_here = []
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [
            n
            for n in inner
            if n not in NEVER_TRACKED
            and not n.startswith(".venv")
            and not n.endswith(("_cache", ".egg-info"))
            and n != ".hypothesis"
        ]
        found_here += [(Path(folder) / name).relative_to(ROOT).as_posix() for name in names]
    return tuple(sorted(found_here))


def files_of(folder: str, ending: str) -> list[str]:
    return [p for p in project_files() if p.startswith(folder) and p.endswith(ending)]


@cache
def sources(folder: str = "src/tenure/") -> tuple[Source, ...]:
    """Returns the files of a folder, parsed; the collector would go over all that grows thrice."""
    found = tuple(Source(path, read(path)) for path in files_of(folder, ".py"))
    gc.disable()
    try:
        assert all(source.nodes for source in found)
    finally:
        gc.freeze()
        gc.enable()
    return found


def rooms_and_proofs() -> tuple[Source, ...]:
    """Returns what is shipped and what proves it: both are read by people."""
    return (*sources(), *sources("proofs/"))


def users() -> list[Source]:
    """Returns what may keep a module alive; these rules may not, they only name modules."""
    found = [*sources("tests/"), *sources("bench/"), *sources("examples/")]
    return [source for source in found if not source.path.startswith("tests/tidy/")]


def hold(complaints: list[str]) -> None:
    assert not complaints, "\n" + "\n".join(complaints)


def test_each_room_imports_only_what_it_may():
    hold([c for source in sources() for c in import_rules.forbidden_imports(source)])


def test_no_room_may_import_more_than_it_does():
    hold(import_rules.unused_permissions(sources()))


def test_the_kernel_the_engines_and_the_stores_import_no_capability():
    checked = [source for source in sources() if source.path.startswith(import_rules.KERNEL)]
    assert len(checked) > len(import_rules.KERNEL)
    hold([c for one in checked for c in import_rules.capability_imports(one, sources())])


def test_files_and_functions_fit_a_reader():
    hold([c for source in rooms_and_proofs() for c in checks.overlong(source)])


def test_no_file_has_a_name_that_says_nothing():
    hold(checks.banned_names(files_of("src/tenure/", "")))


def test_no_module_or_public_class_is_a_bare_participle():
    hold(words.participle_modules(files_of("src/tenure/", ".py")))
    hold([c for source in sources() for c in words.participle_classes(source)])


def test_no_class_name_occurs_twice():
    hold(words.duplicate_classes(sources()))


def test_a_cell_of_a_table_can_be_read():
    pages = [path for path in project_files() if path.endswith(".md") and path != "CHANGELOG.md"]
    hold([c for page in pages for c in words.wide_cells(page, read(page))])


def test_what_reads_one_thing_says_by_its_name_how_it_answers_for_none():
    hold([c for source in sources() for c in checks.misnamed_reads(source)])


def test_nothing_is_left_for_later_in_a_comment():
    paths = [*files_of("src/tenure/", ".py"), *files_of("src/tenure/", ".sql")]
    hold([c for path in paths for c in checks.open_markers(path, read(path))])


def test_every_module_is_used():
    notes = read("Makefile") + read("pyproject.toml")
    hold(checks.dead_modules(rooms_and_proofs(), users(), notes))


def test_every_module_says_what_lives_in_it():
    hold([c for source in rooms_and_proofs() for c in checks.missing_docstring(source)])


def test_docstrings_name_only_what_is_there():
    known = project_files()
    all_of_it = rooms_and_proofs()
    hold([c for source in all_of_it for c in checks.gone_names(source, all_of_it, known)])


def test_sql_never_asks_the_time():
    paths = files_of("src/tenure/", ".sql")
    hold([c for path in paths for c in checks.sql_asking_time(path, read(path))])
    hold([c for source in sources() for c in checks.literals_asking_time(source)])


def test_what_must_be_repeatable_asks_no_clock_and_draws_no_lots():
    hold([c for source in sources() for c in checks.banned_calls(source)])


def test_what_must_be_repeatable_takes_no_order_from_a_set():
    hold([c for source in sources() for c in checks.unordered_loops(source)])
    hold([c for source in sources() for c in checks.unordered_waits(source)])


def test_every_error_is_in_the_reference():
    source = Source("src/tenure/core/errors.py", read("src/tenure/core/errors.py"))
    page = "docs/reference/errors.md"
    hold(checks.missing_from_page(checks.error_names(source), page, read(page)))


def test_every_event_is_in_the_reference():
    source = Source("src/tenure/core/events.py", read("src/tenure/core/events.py"))
    page = "docs/reference/events.md"
    hold(checks.missing_from_page(checks.event_names(source), page, read(page)))


def test_every_attribute_that_a_test_or_a_proof_replaces_exists():
    checked = (*sources("tests/"), *sources("proofs/"))
    assert sum(len(patch_targets.patch_targets(source)) for source in checked) > PATCHES_MIN
    hold([c for source in checked for c in patch_targets.stale_patches(source)])


def test_every_column_that_a_change_or_a_read_names_exists():
    assert sum(len(table_writes.store_calls(source)) for source in sources()) > STORE_CALLS_MIN
    hold([c for source in sources() for c in table_writes.misspelt_columns(source)])


def test_one_module_builds_the_writes_of_each_table():
    assert table_writes.OWNERS.keys() == table_writes.TABLES.keys()
    hold([c for source in sources() for c in table_writes.strange_writers(source)])
    hold(table_writes.idle_owners(sources()))


def test_every_path_on_a_page_leads_somewhere():
    pages = [path for path in project_files() if path.endswith(".md") and path != "CHANGELOG.md"]
    assert {"CONTRIBUTING.md", "ARCHITECTURE.md", "docs/glossary.md"} <= set(pages)
    known = project_files()
    hold([c for page in pages for c in signposts.gone_paths(page, read(page), known)])


def test_the_glossary_stays_short():
    words_explained = counts.glossary_words({"docs/glossary.md": read("docs/glossary.md")})
    assert 0 < words_explained <= GLOSSARY_WORDS_MAX


def test_the_readme_shows_every_room():
    shown = read("README.md").partition("## Where things are")[2]
    inside = {path.split("/")[2] for path in files_of("src/tenure/", "")}
    rooms = inside - {"__init__.py", "__main__.py", "py.typed"}
    assert sorted(room for room in rooms if f"src/tenure/{room} " not in shown) == []


def test_no_file_names_a_registry_or_a_place_on_one_machine():
    complaints = []
    for path in project_files():
        text = (ROOT / path).read_bytes().decode("utf-8", errors="replace")
        complaints += checks.machine_traces(path, text)
    hold(complaints)


def scripts_of(store: str) -> list[str]:
    """Returns the migrations of a store in their order."""
    return [read(path) for path in files_of(f"{store}/migrations/", ".sql")]


def test_migrations_are_numbered_and_make_what_their_text_says():
    complaints = []
    folders = {Path(path).parent for path in files_of("src/tenure/", ".sql")}
    stores = sorted(str(folder.parent) for folder in folders if folder.name == "migrations")
    assert len(stores) > 1
    for store in stores:
        names = [Path(path).name for path in files_of(f"{store}/migrations/", ".sql")]
        complaints += migrations.misnamed_migrations(f"{store}/migrations", names)
        if "sqlite" in store:
            complaints += migrations.misread_columns(store, scripts_of(store))
    hold(complaints)


def test_both_databases_have_the_same_migrations_and_columns():
    one, other = (f"src/tenure/adapters/store/{name}" for name in ("sqlite", "postgres"))
    names = [
        {Path(path).name for path in files_of(f"{folder}/migrations/", ".sql")}
        for folder in (one, other)
    ]
    assert names[0] == names[1]
    scripts = (scripts_of(one), scripts_of(other))
    assert len(migrations.columns_of(scripts[0])) > 80
    hold(migrations.twin_differences(one, other, scripts))
