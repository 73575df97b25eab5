"""A face: one HTTP interface of the control plane; `tenure.faces.http.server` lists them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.routing import BaseRoute

from tenure.faces.http.route_table import Route
from tenure.faces.http.state import HttpState


def _no_routes(_: HttpState) -> Sequence[BaseRoute]:
    return ()


@dataclass(frozen=True, slots=True)
class Face:
    """One interface: its declared routes, and foreign routes with a format of their own."""

    name: str
    routes: tuple[Route, ...] = ()
    """Declared routes: they are in the OpenAPI document and in the reference."""
    foreign_routes: Callable[[HttpState], Sequence[BaseRoute]] = _no_routes
    """Routes whose wire format is defined by another standard, such as OAuth's."""
