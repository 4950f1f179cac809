"""Access tokens as they go over the wire, and back."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from treadle.domain.access import Scope, Visibility
from treadle.domain.ids import TokenId
from treadle.domain.quotas import Quotas
from treadle.domain.users import LONGEST_USER, UserId
from treadle.operations.schemas import instant, maybe, moment
from treadle.operations.tokens import LONGEST_NAME, Minted, NewToken
from treadle.ports.access import TokenRecord


class TokenBody(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=4)] = ("read", "run")
    agents: Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)] | None = None
    expires_at: datetime | None = None
    quotas: Quotas | None = None
    user: Annotated[str, Meta(min_length=1, max_length=LONGEST_USER)] | None = None
    """Who owns what is begun with it; null: a user of its own, whose name is the id of the token."""
    visibility: Visibility | None = None
    """Whose sessions, runs and memories exist for it: of its `own` user, or of `all` users. Null: `own` for a token
    with the scope run alone, `all` for others."""


class TokenView(Struct, frozen=True):
    token_id: TokenId
    name: str
    scopes: tuple[Scope, ...]
    agents: tuple[str, ...] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    quotas: Quotas | None
    user: UserId
    """Who owns what is begun with it."""
    visibility: Visibility


class NewTokenView(TokenView, frozen=True, kw_only=True):
    token: str
    """The token itself, this once."""


def token_body(wanted: NewToken) -> TokenBody:
    return TokenBody(
        wanted.name,
        wanted.scopes,
        wanted.agents,
        maybe(wanted.expires_at),
        wanted.quotas,
        wanted.user,
        wanted.visibility,
    )


def new_token(body: TokenBody) -> NewToken:
    return NewToken(
        body.name, body.scopes, body.agents, instant(body.expires_at), body.quotas, body.user, body.visibility
    )


def token_view(record: TokenRecord) -> TokenView:
    return TokenView(**_of(record))


def new_token_view(minted: Minted) -> NewTokenView:
    return NewTokenView(**_of(minted.record), token=minted.secret)


def token_record(view: TokenView) -> TokenRecord:
    return TokenRecord(
        view.token_id,
        view.name,
        view.scopes,
        view.agents,
        view.created_at.timestamp(),
        instant(view.expires_at),
        instant(view.revoked_at),
        view.quotas,
        None if view.user == view.token_id else view.user,
        view.visibility,
    )


def _of(record: TokenRecord) -> dict[str, Any]:
    return {
        "token_id": record.token_id,
        "name": record.name,
        "scopes": record.scopes,
        "agents": record.agents,
        "created_at": moment(record.created_at),
        "expires_at": maybe(record.expires_at),
        "revoked_at": maybe(record.revoked_at),
        "quotas": record.quotas,
        "user": record.user,
        "visibility": record.visibility,
    }
