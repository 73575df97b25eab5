"""`tenure worker`: a process that moves operations and has no HTTP face.

Any number of them share one PostgreSQL store; whoever dies is taken over from.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from tenure.core.errors import CommitUnknown, TenureError
from tenure.faces.cli import stopping
from tenure.faces.cli.exits import Ended, Exit
from tenure.faces.cli.options import examples, logged, placed, said
from tenure.faces.cli.scale import Scale, scaled
from tenure.faces.cli.up import tell_of_bus


@click.command(
    "worker",
    epilog=examples(
        "tenure worker --store postgresql://tenure@db/tenure",
        "tenure worker --store postgresql://tenure@db/tenure --engine temporal --temporal db:7233",
    ),
)
@scaled
@logged
@placed
@click.pass_context
def command(context: click.Context, *, scale: Scale, log_level: str, log_format: str) -> None:
    """Move operations that any process of this plane accepts; ctrl-c or SIGTERM stops it.

    It needs a store that several processes can share, so --store is a postgresql:// URL. The home
    is that of the plane, which `tenure up` has begun: they share the embedded providers that live
    there, and what `up` was told of the sandbox, webhooks, the issuer, drift and retention.
    """
    from tenure.telemetry import logs

    if "store" not in scale:
        raise Ended(
            Exit.USAGE,
            "a worker needs a store that several processes share: --store postgresql://…",
            advice="on one SQLite file `tenure up` does all the work itself",
        )
    logs.configure(json_lines=log_format == "json", level=log_level.upper())
    home = said(context).directory().absolute()
    try:
        stopping.run(partial(_work, home, scale))
    except TenureError as error:
        raise Ended(Exit.FAILED, str(error)) from None
    except CommitUnknown as error:
        raise Ended(
            Exit.FAILED,
            f"the store is gone, and what became of the last changes is not known: {error}",
            advice="start it again: it reads what was kept, and others go on meanwhile",
        ) from None


async def _work(home: Path, scale: Scale, begun: Callable[[], None]) -> None:
    from tenure.settings import Settings
    from tenure.wiring import managing

    then, stopped = stopping.at_signal(begun), asyncio.Event()
    settings = Settings(home=str(home), joins=True, **scale)
    async with managing(settings) as plane:
        then(stopped.set)
        print(f"tenure works for plane {plane.id} in {home}", flush=True)
        looking = asyncio.create_task(tell_of_bus(settings))
        await stopped.wait()
        looking.cancel()
