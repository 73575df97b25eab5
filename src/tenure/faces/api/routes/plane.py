"""Routes of the control plane itself: health, review, metrics and the OpenAPI document."""

from tenure.app.safety import epochs
from tenure.core.roles import Role
from tenure.faces.api.schemas import plane as schemas
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.route_table import HttpRequest, Route
from tenure.telemetry import metrics, scrape

COMMIT_LOST = "the process is stopping, because the store failed during a commit"
STORE_SECONDS = 1.0
"""How long the store may take to answer before the plane counts as not ready."""


async def livez(_: HttpRequest) -> schemas.HealthStatus:
    """Answer that the process lives."""
    return schemas.HealthStatus(status="alive")


async def readyz(request: HttpRequest) -> schemas.HealthStatus:
    """Answer that the store accepts writes and that the engine accepts operations.

    Otherwise the problem says what is wrong with the store.  Operations wait while the engine
    cannot be reached.
    """
    http_state = request.http_state
    if http_state.stopping.is_set():
        problem = "the process is stopping"
        if http_state.unknown_commit is not None:
            problem = await http_state.write_probe.explain(
                http_state.plane, COMMIT_LOST, STORE_SECONDS
            )
        raise ProblemError("stopping", problem)
    pause_reason = http_state.plane.pause.why
    if not http_state.ready or not (http_state.plane.engine.accepts or pause_reason):
        raise ProblemError("starting", "the engine does not accept operations yet")
    if problem := await http_state.write_probe.problem(http_state.plane, seconds=STORE_SECONDS):
        raise ProblemError("starting", problem)
    plane, status = http_state.plane, "held" if pause_reason else "ready"
    return schemas.HealthStatus(
        status=status, engine=plane.engine.outage, providers=plane.provider_outage()
    )


async def get_plane(request: HttpRequest) -> schemas.PlaneStatus:
    """The plane's epoch, and whether it is paused."""
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
    """End the pause after a restore."""
    plane = request.plane
    status = schemas.PlaneStatus(id=plane.id, epoch=plane.pause.epoch, held="")
    await epochs.confirm(plane, request.caller, idempotency=request.answered_by(lambda _: status))
    return status


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
    """The OpenAPI document."""
    return request.http_state.document


ROUTES = (
    Route("GET", "/livez", livez, "Check that the process answers", answer=schemas.HealthStatus),
    Route(
        "GET", "/readyz", readyz, "Check that requests can be served", answer=schemas.HealthStatus,
        problems=("starting", "stopping"),
    ),
    Route(
        "GET", "/v1/plane", get_plane, "Show the plane's epoch, and whether it is paused",
        role=Role.VIEWER, answer=schemas.PlaneStatus,
    ),
    Route(
        "GET", "/v1/plane/review", review_plane,
        "Compare the store with the providers; nothing is changed",
        role=Role.ADMIN, answer=schemas.PlaneReview,
    ),
    Route(
        "POST", "/v1/plane:confirm", confirm_plane, "End the pause of a plane after a restore",
        role=Role.ADMIN, answer=schemas.PlaneStatus, problems=("not_held",),
        works_while_paused=True,
    ),
    Route(
        "GET", "/metrics", get_metrics, "Metrics in the Prometheus text format",
        role=Role.ADMIN, media=metrics.MEDIA,
    ),
    Route(
        "GET", "/openapi.json", openapi, "The OpenAPI document of this API", role=Role.VIEWER,
        answer=schemas.Document,
    ),
)  # fmt: skip
PROBES = tuple(one for one in ROUTES if one.path in {"/livez", "/readyz", "/metrics"})
"""The routes of a worker, which serves no other part of this API."""
