"""The face of the authorization server, which is the plane's identity provider."""

from collections.abc import Sequence
from typing import cast

from starlette.routing import BaseRoute

from tenure.core.errors import Unauthenticated
from tenure.core.roles import Role
from tenure.faces.http.face import Face
from tenure.faces.http.state import HttpState
from tenure.faces.oauth.routes import routes
from tenure.ports.identity import Authorization


def _routes(http_state: HttpState) -> Sequence[BaseRoute]:
    plane = http_state.plane
    if "identity" not in plane.providers:
        return ()

    async def admin(bearer: str) -> str | None:
        try:
            caller = await http_state.authenticate(bearer)
        except Unauthenticated:
            return None
        return caller.tenant if caller.role.may(Role.ADMIN) else None

    authorization = cast(Authorization, plane.providers["identity"])
    return routes(authorization, admin=admin, is_paused=lambda: plane.pause.why)


FACE = Face("oauth", foreign_routes=_routes)
