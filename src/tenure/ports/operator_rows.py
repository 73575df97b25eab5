"""Rows that other capabilities write in the commit of an operator's verb on an operation.

The kernel carries out cancel, retry, adopt and the like, and knows neither audit log nor findings.
The plane is wired with one function of the type `OperatorRows`, which says what else is written.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tenure.core.roles import Caller
from tenure.ports.store import Write
from tenure.ports.subject import SubjectOperation


class OperatorCommand(NamedTuple):
    """A verb on an operation that is about to be committed."""

    caller: Caller
    verb: str
    """Such as `cancel` or `mark_absent`."""
    operation: SubjectOperation
    """As it was before."""
    record: int
    """The number of the record that the verb adds to the journal."""
    now: float


OperatorRows = Callable[[OperatorCommand], Sequence[Write]]


def write_no_rows(_: OperatorCommand) -> Sequence[Write]:
    """For a plane without an audit log."""
    return ()
