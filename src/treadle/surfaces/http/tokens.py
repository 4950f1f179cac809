"""Access tokens: made, listed, revoked."""

from litestar import Router, delete, get, post
from litestar.params import FromPath, JSONBody

from treadle.domain.ids import TokenId
from treadle.operations.schemas import Page
from treadle.operations.token_schemas import (
    NewTokenView,
    TokenBody,
    TokenView,
    new_token,
    new_token_view,
    token_view,
)
from treadle.surfaces.http.dependencies import Asked, served_of
from treadle.surfaces.http.openapi import asks


@get("/v1/tokens", **asks("admin", "List access tokens"))
async def list_tokens(request: Asked) -> Page[TokenView]:
    return Page(tuple(map(token_view, await served_of(request).access.list())))


@post("/v1/tokens", status_code=201, **asks("admin", "Create an access token"))
async def create(data: JSONBody[TokenBody], request: Asked) -> NewTokenView:
    """The secret is returned once and not stored."""
    return new_token_view(await served_of(request).access.create(new_token(data)))


@delete("/v1/tokens/{token_id:str}", **asks("admin", "Revoke a token", 404))
async def revoke(token_id: FromPath[str], request: Asked) -> None:
    """Takes effect at once. The open streams of the token are closed."""
    await served_of(request).access.revoke(TokenId(token_id))


ROUTES = Router("/", route_handlers=[list_tokens, create, revoke], tags=["tokens"])
