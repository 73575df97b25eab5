"""The progress of an operation, computed from its whole journal."""

from collections.abc import Sequence
from functools import reduce

from tenure.core import saga
from tenure.core.operation import JournalEntry
from tenure.core.plan import Plan
from tenure.core.progress import Progress


def progress_after(plan: Plan, journal: Sequence[JournalEntry]) -> Progress:
    """The progress of an operation with this journal."""
    return reduce(lambda progress, entry: saga.after(plan, progress, entry), journal, Progress())
