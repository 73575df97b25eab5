"""A face: one HTTP interface of the control plane, to be listed in `tenure.faces.http.server`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.routing import BaseRoute

from tenure.faces.http.state import HttpState
from tenure.faces.http.table import Route


def _no_routes(_: HttpState) -> Sequence[BaseRoute]:
    return ()


@dataclass(frozen=True, slots=True)
class Face:
    """One interface: its declared routes, and those whose requests and errors have another form."""

    name: str
    routes: tuple[Route, ...] = ()
    """From the route table: they are in the OpenAPI document and in the reference."""
    foreign_routes: Callable[[HttpState], Sequence[BaseRoute]] = _no_routes
    """Routes whose wire format somebody else has defined, such as OAuth's."""
