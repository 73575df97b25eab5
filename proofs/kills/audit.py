"""Compares three witnesses that know nothing of each other, after a plane was hurt and has ended.

They are what was said (the lines of `proofs.kills.kill9`), what is kept (the store's file) and
what there is (the files on the shelves).  What an operation must come to follows from its label
alone, so nobody has to be believed.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import apsw

from tenure.app.operations.admission import OperationRequest
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, StepKind
from tenure.plans.steps import provided
from tenure.testing.shelf import Shelf

STORE = "tenure.db"
SHELVES = ("identity", "access", "runtime", "endpoint")
AGAIN = 2
"""Requests with a key that the next life sends again, whatever became of them."""

LINEAR = Plan("linear", stages=tuple(provided(name, name) for name in SHELVES))
PARALLEL = Plan(
    "parallel",
    stages=(
        provided("identity", "identity"),
        (provided("access", "access"), provided("runtime", "runtime")),
        provided("endpoint", "endpoint"),
    ),
)
PIVOT = Plan(
    "pivot",
    stages=(
        provided("identity", "identity"),
        provided("runtime", "runtime"),
        provided("endpoint", "endpoint", kind=StepKind.PIVOT),
        provided("access", "access", kind=StepKind.RETRIABLE),
    ),
)
PLANS = (LINEAR, PARALLEL, PIVOT)


class LabelledRequest(NamedTuple):
    """What a label asks for: a life, a number, and all that follows from the number."""

    life: int
    number: int

    @property
    def label(self) -> str:
        """Its name, in the operation's input and in every file it makes."""
        return f"{self.life}-{self.number}"

    @property
    def has_key(self) -> bool:
        """Whether it has an idempotency key, its label."""
        return self.number < AGAIN or self.number % 5 == 0

    @property
    def refusing(self) -> str:
        """The shelf that refuses it; "" if none does.  A pivot refuses like any other step."""
        return ("", "", "runtime", "", "endpoint", "", "")[self.number % 7]

    @property
    def end(self) -> OperationState:
        """How it must end."""
        return OperationState.COMPENSATED if self.refusing else OperationState.SUCCEEDED

    def command(self) -> OperationRequest:
        """The request."""
        fields = {"label": self.label, "refuse": self.refusing}
        key = self.label if self.has_key else ""
        return OperationRequest(
            PLANS[self.number % len(PLANS)].name, input=fields, idempotency_key=key
        )

    @staticmethod
    def read(label: str) -> "LabelledRequest":
        """What this label asks for."""
        life, number = label.split("-")
        return LabelledRequest(int(life), int(number))


def shelves_of(directory: Path, *, slow: float = 0.0) -> dict[str, Shelf]:
    """The providers of a plane in this directory; a runtime can be there before its answer."""
    return {
        name: Shelf(directory, name, now=time.time, slow=slow if name == "runtime" else 0.0)
        for name in SHELVES
    }


class ChildLine(NamedTuple):
    """One line of a child: `accepted ID LABEL`, `ended ID STATE`."""

    word: str
    operation: str
    rest: str


def lines_of(files: Iterable[Path]) -> list[ChildLine]:
    """What children have said; a line that was cut off was not said."""
    lines: list[ChildLine] = []
    for file in sorted(files):
        whole, _, _ = file.read_text().rpartition("\n")
        lines += [
            ChildLine(*words) for line in whole.split("\n") if len(words := line.split()) == 3
        ]
    return lines


FAULTS = (
    "lost", "unended", "changed", "split", "missing", "doubled", "orphans", "holes", "broken",
)  # fmt: skip


@dataclass(slots=True)
class Report:
    """What was done, what was acknowledged, and everything that must be nought."""

    kills: int = 0
    acknowledged: int = 0
    said_ended: int = 0
    operations: int = 0
    succeeded: int = 0
    compensated: int = 0
    files: int = 0
    seconds: float = 0.0
    lost: int = 0
    """Acknowledged and not in the store."""
    unended: int = 0
    """In the store, and neither SUCCEEDED nor COMPENSATED as its label demands."""
    changed: int = 0
    """Said to have ended, and ended otherwise now."""
    split: int = 0
    """One request with two operations."""
    missing: int = 0
    """A resource of a SUCCEEDED operation that is not there."""
    doubled: int = 0
    """A resource that is there twice."""
    orphans: int = 0
    """A resource without an operation that should have it."""
    holes: int = 0
    """Gaps in a journal or in the outbox."""
    broken: int = 0
    """Complaints of the database's own check, and agents held by operations that have ended."""
    notes: list[str] = field(default_factory=list)
    """The first few of each, and whatever else went wrong, in words."""

    @property
    def sound(self) -> bool:
        """Whether every promise was kept."""
        return not any(getattr(self, name) for name in FAULTS) and not self.notes

    def fault(self, name: str, sentence: str) -> None:
        """One more of what must be nought."""
        setattr(self, name, getattr(self, name) + 1)
        if getattr(self, name) <= 3:
            self.notes.append(f"{name}: {sentence}")


class StoredOperation(NamedTuple):
    """An operation as the store has it."""

    state: str
    label: str


def audit(directory: Path, lines: list[ChildLine], report: Report | None = None) -> Report:
    """Compare what was said, what is kept and what there is, after everything has ended."""
    report = report or Report()
    base = apsw.Connection(str(directory / STORE), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        operations = {
            name: StoredOperation(state, str(json.loads(text)["label"]))
            for name, state, text in base.execute("SELECT id, state, input FROM operation")
        }
        _audit_base(base, report)
    finally:
        base.close()
    _audit_lines(lines, operations, report)
    _audit_operations(operations, report)
    _audit_world(directory, operations, report)
    return report


def _audit_base(base: apsw.Connection, report: Report) -> None:
    """The file itself: sound, no gaps, and nobody held by what has ended."""
    for (verdict,) in base.execute("PRAGMA integrity_check"):
        if verdict != "ok":
            report.fault("broken", verdict)
    gaps = base.execute(
        "SELECT operation FROM journal GROUP BY operation"
        " HAVING min(seq) <> 1 OR count(*) <> max(seq)"
    )
    for (name,) in gaps:
        report.fault("holes", f"the journal of operation {name}")
    outbox = base.execute("SELECT min(position), count(*), max(position) FROM outbox")
    first, count, last = next(outbox)
    if count and (first, count) != (1, last):
        report.fault("holes", f"the outbox has {count} of {last} positions")
    for agent, name in base.execute("SELECT uid, operation FROM agent WHERE operation IS NOT NULL"):
        report.fault("broken", f"agent {agent} is still held by operation {name}")


def _audit_lines(
    lines: list[ChildLine], operations: dict[str, StoredOperation], report: Report
) -> None:
    """Every acknowledged operation is kept, every end that was told is the end."""
    acknowledged: dict[str, str] = {}
    by_label: dict[str, str] = {}
    for word, name, rest in lines:
        if word == "accepted":
            acknowledged[name] = rest
            if by_label.setdefault(rest, name) != name:
                report.fault("split", f"{rest} was acknowledged as {by_label[rest]} and as {name}")
        elif word == "ended":
            report.said_ended += 1
            state = operations[name].state if name in operations else "lost"
            if state != rest:
                report.fault("changed", f"operation {name} was {rest} and is {state}")
        else:
            report.notes.append(f"{word}: {name} {rest}")
    report.acknowledged = len(acknowledged)
    for name, label in acknowledged.items():
        if name not in operations:
            report.fault("lost", f"operation {name} ({label}) was acknowledged")


def _audit_operations(operations: dict[str, StoredOperation], report: Report) -> None:
    """Every operation, acknowledged or not, came to what its label demands; a key has but one."""
    report.operations = len(operations)
    seen: dict[str, str] = {}
    for name, (state, label) in operations.items():
        request = LabelledRequest.read(label)
        report.succeeded += state == OperationState.SUCCEEDED
        report.compensated += state == OperationState.COMPENSATED
        if state != request.end:
            report.fault("unended", f"operation {name} ({label}) is {state}, not {request.end}")
        if request.has_key and seen.setdefault(label, name) != name:
            report.fault("split", f"{label} is kept as {seen[label]} and as {name}")


def _audit_world(directory: Path, operations: dict[str, StoredOperation], report: Report) -> None:
    """On every shelf exactly one file for each operation that has succeeded, and no other."""
    due = Counter(
        label for state, label in operations.values() if state == OperationState.SUCCEEDED
    )
    for shelf_name, shelf in shelves_of(directory).items():
        there: Counter[str] = Counter()
        for held in shelf.list_keys():
            row = json.loads((directory / shelf_name / held).read_text())
            there[str(row["spec"]["label"])] += 1
        report.files += there.total()
        for label, count in there.items():
            if not due[label]:
                report.fault("orphans", f"{shelf_name} holds {label}, which nobody has")
            elif count > due[label]:
                report.fault("doubled", f"{shelf_name} holds {label} {count} times")
        for label, count in due.items():
            if there[label] < count:
                report.fault("missing", f"{shelf_name} does not hold {label}")
