"""The routes of the authorization server, for the HTTP server to mount.

Every response except the public documents has `no-store`.  Errors have OAuth's format and never
repeat a part of the request.
"""

import json
from collections.abc import Awaitable, Callable
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tenure.core.errors import ProviderError
from tenure.faces.oauth.bodies import UnreadableRequest, read_bearer, read_form, read_json
from tenure.ports.identity import (
    INTROSPECT_PATH,
    JWKS_PATH,
    METADATA_PATH,
    REGISTER_PATH,
    REVOKE_PATH,
    TOKEN_PATH,
    Authorization,
    Document,
    OAuthError,
    OAuthRefusal,
    TokenRequester,
)

Admin = Callable[[str], Awaitable[str | None]]
"""Bearer token → the tenant whose administrator has it; None: it is not an administrator's."""
Handler = Callable[[Request], Awaitable[Response]]

RETRY_SECONDS = 1
CACHE_SECONDS = 60
"""How long clients may cache the documents; a key is published long before it signs."""

_STATUS = {
    OAuthError.INVALID_REQUEST: 400,
    OAuthError.INVALID_CLIENT: 401,
    OAuthError.INVALID_SCOPE: 400,
    OAuthError.INVALID_TARGET: 400,
    OAuthError.INVALID_TOKEN: 401,
    OAuthError.INVALID_CLIENT_METADATA: 400,
    OAuthError.UNAUTHORIZED_CLIENT: 400,
    OAuthError.UNSUPPORTED_GRANT_TYPE: 400,
    OAuthError.TEMPORARILY_UNAVAILABLE: 503,
}
_PAUSE_REFUSAL = OAuthRefusal(
    OAuthError.TEMPORARILY_UNAVAILABLE,
    "The control plane is paused until its restore is confirmed.",
)
_PRIVATE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
_PUBLIC = {"Cache-Control": f"public, max-age={CACHE_SECONDS}"}


async def _nobody(_bearer: str) -> str | None:
    return None


def routes(
    authorization: Authorization, *, admin: Admin = _nobody, is_paused: Callable[[], object] = bool
) -> list[Route]:
    """The routes of this authorization server; `admin` finds the administrator of a bearer token.

    While the plane `is_paused` no token is issued and no key is registered.
    """
    face = _Face(authorization, admin, is_paused)
    post, managed = ["POST"], ["GET", "PUT", "DELETE"]
    return [
        Route(TOKEN_PATH, _with_oauth_errors(face.token), methods=post),
        Route(INTROSPECT_PATH, _with_oauth_errors(face.introspect), methods=post),
        Route(REVOKE_PATH, _with_oauth_errors(face.revoke), methods=post),
        Route(REGISTER_PATH, _with_oauth_errors(face.register), methods=post),
        Route(REGISTER_PATH + "/{client_id}", _with_oauth_errors(face.manage), methods=managed),
        Route(JWKS_PATH, _with_oauth_errors(face.jwks), methods=["GET"]),
        Route(METADATA_PATH, _with_oauth_errors(face.metadata), methods=["GET"]),
    ]


class _Face:
    """One method for each route."""

    def __init__(
        self, authorization: Authorization, admin: Admin, is_paused: Callable[[], object]
    ) -> None:
        self._server = authorization
        self._admin = admin
        self._is_paused = is_paused

    async def token(self, request: Request) -> Response:
        if self._is_paused():
            return _refusal_response(_PAUSE_REFUSAL)
        if "authorization" in request.headers:
            return _refusal_response(
                OAuthRefusal(OAuthError.INVALID_CLIENT, "Send a client assertion in the form.")
            )
        return _answer(await self._server.token(await read_form(request)))

    async def introspect(self, request: Request) -> Response:
        parsed = await self._read_token_request(request, INTROSPECT_PATH)
        if isinstance(parsed, OAuthRefusal):
            return _refusal_response(parsed)
        token, requester = parsed
        return _answer(await self._server.introspect(token, requester=requester))

    async def revoke(self, request: Request) -> Response:
        parsed = await self._read_token_request(request, REVOKE_PATH)
        if isinstance(parsed, OAuthRefusal):
            return _refusal_response(parsed)
        token, requester = parsed
        await self._server.revoke(token, requester=requester)
        return Response(status_code=200, headers=_PRIVATE)

    async def _read_token_request(
        self, request: Request, endpoint: str
    ) -> tuple[str, TokenRequester] | OAuthRefusal:
        """The token in the form, and its sender: an administrator by bearer token, or a client."""
        bearer, fields = read_bearer(request), await read_form(request)
        if "token" not in fields:
            return OAuthRefusal(OAuthError.INVALID_REQUEST, "token is missing.")
        if bearer is None:
            requester = await self._server.authenticate(fields, endpoint=endpoint)
            return (
                requester if isinstance(requester, OAuthRefusal) else (fields["token"], requester)
            )
        tenant = await self._admin(bearer)
        if tenant is None:
            return OAuthRefusal(
                OAuthError.INVALID_TOKEN, "The bearer token is not an administrator's."
            )
        return fields["token"], TokenRequester(tenant)

    async def register(self, request: Request) -> Response:
        if self._is_paused():
            return _refusal_response(_PAUSE_REFUSAL)
        bearer = read_bearer(request)
        if bearer is None:
            return _refusal_response(
                OAuthRefusal(OAuthError.INVALID_TOKEN, "An invitation is needed.")
            )
        answer = await self._server.register(bearer, await read_json(request))
        return _answer(answer, status=201)

    async def manage(self, request: Request) -> Response:
        if self._is_paused() and request.method != "GET":
            return _refusal_response(_PAUSE_REFUSAL)
        bearer, client_id = read_bearer(request), str(request.path_params["client_id"])
        if bearer is None:
            return _refusal_response(
                OAuthRefusal(OAuthError.INVALID_TOKEN, "A registration token is needed.")
            )
        match request.method:
            case "PUT":
                metadata = await read_json(request)
                return _answer(
                    await self._server.update_client(client_id, bearer=bearer, metadata=metadata)
                )
            case "DELETE":
                refusal = await self._server.withdraw_client(client_id, bearer=bearer)
                return (
                    _refusal_response(refusal)
                    if refusal
                    else Response(status_code=204, headers=_PRIVATE)
                )
            case _:
                return _answer(await self._server.read_client(client_id, bearer=bearer))

    async def jwks(self, _request: Request) -> Response:
        return _json(await self._server.jwks(), headers=_PUBLIC)

    async def metadata(self, _request: Request) -> Response:
        return _json(self._server.metadata(), headers=_PUBLIC)


def _with_oauth_errors(handler: Handler) -> Handler:
    """Wrap the handler: its exceptions become errors in OAuth's format."""

    @wraps(handler)
    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except UnreadableRequest as error:
            word = (
                OAuthError.INVALID_TOKEN
                if error.status == _STATUS[OAuthError.INVALID_TOKEN]
                else None
            )
            refusal = OAuthRefusal(word or OAuthError.INVALID_REQUEST, str(error))
            return _refusal_response(refusal, status=error.status)
        except ProviderError:
            # The provider's text may name files, which a client must not see.
            return _refusal_response(
                OAuthRefusal(OAuthError.TEMPORARILY_UNAVAILABLE, "Try again shortly.")
            )

    return handle


def _answer(answer: Document | OAuthRefusal, *, status: int = 200) -> Response:
    if isinstance(answer, OAuthRefusal):
        return _refusal_response(answer)
    return _json(answer, status=status, headers=_PRIVATE)


def _refusal_response(refusal: OAuthRefusal, *, status: int | None = None) -> Response:
    status = _STATUS[refusal.word] if status is None else status
    headers = dict(_PRIVATE)
    if refusal.word is OAuthError.INVALID_TOKEN:
        headers["WWW-Authenticate"] = f'Bearer realm="tenure", error="{refusal.word}"'
    elif refusal.word is OAuthError.INVALID_CLIENT:
        headers["WWW-Authenticate"] = 'Bearer realm="tenure"'
    elif refusal.word is OAuthError.TEMPORARILY_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_SECONDS)
    body = {"error": str(refusal.word), "error_description": refusal.sentence}
    return _json(body, status=status, headers=headers)


def _json(body: Document, *, status: int = 200, headers: dict[str, str]) -> Response:
    content = json.dumps(body, separators=(",", ":")).encode()
    return Response(content, status_code=status, headers=headers, media_type="application/json")
