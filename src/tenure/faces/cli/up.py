"""`tenure up`: a plane and its HTTP face in this process, until it is told to stop.

The first start makes the admin's token: the file `token` in the home, which only its owner can
read; the store keeps no more than its hash.  `address` in the home says where the server listens
while it runs.  This is the only part of the command line that starts a plane.
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
from tenure.core.errors import CommitUnknown, Invalid, StoreLocked, TenureError, Unauthenticated
from tenure.core.roles import Caller, Role
from tenure.faces.cli import stopping, where
from tenure.faces.cli.exits import Ended, Exit
from tenure.faces.cli.options import examples, logged, placed, said
from tenure.faces.cli.output import say
from tenure.faces.cli.scale import Scale, ruled
from tenure.home.atomic_file import replace_whole

if TYPE_CHECKING:
    from tenure.settings import Settings

log = logging.getLogger("tenure")
PORT = 7450
OWNER = Caller(tokens.TENANT, "admin", Role.ADMIN)
"""Whoever starts the plane holds its files, and so everything there is to it."""


class Asked(NamedTuple):
    """How to start."""

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
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65_535),
    envvar="TENURE_PORT",
    help="0: any that is free; the file `address` in the home says which.  [TENURE_PORT]",
)  # fmt: skip
@click.option("--tls-cert", default="", metavar="FILE", help="The certificate chain, as PEM.")
@click.option("--tls-key", default="", metavar="FILE", help="Its key, as PEM.")
@click.option("--new-token", is_flag=True, help="Make a new admin token, and write it to the home.")
@click.option(
    "--new-home",
    is_flag=True,
    help="Let this home take the place of another, which is lost, in a store that is shared.",
)
@click.option(
    "--leave-temporal",
    is_flag=True,
    help="Move by --engine embedded what Temporal moved; stop every process of the plane before.",
)
@logged
@click.option(
    "--sandbox", type=click.Choice(("auto", "off", "require")), default="auto", show_default=True,
    envvar="TENURE_SANDBOX",
    help="Bubblewrap around agents: where it works, never, or else no start.  [TENURE_SANDBOX]",
)  # fmt: skip
@click.option(
    "--requests-per-second", type=click.FloatRange(min=0), metavar="N", default=2_000.0,
    show_default=True, help="What each tenant may ask for; 0: no bound.",
)  # fmt: skip
@click.option(
    "--webhooks-here", is_flag=True, envvar="TENURE_WEBHOOKS_HERE",
    help="Let webhooks lead to this machine, and by plain http: for development."
    "  [TENURE_WEBHOOKS_HERE]",
)  # fmt: skip
@click.option("--traces", is_flag=True, help="Tell OpenTelemetry's tracer of every attempt.")
@ruled
@click.option(
    "--api-only", is_flag=True, help="Accept operations and leave them to `tenure worker`."
)
@placed
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
    """Start a control plane here, in the foreground; ctrl-c or SIGTERM stops it.

    Its home is ./.tenure unless another is named: the store, the providers' files, the agents'
    directories, and the token with which the command line asks.  Agents go on running while it is
    stopped, and are taken over at the next start.
    """
    from tenure.telemetry import logs

    logs.configure(json_lines=log_format == "json", level=log_level.upper())
    asked = Asked(
        said(context).directory().absolute(),
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
        raise Ended(
            Exit.USAGE,
            "--api-only leaves the work to other processes, and a file in the home admits none",
            advice="say --store postgresql://… as well",
        )
    if new_home and "store" not in scale:
        raise Ended(
            Exit.USAGE,
            "--new-home replaces a lost home in a store that is shared, and a file in the home is"
            " not: nothing was touched",
            advice="say --store postgresql://… as well; if there is no store to go on with, leave"
            " --new-home out",
        )
    _start(asked)


def _start(asked: Asked) -> None:
    """Serve until a signal; Ended with what to do if that cannot be, or cannot go on."""
    try:
        stopping.run(partial(serve_plane, asked))
    except StoreLocked as error:
        raise _held(asked.home, error) from None
    except TenureError as error:
        raise Ended(Exit.FAILED, str(error)) from None
    except OSError as error:
        raise Ended(
            Exit.FAILED,
            f"{error.filename or asked.home}: {error.strerror}",
            advice=f"tenure doctor --home {asked.home} looks what is wrong",
        ) from None
    except CommitUnknown as error:
        raise Ended(
            Exit.FAILED,
            f"nobody knows what is on disk, so the plane has stopped: {error}",
            advice="look after the disk, then start it again: it reads what was kept",
        ) from None


def _held(home: Path, error: StoreLocked) -> Ended:
    """By whom, and where it listens if it does: a restore does not, nor does who was killed."""
    there = where.answering(where.addresses(home))
    if not where.is_listener(error.holder, there):
        return Ended(Exit.FAILED, str(error))
    return Ended(
        Exit.FAILED, f"a control plane already runs in {home}, at {there}: {error}",
        advice="ask that one; another one needs a home and a port of its own: tenure up --home DIR"
        " --port 0",
    )  # fmt: skip


async def serve_plane(asked: Asked, begun: Callable[[], object] = lambda: None) -> None:
    """Serve until a signal, of which `begun` is told."""
    from tenure.concurrency import background
    from tenure.faces.api.state import Api
    from tenure.faces.http.bounds import Bounds
    from tenure.faces.http.server import Listen, serve
    from tenure.settings import Settings
    from tenure.telemetry.counters import StepTimes
    from tenure.wiring import managing

    try:
        listen = Listen(asked.host, asked.port, asked.certificate, asked.key)
    except Invalid as error:
        raise Ended(Exit.USAGE, str(error)) from None
    if not asked.port:
        with held_port(asked.host) as port:
            await serve_plane(asked._replace(port=port), begun)
        return
    then = stopping.at_signal(begun)
    if asked.home.is_dir() and asked.home.stat().st_mode & 0o077:
        say(f"{asked.home} is open to others: chmod 700 {asked.home}")
    scheme = "https" if asked.certificate else "http"
    host = f"[{asked.host}]" if ":" in asked.host else asked.host
    issuer = f"{scheme}://{host}:{asked.port}"
    settings = Settings(
        home=str(asked.home), host=asked.host, port=asked.port, issuer=issuer, traces=asked.traces,
        sandbox=asked.sandbox, works=asked.works, **asked.scale,
    )  # fmt: skip
    times = StepTimes()
    async with managing(settings, observe=times.record) as plane:
        await admit(plane, asked.home / "token", new=asked.new_token)
        bounds = Bounds(
            requests_per_second=settings.requests_per_second,
            requests_at_once=settings.requests_at_once,
        )
        api = Api(plane, step_times=times, bounds=bounds)
        then(api.stopping.set)
        async with background(tell_of_bus(settings), name="tenure bus probe"):
            with _announced(asked.home / "address", shared="store" in asked.scale) as announce:

                def told(address: str) -> None:
                    announce(address)
                    _say_ready(asked, address, plane.pause.why)

                await serve(api, listen, told=told)


async def tell_of_bus(settings: "Settings") -> None:
    """Say so if events cannot leave by a bus that was named: nothing else waits for it."""
    from tenure.wiring import probe_bus

    if not settings.bus:
        return
    try:
        await probe_bus(settings)
    except TenureError as error:
        log.warning("events are kept until they can leave by the bus: %s", error)


@contextmanager
def _announced(file: Path, *, shared: bool = False) -> Iterator[Callable[[str], None]]:
    """Says in a file where the server is, until the block is left, or another server says so.

    On a store that is shared there may be several, each with a line; the newest comes first.
    """
    mine = ""

    def announce(address: str) -> None:
        nonlocal mine
        mine = address
        with _alone(file.parent):
            others = [one for one in where.addresses(file.parent) if one != mine] if shared else []
            others = [one for one in others if where.listens(one)]  # or it was killed
            replace_whole(file, "\n".join([mine, *others, ""]))

    try:
        yield announce
    finally:
        with suppress(OSError), _alone(file.parent):
            kept = where.addresses(file.parent)
            others = [one for one in kept if one != mine and where.listens(one)]
            if mine in kept and others:
                replace_whole(file, "\n".join([*others, ""]))
            elif mine in kept:
                file.unlink()


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """While no other server of this home writes where it is."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _say_ready(asked: Asked, address: str, held: str) -> None:
    hint = f" --home {asked.home}" if asked.home != Path(where.NAME).absolute() else ""
    then = "tenure agent create NAME --command …"
    if held:
        say(f"the plane is held: {held}; it answers reads and moves nothing")
        then = "tenure restore --confirm"
    print(f"tenure is ready at {address}; next: {then}{hint}", flush=True)


async def admit(plane: Plane, file: Path, *, new: bool = False) -> None:
    """Let the owner of the home in: a token in this file that the store knows.

    The file is written before the store learns of it, so a crash between the two is made good by
    the next start.  A token that was revoked is never let in again, and where other admins are
    there none is made unless asked for.
    """
    kept = where.read(file)
    if kept and not new:
        with suppress(Unauthenticated):
            await tokens.authenticate(plane, kept)
            return
    known = await tokens.list_tokens(plane, OWNER)
    now = plane.store.now()
    admins = [
        one for one in known
        if one.role is Role.ADMIN and one.revoked_at is None and one.epoch == plane.pause.epoch
        and (one.expires_at is None or one.expires_at > now)
    ]  # fmt: skip
    if admins and not new:
        say(f"{file} holds no token that is known here; tenure up --new-token makes one")
        return
    if known or not kept:
        secret = urlsafe_b64encode(plane.entropy.secret()).decode().rstrip("=")
        kept = tokens.PREFIX + secret
        replace_whole(file, f"{kept}\n")
    await tokens.begin(plane, kept)


@contextmanager
def held_port(host: str) -> Iterator[int]:
    """A port that is free, and that nobody else is given until we listen there.

    The issuer's name has it in it, so it must be known beforehand.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((host, 0))
        except OSError as error:
            raise Invalid(f"cannot listen on {host}: {error.strerror}") from None
        yield int(held.getsockname()[1])
