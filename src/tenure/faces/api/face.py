"""The face of our own HTTP API: every route of `/v1`, the probes and the OpenAPI document."""

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
