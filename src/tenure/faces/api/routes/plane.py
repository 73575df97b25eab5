"""The control plane itself: health, metrics, and the document that describes this face."""

import asyncio

from tenure.app import epochs
from tenure.app.plane import until_answered
from tenure.core.errors import StoreError
from tenure.core.roles import Role
from tenure.faces.api import metrics
from tenure.faces.api.problems import Refusal
from tenure.faces.api.schemas import plane as schemas
from tenure.faces.api.table import Ask, Route

UNTAKEN = "the store answers but takes no records: it is read-only, or held up; the log tells more"
STORE_SECONDS = 1.0
"""How long the store may take to answer before the plane counts as not ready."""


async def livez(_: Ask) -> schemas.Health:
    """The process answers."""
    return schemas.Health(status="alive")


async def readyz(ask: Ask) -> schemas.Health:
    """The store answers and takes records, and the engine takes work.

    Work waits if the engine cannot be reached.
    """
    api = ask.api
    if api.stopping.is_set():
        raise Refusal("stopping", "the process is about to end")
    held = api.plane.hold.why
    if not api.ready or not (api.plane.engine.accepts or held):
        raise Refusal("starting", "the engine does not take work yet")
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await until_answered(api.plane)
    except (TimeoutError, StoreError):
        raise Refusal("starting", "the store does not answer") from None
    try:
        async with asyncio.timeout(STORE_SECONDS):
            await api.taking.until_taken(api.plane)
    except (TimeoutError, StoreError):
        raise Refusal("starting", UNTAKEN) from None
    plane, status = api.plane, "held" if held else "ready"
    return schemas.Health(status=status, engine=plane.engine.away, providers=plane.unserved())


async def get_plane(ask: Ask) -> schemas.Plane:
    """Its epoch, and whether it is held."""
    plane = ask.plane
    return schemas.Plane(id=plane.id, epoch=plane.hold.epoch, held=plane.hold.why)


async def review_plane(ask: Ask) -> schemas.Review:
    """The store compared with the providers."""
    found = await epochs.review(ask.plane, ask.caller)
    return schemas.Review(
        **{
            **found._asdict(),
            "resumed": [schemas.Resumed(**one._asdict()) for one in found.resumed],
            "missing": [schemas.Missing(**one._asdict()) for one in found.missing],
            "started": [schemas.Named(**one._asdict()) for one in found.started],
            "shut": [schemas.Named(**one._asdict()) for one in found.shut],
            "untold": [schemas.Named(**one._asdict()) for one in found.untold],
            "unknown": [schemas.Unknown(**one._asdict()) for one in found.unknown],
        }
    )


async def confirm_plane(ask: Ask) -> schemas.Plane:
    """It moves again."""
    await epochs.confirm(ask.plane, ask.caller)
    return await get_plane(ask)


async def get_metrics(ask: Ask) -> bytes:
    """Everything there is to scrape."""
    return await metrics.exposition(ask.api, ask.tenant)


async def openapi(ask: Ask) -> bytes:
    """The document."""
    return ask.api.document


ROUTES = (
    Route("GET", "/livez", livez, "Say whether the process answers", answer=schemas.Health),
    Route(
        "GET", "/readyz", readyz, "Say whether requests can be served", answer=schemas.Health,
        problems=("starting", "stopping"),
    ),
    Route(
        "GET", "/v1/plane", get_plane, "Show the plane's epoch, and whether it is held",
        role=Role.VIEWER, answer=schemas.Plane,
    ),
    Route(
        "GET", "/v1/plane/review", review_plane,
        "Compare the store with what the providers hold; nothing is changed",
        role=Role.ADMIN, answer=schemas.Review,
    ),
    Route(
        "POST", "/v1/plane:confirm", confirm_plane, "Let a plane go that is held after a restore",
        role=Role.ADMIN, answer=schemas.Plane, problems=("not_held",), while_held=True,
    ),
    Route(
        "GET", "/metrics", get_metrics, "Metrics in Prometheus' text form",
        role=Role.ADMIN, media=metrics.MEDIA,
    ),
    Route(
        "GET", "/openapi.json", openapi, "This description", role=Role.VIEWER,
        answer=schemas.Document,
    ),
)  # fmt: skip
PROBES = tuple(one for one in ROUTES if one.path in {"/livez", "/readyz", "/metrics"})
"""What a process without the rest of this face can be asked."""
