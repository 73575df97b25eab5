"""One record type for each table of the store.

`RECORDS` lists all of them.  A store locks rows of several tables in this order, so a new record
type is added at the end.
"""

from typing import Any

from tenure.core.records.agent import (
    AgentNameRecord,
    AgentRecord,
    EdgeRecord,
    NamedAgentRecord,
    is_agent,
)
from tenure.core.records.event import (
    AcknowledgementRecord,
    CursorRecord,
    EventRecord,
    LetterRecord,
    ParkedRecord,
    SubscriptionRecord,
)
from tenure.core.records.finding import FindingRecord
from tenure.core.records.operation import (
    IdempotencyRecord,
    IntentRecord,
    JournalRecord,
    LockRecord,
    OperationRecord,
    TombstoneRecord,
)
from tenure.core.records.outbox import OutboxRecord
from tenure.core.records.plane import LeaseRecord, PlaneRecord, PlanRecord
from tenure.core.records.quota import QuotaRecord, ReservationRecord
from tenure.core.records.table import (
    TableShape,
    columns_of,
    declares_table,
    dict_of,
    key_of,
    table_of,
)
from tenure.core.records.tenancy import AuditRecord, TenancyRecord, TokenRecord

RECORDS = (
    PlaneRecord,
    PlanRecord,
    AgentRecord,
    AgentNameRecord,
    QuotaRecord,
    ReservationRecord,
    TombstoneRecord,
    TokenRecord,
    AuditRecord,
    IdempotencyRecord,
    OperationRecord,
    JournalRecord,
    IntentRecord,
    OutboxRecord,
    SubscriptionRecord,
    CursorRecord,
    ParkedRecord,
    LetterRecord,
    AcknowledgementRecord,
    TenancyRecord,
    LeaseRecord,
    FindingRecord,
    EdgeRecord,
)
RECORD_NAMED: dict[str, type[tuple[Any, ...]]] = {
    table_of(record).name: record for record in RECORDS
}
"""The record types by the names of their tables."""
TABLES: dict[str, TableShape] = {
    table.name: TableShape(table.key, table.columns) for table in map(table_of, RECORDS)
}
"""Every table the app may name.  Beside them a store keeps its own: batches and counters."""

__all__ = [
    "RECORDS",
    "RECORD_NAMED",
    "TABLES",
    "AcknowledgementRecord",
    "AgentNameRecord",
    "AgentRecord",
    "AuditRecord",
    "CursorRecord",
    "EdgeRecord",
    "EventRecord",
    "FindingRecord",
    "IdempotencyRecord",
    "IntentRecord",
    "JournalRecord",
    "LeaseRecord",
    "LetterRecord",
    "LockRecord",
    "NamedAgentRecord",
    "OperationRecord",
    "OutboxRecord",
    "ParkedRecord",
    "PlanRecord",
    "PlaneRecord",
    "QuotaRecord",
    "ReservationRecord",
    "SubscriptionRecord",
    "TenancyRecord",
    "TokenRecord",
    "TombstoneRecord",
    "columns_of",
    "declares_table",
    "dict_of",
    "is_agent",
    "key_of",
    "table_of",
]
