"""`tenure worker`: a process that moves operations and has no HTTP face.

Any number of them share one PostgreSQL store; whoever dies is taken over from.
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click

from tenure.core.errors import CommitUnknown, TenureError
from tenure.faces.cli import stopping
from tenure.faces.cli.exits import Ended, Exit
from tenure.faces.cli.options import examples, placed, said
from tenure.faces.cli.scale import Scale, scaled
from tenure.faces.cli.up import LEVELS, tell_of_bus


@click.command(
    "worker",
    epilog=examples(
        "tenure worker --store postgresql://tenure@db/tenure",
        "tenure worker --store postgresql://tenure@db/tenure --engine temporal --temporal db:7233",
    ),
)
@scaled
@click.option(
    "--log-level", type=click.Choice(LEVELS), default="warning", show_default=True,
    help="What is logged to standard error.",
)  # fmt: skip
@click.option(
    "--log-format", type=click.Choice(("plain", "json")), default="plain", show_default=True,
    help="How a line is written.",
)  # fmt: skip
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
        with suppress(asyncio.CancelledError):
            _run(home, scale)
    except TenureError as error:
        raise Ended(Exit.FAILED, str(error)) from None
    except CommitUnknown as error:
        raise Ended(
            Exit.FAILED,
            f"the store is gone, and what became of the last changes is not known: {error}",
            advice="start it again: it reads what was kept, and others go on meanwhile",
        ) from None


def _run(home: Path, scale: Scale) -> None:
    import uvloop

    with (
        stopping.bounded() as begun,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_work(home, scale, begun))


async def _work(home: Path, scale: Scale, begun: Callable[[], None]) -> None:
    from tenure.settings import Settings
    from tenure.wiring import managing

    loop, task, stopped = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
    stop: list[Callable[[], object]] = [] if task is None else [task.cancel]

    def told() -> None:
        begun()
        stop[-1]()
        for one in (signal.SIGINT, signal.SIGTERM):  # a second one does not wait
            loop.remove_signal_handler(one)

    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, told)
    settings = Settings(home=str(home), joins=True, **scale)
    async with managing(settings) as plane:
        stop.append(stopped.set)
        print(f"tenure works for plane {plane.id} in {home}", flush=True)
        looking = asyncio.create_task(tell_of_bus(settings))
        await stopped.wait()
        looking.cancel()
