"""A client of the HTTP face of a real plane, without a socket.

`FaceClient.ask` speaks ASGI to the application, so that a test sees exactly what a server sends.
"""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from starlette.applications import Starlette

from tenure.adapters.seal.local import LocalSeal
from tenure.app.operations import admission, reads
from tenure.app.operations.admission import OperationRequest
from tenure.app.plane import Plane
from tenure.app.tenancy import tokens as app_tokens
from tenure.core.endings import Done, Ending, Waiting
from tenure.core.limits import StepLimits
from tenure.core.plan import Plan, Step, nobody_knows, nothing, repeat
from tenure.core.roles import Role
from tenure.faces.http import server
from tenure.faces.http.state import HttpState
from tenure.plans.agents import lifecycle
from tenure.plans.steps import provided
from tenure.ports.provider import Call
from tenure.settings import Settings
from tenure.wiring import run_plane
from tests.unit.support import memory_providers

ADMIN = "tenure_admin"


async def approve(call: Call) -> Ending:
    return Done() if call.signals.get("approved") else Waiting("approved", "someone has to approve")


async def break_off(_: Call) -> Ending:
    raise RuntimeError("the service broke off")


QUICK = StepLimits(call_seconds=1.0, deadline_seconds=0.05, retry_first_seconds=0.01)
IDENTITY_STEP = provided("identity", "identity")
PLANS = (
    Plan("make", stages=(IDENTITY_STEP, provided("access", "access"))),
    Plan("waits", stages=(IDENTITY_STEP, Step("approval", approve, nothing, repeat))),
    Plan(
        "sticks",
        stages=(IDENTITY_STEP, Step("charge", break_off, nothing, nobody_knows, limits=QUICK)),
    ),
)


class Answer(NamedTuple):
    """The response to one request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class FaceClient:
    """The HTTP face of a plane, and the tokens of its callers."""

    def __init__(
        self,
        http_state: HttpState,
        app: Starlette,
        *,
        tokens: dict[str, str],
        providers: dict[str, Any],
    ) -> None:
        self.http_state = http_state
        self.app = app
        self.plane = http_state.plane
        self.providers = providers
        """The in-memory providers of the plane."""
        self.tokens = tokens
        """Tokens by role; `stranger` is the admin of another tenant."""

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = "operator",
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
        chunks: list[bytes] | None = None,
        several: tuple[tuple[str, str], ...] = (),
        query: str | None = None,
    ) -> Answer:
        """Send one request; return the whole response."""
        fields = {k.lower(): v for k, v in (headers or {}).items()}
        if token:
            fields.setdefault("authorization", f"Bearer {self.tokens.get(token, token)}")
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if body is not None:
            fields.setdefault("content-type", "application/json")
        if chunks is None:
            fields.setdefault("content-length", str(len(data)))
        pieces = list(chunks if chunks is not None else [data])
        if query is None:
            path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in (*fields.items(), *several)],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        messages: list[Any] = []

        async def receive() -> dict[str, Any]:
            if pieces:
                piece = pieces.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
            await asyncio.sleep(3_600)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.append(message)

        await self.app(scope, receive, send)
        start, *rest = messages
        response = {k.decode(): v.decode("latin-1") for k, v in start["headers"]}
        return Answer(start["status"], response, b"".join(m.get("body", b"") for m in rest))

    async def accept(self, plan: str, **more: Any) -> str:
        """Start an operation; return its id."""
        return (await admission.accept(self.plane, OperationRequest(plan, **more))).id

    async def until(self, operation: str, state: str, *, tenant: str = "default") -> None:
        """Return when the operation is in this state."""
        async with asyncio.timeout(30):
            while (await reads.get_operation(self.plane, tenant, operation)).state != state:
                await self.plane.engine.wait(operation, 0.005)


async def tokens_of(plane: Plane) -> dict[str, str]:
    """A token for each role, and one of another tenant."""
    await app_tokens.store_first_token(plane, ADMIN)
    admin = await app_tokens.authenticate(plane, ADMIN)
    by_role = {}
    for role in Role:
        _, by_role[str(role)] = await app_tokens.create_token(
            plane, admin, principal=f"{role}-person", role=role
        )
    _, by_role["stranger"] = await app_tokens.create_token(
        plane, admin, tenant="elsewhere", principal="stranger", role=Role.ADMIN
    )
    return by_role


@asynccontextmanager
async def face(
    directory: Path, *plans: Plan, store: str = "", seals: bool = True
) -> AsyncIterator[FaceClient]:
    """The face of a running plane; it can store secrets if it `seals`."""
    seal = LocalSeal(directory / "secrets.key") if seals else None
    settings = Settings(store=store or str(directory / "tenure.db"))
    providers = memory_providers.providers()
    async with run_plane(
        settings, plans=(*(plans or PLANS), *lifecycle.PLANS), providers=providers, seal=seal
    ) as plane:
        http_state = HttpState(plane)
        http_state.ready = True
        yield FaceClient(
            http_state, server.build(http_state), tokens=await tokens_of(plane), providers=providers
        )


def api_test(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test whose first argument is the `FaceClient` of a running plane."""

    def run_test(tmp_path: Path, **arguments: object) -> None:
        async def main() -> None:
            async with face(tmp_path) as one:
                await test(one, **arguments)

        asyncio.run(main())

    first, *others = inspect.signature(test).parameters.values()
    assert first.name == "face"
    folder = inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run_test.__name__, run_test.__doc__ = test.__name__, test.__doc__
    run_test.__signature__ = inspect.Signature([folder, *others])  # type: ignore[attr-defined]
    return run_test
