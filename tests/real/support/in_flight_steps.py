"""Which steps a dead plane had begun and not ended, by the copy of its store alone."""

import json
from pathlib import Path

from tests.real.support import resource_checker

END_RECORDS = ("done", "refused", "adopted", "marked_absent", "undone")
"""Records after which a step is no longer under way."""


def steps_in_flight(home: Path) -> set[str]:
    """The steps, as plan/step, that were intended and have no end; an undo as plan/-step.

    Of an operation that is being undone only the newest stage counts: the older ones come later.
    """
    with resource_checker.copy_databases(home, (resource_checker.STORE,)) as bases:
        base = bases[resource_checker.STORE]
        found = set()
        rows = base.execute(
            "SELECT o.id, o.kind, o.state, p.body FROM operation o JOIN plan p ON p.digest = o.plan"
            " WHERE o.ended_at IS NULL"
        ).fetchall()
        for operation, kind, state, body in rows:
            if state == "PENDING":
                continue  # nobody has claimed it
            intents = base.execute(
                "SELECT step, state FROM intent WHERE operation = ?", (operation,)
            ).fetchall()
            records = base.execute(
                "SELECT kind, step FROM journal WHERE operation = ? ORDER BY seq", (operation,)
            ).fetchall()
            ended = {step: record for record, step in records if record in END_RECORDS}
            if any(hold in {"REMOVING", "BURNED"} for _, hold in intents):
                order = _order(body)
                left = [step for step, hold in intents if hold == "REMOVING"]
                left = [step for step in left if ended.get(step) != "undone"]
                found |= {f"{kind}/-{step}" for step in sorted(left, key=order.index)[-1:]}
            else:
                found |= {f"{kind}/{step}" for step, _ in intents if step not in ended}
        return found


def _order(body: str) -> list[str]:
    """The names of a kept plan's steps, in the order of their stages."""
    return [step["name"] for stage in json.loads(body)["stages"] for step in stage]
