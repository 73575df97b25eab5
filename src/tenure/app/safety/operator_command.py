"""The rows of an operator's command on an operation: an audit entry, a finding for an abandon."""

from collections.abc import Sequence

from tenure.app.safety.findings import abandoned_finding
from tenure.app.tenancy.audit import audit_line
from tenure.ports.operator_command import OperatorCommand
from tenure.ports.store import Write


def writes_for_command(one: OperatorCommand) -> Sequence[Write]:
    """The audit entry of the command, and for an abandon the finding about its resources."""
    caller, operation = one.caller, one.operation
    audit_row = audit_line(
        caller, f"operation.{one.name}", target=operation.id, now=one.now, record=one.entry_number
    )
    if one.name != "abandon":
        return (audit_row,)
    finding = abandoned_finding(
        caller.tenant,
        operation.agent,
        operation.id,
        kind=operation.plan_name,
        by=caller.principal,
        now=one.now,
    )
    return (finding, audit_row)
