"""Measures how often each ablation is noticed, and writes the pages of the docs.

usage: python -m proofs.ablations [--page operations] [--seeds 300] [--seconds 60]
                                  [--only NAME] [--write PATH]
"""

import argparse
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import apsw

from proofs.harness.ablation import Ablation, hunt, row_of
from proofs.harness.simulation import simulate
from proofs.harness.subject import Subject
from proofs.operations.ablations import LEFT_OUT
from proofs.simulation import silence_product_logs
from proofs.subjects import SUBJECTS

OPERATIONS = """# Ablations: what each safeguard is for

The test harness switches off each safeguard below by patching the real code; no setting of the
product can do that. Then it simulates runs from seeds, with the workload profile of the row. Some
check must notice. A row says how many runs noticed, and which invariants were broken most often.
`tests/simulation/test_ablations.py` fails if none of 1,000 seeds notices.

Made on {today} with {versions} by

```
{command}
```

With every safeguard on, the same {seeds} seeds of each of these profiles ({calm:,} runs) had
{failed} failures.

| safeguard | what it is for | keeps | profile | noticed | first seed | broken without it |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

The last two are about the simulator itself: two runs of one seed have different trace hashes.

## Left out

If a second safeguard covers the same failure, no run can fail without the first. The first three
of this list were measured (1,000 runs each, no failure). The last two were not measured:

{left}
"""
LIFECYCLE = """# Ablations of agents, events, reconcilers, HTTP and upgrades

As in [ablations](ablations.md): each safeguard below is switched off by the test harness, and
simulation runs drawn from seeds must notice; `tests/simulation/test_ablations.py` fails if none of
1,000 seeds does. Made on {today} with {versions} by

```
{command}
```

With every safeguard on, the same {seeds} seeds of each of these profiles ({calm:,} runs) had
{failed} failures.

The column `noticed` has the runs that noticed, of the runs that were made. After the first run that
noticed, no run starts later than `--seconds` after the beginning. So most rows have fewer runs than
`--seeds`, and how many depends on the machine.

| safeguard | what it is for | keeps | profile | noticed | first seed | broken without it |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

Those without a profile are noticed by the proof of their promise: `make prove P=n ABLATE=name`.
"""


class Page(NamedTuple):
    """A page of the docs that lists ablations."""

    path: str
    subjects: tuple[str, ...]
    text: str


PAGES = {
    "operations": Page("docs/reference/ablations.md", ("operations",), OPERATIONS),
    "lifecycle": Page(
        "docs/reference/lifecycle_ablations.md",
        ("agents", "events", "reconcilers", "http", "releases"),
        LIFECYCLE,
    ),
}


def ablations_of(page: str) -> Iterator[tuple[Subject, Ablation]]:
    """The ablations on a page, with their subject."""
    for name in PAGES[page].subjects:
        for ablation in SUBJECTS[name].ablations.values():
            yield SUBJECTS[name], ablation


def page_of(
    page: str, rows: Sequence[str], *, command: str, seeds: int, calm: int, failed_runs: int
) -> str:
    """The text of a page."""
    return PAGES[page].text.format(
        today=datetime.now(UTC).date().isoformat(),
        versions=f"Python {platform.python_version()} and SQLite {apsw.sqlite_lib_version()}",
        command=command,
        seeds=seeds,
        calm=calm,
        failed=failed_runs,
        rows="\n".join(rows),
        left="\n".join(f"- `{name}`: {why}" for name, why in LEFT_OUT.items()),
    )


def check_profiles(selection: Sequence[tuple[Subject, Ablation]], seeds: range) -> tuple[int, int]:
    """Run the profiles with every safeguard on: how many runs, and how many failed."""
    runs = failed_runs = 0
    profiles = {(s.name, a.profile) for s, a in selection if a.is_simulated}
    for name, profile in sorted(profiles):
        simulation = SUBJECTS[name].simulation
        assert simulation is not None
        wrong = [seed for seed in seeds if simulate(simulation, seed, profile).wrong]
        runs, failed_runs = runs + len(seeds), failed_runs + len(wrong)
        print(f"all on, {profile}: {len(wrong)} of {len(seeds)} {wrong[:5] or ''}", flush=True)
    return runs, failed_runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure how often each ablation is noticed, and write the page if asked."""
    parser = argparse.ArgumentParser(prog="ablations", description=__doc__.splitlines()[0])
    parser.add_argument("--page", choices=sorted(PAGES), default="operations")
    parser.add_argument("--seeds", type=int, default=300, help="runs of each")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each, once it was noticed")
    parser.add_argument("--only", default="", help="this one alone")
    parser.add_argument("--write", type=Path, help="the page to write")
    options = parser.parse_args(arguments)
    selection = [one for one in ablations_of(options.page) if options.only in ("", one[1].name)]
    seeds = range(options.seeds)
    calm, failed_runs = check_profiles(selection, seeds)
    rows, missed = [], []
    for subject, ablation in selection:
        began, found = time.perf_counter(), None
        if ablation.is_simulated:
            assert subject.simulation is not None
            found = hunt(subject.simulation, ablation, seeds, to_end=True, seconds=options.seconds)
            missed += [] if found.noticed else [ablation.name]
            share = f"noticed in {found.noticed} of {found.seeds}"
            print(f"{ablation.name}: {share}, {time.perf_counter() - began:.1f} s", flush=True)
        rows.append(row_of(ablation, found))
    if options.write is not None:
        path = PAGES[options.page].path
        given = f"--page {options.page} --seeds {options.seeds} --seconds {options.seconds:g}"
        command = f"python -m proofs.ablations {given} --write {path}"
        text = page_of(
            options.page,
            rows,
            command=command,
            seeds=options.seeds,
            calm=calm,
            failed_runs=failed_runs,
        )
        options.write.write_text(text, encoding="utf-8")
    if missed or failed_runs:
        print(f"not noticed: {', '.join(missed) or 'none'}; failures with all on: {failed_runs}")
    return 1 if missed or failed_runs else 0


if __name__ == "__main__":
    silence_product_logs()
    sys.exit(main())
