"""Checks at the start of a plane: its store, its home, its plans and its providers fit together.

Everything is checked before anything is written.
"""

import logging
from collections.abc import Mapping

from tenure.app.plane import Plane
from tenure.core.errors import Invalid, PlanUnknown
from tenure.core.records import OperationRecord, PlaneRecord, PlanRecord
from tenure.ports import plane_rows
from tenure.ports.plane_rows import HOME_ROW, PLANE_ROW
from tenure.ports.store import Change, Row

log = logging.getLogger("tenure.plane")


async def prepare(plane: Plane, *, new_home: bool = False) -> None:
    """Refuse a store, a plan or a provider that does not fit; only then store every plan.

    On a shared store, operations that only a newer release can perform are left to it.
    With `new_home` this home replaces the one that the store knows.
    """
    await _refuse_another_planes_store(plane)
    if plane.home and not new_home:
        row = await plane.store.find(PlaneRecord, HOME_ROW)
        refuse_another_home(plane.home, row.text if row is not None else "")
    _refuse_unknown_providers(plane)
    await _refuse_unknown_plans(plane)
    await plane.store.commit(Change("", (), (plane_rows.put_plane_value(PLANE_ROW, plane.id),)))
    if plane.home:
        await _write_home(plane, new_home=new_home)
    for plan in plane.catalogue:
        await plane.store.commit(Change("", (), (plane_rows.put_plan(plan),)))


async def _refuse_another_planes_store(plane: Plane) -> None:
    row = await plane.store.find(PlaneRecord, PLANE_ROW)
    if row is not None and row.text != plane.id:
        message = (
            f"this store belongs to plane {row.text!r}, not to {plane.id!r}; the name is part "
            f"of every resource's key: start with name={row.text!r}. Nothing was changed"
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


async def _write_home(plane: Plane, *, new_home: bool) -> None:
    """Write the home's name to the store; refused if another home has written its name first."""
    if new_home:
        await plane.store.commit(Change("", (), (plane_rows.drop_plane_value(HOME_ROW),)))
    refused = await plane.store.commit(
        Change("", (), (plane_rows.put_plane_value(HOME_ROW, plane.home),))
    )
    first = None if refused is None else refused.found(PlaneRecord)
    if first is not None:
        refuse_another_home(plane.home, first.text)


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
    lost, unknown_plans = list[str](), dict[str, str]()
    for digest in await plane.store.plans_of_open_operations():
        row = await plane.store.find(PlanRecord, (digest,))
        if row is None:
            if plane.catalogue.find(digest) is None:  # else `prepare` stores it again
                lost.append(f"plan {digest} is lost")
            continue
        try:
            plane.catalogue.restore(row.body, digest)
        except PlanUnknown as error:
            unknown_plans[digest] = str(error)
    if unknown_plans and plane.shared:
        await _log_left_to_others(plane, unknown_plans)
        unknown_plans = {}
    if lost or unknown_plans:
        message = (
            "open operations follow plans that are unknown to this process: "
            f"{'; '.join(sorted((*lost, *unknown_plans.values())))}. Start it with the plans they"
            " were accepted under. Nothing was changed"
        )
        raise Invalid(message)


async def _log_left_to_others(plane: Plane, unknown_plans: Mapping[str, str]) -> None:
    """Log which operations only a newer release can perform; the engine releases them again."""
    filters: list[Row] = [{"plan": digest, "ended_at": None} for digest in unknown_plans]
    count = sum([await plane.store.count_rows(OperationRecord, one) for one in filters])
    reasons = "; ".join(sorted(unknown_plans.values()))
    log.warning("open operations left to processes of a newer release: %d; %s", count, reasons)
