"""The command `tenure` with one safeguard taken out: `python ablated.py NAME …`.

Nothing of the product imports this, and no setting of it reaches what is done here.
"""

import asyncio
import sys
from contextlib import AbstractContextManager

from tenure.adapters.store.postgres.committer import Committer
from tenure.app import tokens
from tenure.app.hold import Hold
from tenure.faces.cli.main import main
from tenure.ports.store import Change, Refused
from tenure.testing.patches import patched
from tenure.upkeep import restore

_committed = Committer.commit


def _acknowledged_first(committer: Committer, change: Change) -> "asyncio.Future[Refused | None]":
    """Say that an operation is accepted, whatever becomes of its commit."""
    durable = _committed(committer, change)
    if not change.admits:
        return durable
    durable.add_done_callback(lambda done: done.cancelled() or done.exception())
    hasty: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
    hasty.set_result(None)
    return hasty


OFF: dict[str, AbstractContextManager[None]] = {
    "epoch_checked": patched(tokens, _is_current=lambda *_: True),
    "held_until_confirmed": patched(Hold, why=property(lambda _: "")),
    "durable_first": patched(Committer, commit=_acknowledged_first),
    "providers_stay": patched(restore, is_sound=lambda *_: False),
}

if __name__ == "__main__":
    with OFF[sys.argv[1]]:
        sys.exit(main(sys.argv[2:]))
