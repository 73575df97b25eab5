"""The wheel is what users get: it has what the README's program needs, and nothing that proves it.

The wheel is built by the pinned backend through the hook that pip calls, and installed into a fresh
environment without an index.  The packages that the wheel requires are linked there from the
environment of the tests, and no others: an install from an index would take longer, fail without a
network, and show no more.  So a requirement that the wheel does not name is missed there as well.
"""

import email
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tenure import __version__
from tests.e2e.support.readme import ROOT, printed_text, run_program

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built anew."""
    into = tmp_path_factory.mktemp("wheel")
    build = f"from hatchling.build import build_wheel; build_wheel({str(into)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
    (built,) = into.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of an environment that holds the wheel and what it requires."""
    environment = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    interpreter = environment / "bin" / "python"
    if importlib.util.find_spec("pip"):
        install = [sys.executable, "-m", "pip", "--python", interpreter, "install"]
    elif shutil.which("uv"):
        install = ["uv", "pip", "install", "--python", interpreter]
    else:
        pytest.skip("there is neither pip nor uv")
    words = [*install, "--no-deps", "--no-index", wheel]
    subprocess.run(words, check=True, capture_output=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    for name in required_distributions(requirements(wheel)):
        link(name, packages)
    return interpreter


def requirements(wheel):
    """What the wheel requires without any extra."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [one for one in opened.namelist() if one.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(opened.read(name)).get_all("Requires-Dist")


def required_distributions(texts, found=None, extras=("",)):
    """The names of these distributions and of all that they require."""
    found = set() if found is None else found
    for text in texts:
        one = Requirement(text)
        if one.marker is not None and not any(one.marker.evaluate({"extra": e}) for e in extras):
            continue
        if one.name not in found:
            found.add(one.name)
            more = importlib.metadata.requires(one.name) or []
            required_distributions(more, found, ("", *one.extras))
    return found


def link(distribution, packages):
    """One distribution of this environment, linked into another's packages."""
    here = Path(sysconfig.get_path("purelib"))
    files = importlib.metadata.files(distribution)
    assert files, distribution
    for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        if not (packages / top).exists():
            (packages / top).symlink_to(here / top)


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert {name.partition("/")[0] for name in names} == {
        "tenure",
        f"tenure-{__version__}.dist-info",
    }
    inside = {name.split("/")[1] for name in names if name.startswith("tenure/")}
    assert {"py.typed", "library.py", "testing"} <= inside
    assert not {"proofs", "tests", "bench", "examples", "docs"} & inside
    assert [name for name in names if "__pycache__" in name] == []
    shipped = {f"tenure/{name}" for name in tracked_files()}
    assert shipped == {name for name in names if name.startswith("tenure/")}


def tracked_files():
    """The files of the package, as they lie in the tree."""
    package = ROOT / "src" / "tenure"
    found = [file for file in package.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    return {file.relative_to(package).as_posix() for file in found}


def test_the_program_of_the_readme_runs_on_the_wheel(python, tmp_path):
    where = [python, "-I", "-c", "import tenure; print(tenure.__file__)"]
    asked = subprocess.run(where, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert Path(asked.stdout.strip()).is_relative_to(python.parents[1])
    assert run_program(str(python), tmp_path) == printed_text()


def test_no_proof_and_no_test_can_be_imported_beside_the_wheel(python, tmp_path):
    for name in ("proofs", "tests", "pytest", "temporalio"):
        asked = subprocess.run(
            [python, "-I", "-c", f"import {name}"], capture_output=True, text=True, check=False
        )
        assert "ModuleNotFoundError" in asked.stderr, name


def test_the_command_runs_on_the_wheel(python):
    command = python.parent / "tenure"
    asked = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert asked.stdout == f"tenure {__version__}\n"
    helped = subprocess.run([command, "up", "--help"], capture_output=True, text=True, check=True)
    assert "--store" in helped.stdout
