"""Plane: all ports in one frozen object, the first argument of every use case."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tenure.app.agents.in_flight import InFlight
from tenure.app.events.feed import Feed
from tenure.app.operations.handle import OperationHandle
from tenure.app.safety.pause import Pause
from tenure.app.safety.reconcile_state import ReconcileState
from tenure.app.wakeups import Wakeup
from tenure.core.errors import Invalid, PlanUnknown
from tenure.core.records import OperationRecord, PlaneRecord, PlanRecord
from tenure.plans.catalogue import Catalogue
from tenure.ports.engine import Engine
from tenure.ports.entropy import Entropy
from tenure.ports.invoker import Invoker
from tenure.ports.operator_rows import OperatorRows, write_no_rows
from tenure.ports.provider import Provider
from tenure.ports.seal import Seal
from tenure.ports.store import Change, Drop, Put, Row, Store
from tenure.telemetry.counters import DeliveryCounters

log = logging.getLogger("tenure.plane")
PLANE_ROW = ("this",)
"""The key of the row that names the plane of this store."""
HOME_ROW = ("home",)
"""The key of the row that names the home of its processes, if several share a store."""


@dataclass(frozen=True, slots=True)
class Plane:
    """One control plane, wired."""

    id: str
    store: Store
    engine: Engine[OperationHandle]
    entropy: Entropy
    catalogue: Catalogue
    providers: Mapping[str, Provider]
    in_flight: InFlight = field(default_factory=InFlight)
    reconcile_state: ReconcileState = field(default_factory=ReconcileState)
    deliveries: DeliveryCounters = field(default_factory=DeliveryCounters)
    commits: Wakeup = field(default_factory=Wakeup)
    """Notified of every commit of this process, if the store reports them."""
    subscription_changes: Wakeup = field(default_factory=Wakeup)
    """Notified when a subscription was made, changed or deleted here, or is to be tried again."""
    invoker: Invoker | None = None
    """Passes invocations to runtimes; None: this process passes none."""
    seal: Seal | None = None
    """Seals secrets; None: this plane stores none."""
    allow_local_webhooks: bool = False
    """Whether webhooks may lead to this very machine, for development."""
    pause: Pause = field(default_factory=Pause)
    home: str = ""
    """The name of the home with its providers; empty: the store belongs to one home only."""
    shared: bool = False
    """Whether other processes use its store too and perform plans that this one cannot."""
    provider_outage: Callable[[], str] = lambda: ""
    """Why the shared providers do not answer now, if that is known; otherwise empty."""
    operator_rows: OperatorRows = write_no_rows
    """What else is written with an operator's verb on an operation: audit entry and finding."""
    feed: Feed = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "feed", Feed(self.store, self.commits))


async def prepare(plane: Plane, *, new_home: bool = False) -> None:
    """Refuse a store, a plan or a provider that does not fit; only then store every plan.

    On a shared store, operations that only a newer release can perform are left to it.
    With `new_home` this home replaces the one that the store knows.
    """
    await _refuse_another_planes_store(plane)
    if plane.home and not new_home:
        kept = await plane.store.find(PlaneRecord, HOME_ROW)
        refuse_another_home(plane.home, str(kept.name) if kept is not None else "")
    _refuse_unknown_providers(plane)
    await _refuse_unknown_plans(plane)
    await plane.store.commit(Change("", (), (Put("plane", PLANE_ROW, {"name": plane.id}),)))
    if plane.home:
        await _keep_home(plane, new_home=new_home)
    for plan in plane.catalogue:
        row: Row = {"name": plan.name, "version": plan.version, "body": plan.body()}
        await plane.store.commit(Change("", (), (Put("plan", (plan.digest,), row),)))


async def until_answered(plane: Plane) -> None:
    """Return once the store has answered; StoreError if it cannot."""
    await plane.store.find(PlaneRecord, PLANE_ROW)


async def count_states(plane: Plane, tenant: str) -> Mapping[tuple[str, str], int]:
    """How many of a tenant's open operations and named agents are in which state."""
    return await plane.store.count_states(tenant)


async def _refuse_another_planes_store(plane: Plane) -> None:
    kept = await plane.store.find(PlaneRecord, PLANE_ROW)
    if kept is not None and kept.name != plane.id:
        message = (
            f"this store belongs to plane {kept.name!r}, not to {plane.id!r}; the name is part "
            f"of every resource's key: start with plane={kept.name!r}. Nothing was changed"
        )
        raise Invalid(message)


def refuse_another_home(mine: str, theirs: str) -> None:
    """Refuse a store of another home: the providers of this home do not know its resources.

    `theirs` is the home that the store knows; empty if it knows none yet.
    """
    if theirs and theirs != mine:
        message = (
            "this store belongs to a plane with another home, whose providers hold what its agents"
            " have: name that home, by --home or TENURE_HOME. If it is lost, and only then:"
            " tenure up --new-home. Nothing was changed"
        )
        raise Invalid(message)


async def _keep_home(plane: Plane, *, new_home: bool) -> None:
    """Write the home's name to the store; refused if another home has written its name first."""
    name: Row = {"name": plane.home}
    if new_home:
        await plane.store.commit(Change("", (), (Drop("plane", HOME_ROW),)))
    refused = await plane.store.commit(Change("", (), (Put("plane", HOME_ROW, name),)))
    if refused is not None and refused.row is not None:
        refuse_another_home(plane.home, str(refused.row["name"]))


def _refuse_unknown_providers(plane: Plane) -> None:
    for plan in plane.catalogue:
        plane.catalogue.subject_of(plan.name)
        for step in plan.steps.values():
            if step.provider and step.provider not in plane.providers:
                known = ", ".join(sorted(plane.providers)) or "none"
                message = (
                    f"plan {plan.name}: step {step.name} calls provider {step.provider!r}, "
                    f"which this plane does not have; it has: {known}. Nothing was changed"
                )
                raise Invalid(message)


async def _refuse_unknown_plans(plane: Plane) -> None:
    """Refuse plans of open operations that are unknown here, unless the store is shared.

    Another process of a shared store may know them; a store in a file has no other process.
    """
    lost, strange = list[str](), dict[str, str]()
    for digest in await plane.store.plans_of_open_operations():
        kept = await plane.store.find(PlanRecord, (digest,))
        if kept is None:
            if plane.catalogue.find(digest) is None:  # else `prepare` stores it again
                lost.append(f"plan {digest} is lost")
            continue
        try:
            plane.catalogue.restore(kept.body, digest)
        except PlanUnknown as unknown:
            strange[digest] = str(unknown)
    if strange and plane.shared:
        await _leave_to_others(plane, strange)
        strange = {}
    if lost or strange:
        message = (
            "open operations follow plans that are unknown to this process: "
            f"{'; '.join(sorted((*lost, *strange.values())))}. Start it with the plans they were "
            "accepted under. Nothing was changed"
        )
        raise Invalid(message)


async def _leave_to_others(plane: Plane, strange: Mapping[str, str]) -> None:
    """Log which operations only a newer release can perform; the engine releases them again."""
    filters: list[Row] = [{"plan": digest, "ended_at": None} for digest in strange]
    count = sum([await plane.store.count_rows(OperationRecord, one) for one in filters])
    reasons = "; ".join(sorted(strange.values()))
    log.warning("open operations left to processes of a newer release: %d; %s", count, reasons)
