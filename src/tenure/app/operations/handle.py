"""One operation as its worker sees it: rows turned into values, and back.

Nothing is decided here.  What is stored is plain columns; what the saga sees is `Record`, `Intent`
and `Progress`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from tenure.core import saga
from tenure.core.ids import ResourceKey, key_text, stem_of
from tenure.core.operation import Intent, IntentState, OperationState, Record, RecordKind
from tenure.core.plan import Plan, Step
from tenure.core.progress import Progress
from tenure.plans.catalogue import Catalogue
from tenure.ports.store import Header, Next, Row, Store
from tenure.ports.subject import PLAIN_SUBJECT, Subject

POSITION = Next("outbox")
OUTBOX = Header(
    "outbox",
    ("position",),
    ("tenant", "agent", "operation", "type", "at", "body", "sequence"),
    adds=True,
    given=(0, 7),
)
Calls = tuple["asyncio.Task[None]", ...]
decode = msgspec.json.decode
_ENDED = {IntentState.PRESENT: "done", IntentState.BURNED: "undone"}
# The members of an enum by their words: to call the enum takes ten times as long.
OPERATION_STATES = {str(state): state for state in OperationState}
INTENT_STATES = {str(hold): hold for hold in IntentState}
RECORD_KINDS = {str(kind): kind for kind in RecordKind}


def encode(value: object) -> str:
    """Plain data as JSON text, the form of every body column."""
    return msgspec.json.encode(value).decode()


def sequence_of(agent: str) -> Next:
    """The number of an event among those of its agent: it grows by one with each."""
    return Next(f"event/{agent}")


def canonical(value: object) -> bytes:
    """Plain data as JSON, its keys in order: equal for equal data."""
    return msgspec.json.encode(value, order="sorted")


class OperationHandle:
    """An open operation in memory; dropped when it parks, since waiting ones are rows."""

    __slots__ = (
        "agent", "calls", "due_at", "generation", "id", "input", "intents", "kind", "lock", "plan",
        "plane", "progress", "revision", "seq", "sequence", "state", "stem", "subject", "tenant",
        "token", "worker",
    )  # fmt: skip

    def __init__(
        self,
        id: str,  # noqa: A002 (the word of the port)
        *,
        tenant: str,
        kind: str,
        agent: str,
        generation: int,
        input: Mapping[str, object],  # noqa: A002
        plan: Plan,
        plane: str,
        subject: Subject = PLAIN_SUBJECT,
    ) -> None:
        """An operation with nothing folded yet."""
        self.id = id
        self.tenant = tenant
        self.kind = kind
        self.agent = agent
        self.generation = generation
        self.input = input
        self.plan = plan
        self.plane = plane
        self.subject = subject
        self.stem = ""
        """What the keys of this operation have in common, once one was made."""
        self.sequence = sequence_of(agent)
        """What numbers the events of its agent."""
        self.progress = Progress()
        self.intents: dict[str, Intent] = {}
        self.seq = 0
        self.revision = 0
        self.token = 0
        self.worker = ""
        self.state = OperationState.PENDING
        self.due_at: float | None = 0.0
        self.calls: Calls = ()
        """The tasks in which a do or an inspect is out at a provider."""
        self.lock = asyncio.Lock() if plan.parallel else None
        """Held while one of several parallel steps records its end."""

    def take(self, row: Row) -> None:
        """What the operation's row says now."""
        said: dict[str, Any] = row
        self.input = input_of(row)
        self.revision = said["revision"]
        self.token = said["token"]
        self.worker = said["worker"]
        self.state = OPERATION_STATES[said["state"]]
        self.due_at = said["due_at"]

    def fold(self, journal: Sequence[Row]) -> set[str]:
        """Fold the records not seen yet; the answer is the steps marked absent in them."""
        absent: set[str] = set()
        for row in journal[self.seq :]:
            record = record_of(row)
            self.progress = saga.after(self.plan, self.progress, record)
            if record.kind is RecordKind.MARKED_ABSENT:
                absent.add(record.step)
        self.seq = len(journal)
        return absent

    def merge(self, rows: Sequence[Row], absent: set[str]) -> None:
        """What the intents' rows say now; what only this process knows of its calls is kept."""
        for row in rows:
            new = intent_of(row)
            if new.state is IntentState.INTENDED and new.step in self.progress.done:
                new.state, new.unknown_since = IntentState.PRESENT, None  # as its record says
            old = self.intents.get(new.step)
            if old is not None:
                new.busy = old.busy
                told = new.step in absent or new.state is IntentState.PRESENT
                if new.unknown_since is None and not told:
                    new.unknown_since = old.unknown_since
            self.intents[new.step] = new

    @property
    def agent_name(self) -> str:
        """What people call its agent; empty: its plan knows of no name."""
        return self.subject.name_of(self.input)

    @property
    def error(self) -> str:
        """Why it is stuck or was turned back; empty while all is well."""
        cause, back = self.progress.cause, self.progress.compensating_at is not None
        stuck = sorted(self.progress.stuck) if back else ()  # the cause tells only why it turned
        said = [f"{one} is stuck: {self.intents[one].detail or 'not undone yet'}" for one in stuck]
        return "; ".join(filter(None, [cause, *said]))

    def describe_step(self, step: str) -> str:
        """How this step stands, for people: a word, and what its provider said last."""
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
        said = intent.detail or progress.cause.removeprefix(f"{step} was refused: ")
        return f"{word}: {said}" if said else word

    def token_of(self, step: str) -> int:
        """The fence token under which the end of this step may be recorded."""
        return self.intents[step].token

    def new_key(self, step: Step) -> str:
        """The address of what this step will make."""
        if not self.stem:
            self.stem = stem_of(self.plane, self.tenant, self.agent, self.generation)
        return key_text(self.stem, step.slot, step.name)

    def key_of(self, step: Step) -> ResourceKey:
        """The address of what this step makes, as its intent has kept it."""
        name = step.name
        text = self.intents[name].key
        parts = text, self.plane, self.tenant, self.agent, self.generation, step.slot, name
        return tuple.__new__(ResourceKey, parts)  # its own constructor takes twice as long


async def load_handle(
    store: Store, catalogue: Catalogue, plane: str, operation: str, *, only_look: bool = False
) -> OperationHandle | None:
    """One operation as it stands in the store; None if there is no such operation.

    PlanUnknown if its plan cannot be performed here, unless it has ended or is `only_look`ed at.
    """
    loaded = await store.load(operation)
    if loaded is None:
        return None
    digest = cast(str, loaded.operation["plan"])
    plan = catalogue.kept(digest)
    if plan is None:
        kept = cast(Row, await store.find("plan", (digest,)))
        body, ended = cast(str, kept["body"]), loaded.operation["ended_at"] is not None
        plan = catalogue.shown(body) if ended or only_look else catalogue.restore(body, digest)
    row = loaded.operation
    kind = cast(str, row["kind"])
    live = OperationHandle(
        operation,
        tenant=cast(str, row["tenant"]),
        kind=kind,
        agent=cast(str, row["agent"]),
        generation=cast(int, row["generation"]),
        input={},
        plan=plan,
        plane=plane,
        subject=catalogue.subject_of(kind),
    )
    live.take(row)
    live.merge(loaded.intents, live.fold(loaded.journal))
    return live


def input_of(row: Row) -> Mapping[str, object]:
    """What the steps of an operation are given, as its row says."""
    return cast("Mapping[str, object]", decode(cast(str, row["input"])))


def record_of(row: Row) -> Record:
    """A journal row as the saga reads it."""
    said: dict[str, Any] = row
    return Record(
        said["seq"], RECORD_KINDS[said["kind"]], said["step"], said["at"], decode(said["body"])
    )  # fmt: skip


def intent_of(row: Row) -> Intent:
    """An intent row as the saga reads it."""
    said: dict[str, Any] = row
    return Intent(
        said["step"],
        said["slot"],
        said["key"],
        state=INTENT_STATES[said["state"]],
        token=said["token"],
        attempts=said["attempts"],
        due_at=said["due_at"],
        unknown_since=said["unknown_since"],
        waiting_on=said["waiting_on"],
        detail=said["detail"],
    )
