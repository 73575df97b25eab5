"""`OperationHandle`: one operation in the memory of its worker, read from its rows.

An engine has a handle for each operation that it executes, and loads it again after a crash.  It
converts rows to the values that the saga reads: `JournalEntry`, `Intent` and `Progress`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from tenure.app.operations.outbox_rows import event_sequence_of
from tenure.core import saga
from tenure.core.ids import ResourceKey, key_text, stem_of
from tenure.core.operation import EntryKind, Intent, IntentState, JournalEntry, OperationState
from tenure.core.plan import Plan, Step
from tenure.core.progress import Progress
from tenure.core.records.operation import IntentRecord, JournalRecord, OperationRecord
from tenure.core.records.plane import PlanRecord
from tenure.plans.catalogue import Catalogue
from tenure.ports.store import Store
from tenure.ports.subject import PLAIN_SUBJECT, Subject

CallTasks = tuple["asyncio.Task[None]", ...]
decode = msgspec.json.decode
_ENDED = {IntentState.PRESENT: "done", IntentState.BURNED: "undone"}
# The members of an enum by their values: calling the enum takes ten times as long.
OPERATION_STATES = {str(state): state for state in OperationState}
INTENT_STATES = {str(hold): hold for hold in IntentState}
ENTRY_KINDS = {str(kind): kind for kind in EntryKind}


def encode(value: object) -> str:
    """Plain data as JSON text, the form of every body column."""
    return msgspec.json.encode(value).decode()


def canonical(value: object) -> bytes:
    """Plain data as JSON with sorted keys: equal for equal data."""
    return msgspec.json.encode(value, order="sorted")


class OperationHandle:
    """An open operation in memory; a waiting operation is only rows, so its handle is dropped."""

    __slots__ = (
        "agent", "calls", "due_at", "entry_mutex", "event_sequence", "generation", "id", "input",
        "intents", "journal_length", "plan", "plan_name", "plane_id", "progress", "revision",
        "state", "stem", "subject", "tenant", "token", "worker",
    )  # fmt: skip

    def __init__(
        self,
        id: str,  # noqa: A002 (the word of the port)
        *,
        tenant: str,
        plan_name: str,
        agent: str,
        generation: int,
        input: Any,  # noqa: A002, ANN401
        plan: Plan,
        plane_id: str,
        subject: Subject = PLAIN_SUBJECT,
    ) -> None:
        self.id = id
        self.tenant = tenant
        self.plan_name = plan_name
        self.agent = agent
        self.generation = generation
        self.input = input
        self.plan = plan
        self.plane_id = plane_id
        self.subject = subject
        self.stem = ""
        """The common part of the keys of this operation, once one was made."""
        self.event_sequence = event_sequence_of(agent)
        """The counter that numbers the events of its agent."""
        self.progress = Progress()
        self.intents: dict[str, Intent] = {}
        self.journal_length = 0
        self.revision = 0
        self.token = 0
        self.worker = ""
        self.state = OperationState.PENDING
        self.due_at: float | None = 0.0
        self.calls: CallTasks = ()
        """The tasks in which a do or an inspect is calling a provider."""
        self.entry_mutex = asyncio.Lock() if plan.parallel else None
        """Taken while one of several parallel steps records its outcome."""

    def update(self, row: OperationRecord) -> None:
        """Take over the columns of the operation's row."""
        self.input = self.subject.read_input(self.plan_name, stored_input_of(row))
        self.revision = row.revision
        self.token = row.token
        self.worker = row.worker
        self.state = OPERATION_STATES[row.state]
        self.due_at = row.due_at

    def fold(self, journal: Sequence[JournalRecord]) -> set[str]:
        """Fold the journal entries that are new; returns the steps that they mark absent."""
        absent: set[str] = set()
        for row in journal[self.journal_length :]:
            entry = entry_of(row)
            self.progress = saga.after(self.plan, self.progress, entry)
            if entry.kind is EntryKind.MARKED_ABSENT:
                absent.add(entry.step)
        self.journal_length = len(journal)
        return absent

    def merge(self, rows: Sequence[IntentRecord], absent: set[str]) -> None:
        """Take over the rows of the intents, except what only this process knows of its calls."""
        for row in rows:
            new = intent_of(row)
            if new.state is IntentState.INTENDED and new.step in self.progress.done:
                new.state, new.unknown_since = (
                    IntentState.PRESENT,
                    None,
                )  # the journal entry implies it
            old = self.intents.get(new.step)
            if old is not None:
                new.busy = old.busy
                known = new.step in absent or new.state is IntentState.PRESENT
                if new.unknown_since is None and not known:
                    new.unknown_since = old.unknown_since
            self.intents[new.step] = new

    @property
    def agent_name(self) -> str:
        """The name of its agent; empty: its plan has no agent name."""
        return self.subject.name_of(self.input)

    @property
    def error(self) -> str:
        """Why it is or was undone, and which steps are stuck and why; empty if neither is so."""
        cause, compensating = self.progress.cause, self.progress.compensating_at is not None
        stuck = (
            sorted(self.progress.stuck) if compensating else ()
        )  # the cause says only why it is undone
        parts = [f"{one} is stuck: {self.intents[one].detail or 'not undone yet'}" for one in stuck]
        return "; ".join(filter(None, [cause, *parts]))

    def describe_step(self, step: str) -> str:
        """The state of this step for people: a word, and the last message of its provider."""
        intent, progress = self.intents[step], self.progress
        if step in progress.stuck:
            word = "stuck"
        elif intent.state in _ENDED:
            return _ENDED[intent.state]
        elif step in progress.refused:
            word = "refused"
        elif intent.waiting_on is not None:
            word = f"waits for {intent.waiting_on.partition(':')[2]}"
        else:
            word = "not yet" if intent.unknown_since is None else "unknown"
        detail = intent.detail or progress.cause.removeprefix(f"{step} was refused: ")
        return f"{word}: {detail}" if detail else word

    def token_of(self, step: str) -> int:
        """The fence token under which the end of this step may be recorded."""
        return self.intents[step].token

    def new_key(self, step: Step) -> str:
        """The key of the resource that this step will make."""
        if not self.stem:
            self.stem = stem_of(self.plane_id, self.tenant, self.agent, self.generation)
        return key_text(self.stem, step.slot, step.name)

    def key_of(self, step: Step) -> ResourceKey:
        """The key of the resource that this step makes, as its intent stores it."""
        name = step.name
        text = self.intents[name].key
        parts = text, self.plane_id, self.tenant, self.agent, self.generation, step.slot, name
        return tuple.__new__(ResourceKey, parts)  # its own constructor takes twice as long


async def load_handle(
    store: Store, catalogue: Catalogue, plane_id: str, operation: str, *, read_only: bool = False
) -> OperationHandle | None:
    """One operation as it stands in the store; None if there is no such operation.

    PlanUnknown if its plan cannot be performed here, unless it has ended or is `read_only`.
    """
    loaded = await store.load(operation)
    if loaded is None:
        return None
    row = loaded.operation
    plan = catalogue.find(row.plan_digest)
    if plan is None:
        body = cast(PlanRecord, await store.find(PlanRecord, (row.plan_digest,))).body
        shown = read_only or row.ended_at is not None
        plan = (
            catalogue.restore_to_show(body) if shown else catalogue.restore(body, row.plan_digest)
        )
    handle = OperationHandle(
        operation,
        tenant=row.tenant,
        plan_name=row.plan_name,
        agent=row.agent,
        generation=row.generation,
        input={},
        plan=plan,
        plane_id=plane_id,
        subject=catalogue.subject_of(row.plan_name),
    )
    handle.update(row)
    handle.merge(loaded.intents, handle.fold(loaded.journal))
    return handle


def stored_input_of(row: OperationRecord) -> Mapping[str, object]:
    """The input of an operation's steps, decoded."""
    return cast("Mapping[str, object]", decode(row.input))


def entry_of(row: JournalRecord) -> JournalEntry:
    """A journal row as the saga reads it."""
    _, number, _, kind, step, at, body = row
    return JournalEntry(number, ENTRY_KINDS[kind], step, at, decode(body))


def intent_of(row: IntentRecord) -> Intent:
    """An intent row as the saga reads it."""
    return Intent(
        row.step,
        row.slot,
        row.key,
        state=INTENT_STATES[row.state],
        token=row.token,
        attempts=row.attempts,
        due_at=row.due_at,
        unknown_since=row.unknown_since,
        waiting_on=row.waiting_on,
        detail=row.detail,
    )
