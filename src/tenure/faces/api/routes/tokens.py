"""Routes of tokens: issue, list, revoke."""

from functools import partial
from typing import cast

from tenure.app.tenancy import tokens
from tenure.core.roles import Role
from tenure.faces.api.schemas import tokens as schemas
from tenure.faces.http.route_table import HttpRequest, Route


async def create_token(request: HttpRequest) -> schemas.NewToken:
    """Issue a token."""
    body = cast(schemas.CreateToken, request.body)
    result = await tokens.create_token(
        request.plane,
        request.caller,
        principal=body.principal,
        role=body.role,
        tenant=body.tenant,
        seconds=body.seconds,
        idempotency=request.answered_by(_new_token),
    )
    return _new_token(result)


def _new_token(result: tuple[tokens.TokenView, str]) -> schemas.NewToken:
    view, token = result
    return schemas.NewToken(**view._asdict(), void=False, token=token)


async def list_tokens(request: HttpRequest) -> schemas.TokenList:
    """A tenant's tokens."""
    tenant = cast(schemas.ListTokens, request.query).tenant
    views = await tokens.list_tokens(request.plane, request.caller, tenant=tenant)
    epoch = request.plane.pause.epoch
    return schemas.TokenList(items=[schemas.token(view, epoch=epoch) for view in views])


async def revoke_token(request: HttpRequest) -> schemas.Token:
    """Revoke a token."""
    show = partial(schemas.token, epoch=request.plane.pause.epoch)
    return show(
        await tokens.revoke_token(
            request.plane,
            request.caller,
            request.names["token"],
            idempotency=request.answered_by(show),
        )
    )


ROUTES = (
    Route(
        "POST", "/v1/tokens", create_token, "Issue a token", role=Role.ADMIN,
        answer=schemas.NewToken, status=201, body=schemas.CreateToken,
        shows_secret=True,
        problems=("invalid", "not_found"),
    ),
    Route(
        "GET", "/v1/tokens", list_tokens, "List tokens", role=Role.ADMIN, answer=schemas.TokenList,
        query=schemas.ListTokens, problems=("not_found",),
    ),
    Route(
        "DELETE", "/v1/tokens/{token}", revoke_token, "Revoke a token", role=Role.ADMIN,
        answer=schemas.Token,
    ),
)  # fmt: skip
