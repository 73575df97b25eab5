"""The command `tenure` with one safeguard taken out: `python ablated.py NAME …`.

A `tests.real.support.stack_worker` may be without one of these too.

Nothing of the product imports this, and no setting of it reaches what is done here.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from proofs.operations import mutations
from tenure.adapters.engine.embedded import EmbeddedEngine
from tenure.adapters.engine.temporal import activities
from tenure.adapters.store.postgres.committer import PostgresCommitter
from tenure.app.operations.call_limits import CallLimits
from tenure.app.operations.handle import OperationHandle
from tenure.app.safety.pause import Pause
from tenure.app.tenancy import tokens
from tenure.faces.cli.main import main
from tenure.ports.store import Change, CommitRefusal
from tenure.sqlite import location
from tenure.testing.patches import patched
from tenure.upkeep import restore

_committed = PostgresCommitter.commit


def _acknowledged_first(
    committer: PostgresCommitter, change: Change
) -> "asyncio.Future[CommitRefusal | None]":
    """Say that an operation is accepted, whatever becomes of its commit."""
    durable = _committed(committer, change)
    if not change.is_new_work:
        return durable
    durable.add_done_callback(lambda future: future.cancelled() or future.exception())
    hasty: asyncio.Future[CommitRefusal | None] = asyncio.get_running_loop().create_future()
    hasty.set_result(None)
    return hasty


@contextmanager
def _fence_off() -> Iterator[None]:
    """Guard no token, do not renew the lease, and go on when both are lost.

    Two other safeguards could hide that.  Temporal cancels an activity that has slept, so no
    heartbeat is sent.  A call that outlived its limit while its process was stopped is not recorded
    but polled again, so no call has a limit.
    """

    def commit(
        committer: PostgresCommitter, change: Change
    ) -> "asyncio.Future[CommitRefusal | None]":
        change = change.expand_prepared()
        guards = (replace(guard, columns=_tokenless(guard.columns)) for guard in change.guards)
        kept = tuple(guard for guard in guards if guard.columns)
        return _committed(committer, replace(change, guards=kept))

    async def renew(_: EmbeddedEngine[OperationHandle]) -> bool:
        return True

    with (
        mutations.no_fence(),
        patched(PostgresCommitter, commit=commit),
        patched(EmbeddedEngine, _renew=renew),
        patched(activities.Heartbeat, _beat=lambda _: None),
        patched(CallLimits, _expire=lambda *_: None),
    ):
        yield


def _tokenless(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {column: value for column, value in columns.items() if column != "token"}


_UNLOCKED = SimpleNamespace(LOCK_EX=0, LOCK_NB=0, flock=lambda *_: None)
OFF: dict[str, AbstractContextManager[None]] = {
    "epoch_checked": patched(tokens, _is_current=lambda *_: True),
    "held_until_confirmed": patched(Pause, why=property(lambda _: "")),
    "durable_first": patched(PostgresCommitter, commit=_acknowledged_first),
    "fenced": _fence_off(),
    "file_locked": patched(location, fcntl=_UNLOCKED),
    "providers_stay": patched(restore, is_sound=lambda *_: False),
}

if __name__ == "__main__":
    with OFF[sys.argv[1]]:
        sys.exit(main(sys.argv[2:]))
