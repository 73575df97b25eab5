"""The control plane itself: health, metrics, and the document that describes this face."""

from tenure.app.safety import epochs
from tenure.core.roles import Role
from tenure.faces.api.schemas import plane as schemas
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.table import HttpRequest, Route
from tenure.telemetry import metrics, scrape

COMMIT_LOST = "the process is about to end, because the store failed during a commit"
STORE_SECONDS = 1.0
"""How long the store may take to answer before the plane counts as not ready."""


async def livez(_: HttpRequest) -> schemas.HealthStatus:
    """The process answers."""
    return schemas.HealthStatus(status="alive")


async def readyz(request: HttpRequest) -> schemas.HealthStatus:
    """The store answers and takes records, and the engine takes work.

    If not, the problem says what is wrong with the store.  Work waits if the engine cannot be
    reached.
    """
    http_state = request.http_state
    if http_state.stopping.is_set():
        problem = "the process is about to end"
        if http_state.unknown_commit is not None:
            problem = await http_state.write_probe.explain(
                http_state.plane, COMMIT_LOST, STORE_SECONDS
            )
        raise ProblemError("stopping", problem)
    held = http_state.plane.pause.why
    if not http_state.ready or not (http_state.plane.engine.accepts or held):
        raise ProblemError("starting", "the engine does not take work yet")
    if problem := await http_state.write_probe.problem(http_state.plane, seconds=STORE_SECONDS):
        raise ProblemError("starting", problem)
    plane, status = http_state.plane, "held" if held else "ready"
    return schemas.HealthStatus(
        status=status, engine=plane.engine.away, providers=plane.provider_outage()
    )


async def get_plane(request: HttpRequest) -> schemas.PlaneStatus:
    """Its epoch, and whether it is held."""
    plane = request.plane
    return schemas.PlaneStatus(id=plane.id, epoch=plane.pause.epoch, held=plane.pause.why)


async def review_plane(request: HttpRequest) -> schemas.PlaneReview:
    """The store compared with the providers."""
    found = await epochs.review(request.plane, request.caller)
    return schemas.PlaneReview(
        **{
            **found._asdict(),
            "resumed": [schemas.ResumedOperation(**one._asdict()) for one in found.resumed],
            "missing": [schemas.MissingResource(**one._asdict()) for one in found.missing],
            "started": [schemas.NamedAgent(**one._asdict()) for one in found.started],
            "shut": [schemas.NamedAgent(**one._asdict()) for one in found.shut],
            "untold": [schemas.NamedAgent(**one._asdict()) for one in found.untold],
            "unknown": [schemas.UnknownResource(**one._asdict()) for one in found.unknown],
        }
    )


async def confirm_plane(request: HttpRequest) -> schemas.PlaneStatus:
    """It moves again."""
    plane = request.plane
    then = schemas.PlaneStatus(id=plane.id, epoch=plane.pause.epoch, held="")
    await epochs.confirm(plane, request.caller, idempotency=request.answered_by(lambda _: then))
    return then


async def get_metrics(request: HttpRequest) -> bytes:
    """The metrics that the caller's tenant may see."""
    http_state = request.http_state
    return await scrape.exposition(
        http_state.plane,
        request.tenant,
        step_times=http_state.step_times,
        requests=http_state.requests,
    )


async def openapi(request: HttpRequest) -> bytes:
    """The document."""
    return request.http_state.document


ROUTES = (
    Route("GET", "/livez", livez, "Say whether the process answers", answer=schemas.HealthStatus),
    Route(
        "GET", "/readyz", readyz, "Say whether requests can be served", answer=schemas.HealthStatus,
        problems=("starting", "stopping"),
    ),
    Route(
        "GET", "/v1/plane", get_plane, "Show the plane's epoch, and whether it is held",
        role=Role.VIEWER, answer=schemas.PlaneStatus,
    ),
    Route(
        "GET", "/v1/plane/review", review_plane,
        "Compare the store with what the providers hold; nothing is changed",
        role=Role.ADMIN, answer=schemas.PlaneReview,
    ),
    Route(
        "POST", "/v1/plane:confirm", confirm_plane, "Let a plane go that is held after a restore",
        role=Role.ADMIN, answer=schemas.PlaneStatus, problems=("not_held",),
        works_while_paused=True,
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
