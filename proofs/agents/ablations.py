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

# --- how each is switched off ---------------------------------------------------------------------


def admissions(change: Callable[[Admission], Admission]) -> Off:
    """Change the admission of every verb."""
    real = verbs.admit_verb

    async def admit_verb(*args: Any, **kwargs: Any) -> Admission:
        return change(await real(*args, **kwargs))

    return lambda: patched(verbs, admit_verb=admit_verb)


def closed_later(admission: Admission) -> Admission:
    """Accept a closing verb without changing the state of its agent."""
    writes = tuple(
        Set(w.table, w.key, {c: v for c, v in w.row.items() if c != "state"})
        if isinstance(w, Set) and w.table == "agent" and "generation" in w.row
        else w
        for w in admission.writes
    )
    return admission._replace(writes=writes)


def same_epoch(admission: Admission) -> Admission:
    """Give providers the same epoch every time."""
    return admission._replace(input={**(admission.input or {}), "epoch": 1})


def lock_not_waited_for() -> AbstractContextManager[None]:
    """Start although another operation has the lock of the agent."""
    real = AgentPlaneApi.acquire_lock

    async def acquire_lock(self: AgentPlaneApi, agent: str, operation: str, **kwargs: Any) -> Any:
        lock = await real(self, agent, operation, **kwargs)
        return (
            lock
            if not lock.lock_holder
            else lock._replace(lock_holder="", return_state=kwargs["return_state"])
        )

    return patched(AgentPlaneApi, acquire_lock=acquire_lock)


def burned_not_recorded() -> AbstractContextManager[None]:
    """Do not record which resources were removed."""
    real = saga.decide_outcome

    def decide_outcome(*given: Any, **kwargs: Any) -> MoveOutcome:
        return real(*given, **kwargs)._replace(burned=())

    return patched(saga, decide_outcome=decide_outcome)


def names_taken_over() -> AbstractContextManager[None]:
    """Write the name of an agent over the same name of another one."""
    real = Tables.apply

    def apply(self: Tables, change: Change) -> CommitRefusal | None:
        change = change.expand_prepared()
        writes = tuple(
            Set(w.table, w.key, w.row)  # type: ignore[arg-type]
            if isinstance(w, Put) and w.table == "agent_name" and w.key in self.rows[w.table]
            else w
            for w in change.writes
        )
        return real(self, replace(change, writes=writes))

    return patched(Tables, apply=apply)


def nobody_is_told() -> AbstractContextManager[None]:
    """Close an agent without notifying the operation that has its lock."""

    async def closing(*_: Any, **__: Any) -> Change:
        return Change("", (), ())

    return patched(verbs, _supersede=closing)


def parent_not_guarded() -> AbstractContextManager[None]:
    """Write a child without checking that its parent is still open."""
    real = Tables.apply

    def apply(self: Tables, change: Change) -> CommitRefusal | None:
        change = change.expand_prepared()
        guards = tuple(g for g in change.guards if g.table != "agent" or {*g.columns} != {"state"})
        return real(self, replace(change, guards=guards))

    return patched(Tables, apply=apply)


def was_forgotten() -> AbstractContextManager[None]:
    """Return every agent to READY, whatever its state was."""
    return patched(subject, _return_state=lambda _operation, _progress: AgentState.READY)


def place_not_given_up() -> AbstractContextManager[None]:
    """Empty the lock queue of an agent, even if another operation is queued by now."""
    real = subject._lock_columns  # noqa: SLF001
    return patched(subject, _lock_columns=lambda *given: real(*given) or ("next",))


def keys_not_kept() -> AbstractContextManager[None]:
    """Accept an operation without its idempotency key."""
    return patched(IdempotentRequest, rows=lambda *_: ())


def fingerprint_ignored() -> AbstractContextManager[None]:
    """Treat every request with a key as a repetition of the first one."""
    return patched(idempotency, fingerprint=lambda _: "the same")


def one_scope() -> AbstractContextManager[None]:
    """Share idempotency keys between tenants."""
    real = idempotency.request_under_key

    def under_one_tenant(_: str, *more: Any, **kwargs: Any) -> idempotency.IdempotentRequest:
        return real("everyone", *more, **kwargs)

    return patched(admission, request_under_key=under_one_tenant)


def any_tenants_agent() -> AbstractContextManager[None]:
    """Return an agent to every tenant."""

    async def get_agent_row(plane: Any, caller: Any, name: str) -> Any:
        for row in await plane.store.list_rows(AgentRecord, {}, limit=1_000):
            if name in {row.name, row.uid}:
                return row
        return await real(plane, caller, name)

    real = agent_views.get_agent_row
    return patched(agent_views, get_agent_row=get_agent_row)


def any_tenants_operation() -> AbstractContextManager[None]:
    """Return an operation to every tenant that knows its id."""
    real = reads.read_own

    async def read_own(plane: Any, _: str, operation: str, **how: bool) -> Any:
        row = await plane.store.find(OperationRecord, (operation,))
        return await real(plane, "" if row is None else row.tenant, operation, **how)

    return patched(reads, read_own=read_own)


@contextmanager
def rows_not_linked() -> Iterator[None]:
    """Chain the numbers of entries and not their contents."""
    real = chain.link

    def link(previous: str, values: Sequence[object]) -> str:
        return real(previous, values[:1])

    with patched(chain, link=link), patched(tables, link=link):
        yield


def head_ignored() -> AbstractContextManager[None]:
    """Verify without the exported head hash."""
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
        "The commit that closes an agent also notifies the operation that has its lock.",
        "S15", (13,), "closing", nobody_is_told,
    ),
    Ablation(
        "closed_says_nothing",
        "An operation whose agent was closed no longer writes the state of the agent.",
        "S15", (13,), "closing", lambda: patched(subject, SUPERSEDED="nothing"),
    ),
    Ablation(
        "turn_waited_for",
        "A closing operation starts its steps only after the operation that has the lock has"
        " ended.",
        "S11", (2,), "closing", lock_not_waited_for,
    ),
    Ablation(
        "queued_says_nothing",
        "An operation in the lock queue does not write the state of the agent before it has the"
        " lock.",
        "S11", (2,), "queued", lambda: patched(subject, _is_queued=lambda _: False),
    ),
    Ablation(
        "queued_gives_way",
        "An operation that a close has displaced from the lock queue does not empty the queue"
        " when it ends.",
        "S15", (13,), "queued", place_not_given_up,
    ),
    Ablation(
        "burned_recorded",
        "A removal is also recorded on the intent of the earlier operation that made the resource.",
        "S1", (3,), "agents", burned_not_recorded,
    ),
    Ablation(
        "quota_guarded",
        "Two creates cannot both take the last place of a quota.",
        "S14", (2,), "quota", without_guards("quota", "revision"),
    ),
    Ablation(
        "released_in_end",
        "The commit that ends an agent releases its name and its place in the quota.",
        "S14", (2,), "agents", lambda: patched(subject, _release_writes=lambda _live, _end: []),
    ),
    Ablation(
        "name_guarded",
        "Of two creates with the same name only one is accepted, because a name is one row.",
        "S11", (2,), "names", names_taken_over,
    ),
    Ablation(
        "epoch_raised",
        "Each verb raises the epoch, so that a provider ignores a late open or close of an"
        " earlier verb.",
        "S6", (13,), "late", admissions(same_epoch),
    ),
    Ablation(
        "parent_guarded",
        "A child is not created after its parent was closed.",
        "S23", (13,), "owned", parent_not_guarded,
    ),
    Ablation(
        "was_kept",
        "A cancelled close returns the agent to the state before it.",
        "S17", (2,), "spared", was_forgotten,
    ),
    Ablation(
        "agent_guarded",
        "A verb is accepted only if the agent has not changed since it was read.",
        "S12", (2,), "closing", without_guards("agent", "next"),
    ),
    Ablation(
        "key_in_accept",
        "An idempotency key is stored in the commit that accepts its operation.",
        "S20", (10,), BY_PROOF, keys_not_kept,
    ),
    Ablation(
        "fingerprint_compared",
        "An idempotency key is refused with a request other than its first one.",
        "S20", (10,), BY_PROOF, fingerprint_ignored,
    ),
    Ablation(
        "key_of_tenant",
        "Two tenants can use the same idempotency key for different requests.",
        "S20", (10, 18), BY_PROOF, one_scope,
    ),
    Ablation(
        "agent_of_tenant",
        "A tenant can read only its own agents.",
        "T1", (18,), BY_PROOF, any_tenants_agent,
    ),
    Ablation(
        "operation_of_tenant",
        "A tenant can read only its own operations.",
        "T1", (18,), BY_PROOF, any_tenants_operation,
    ),
    Ablation(
        "entries_linked",
        "The hash of an audit entry covers all its fields and the hash of the entry before it.",
        "T17", (20,), BY_PROOF, rows_not_linked,
    ),
    Ablation(
        "head_compared",
        "A verification with an exported head hash fails if the audit log no longer has that"
        " entry.",
        "T17", (20,), BY_PROOF, head_ignored,
    ),
)  # fmt: skip
ABLATIONS = by_name(_TABLE)
"""Every safeguard of the lifecycle that can be switched off, by name."""
