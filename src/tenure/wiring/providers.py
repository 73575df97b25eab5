"""A home: its directory, its embedded providers, and what its processes have agreed on."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.provider_host import unix as provider_host
from tenure.app.safety.pause import Pause
from tenure.home.shared_settings import Terms, TermsFile, agreed_of
from tenure.settings import Settings
from tenure.wiring.store import shown_store


def made(home: str) -> Path:
    """The directory, for its owner alone."""
    path = Path(home)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.resolve()


def told(settings: Settings) -> Terms | None:
    """What this process was told of its home; None: it joins, and takes what holds there."""
    if settings.joins:
        return None
    issuer = settings.issuer or f"http://{settings.host}:{settings.port}"
    store = shown_store(settings)
    return Terms("", store, issuer, **agreed_of(settings))


@asynccontextmanager
async def embedded(
    settings: Settings, home: Path, held: Pause, issuer: str
) -> AsyncIterator[provider_host.Providers]:
    """The four embedded providers, each with a file or directory of its own.

    `issuer` is the one that other processes of this home have: it is kept.
    """
    from tenure.adapters.access import local as access
    from tenure.adapters.credentials import local as credentials
    from tenure.adapters.identity import local as identity
    from tenure.adapters.runtime.process import ProcessRuntime

    clock, terms = SystemClock(), TermsFile(home).opened(told(settings), issuer)
    async with AsyncExitStack() as stack:
        known = identity.build(
            home / "identity.db", issuer=terms.issuer, clock=clock, epoch=lambda: held.epoch
        )
        stack.push_async_callback(known.close)
        granted = access.build(home / "access.db", clock=clock)
        stack.push_async_callback(granted.close)
        registered = credentials.build(home / "credentials.db", clock=clock)
        stack.push_async_callback(registered.close)
        path = os.environ.get("PATH", os.defpath)
        runtime = ProcessRuntime(
            home / "runtimes", clock=clock, path=path, hidden=(home,), sandbox=terms.sandbox
        )
        stack.callback(runtime.close)
        yield {
            "identity": known,
            "access": granted,
            "runtime": runtime,
            "credentials": registered,
        }
