"""The HTTP server: the route table as a Starlette application, run by uvicorn.

It listens on other addresses than loopback only with TLS.  It stops after a commit whose outcome is
unknown.  The process that runs it handles signals.
"""

import asyncio
import contextlib
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

from tenure.core.egress import is_loopback
from tenure.core.errors import Invalid
from tenure.faces.api import face as api_face
from tenure.faces.http import openapi, problems
from tenure.faces.http.bounds import Bounds
from tenure.faces.http.endpoint import SECURITY_HEADERS, PathEndpoint
from tenure.faces.http.face import Face
from tenure.faces.http.protocol import bounded_protocol
from tenure.faces.http.route_table import Route, encode
from tenure.faces.http.state import HttpState
from tenure.faces.oauth import face as oauth_face

FACES: tuple[Face, ...] = (api_face.FACE, oauth_face.FACE)
"""Every face of the control plane; a new face is a folder in `faces` and an entry here."""
ROUTES: tuple[Route, ...] = tuple(route for face in FACES for route in face.routes)
"""Every declared route."""
KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 10
"""How long responses in progress may take after the server was asked to stop."""
DATE_SECONDS = 1.0
"""The age that the Date header of a response may reach."""
BACKLOG = 2_048


class Segment(Convertor[str]):
    """One path segment, up to a slash or colon: `{agent}` does not match `a:suspend`."""

    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        """Return the segment unchanged."""
        return value

    def to_string(self, value: str) -> str:
        """Return the segment unchanged."""
        return value


register_url_convertor("segment", Segment())


def build(http_state: HttpState, *, faces: Sequence[Face] = FACES) -> Starlette:
    """Build the application, with one entry for each path, so that a 405 lists all its methods."""
    routes = [route for face in faces for route in face.routes]
    http_state.document = msgspec.json.encode(openapi.document(routes, version=version("tenure")))
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    mounted: list[BaseRoute] = [
        Mounted(re.sub(r"{(\w+)}", r"{\1:segment}", path), PathEndpoint(http_state, path, methods))
        for path, methods in by_path.items()
    ]

    async def answer_not_found(_: Request, error: Exception) -> Response:
        del error  # it can only be a 404, because every path of the table accepts all methods
        http_state.requests["OTHER", "", 404] += 1
        answer = problems.problem("not_found", "there is nothing at this path")
        headers = {name.decode(): value.decode() for name, value in SECURITY_HEADERS}
        return Response(encode(answer.problem), 404, headers, media_type=problems.MEDIA)

    app = Starlette(
        routes=[*mounted, *(route for face in faces for route in face.foreign_routes(http_state))],
        exception_handlers={HTTPException: answer_not_found},
    )
    app.router.redirect_slashes = False  # a 307 would answer POST /v1/agents/ without a problem
    return app


@dataclass(frozen=True, slots=True)
class Listen:
    """The address to listen on, and the TLS certificate."""

    host: str = "127.0.0.1"
    port: int = 7450
    """0: any free port."""
    certificate: str = ""
    """The file with the certificate chain; required unless the host is a loopback address."""
    key: str = ""

    def __post_init__(self) -> None:
        """Refuse plain HTTP on an address that other machines can reach."""
        if bool(self.certificate) != bool(self.key):
            message = "TLS needs both a certificate and its key"
            raise Invalid(message)
        if not self.certificate and not is_loopback(self.host):
            message = (
                f"{self.host} can be reached from other machines: give a certificate and its key, "
                "or listen on 127.0.0.1"
            )
            raise Invalid(message)


def _within_files(bounds: Bounds) -> Bounds:
    """The bounds, with connections limited to half of the files that the process may open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return bounds
    return replace(bounds, connections_max=min(bounds.connections_max, files // 2))


class _Server(uvicorn.Server):
    """Uvicorn's server; it leaves signals to the process and ends when `stopping` is set."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    async def main_loop(self) -> None:
        """Refresh the Date header once a second; uvicorn's own loop wakes ten times a second."""
        while not self._stopping.is_set():
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), DATE_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signal handlers as they are."""
        yield


def _config(http_state: HttpState, listen: Listen, app: Starlette) -> uvicorn.Config:
    """Uvicorn's configuration, loaded, so that a bad certificate is refused before the start."""
    config = uvicorn.Config(
        app,
        http=bounded_protocol(_within_files(http_state.bounds)),
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
            with open(file, "rb"):  # noqa: PTH123 (only to check that it can be read)
                pass
        config.load()
    except ssl.SSLError as error:
        message = (
            f"{listen.certificate} and {listen.key} are not a certificate chain and its key in PEM"
            f" format ({error.reason or error}): TLS cannot be served with them"
        )
        raise Invalid(message) from None
    except OSError as error:
        message = f"TLS needs {file}, which cannot be read: {error.strerror}"
        raise Invalid(message) from None
    return config


@contextlib.asynccontextmanager
async def serving(
    http_state: HttpState, listen: Listen, *, faces: Sequence[Face] = FACES
) -> AsyncIterator[str]:
    """Serve while the block runs; yields the address, such as `http://127.0.0.1:7450`.

    The socket listens before the block starts.  After the block, responses in progress may finish.
    """
    app = build(http_state, faces=faces)
    server = _Server(_config(http_state, listen, app), http_state.stopping)
    try:
        bound = socket.create_server(
            (listen.host, listen.port),
            family=socket.AF_INET6 if ":" in listen.host else socket.AF_INET,
            backlog=BACKLOG,
        )
    except OSError as error:
        message = (
            f"cannot listen on {listen.host}:{listen.port}: {error.strerror}; choose another port"
            " with --port N (a worker: --metrics HOST:N); 0 means any free port"
        )
        raise Invalid(message) from None
    port = bound.getsockname()[1]
    running = asyncio.create_task(server.serve(sockets=[bound]), name="tenure http")
    try:
        while not server.started and not running.done():  # noqa: ASYNC110 (uvicorn has no event for this)
            await asyncio.sleep(0.001)
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        yield f"{'https' if listen.certificate else 'http'}://{host}:{port}"
    finally:
        http_state.stopping.set()
        server.should_exit = True
        await asyncio.shield(running)


async def serve(
    http_state: HttpState, listen: Listen, *, on_listening: Callable[[str], None]
) -> None:
    """Serve until `http_state.stopping` is set; raise the CommitUnknown that set it, if one did.

    `on_listening` is called with the address as soon as requests are accepted.
    """
    async with serving(http_state, listen) as address:
        http_state.ready = True
        on_listening(address)
        async with asyncio.TaskGroup() as tasks:
            if http_state.plane.invoker is not None:
                tasks.create_task(http_state.plane.invoker.load(), name="tenure invoker")
            await http_state.stopping.wait()
    if http_state.unknown_commit is not None:
        raise http_state.unknown_commit
