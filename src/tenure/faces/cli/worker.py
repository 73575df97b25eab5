"""`tenure worker`: a process that moves operations and has no HTTP face but its own metrics.

Any number of them share one PostgreSQL store; whoever dies is taken over from.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from tenure.core.errors import CommitUnknown, Invalid, TenureError
from tenure.faces.cli import stopping
from tenure.faces.cli.exits import Ended, Exit
from tenure.faces.cli.options import examples, logged, placed, said
from tenure.faces.cli.scale import Scale, scaled
from tenure.faces.cli.up import tell_of_bus

if TYPE_CHECKING:
    from tenure.app.plane import Plane
    from tenure.faces.http.server import Listen
    from tenure.telemetry.counters import StepTimes

PORT_MAX = 65_535


class Asked(NamedTuple):
    """How to work."""

    home: Path
    scale: Scale
    traces: bool
    listen: "Listen | None"
    """Where to tell of it; None: nowhere."""


@click.command(
    "worker",
    epilog=examples(
        "tenure worker --store postgresql://tenure@db/tenure",
        "tenure worker --store postgresql://tenure@db/tenure --engine temporal --temporal db:7233",
        "tenure worker --store postgresql://tenure@db/tenure --metrics 127.0.0.1:9450",
    ),
)
@scaled
@click.option(
    "--metrics", default="", metavar="HOST:PORT",
    help="Serve /metrics, /livez and /readyz here, as `up` does; port 0: any that is free.",
)  # fmt: skip
@click.option("--tls-cert", default="", metavar="FILE", help="For --metrics: its chain, as PEM.")
@click.option("--tls-key", default="", metavar="FILE", help="Its key, as PEM.")
@click.option("--traces", is_flag=True, help="Tell OpenTelemetry's tracer of every attempt.")
@logged
@placed
@click.pass_context
def command(
    context: click.Context,
    *,
    scale: Scale,
    metrics: str,
    tls_cert: str,
    tls_key: str,
    traces: bool,
    log_level: str,
    log_format: str,
) -> None:
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
    listen = _listen(metrics, tls_cert, tls_key)
    logs.configure(json_lines=log_format == "json", level=log_level.upper())
    asked = Asked(said(context).directory().absolute(), scale, traces, listen)
    try:
        stopping.run(partial(_work, asked))
    except TenureError as error:
        raise Ended(Exit.FAILED, str(error)) from None
    except CommitUnknown as error:
        raise Ended(
            Exit.FAILED,
            f"the store is gone, and what became of the last changes is not known: {error}",
            advice="start it again: it reads what was kept, and others go on meanwhile",
        ) from None


def _listen(metrics: str, certificate: str, key: str) -> "Listen | None":
    if not metrics:
        if certificate or key:
            raise Ended(Exit.USAGE, "--tls-cert and --tls-key are for --metrics HOST:PORT")
        return None
    from tenure.faces.http.server import Listen

    host, _, port = metrics.rpartition(":")
    if not (host and port.isdecimal() and int(port) <= PORT_MAX):
        raise Ended(Exit.USAGE, f"--metrics is HOST:PORT, as 127.0.0.1:9450, not {metrics!r}")
    try:
        return Listen(host.removeprefix("[").removesuffix("]"), int(port), certificate, key)
    except Invalid as error:
        raise Ended(Exit.USAGE, str(error)) from None


async def _work(asked: Asked, begun: Callable[[], None]) -> None:
    from tenure.concurrency import background
    from tenure.settings import Settings
    from tenure.telemetry.counters import StepTimes
    from tenure.wiring import managing

    then, stopped = stopping.at_signal(begun), asyncio.Event()
    settings = Settings(home=str(asked.home), joins=True, traces=asked.traces, **asked.scale)
    times = StepTimes()
    async with (
        managing(settings, observe=times.record if asked.listen else None) as plane,
        _measured(plane, asked.listen, times) as where,
    ):
        then(stopped.set)
        print(f"tenure works for plane {plane.id} in {asked.home}{where}", flush=True)
        async with background(tell_of_bus(settings), name="tenure bus probe"):
            await stopped.wait()


@asynccontextmanager
async def _measured(
    plane: "Plane", listen: "Listen | None", times: "StepTimes"
) -> AsyncIterator[str]:
    """Tell of it over HTTP while the block runs, which is given a clause that says where."""
    if listen is None:
        yield ""
        return
    from tenure.faces.api.routes.plane import PROBES
    from tenure.faces.api.state import Api
    from tenure.faces.http.face import Face
    from tenure.faces.http.server import serving

    api = Api(plane, step_times=times)
    api.ready = True
    async with serving(api, listen, faces=[Face("probes", PROBES)]) as address:
        yield f"; metrics at {address}/metrics"
