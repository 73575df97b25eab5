"""`tenure up`: runs a plane and its HTTP server in this process until a signal stops it.

The first start makes the admin's token.  It is in the file `token` of the home, which only its
owner can read; the store has only its hash.  The file `address` of the home says where the server
listens while it runs.  No other command starts a plane, except `tenure worker`.
"""

import fcntl
import logging
import os
import socket
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from tenure.app.plane import Plane
from tenure.app.tenancy import tokens
from tenure.atomic_file import replace_atomically
from tenure.core.errors import (
    CommitUnknown,
    Invalid,
    StoreLocked,
    StoreRewound,
    TenureError,
    Unauthenticated,
)
from tenure.core.roles import Caller, Role
from tenure.faces.cli import stopping, where
from tenure.faces.cli.exits import REWOUND, CommandExit, Exit
from tenure.faces.cli.options import examples, log_options, server_location, server_options
from tenure.faces.cli.output import say
from tenure.faces.cli.scale import Scale, up_scale_options

if TYPE_CHECKING:
    from tenure.settings import Settings

log = logging.getLogger("tenure")
PORT = 7450
OWNER = Caller(tokens.PLANE_TENANT, "admin", Role.ADMIN)
"""The user who starts the plane owns its files, and so is its admin."""


class UpOptions(NamedTuple):
    """The options of `tenure up`."""

    home: Path
    host: str
    port: int
    certificate: str
    key: str
    new_token: bool
    traces: bool
    sandbox: str
    works: bool
    scale: Scale


@click.command(
    "up",
    epilog=examples(
        "tenure up",
        "tenure up --home /var/lib/tenure --port 8000",
        "tenure up --host 0.0.0.0 --tls-cert chain.pem --tls-key key.pem",
        "tenure up --store postgresql://tenure@db/tenure --engine temporal --temporal db:7233",
    ),
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65_535),
    envvar="TENURE_PORT",
    help="The port; 0 takes a free one, which the file `address` in the home names.  [TENURE_PORT]",
)
@click.option("--tls-cert", default="", metavar="FILE", help="The certificate chain, as PEM.")
@click.option("--tls-key", default="", metavar="FILE", help="The key of the certificate, as PEM.")
@click.option("--new-token", is_flag=True, help="Make a new admin token, and write it to the home.")
@click.option(
    "--new-home",
    is_flag=True,
    help="Replace a lost home in a shared store by this one.",
)
@click.option(
    "--leave-temporal",
    is_flag=True,
    help="Let --engine embedded finish what Temporal started; stop all other processes first.",
)
@log_options
@click.option(
    "--sandbox",
    type=click.Choice(("auto", "off", "require")),
    default="auto",
    show_default=True,
    envvar="TENURE_SANDBOX",
    help="Run agents in bubblewrap: if it works, never, or always (else do not start)."
    "  [TENURE_SANDBOX]",
)
@click.option(
    "--requests-per-second",
    type=click.FloatRange(min=0),
    metavar="N",
    default=2_000.0,
    show_default=True,
    help="The rate limit of each tenant; 0: none.",
)
@click.option(
    "--webhooks-here",
    is_flag=True,
    envvar="TENURE_WEBHOOKS_HERE",
    help="Allow webhooks to this machine and over plain http, for development."
    "  [TENURE_WEBHOOKS_HERE]",
)
@click.option("--traces", is_flag=True, help="Send a span for every attempt to OpenTelemetry.")
@up_scale_options
@click.option(
    "--api-only", is_flag=True, help="Accept operations and let `tenure worker` perform them."
)
@server_options
@click.pass_context
def command(
    context: click.Context,
    *,
    host: str,
    port: int,
    tls_cert: str,
    tls_key: str,
    new_token: bool,
    new_home: bool,
    leave_temporal: bool,
    log_level: str,
    log_format: str,
    sandbox: str,
    requests_per_second: float,
    traces: bool,
    webhooks_here: bool,
    scale: Scale,
    api_only: bool,
) -> None:
    """Start a control plane in the foreground; ctrl-c or SIGTERM stops it.

    Its home is ./.tenure unless you name another.  The home has the store, the providers' files,
    the agents' directories and the admin's token.  Agents go on running while the plane is stopped,
    and the next start takes them over.
    """
    from tenure.telemetry import logs

    logs.configure(json_lines=log_format == "json", level=log_level.upper())
    options = UpOptions(
        server_location(context).directory().absolute(),
        host,
        port,
        tls_cert,
        tls_key,
        new_token,
        traces,
        sandbox,
        not api_only,
        {
            **scale,
            "webhooks_here": webhooks_here,
            "requests_per_second": requests_per_second,
            "new_home": new_home,
            "leave_temporal": leave_temporal,
        },
    )
    if api_only and "store" not in scale:
        raise CommandExit(
            Exit.USAGE,
            "--api-only leaves the work to others, but they cannot share a file in the home",
            advice="add --store postgresql://…",
        )
    if new_home and "store" not in scale:
        raise CommandExit(
            Exit.USAGE,
            "--new-home replaces a lost home in a shared store, but this store is a file in the"
            " home; nothing was changed",
            advice="add --store postgresql://…, or leave out --new-home",
        )
    _start(options)


def _start(options: UpOptions) -> None:
    """Serve until a signal; CommandExit with advice if that is not possible."""
    try:
        stopping.run(partial(serve_plane, options))
    except StoreLocked as error:
        raise _home_in_use(options.home, error) from None
    except TenureError as error:
        raise CommandExit(Exit.FAILED, str(error)) from None
    except OSError as error:
        raise CommandExit(
            Exit.FAILED,
            f"{error.filename or options.home}: {error.strerror}",
            advice=f"tenure doctor --home {options.home} shows what is wrong",
        ) from None
    except StoreRewound as error:
        raise CommandExit(Exit.FAILED, f"the plane has stopped: {error}", advice=REWOUND) from None
    except CommitUnknown as error:
        raise CommandExit(
            Exit.FAILED,
            f"a commit failed and its outcome is unknown, so the plane has stopped: {error}",
            advice="check the disk, then start the plane again; it reads what is on disk",
        ) from None


def _home_in_use(home: Path, error: StoreLocked) -> CommandExit:
    """The error for a home in use: who uses it and, if it is a server, its address."""
    address = where.first_listening(where.addresses(home))
    if not where.runtime_listens(error.holder, address):
        return CommandExit(Exit.FAILED, str(error))
    return CommandExit(
        Exit.FAILED,
        f"a control plane already runs in {home}, at {address}: {error}",
        advice="use that one, or start another with its own home and port: tenure up --home DIR"
        " --port 0",
    )


async def serve_plane(options: UpOptions, on_signal: Callable[[], object] = lambda: None) -> None:
    """Serve until a signal, at which `on_signal` is called."""
    from tenure.concurrency import background
    from tenure.faces.http.bounds import Bounds
    from tenure.faces.http.server import Listen, serve
    from tenure.faces.http.state import HttpState
    from tenure.settings import Settings
    from tenure.telemetry.counters import StepTimes
    from tenure.wiring import run_agent_plane

    try:
        listen = Listen(options.host, options.port, options.certificate, options.key)
    except Invalid as error:
        raise CommandExit(Exit.USAGE, str(error)) from None
    if not options.port:
        with reserve_port(options.host) as port:
            await serve_plane(options._replace(port=port), on_signal)
        return
    when_ready = stopping.at_signal(on_signal)
    if options.home.is_dir() and options.home.stat().st_mode & 0o077:
        say(f"{options.home} is accessible to other users: chmod 700 {options.home}")
    scheme = "https" if options.certificate else "http"
    host = f"[{options.host}]" if ":" in options.host else options.host
    issuer = f"{scheme}://{host}:{options.port}"
    settings = Settings(
        home=str(options.home),
        host=options.host,
        port=options.port,
        issuer=issuer,
        traces=options.traces,
        sandbox=options.sandbox,
        executes_operations=options.works,
        **options.scale,
    )
    times = StepTimes()
    async with run_agent_plane(settings, observe=times.record) as plane:
        await ensure_admin_token(plane, options.home / "token", new=options.new_token)
        bounds = Bounds(
            requests_per_second=settings.requests_per_second,
            requests_at_once=settings.requests_at_once,
        )
        http_state = HttpState(plane, step_times=times, bounds=bounds)
        when_ready(http_state.stopping.set)
        async with background(warn_about_bus(settings), name="tenure bus probe"):
            with _announce_address(
                options.home / "address", shared="store" in options.scale
            ) as announce:

                def ready(address: str) -> None:
                    announce(address)
                    _say_ready(options, address, plane.pause.why)

                await serve(http_state, listen, on_listening=ready)


async def warn_about_bus(settings: "Settings") -> None:
    """Log a warning if the configured bus does not answer; nothing else waits for it."""
    from tenure.wiring import probe_bus

    if not settings.bus:
        return
    try:
        await probe_bus(settings)
    except TenureError as error:
        log.warning("the bus does not answer; events are stored until it does: %s", error)


@contextmanager
def _announce_address(file: Path, *, shared: bool = False) -> Iterator[Callable[[str], None]]:
    """Write the address of the server to a file, and remove it at the end of the block.

    On a shared store there may be several servers, each with a line; the newest comes first.
    """
    mine = ""

    def announce(address: str) -> None:
        nonlocal mine
        mine = address
        with _address_lock(file.parent):
            others = [one for one in where.addresses(file.parent) if one != mine] if shared else []
            others = [one for one in others if where.listens(one)]  # or it was killed
            replace_atomically(file, "\n".join([mine, *others, ""]))

    try:
        yield announce
    finally:
        with suppress(OSError), _address_lock(file.parent):
            addresses = where.addresses(file.parent)
            others = [one for one in addresses if one != mine and where.listens(one)]
            if mine in addresses and others:
                replace_atomically(file, "\n".join([*others, ""]))
            elif mine in addresses:
                file.unlink()


@contextmanager
def _address_lock(directory: Path) -> Iterator[None]:
    """Exclude other servers of this home that write their addresses."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _say_ready(options: UpOptions, address: str, pause_reason: str) -> None:
    hint = f" --home {options.home}" if options.home != Path(where.NAME).absolute() else ""
    then = "tenure agent create NAME --command …"
    if pause_reason:
        say(f"the plane is paused: {pause_reason}; it answers reads, and no operation continues")
        then = "tenure restore --confirm"
    print(f"tenure is ready at {address}; next: {then}{hint}", flush=True)


async def ensure_admin_token(plane: Plane, file: Path, *, new: bool = False) -> None:
    """Make sure that the file has an admin token that the store knows.

    The file is written before the store, so the next start repairs a crash between the two.  A
    token that was revoked is never accepted again.  If there are other admins, no token is made
    unless `new` asks for it.
    """
    token = where.read(file)
    if token and not new:
        with suppress(Unauthenticated):
            await tokens.authenticate(plane, token)
            return
    known = await tokens.list_tokens(plane, OWNER)
    now = plane.store.now()
    admins = [
        one
        for one in known
        if one.role is Role.ADMIN
        and one.revoked_at is None
        and one.epoch == plane.pause.epoch
        and (one.expires_at is None or one.expires_at > now)
    ]
    if admins and not new:
        say(f"{file} has no token that the plane knows; tenure up --new-token makes one")
        return
    if known or not token:
        secret = urlsafe_b64encode(plane.entropy.secret()).decode().rstrip("=")
        token = tokens.PREFIX + secret
        replace_atomically(file, f"{token}\n")
    await tokens.store_first_token(plane, token)


@contextmanager
def reserve_port(host: str) -> Iterator[int]:
    """A free port that no other process is given until we listen there.

    The issuer's URL contains the port, so it must be known before.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reserved.bind((host, 0))
        except OSError as error:
            raise Invalid(f"cannot listen on {host}: {error.strerror}") from None
        yield int(reserved.getsockname()[1])
