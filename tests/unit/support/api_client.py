"""A face on a real plane in memory of its own, asked without a socket.

`Face.ask` speaks ASGI to the application, so that a test sees exactly what a server would send.
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
from tenure.app.operations.admission import Accept
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
from tenure.wiring import running
from tests.unit.support import memory_providers

ADMIN = "tenure_admin"


async def approve(call: Call) -> Ending:
    return Done() if call.signals.get("approved") else Waiting("approved", "someone has to approve")


async def break_off(_: Call) -> Ending:
    raise RuntimeError("the service broke off")


QUICK = StepLimits(call_seconds=1.0, deadline_seconds=0.05, retry_first_seconds=0.01)
MADE = provided("identity", "identity")
PLANS = (
    Plan("make", stages=(MADE, provided("access", "access"))),
    Plan("waits", stages=(MADE, Step("approval", approve, nothing, repeat))),
    Plan("sticks", stages=(MADE, Step("charge", break_off, nothing, nobody_knows, limits=QUICK))),
)


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Face:
    """The HTTP face of a plane, and who asks."""

    def __init__(
        self, http_state: HttpState, app: Starlette, *, tokens: dict[str, str], held: dict[str, Any]
    ) -> None:
        self.http_state = http_state
        self.app = app
        self.plane = http_state.plane
        self.held = held
        """The providers, which can be asked what they hold."""
        self.tokens = tokens
        """By role; `stranger` is the admin of another tenant."""

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
        """One request and the whole of its answer."""
        given = {k.lower(): v for k, v in (headers or {}).items()}
        if token:
            given.setdefault("authorization", f"Bearer {self.tokens.get(token, token)}")
        sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if body is not None:
            given.setdefault("content-type", "application/json")
        if chunks is None:
            given.setdefault("content-length", str(len(sent)))
        pieces = list(chunks if chunks is not None else [sent])
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
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in (*given.items(), *several)],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        told: list[Any] = []

        async def receive() -> dict[str, Any]:
            if pieces:
                piece = pieces.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
            await asyncio.sleep(3_600)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            told.append(message)

        await self.app(scope, receive, send)
        start, *rest = told
        seen = {k.decode(): v.decode("latin-1") for k, v in start["headers"]}
        return Answer(start["status"], seen, b"".join(m.get("body", b"") for m in rest))

    async def accept(self, plan: str, **more: Any) -> str:
        """A new operation; its id."""
        return (await admission.accept(self.plane, Accept(plan, **more))).id

    async def until(self, operation: str, state: str, *, tenant: str = "default") -> None:
        """Return when the operation is in this state."""
        async with asyncio.timeout(30):
            while (await reads.get_operation(self.plane, tenant, operation)).state != state:
                await self.plane.engine.wait(operation, 0.005)


async def tokens_of(plane: Plane) -> dict[str, str]:
    """A token for each role, and one of somebody else."""
    await app_tokens.begin(plane, ADMIN)
    admin = await app_tokens.authenticate(plane, ADMIN)
    made = {}
    for role in Role:
        _, made[str(role)] = await app_tokens.create_token(
            plane, admin, principal=f"{role}-person", role=role
        )
    _, made["stranger"] = await app_tokens.create_token(
        plane, admin, tenant="elsewhere", principal="stranger", role=Role.ADMIN
    )
    return made


@asynccontextmanager
async def face(
    directory: Path, *plans: Plan, store: str = "", seals: bool = True
) -> AsyncIterator[Face]:
    """A face on a plane that runs; it has a place for secrets if it `seals`."""
    seal = LocalSeal(directory / "secrets.key") if seals else None
    settings = Settings(store=store or str(directory / "tenure.db"))
    made = memory_providers.providers()
    async with running(
        settings, plans=(*(plans or PLANS), *lifecycle.PLANS), providers=made, seal=seal
    ) as plane:
        http_state = HttpState(plane)
        http_state.ready = True
        yield Face(http_state, server.build(http_state), tokens=await tokens_of(plane), held=made)


def faced(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is given a running `Face` before whatever else it asks for."""

    def played(tmp_path: Path, **given: object) -> None:
        async def main() -> None:
            async with face(tmp_path) as one:
                await test(one, **given)

        asyncio.run(main())

    first, *others = inspect.signature(test).parameters.values()
    assert first.name == "face"
    place = inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    played.__name__, played.__doc__ = test.__name__, test.__doc__
    played.__signature__ = inspect.Signature([place, *others])  # type: ignore[attr-defined]
    return played
