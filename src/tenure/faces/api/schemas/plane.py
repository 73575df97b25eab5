"""The control plane's own answers on the wire."""

from tenure.faces.api.schemas.forms import Told


class Health(Told, frozen=True):
    """Whether it lives, or takes requests."""

    status: str


class Document(Told, frozen=True):
    """An OpenAPI document."""

    openapi: str
