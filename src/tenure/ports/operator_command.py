"""Further rows in the commit of an operator command (cancel, retry, adopt, …) on an operation.

`tenure.app.operations` carries out the command and knows neither the audit log nor findings.  The
plane has one function of the type `WritesForCommand`, which returns the rows to write besides.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tenure.core.roles import Caller
from tenure.ports.store import Write
from tenure.ports.subject import SubjectOperation


class OperatorCommand(NamedTuple):
    """A command on an operation that is about to be committed."""

    caller: Caller
    name: str
    """Such as `cancel` or `mark_absent`."""
    operation: SubjectOperation
    """The operation before the command."""
    entry_number: int
    """The number of the journal entry that the command adds."""
    now: float


WritesForCommand = Callable[[OperatorCommand], Sequence[Write]]


def no_writes(_: OperatorCommand) -> Sequence[Write]:
    """For a plane without an audit log."""
    return ()
