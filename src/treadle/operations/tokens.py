"""Access tokens: the clients that may call over HTTP, and their scopes."""

from datetime import datetime

from msgspec import Struct

from treadle.domain.access import Scope, Visibility
from treadle.domain.ids import TokenId
from treadle.domain.quotas import Quotas
from treadle.domain.users import UserId
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page, make_view
from treadle.ports.access import CreateToken


class TokenView(Struct, frozen=True):
    """An access token, without the token itself."""

    token_id: TokenId
    name: str
    scopes: tuple[Scope, ...]
    agents: tuple[str, ...] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    quotas: Quotas | None
    user: UserId
    """The owner of what is begun with it."""
    visibility: Visibility
    multi_user: bool = False
    """It serves several people, and acts for the one that a request names."""
    last_used_at: datetime | None = None
    """When it was last used, to the minute; null: never."""


class NewTokenView(TokenView, frozen=True, kw_only=True):
    """A new access token. This is the only time that the token itself is shown."""

    token: str


class RevokeToken(Struct, frozen=True, forbid_unknown_fields=True):
    token_id: TokenId


LIST = Operation("tokens.list", "GET", "/v1/tokens", scope="admin", request=NoParameters, response=Page[TokenView])
CREATE = Operation(
    "tokens.create", "POST", "/v1/tokens", scope="admin", request=CreateToken, response=NewTokenView, status=201
)
REVOKE = Operation(
    "tokens.revoke",
    "DELETE",
    "/v1/tokens/{token_id}",
    scope="admin",
    request=RevokeToken,
    response=type(None),
    errors=(404,),
)


@LIST.handler
async def list_tokens(context: Context, request: NoParameters) -> Page[TokenView]:
    """List access tokens."""
    return Page(tuple([make_view(TokenView, record) for record in await context.access.list()]))


@CREATE.handler
async def create_token(context: Context, request: CreateToken) -> NewTokenView:
    """Create an access token.

    The response is the only place where the token itself is shown. It is not stored."""
    minted = await context.access.create(request)
    return make_view(NewTokenView, minted.record, token=minted.secret)


@REVOKE.handler
async def revoke_token(context: Context, request: RevokeToken) -> None:
    """Revoke an access token.

    It takes effect immediately. Streams that are open with the token are closed."""
    await context.access.revoke(request.token_id)
