"""The server: the table as a Starlette application, run by uvicorn until it is told to stop.

It never listens beyond this machine without TLS, and it stops when nobody knows any more what is on
disk.  Signals are the host's affair.
"""

import asyncio
import contextlib
import ipaddress
import re
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as Mounted

from tenure.core.errors import Invalid
from tenure.faces.api import face as api_face
from tenure.faces.http import openapi, problems
from tenure.faces.http.bounds import Bounds
from tenure.faces.http.endpoint import PLAIN, Path
from tenure.faces.http.face import Face
from tenure.faces.http.state import HttpState
from tenure.faces.http.table import Route, encode
from tenure.faces.http.wire import wire
from tenure.faces.oauth import face as oauth_face

FACES: tuple[Face, ...] = (api_face.FACE, oauth_face.FACE)
"""Every face of the control plane: another one is a folder and a name here."""
ROUTES: tuple[Route, ...] = tuple(route for face in FACES for route in face.routes)
"""Every declared route."""
KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 10
"""How long answers under way may take once the server is told to stop."""
DATE_SECONDS = 1.0
"""How old the date in an answer may be."""
BACKLOG = 2_048


class Segment(Convertor[str]):
    """One part of a path up to a slash or a verb: `{agent}` is not `a:suspend`."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        """As it is."""
        return value

    def to_string(self, value: str) -> str:
        """As it is."""
        return value


register_url_convertor("segment", Segment())


def build(api: HttpState, *, faces: Sequence[Face] = FACES) -> Starlette:
    """The application: one entry for each path, so that 405 names every method of it."""
    routes = [route for face in faces for route in face.routes]
    api.document = msgspec.json.encode(openapi.document(routes, version=version("tenure")))
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    mounted: list[BaseRoute] = [
        Mounted(re.sub(r"{(\w+)}", r"{\1:segment}", path), Path(api, path, methods))
        for path, methods in by_path.items()
    ]

    async def refused(_: Request, error: Exception) -> Response:
        del error  # it can only be 404: every path of the table takes all methods
        api.requests["OTHER", "", 404] += 1
        answer = problems.problem("not_found", "there is nothing at this path")
        headers = {name.decode(): value.decode() for name, value in PLAIN}
        return Response(encode(answer.problem), 404, headers, media_type=problems.MEDIA)

    app = Starlette(
        routes=[*mounted, *(route for face in faces for route in face.foreign_routes(api))],
        exception_handlers={HTTPException: refused},
    )
    app.router.redirect_slashes = False  # a 307 would answer POST /v1/agents/ without a problem
    return app


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen, and with which certificate."""

    host: str = "127.0.0.1"
    port: int = 7450
    """0: any that is free."""
    certificate: str = ""
    """The file with the certificate chain; needed beyond this machine."""
    key: str = ""

    def __post_init__(self) -> None:
        """Refuse to speak in the clear to others."""
        if bool(self.certificate) != bool(self.key):
            message = "TLS needs both a certificate and its key"
            raise Invalid(message)
        if not self.certificate and not _is_loopback(self.host):
            message = (
                f"{self.host} can be reached by others: give a certificate and its key, "
                "or listen on 127.0.0.1"
            )
            raise Invalid(message)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _within_files(bounds: Bounds) -> Bounds:
    """Bounds that leave half of the files that may be open to everything else."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return bounds
    return replace(bounds, connections_max=min(bounds.connections_max, files // 2))


class _Server(uvicorn.Server):
    """Uvicorn's server, which leaves signals to its host and ends when that stops."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    async def main_loop(self) -> None:
        """See to the date in answers, once a second: uvicorn's own loop looks ten times."""
        while not self._stopping.is_set():
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), DATE_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def _config(api: HttpState, listen: Listen, app: Starlette) -> uvicorn.Config:
    """What uvicorn is told, loaded: a certificate that is none is refused here."""
    config = uvicorn.Config(
        app,
        http=wire(_within_files(api.bounds)),
        ws="none",
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=listen.certificate or None,
        ssl_keyfile=listen.key or None,
    )
    file = ""
    try:
        for file in filter(None, (listen.certificate, listen.key)):
            with open(file, "rb"):  # noqa: PTH123 (only whether it can be read)
                pass
        config.load()
    except ssl.SSLError as error:
        message = (
            f"{listen.certificate} and {listen.key} are no certificate chain and its key, both as"
            f" PEM ({error.reason or error}): nobody could speak TLS here"
        )
        raise Invalid(message) from None
    except OSError as error:
        message = f"TLS needs {file}, which cannot be read: {error.strerror}"
        raise Invalid(message) from None
    return config


@contextlib.asynccontextmanager
async def serving(
    api: HttpState, listen: Listen, *, faces: Sequence[Face] = FACES
) -> AsyncIterator[str]:
    """Serve while the block runs; it is given the address, such as `http://127.0.0.1:7450`.

    The socket listens before the block begins, and answers under way may end when it is left.
    """
    app = build(api, faces=faces)
    server = _Server(_config(api, listen, app), api.stopping)
    try:
        bound = socket.create_server(
            (listen.host, listen.port),
            family=socket.AF_INET6 if ":" in listen.host else socket.AF_INET,
            backlog=BACKLOG,
        )
    except OSError as error:
        message = (
            f"cannot listen on {listen.host}:{listen.port}: {error.strerror}; --port N names"
            " another (of a worker --metrics HOST:N), 0 any that is free"
        )
        raise Invalid(message) from None
    port = bound.getsockname()[1]
    running = asyncio.create_task(server.serve(sockets=[bound]), name="tenure http")
    try:
        while not server.started and not running.done():  # noqa: ASYNC110 (it has no event for this)
            await asyncio.sleep(0.001)
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        yield f"{'https' if listen.certificate else 'http'}://{host}:{port}"
    finally:
        api.stopping.set()
        server.should_exit = True
        await asyncio.shield(running)


async def serve(api: HttpState, listen: Listen, *, told: Callable[[str], None]) -> None:
    """Serve until `api.stopping` is set; raise the CommitUnknown that set it, if one did.

    `told` is called with the address as soon as it can be asked.
    """
    async with serving(api, listen) as address:
        api.ready = True
        told(address)
        async with asyncio.TaskGroup() as tasks:
            if api.plane.invoker is not None:
                tasks.create_task(api.plane.invoker.load(), name="tenure invoker")
            await api.stopping.wait()
    if api.lost is not None:
        raise api.lost
