"""`treadle tokens`: who may ask over HTTP, and for what."""

import os
import time
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from treadle.bootstrap.backup import look_at_tokens, own_tokens
from treadle.config.home import Home
from treadle.domain.access import Scope, Visibility
from treadle.domain.durations import seconds
from treadle.domain.errors import UsageError
from treadle.domain.quotas import NO_QUOTAS, Quotas
from treadle.domain.users import LOCAL_USER
from treadle.operations.maintenance import TokenKeeping
from treadle.operations.token_schemas import token_view
from treadle.operations.tokens import PREFIX, NewToken
from treadle.ports.access import TokenRecord
from treadle.surfaces.cli.connection import kept_up
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json

if TYPE_CHECKING:
    from treadle.remote.connection import Connection

DEFAULT_SCOPES: tuple[Scope, ...] = ("read", "run")


class Wanted(Struct, frozen=True):
    """What was asked for on the command line."""

    name: str
    scopes: tuple[Scope, ...] = ()
    agents: tuple[str, ...] = ()
    expires: str | None = None
    tokens_per_hour: int | None = None
    tool_calls_per_minute: int | None = None
    credits: float | None = None
    user: str | None = None
    visibility: Visibility | None = None


async def list_tokens(json: bool) -> int:
    async with look_at_tokens(_home()) as tokens:
        records = await tokens.list()
    if json:
        for record in records:
            _print_json(token_view(record))
    elif records:
        head = ("TOKEN", "NAME", "USER", "SEES", "SCOPES", "AGENTS", "CREATED", "STATE")
        print_table(head, [_row(record) for record in records])
    else:
        note("no access tokens yet; make one with: treadle tokens create NAME")
    return 0


async def create_token(wanted: Wanted, json: bool) -> int:
    home = _home()
    for agent in wanted.agents:
        home.refuse_unknown(agent)
    async with _tokens(home) as tokens:
        minted = await tokens.create(_new(wanted))
    if json:
        _print_json({**msgspec.to_builtins(token_view(minted.record)), "token": minted.secret})
        return 0
    record = minted.record
    seen = "that user alone" if record.visibility == "own" else "all users"
    note(f"what it begins belongs to {_user(record)}; it sees sessions, runs and memories of {seen}")
    note(f"{record.token_id} for `{record.name}`; this is the only time that it is shown:")
    print(minted.secret)
    return 0


async def revoke_token(token: str, json: bool) -> int:
    if token.startswith(PREFIX):
        raise UsageError(
            "That is the token itself, which does not belong on a command line. Revoke it by its id or its name: "
            "`treadle tokens list` shows them."
        )
    async with _tokens(_home()) as tokens:
        record = _named(token, list(await tokens.list()))
        await tokens.revoke(record.token_id)
    if json:
        _print_json({"token_id": record.token_id, "revoked": True})
    else:
        note(f"{record.token_id} (`{record.name}`) is revoked")
    return 0


def _tokens(home: Home) -> AbstractAsyncContextManager[TokenKeeping]:
    def attached(connection: "Connection") -> TokenKeeping:
        from treadle.remote.upkeep import RemoteTokens

        return RemoteTokens(connection)

    def own() -> AbstractAsyncContextManager[TokenKeeping]:
        return own_tokens(home)

    return kept_up(own, attached)


def _named(wanted: str, records: list[TokenRecord]) -> TokenRecord:
    """The token with this id; or the one with this name that is not revoked, where there is one alone."""
    found = [record for record in records if record.token_id == wanted]
    found = found or [record for record in records if record.name == wanted and record.revoked_at is None]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(record.token_id for record in found)
        raise UsageError(f"Several tokens are called `{wanted}`: {ids}. Say which by its id.")
    raise UsageError(f"There is no token `{wanted}`. `treadle tokens list` shows those there are.")


def _new(wanted: Wanted) -> NewToken:
    expires_at = None
    if wanted.expires is not None:
        try:
            expires_at = time.time() + seconds(wanted.expires)
            datetime.fromtimestamp(expires_at, UTC)
        except (ValueError, OverflowError, OSError):
            raise UsageError(f"--expires is `{wanted.expires}`; accepted: a time such as 90d or 12h.") from None
    try:
        quotas = Quotas(wanted.tokens_per_hour, wanted.tool_calls_per_minute, wanted.credits)
    except ValueError as error:
        raise UsageError(f"The token cannot have these quotas: {error}.") from None
    return NewToken(
        wanted.name,
        wanted.scopes or DEFAULT_SCOPES,
        wanted.agents or None,
        expires_at,
        None if quotas == NO_QUOTAS else quotas,
        wanted.user,
        wanted.visibility,
    )


def _row(record: TokenRecord) -> tuple[str, ...]:
    agents = "all" if record.agents is None else ", ".join(record.agents)
    created, state = _date(record.created_at), _state(record)
    user = "its own" if record.user == record.token_id else record.user
    return record.token_id, record.name, user, record.visibility, " ".join(record.scopes), agents, created, state


def _user(record: TokenRecord) -> str:
    if record.user == record.token_id:
        return "a user of its own"
    return "the local user" if record.user == LOCAL_USER else f"the user `{record.user}`"


def _state(record: TokenRecord) -> str:
    if record.revoked_at is not None:
        return f"revoked {_date(record.revoked_at)}"
    if record.expires_at is None:
        return "valid"
    return f"{'valid until' if record.is_valid(time.time()) else 'expired'} {_date(record.expires_at)}"


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _home() -> Home:
    return Home.from_environment(os.environ)


def _print_json(value: Any) -> None:
    print_json(value)
