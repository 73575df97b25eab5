"""The safeguards of reconcilers that the harness can switch off."""

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from proofs.harness.ablation import BY_PROOF, Ablation, by_name
from proofs.reconcilers.workload import off
from tenure.app.plane import Plane
from tenure.core.records import IntentRecord
from tenure.ports.provider import Provider
from tenure.reconcilers import orphans, retention
from tenure.reconcilers.driver import RECONCILERS
from tenure.reconcilers.passes import Pass
from tenure.testing.patches import patched


class Earlier(NamedTuple):
    """A plane whose store answers as it did at an earlier time."""

    plane: Plane
    store: Any


class Then(NamedTuple):
    """The keys that a store listed as living at an earlier time."""

    keys: frozenset[str]

    async def list_living(self, *_: object, **__: object) -> frozenset[str]:
        """The same keys, whatever was created since."""
        return self.keys


def store_first() -> AbstractContextManager[None]:
    """Read the store before the provider is listed."""

    async def compare(plane: Plane, _: Pass, slot: str, provider: Provider, tick: Any) -> None:
        rows = await plane.store.list_rows(IntentRecord, {"slot": slot}, limit=1_000)
        then: Any = Earlier(plane, Then(frozenset(row.key for row in rows)))
        listed = [one async for one in provider.list_owned(plane.id)]
        await orphans._collect_suspects(then, slot, listed, tick)  # noqa: SLF001

    async def judge(_: Plane, suspect: orphans.Suspect) -> orphans.JudgedSuspect:
        return orphans.JudgedSuspect(
            suspect, orphans.OrphanVerdict.UNKNOWN, "the store did not know it then"
        )

    return patched(orphans, _compare=compare, judge=judge)


_TABLE = (
    Ablation(
        "provider_first",
        "The orphan pass lists the provider before it reads the store.",
        "S8", (4,), BY_PROOF, store_first,
    ),
    Ablation(
        "leader_fenced",
        "The commit that intends a deletion guards the leader's token.",
        "S6 S8", (4,), BY_PROOF, lambda: patched(Pass, fence=lambda _: ()),
    ),
    Ablation(
        "seen_twice",
        "An orphan is removed only after a second sighting, some time after the first.",
        "S8", (4,), BY_PROOF, lambda: patched(orphans, SIGHTINGS=1, APART_SECONDS=0.0),
    ),
    Ablation(
        "grace",
        "A young resource is not treated as an orphan.",
        "S8", (4,), BY_PROOF, lambda: patched(orphans, GRACE_SECONDS=0.0),
    ),
    Ablation(
        "sweep_capped",
        "A pass that finds too many orphans at once removes none of them and reports a finding.",
        "S9", (4,), BY_PROOF, lambda: patched(orphans, cap=lambda _: 1e9),
    ),
    Ablation(
        "held_is_known",
        "An operation is retained while a resource that it made may still exist.",
        "S10", (3,), "lost_reactions", lambda: patched(retention, may_hold=lambda _: False),
    ),
    *(
        Ablation(
            f"reconciler_{name}", f"The reconciler `{name}` runs.", "S4 S10", (3,),
            "lost_reactions", off(name),
        )
        for name in ("outbox", *RECONCILERS)
    ),
)  # fmt: skip
ABLATIONS = by_name(_TABLE)
"""Every safeguard of the reconcilers that can be switched off, by name."""
