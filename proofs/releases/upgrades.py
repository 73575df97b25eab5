"""The proof of P23: what one release began, another finishes; forward and back.

Golden files hold a small store and its world as each earlier release wrote them, with operations in
every phase.  The release before this one is taken from the history of the repository, and both die
at every crossing of a port; the other goes on.

usage: python -m proofs.releases.upgrades [--write tests/golden]
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import apsw.shell

from proofs.harness.ablation import BY_PROOF, Ablation, by_name
from proofs.harness.subject import Check, Checks, Proof, Subject
from proofs.releases import any_release
from proofs.releases.any_release import DIED, PHASES, SHELVES, STORE, UNRULY
from tenure.core.errors import Invalid
from tenure.testing.patches import patched

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
RELEASES = {
    "kernel": "fb90e1538ec42caffbff0cdf746e795e207684b2",
    "lifecycle": "8d1e656648466583d5054b4e0bc5f47d7ea924da",
}
"""The last commit of each release so far, oldest first."""
ENDED = {
    label: "COMPENSATED" if "refuse" in asked else "SUCCEEDED"
    for label, (asked, _) in PHASES.items()
}

ablated = ""
"""The safeguard that is taken out of this release, while a proof runs without it."""


class Source(NamedTuple):
    """A release that can be run."""

    name: str
    path: str
    """What must be on Python's path; empty: it is this one."""

    def run(self, verb: str, directory: Path) -> subprocess.CompletedProcess[str]:
        """Let it do this, in a process of its own."""
        command = [sys.executable, any_release.__file__, verb, str(directory)]
        if ablated and not self.path:
            command += ["--ablate", ablated]
        path = self.path or str(ROOT / "src")
        return subprocess.run(  # noqa: S603 (ourselves)
            command,
            env={"PYTHONPATH": path, "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


THIS = Source("this release", "")


@cache
def _archive(commit: str) -> bytes:
    """The sources at a commit, as git has them; Invalid says why they cannot be had."""
    try:
        told = subprocess.run(  # noqa: S603 (a fixed command)
            ["git", "-C", str(ROOT), "archive", commit, "src"],  # noqa: S607 (whichever git)
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise Invalid(f"there is no git here ({error.strerror}): no earlier release") from None
    if told.returncode:
        raise Invalid(
            f"the repository has no commit {commit[:12]}: fetch its whole history"
            f" (git fetch --unshallow); git says: {told.stderr.decode().strip()}"
        )
    return told.stdout


@contextmanager
def source_of_release(name: str) -> Iterator[Source]:
    """An earlier release, taken out of the history for as long as the block lasts."""
    packed = _archive(RELEASES[name])
    with tempfile.TemporaryDirectory(prefix="tenure-release-") as place:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(place, filter="data")
        yield Source(f"the release of the {name}", f"{place}/src")


# --- golden files ---------------------------------------------------------------------------------


def dump(directory: Path) -> dict[str, str]:
    """A store and its world as text: the SQL that makes it, and what lies on the shelves."""
    file = apsw.Connection(str(directory / STORE))
    file.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    out = io.StringIO()
    apsw.shell.Shell(stdout=out, db=file, args=[]).process_command(".dump")  # type: ignore[no-untyped-call]
    numbers = [(name, file.pragma(name)) for name in ("application_id", "user_version")]
    file.close()
    lines = [line for line in out.getvalue().splitlines() if not line.startswith("--")]
    kept = [
        line
        for line in lines
        if not line.lower().startswith(tuple(f"pragma {name}" for name, _ in numbers))
    ]
    sql = "\n".join([*kept, *(f"PRAGMA {name}={number};" for name, number in numbers)])
    world = {
        f"{name}/{one.name}": one.read_text()
        for name in SHELVES
        for one in sorted((directory / name).iterdir())
    }
    return {"store.sql": sql.strip() + "\n", "world.json": json.dumps(world, indent=1) + "\n"}


def load(golden: Path, directory: Path) -> None:
    """Make the store and the world of a golden file."""
    directory.mkdir(parents=True)
    file = apsw.Connection(str(directory / STORE))
    file.execute((golden / "store.sql").read_text(encoding="utf-8"))
    file.close()
    for name, text in json.loads((golden / "world.json").read_text(encoding="utf-8")).items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")


def write_golden(folder: Path) -> None:
    """Make every golden file anew, each by its own release."""
    for name in RELEASES:
        with source_of_release(name) as source, tempfile.TemporaryDirectory() as place:
            told = source.run("write", Path(place) / "plane")
            if told.returncode != DIED:
                raise Invalid(f"{source.name} did not do it: {told.stderr}")
            (folder / name).mkdir(parents=True, exist_ok=True)
            for file, text in dump(Path(place) / "plane").items():
                (folder / name / file).write_text(text, encoding="utf-8")


# --- what must hold -------------------------------------------------------------------------------


def finish_operations(
    by: Source, directory: Path, expected_states: dict[str, str] | None = None
) -> list[str]:
    """Let a release finish what is there; what is wrong with it then, counted in the world."""
    (directory / UNRULY).touch()
    told = by.run("finish", directory)
    if told.returncode:
        return [f"{by.name} cannot go on: {told.stderr.strip().splitlines()[-1]}"]
    return [
        wrong
        for line in told.stdout.splitlines()
        for wrong in _wrong(directory, json.loads(line), expected_states)
    ]


def _wrong(root: Path, result: dict[str, Any], expected_states: dict[str, str] | None) -> list[str]:
    found: dict[str, str] = result["ended"]
    wrong = []
    if expected_states is None:  # whatever was accepted must be there, and end as it was asked to
        accepted = root / result["directory"] / "accepted"
        labels = accepted.read_text().split() if accepted.exists() else []
        wrong += [f"{result['directory']}: {one} was lost" for one in labels if one not in found]
        expected_states = {one: "SUCCEEDED" if one == "done" else "COMPENSATED" for one in found}
    if found != expected_states:
        wrong.append(f"{result['directory']}: ended as {found}, not as {expected_states}")
    there = sorted(label for label, state in expected_states.items() if state == "SUCCEEDED")
    wrong += [
        f"{result['directory']}: {shelf} holds {agents}, not {there}"
        for shelf, agents in result["held"].items()
        if agents != there
    ]
    return wrong


def upgrades() -> Checks:
    """Golden files forward; every phase and every crossing forward and back."""
    again = "python -m proofs.prove 23"
    with tempfile.TemporaryDirectory(prefix="tenure-upgrade-") as place:
        root = Path(place)
        for name in RELEASES:
            load(GOLDEN / name, root / name)
            yield Check(
                f"{again} (golden file {name})", finish_operations(THIS, root / name, ENDED)
            )
        with source_of_release([*RELEASES][-1]) as before:
            for writer, other in ((THIS, before), (before, THIS)):
                directory = root / f"phases by {writer.name}"
                told = writer.run("write", directory)
                wrong = [] if told.returncode == DIED else [told.stderr]
                wrong = wrong or finish_operations(other, directory, ENDED)
                yield Check(f"{again} ({directory.name})", wrong)
                crossings = root / f"deaths of {writer.name}"
                told = writer.run("die", crossings)
                wrong = [] if not told.returncode else [told.stderr]
                wrong = wrong or finish_operations(other, crossings)
                yield Check(f"{again} ({crossings.name})", wrong, int(told.stdout or 1))


def _without(safeguard: str) -> AbstractContextManager[None]:
    return patched(sys.modules[__name__], ablated=safeguard)


SUBJECT = Subject(
    "releases",
    (Proof(23, checks=upgrades),),
    by_name(
        (
            Ablation(
                "only_adds",
                "After a migration that only adds, the release before can still open the file.",
                "S28",
                (23,),
                BY_PROOF,
                lambda: _without("only_adds"),
            ),
        )
    ),
)


def main() -> int:
    """Write the golden files anew, or prove."""
    parser = argparse.ArgumentParser(prog="releases", description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="where golden files are written")
    asked = parser.parse_args()
    if asked.write:
        write_golden(asked.write)
        return 0
    wrong = [sentence for _, found, _ in upgrades() for sentence in found]
    print("\n".join(wrong) or "every operation was finished")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
