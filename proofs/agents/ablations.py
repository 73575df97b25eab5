"""The safeguards of agents that the harness can switch off, to show that its checks notice.

The simulation of agents notices most of them, the proofs of `proofs.agents.promises` the others.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from msgspec.structs import replace

from proofs.harness.ablation import BY_PROOF, Ablation, by_name
from proofs.operations.store_mutations import without_guards
from tenure.app.agents import subject, verbs
from tenure.app.agents import views as agent_views
from tenure.app.agents.plane_api import AgentPlaneApi
from tenure.app.operations import admission, idempotency, reads
from tenure.app.operations.admission import Admission
from tenure.app.operations.idempotency import IdempotentRequest
from tenure.app.tenancy import audit
from tenure.core import audit as chain
from tenure.core import saga
from tenure.core.agent import AgentState
from tenure.core.records import AgentRecord, OperationRecord
from tenure.core.saga import MoveOutcome
from tenure.ports.store import Change, CommitRefusal, Put, Set
from tenure.testing.memory_store import Tables, tables
from tenure.testing.patches import Off, patched

# --- how each is taken out ------------------------------------------------------------------------


def admissions(change: Callable[[Admission], Admission]) -> Off:
    """Change the admission of every verb."""
    real = verbs.admit_verb

    async def admit_verb(*args: Any, **kwargs: Any) -> Admission:
        return change(await real(*args, **kwargs))

    return lambda: patched(verbs, admit_verb=admit_verb)


def closed_later(admission: Admission) -> Admission:
    """Leave the agent as it is until the operation has ended."""
    writes = tuple(
        Set(w.table, w.key, {c: v for c, v in w.row.items() if c != "state"})
        if isinstance(w, Set) and w.table == "agent" and "generation" in w.row
        else w
        for w in admission.writes
    )
    return admission._replace(writes=writes)


def same_epoch(admission: Admission) -> Admission:
    """Tell providers the same epoch every time."""
    return admission._replace(input={**(admission.input or {}), "epoch": 1})


def lock_not_waited_for() -> AbstractContextManager[None]:
    """Begin though another operation works on the agent."""
    real = AgentPlaneApi.acquire_lock

    async def acquire_lock(self: AgentPlaneApi, agent: str, operation: str, **kwargs: Any) -> Any:
        lock = await real(self, agent, operation, **kwargs)
        return (
            lock
            if not lock.held_by
            else lock._replace(held_by="", return_state=kwargs["return_state"])
        )

    return patched(AgentPlaneApi, acquire_lock=acquire_lock)


def burned_not_recorded() -> AbstractContextManager[None]:
    """Say nothing of what was removed."""
    real = saga.decide_outcome

    def decide_outcome(*given: Any, **kwargs: Any) -> MoveOutcome:
        return real(*given, **kwargs)._replace(burned=())

    return patched(saga, decide_outcome=decide_outcome)


def names_taken_over() -> AbstractContextManager[None]:
    """Put a name over another agent's."""
    real = Tables.apply

    def apply(self: Tables, change: Change) -> CommitRefusal | None:
        change = change.expand_lines()
        writes = tuple(
            Set(w.table, w.key, w.row)  # type: ignore[arg-type]
            if isinstance(w, Put) and w.table == "agent_name" and w.key in self.rows[w.table]
            else w
            for w in change.writes
        )
        return real(self, replace(change, writes=writes))

    return patched(Tables, apply=apply)


def nobody_is_told() -> AbstractContextManager[None]:
    """Close an agent without a word to the operation that works on it."""

    async def closing(*_: Any, **__: Any) -> Change:
        return Change("", (), ())

    return patched(verbs, _notify_lock_holder=closing)


def parent_not_guarded() -> AbstractContextManager[None]:
    """Believe that the parent is still open when the child is written."""
    real = Tables.apply

    def apply(self: Tables, change: Change) -> CommitRefusal | None:
        change = change.expand_lines()
        guards = tuple(g for g in change.guards if g.table != "agent" or {*g.columns} != {"state"})
        return real(self, replace(change, guards=guards))

    return patched(Tables, apply=apply)


def was_forgotten() -> AbstractContextManager[None]:
    """Take every agent for one that was READY."""
    return patched(subject, _return_state=lambda _operation, _progress: AgentState.READY)


def place_not_given_up() -> AbstractContextManager[None]:
    """Empty the place of what waits, whoever stands there by now."""
    real = subject._lock_column  # noqa: SLF001
    return patched(subject, _lock_column=lambda *given: real(*given) or ("next",))


def keys_not_kept() -> AbstractContextManager[None]:
    """Accept an operation without its idempotency key."""
    return patched(IdempotentRequest, rows=lambda *_: ())


def fingerprint_ignored() -> AbstractContextManager[None]:
    """Take any request for the one that the key was given for."""
    return patched(idempotency, fingerprint=lambda _: "the same")


def one_scope() -> AbstractContextManager[None]:
    """Share idempotency keys between tenants."""
    real = idempotency.identify
    return patched(admission, identify=lambda _, *more, **kwargs: real("everyone", *more, **kwargs))


def any_tenants_agent() -> AbstractContextManager[None]:
    """Find an agent whoever asks."""

    async def get_agent_row(plane: Any, caller: Any, name: str) -> Any:
        for row in await plane.store.list_rows(AgentRecord, {}, limit=1_000):
            if name in {row.name, row.uid}:
                return row
        return await real(plane, caller, name)

    real = agent_views.get_agent_row
    return patched(agent_views, get_agent_row=get_agent_row)


def any_tenants_operation() -> AbstractContextManager[None]:
    """Show an operation to whoever knows its id."""
    real = reads.read_own

    async def read_own(plane: Any, _: str, operation: str, **how: bool) -> Any:
        row = await plane.store.find(OperationRecord, (operation,))
        return await real(plane, "" if row is None else row.tenant, operation, **how)

    return patched(reads, read_own=read_own)


@contextmanager
def rows_not_linked() -> Iterator[None]:
    """Chain the numbers of entries and not what they say."""
    real = chain.link

    def link(previous: str, values: Sequence[object]) -> str:
        return real(previous, values[:1])

    with patched(chain, link=link), patched(tables, link=link):
        yield


def head_ignored() -> AbstractContextManager[None]:
    """Verify without the head that was written down."""
    real = audit.verify

    async def verify(plane: Any, *, head: str = "") -> audit.ChainVerdict:
        assert head is not None
        return await real(plane)

    return patched(audit, verify=verify)


# --- all of them ----------------------------------------------------------------------------------

_TABLE = (
    Ablation(
        "closed_in_accept",
        "The commit that accepts a suspend, stop or delete closes the agent.",
        "S15", (13,), "closing", admissions(closed_later),
    ),
    Ablation(
        "holder_is_told",
        "The operation at work learns in the same commit that the agent was closed.",
        "S15", (13,), "closing", nobody_is_told,
    ),
    Ablation(
        "closed_says_nothing",
        "An operation whose agent was closed says nothing more of the agent's state.",
        "S15", (13,), "closing", lambda: patched(subject, SUPERSEDED="nothing"),
    ),
    Ablation(
        "turn_waited_for",
        "A closing operation begins when the one at work has ended.",
        "S11", (2,), "closing", lock_not_waited_for,
    ),
    Ablation(
        "queued_says_nothing",
        "An operation that is queued says nothing of the agent before its turn.",
        "S11", (2,), "queued", lambda: patched(subject, _is_queued=lambda _: False),
    ),
    Ablation(
        "queued_gives_way",
        "An operation that has lost its place to a close leaves that place alone.",
        "S15", (13,), "queued", place_not_given_up,
    ),
    Ablation(
        "burned_recorded",
        "What a later operation has removed is recorded where it was intended.",
        "S1", (3,), "agents", burned_not_recorded,
    ),
    Ablation(
        "quota_guarded",
        "The last place of a quota is taken once.",
        "S14", (2,), "quota", without_guards("quota", "revision"),
    ),
    Ablation(
        "released_in_end",
        "The commit that ends an agent gives its name and its place back.",
        "S14", (2,), "agents", lambda: patched(subject, _release_writes=lambda _live, _end: []),
    ),
    Ablation(
        "name_guarded",
        "A name is one row: of two creates one wins.",
        "S11", (2,), "names", names_taken_over,
    ),
    Ablation(
        "epoch_raised",
        "Each verb raises the epoch under which providers shut and open.",
        "S6", (13,), "late", admissions(same_epoch),
    ),
    Ablation(
        "parent_guarded",
        "No child is committed once its parent was closed.",
        "S23", (13,), "owned", parent_not_guarded,
    ),
    Ablation(
        "was_kept",
        "A close that is taken back returns the agent to what it was.",
        "S17", (2,), "spared", was_forgotten,
    ),
    Ablation(
        "agent_guarded",
        "A verb stands on the agent as it was read.",
        "S12", (2,), "closing", without_guards("agent", "next"),
    ),
    Ablation(
        "key_in_accept",
        "An idempotency key is kept in the commit that accepts its operation.",
        "S20", (10,), BY_PROOF, keys_not_kept,
    ),
    Ablation(
        "fingerprint_compared",
        "A key answers only for the request that it was given for.",
        "S20", (10,), BY_PROOF, fingerprint_ignored,
    ),
    Ablation(
        "key_of_tenant",
        "Every tenant has idempotency keys of its own.",
        "S20", (10, 18), BY_PROOF, one_scope,
    ),
    Ablation(
        "agent_of_tenant",
        "An agent is found only by its own tenant.",
        "T1", (18,), BY_PROOF, any_tenants_agent,
    ),
    Ablation(
        "operation_of_tenant",
        "An operation is found only by its own tenant.",
        "T1", (18,), BY_PROOF, any_tenants_operation,
    ),
    Ablation(
        "entries_linked",
        "An audit entry's hash covers all it says and the entry before it.",
        "T17", (20,), BY_PROOF, rows_not_linked,
    ),
    Ablation(
        "head_compared",
        "The head that was written down must still be in the audit log.",
        "T17", (20,), BY_PROOF, head_ignored,
    ),
)  # fmt: skip
ABLATIONS = by_name(_TABLE)
"""Every safeguard of the lifecycle that can be switched off, by name."""
