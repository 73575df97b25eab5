"""Opens a home: its directory, its embedded providers, and its shared settings."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.provider_host import unix as provider_host
from tenure.app.safety.pause import Pause
from tenure.home.shared_settings import SharedSettings, SharedSettingsFile, shared_values
from tenure.settings import Settings
from tenure.wiring.store import store_without_password


def create_home(home: str) -> Path:
    """Create the home directory with mode 0700 if it does not exist."""
    path = Path(home)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.resolve()


def own_shared_settings(settings: Settings) -> SharedSettings | None:
    """The shared settings from this process's options; None for a worker, which reads them."""
    if settings.is_worker:
        return None
    issuer = settings.issuer or f"http://{settings.host}:{settings.port}"
    store = store_without_password(settings)
    return SharedSettings("", store, issuer, **shared_values(settings))


@asynccontextmanager
async def open_embedded_providers(
    settings: Settings, home: Path, pause: Pause, issuer: str
) -> AsyncIterator[provider_host.Providers]:
    """Open the four embedded providers, each with a file or directory of its own.

    `issuer` is the OAuth issuer of the other processes of this home; this one uses it too.
    """
    from tenure.adapters.access import local as access
    from tenure.adapters.credentials import local as credentials
    from tenure.adapters.identity import local as identity
    from tenure.adapters.runtime.process import ProcessRuntime

    clock, shared = (
        SystemClock(),
        SharedSettingsFile(home).update(own_shared_settings(settings), issuer),
    )
    async with AsyncExitStack() as stack:
        identities = identity.build(
            home / "identity.db", issuer=shared.issuer, clock=clock, epoch=lambda: pause.epoch
        )
        stack.push_async_callback(identities.close)
        grants = access.build(home / "access.db", clock=clock)
        stack.push_async_callback(grants.close)
        registrations = credentials.build(home / "credentials.db", clock=clock)
        stack.push_async_callback(registrations.close)
        path = os.environ.get("PATH", os.defpath)
        runtime = ProcessRuntime(
            home / "runtimes", clock=clock, path=path, hidden=(home,), sandbox=shared.sandbox
        )
        stack.callback(runtime.close)
        yield {
            "identity": identities,
            "access": grants,
            "runtime": runtime,
            "credentials": registrations,
        }
