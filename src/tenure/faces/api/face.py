"""Our own interface as one of the faces: every route of `/v1`, probes and documents."""

from tenure.faces.api.routes import (
    agents,
    events,
    findings,
    operations,
    plane,
    subscriptions,
    tenancy,
    tokens,
)
from tenure.faces.http.face import Face

FACE = Face(
    "api",
    routes=(
        *plane.ROUTES,
        *agents.ROUTES,
        *operations.ROUTES,
        *tokens.ROUTES,
        *tenancy.ROUTES,
        *findings.ROUTES,
        *events.ROUTES,
        *subscriptions.ROUTES,
    ),
)
