"""Plane: all ports in one frozen object, the first argument of every use case."""

from collections.abc import Mapping
from dataclasses import dataclass

from tenure.app.live import Live
from tenure.core.errors import Invalid
from tenure.plans.catalogue import Catalogue
from tenure.ports.engine import Engine
from tenure.ports.entropy import Entropy
from tenure.ports.provider import Provider
from tenure.ports.store import Change, Put, Row, Store


@dataclass(frozen=True, slots=True)
class Plane:
    """One control plane, wired."""

    id: str
    store: Store
    engine: Engine[Live]
    entropy: Entropy
    catalogue: Catalogue
    providers: Mapping[str, Provider]


async def prepare(plane: Plane) -> None:
    """Refuse to start if an open operation needs an unknown step; then keep every plan."""
    missing: set[str] = set()
    for digest in await plane.store.plans_of_open_operations():
        kept = await plane.store.find("plan", (digest,))
        missing |= set(plane.catalogue.missing(str(kept["body"])) if kept else [f"plan {digest}"])
    if missing:
        message = (
            f"open operations need steps unknown to this process: {', '.join(sorted(missing))}; "
            "start it with the plans they were accepted under. Nothing was changed"
        )
        raise Invalid(message)
    for plan in plane.catalogue:
        row: Row = {"name": plan.name, "version": plan.version, "body": plan.body()}
        await plane.store.commit(Change("", (), (Put("plan", (plan.digest,), row),)))
