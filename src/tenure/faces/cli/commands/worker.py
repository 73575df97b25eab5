"""`tenure worker`: a process that performs operations and serves only its own metrics.

Any number of workers share one PostgreSQL store; the others take over the work of one that dies.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from tenure.core.errors import CommitUnknown, Invalid, StoreRewound, TenureError
from tenure.faces.cli import stopping
from tenure.faces.cli.commands.up import warn_about_bus
from tenure.faces.cli.exits import REWOUND, CommandExit, Exit
from tenure.faces.cli.options import examples, log_options, server_location, server_options
from tenure.faces.cli.scale import Scale, scale_options

if TYPE_CHECKING:
    from tenure.app.plane import Plane
    from tenure.faces.http.server import Listen
    from tenure.telemetry.counters import StepTimes

PORT_MAX = 65_535


class WorkerOptions(NamedTuple):
    """The options of `tenure worker`."""

    home: Path
    scale: Scale
    traces: bool
    listen: "Listen | None"
    """Where to serve metrics; None: nowhere."""


@click.command(
    "worker",
    epilog=examples(
        "tenure worker --store postgresql://tenure@db/tenure",
        "tenure worker --store postgresql://tenure@db/tenure --engine temporal --temporal db:7233",
        "tenure worker --store postgresql://tenure@db/tenure --metrics 127.0.0.1:9450",
    ),
)
@scale_options
@click.option(
    "--metrics",
    default="",
    metavar="HOST:PORT",
    help="Serve /metrics, /livez and /readyz at this address; port 0 takes a free one.",
)
@click.option(
    "--tls-cert", default="", metavar="FILE", help="For --metrics: the certificate chain, as PEM."
)
@click.option("--tls-key", default="", metavar="FILE", help="The key of the certificate, as PEM.")
@click.option("--traces", is_flag=True, help="Send a span for every attempt to OpenTelemetry.")
@log_options
@server_options
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
    """Perform operations that any process of this plane accepts; ctrl-c or SIGTERM stops it.

    Several processes need a shared store, so --store must be a postgresql:// URL.  The home is the
    plane's, which `tenure up` has made: its processes share the embedded providers and the settings
    of `up` for sandbox, webhooks, issuer, drift and retention.
    """
    from tenure.telemetry import logs

    if "store" not in scale:
        raise CommandExit(
            Exit.USAGE,
            "a worker needs a shared store: --store postgresql://…",
            advice="on one SQLite file `tenure up` performs all operations itself",
        )
    listen = _listen(metrics, tls_cert, tls_key)
    logs.configure(json_lines=log_format == "json", level=log_level.upper())
    options = WorkerOptions(server_location(context).directory().absolute(), scale, traces, listen)
    try:
        stopping.run(partial(_work, options))
    except TenureError as error:
        raise CommandExit(Exit.FAILED, str(error)) from None
    except StoreRewound as error:
        raise CommandExit(Exit.FAILED, f"the worker has stopped: {error}", advice=REWOUND) from None
    except CommitUnknown as error:
        raise CommandExit(
            Exit.FAILED,
            f"the store is gone, and the outcome of the last commits is unknown: {error}",
            advice="start it again; it reads what is stored, and other workers go on meanwhile",
        ) from None


def _listen(metrics: str, certificate: str, key: str) -> "Listen | None":
    if not metrics:
        if certificate or key:
            raise CommandExit(Exit.USAGE, "--tls-cert and --tls-key are for --metrics HOST:PORT")
        return None
    from tenure.faces.http.server import Listen

    host, _, port = metrics.rpartition(":")
    if not (host and port.isdecimal() and int(port) <= PORT_MAX):
        raise CommandExit(Exit.USAGE, f"--metrics is HOST:PORT, as 127.0.0.1:9450, not {metrics!r}")
    try:
        return Listen(host.removeprefix("[").removesuffix("]"), int(port), certificate, key)
    except Invalid as error:
        raise CommandExit(Exit.USAGE, str(error)) from None


async def _work(options: WorkerOptions, on_signal: Callable[[], None]) -> None:
    from tenure.concurrency import background
    from tenure.settings import Settings
    from tenure.telemetry.counters import StepTimes
    from tenure.wiring import run_agent_plane

    when_ready, stopped = stopping.at_signal(on_signal), asyncio.Event()
    settings = Settings(
        home=str(options.home), is_worker=True, traces=options.traces, **options.scale
    )
    times = StepTimes()
    async with (
        run_agent_plane(settings, observe=times.record if options.listen else None) as plane,
        _serve_metrics(plane, options.listen, times) as where,
    ):
        when_ready(stopped.set)
        print(f"tenure works for plane {plane.id} in {options.home}{where}", flush=True)
        async with background(warn_about_bus(settings), name="tenure bus probe"):
            await stopped.wait()


@asynccontextmanager
async def _serve_metrics(
    plane: "Plane", listen: "Listen | None", times: "StepTimes"
) -> AsyncIterator[str]:
    """Serve metrics while the block runs; yields a clause that says where."""
    if listen is None:
        yield ""
        return
    from tenure.faces.api.routes.plane import PROBES
    from tenure.faces.http.face import Face
    from tenure.faces.http.server import serving
    from tenure.faces.http.state import HttpState

    http_state = HttpState(plane, step_times=times)
    http_state.ready = True
    async with serving(http_state, listen, faces=[Face("probes", PROBES)]) as address:
        yield f"; metrics at {address}/metrics"
