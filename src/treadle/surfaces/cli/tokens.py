"""`treadle tokens`: who may ask over HTTP, and for what."""

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.config.home import Home
from treadle.domain.access import Scope, Visibility
from treadle.domain.durations import parse_duration
from treadle.domain.errors import UsageError
from treadle.domain.quotas import NO_QUOTAS, Quotas
from treadle.domain.users import LOCAL_USER
from treadle.operations import tokens
from treadle.operations.operation import NoParameters
from treadle.operations.token_service import PREFIX
from treadle.operations.tokens import TokenView
from treadle.surfaces.cli.connection import administering
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json

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
    async with open_persistent_readonly_caller(_home()) as caller:
        records = (await caller.call(tokens.LIST, NoParameters())).items
    if json:
        for record in records:
            print_json(record)
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
    async with administering(home) as caller:
        record = await caller.call(tokens.CREATE, _new(wanted))
    if json:
        print_json(record)
        return 0
    seen = "that user alone" if record.visibility == "own" else "all users"
    note(f"what it begins belongs to {_user(record)}; it sees sessions, runs and memories of {seen}")
    note(f"{record.token_id} for `{record.name}`; this is the only time that it is shown:")
    print(record.token)
    return 0


async def revoke_token(token: str, json: bool) -> int:
    if token.startswith(PREFIX):
        raise UsageError(
            "That is the token itself, which does not belong on a command line. Revoke it by its id or its name: "
            "`treadle tokens list` shows them."
        )
    async with administering(_home()) as caller:
        record = _named(token, (await caller.call(tokens.LIST, NoParameters())).items)
        await caller.call(tokens.REVOKE, tokens.RevokeToken(record.token_id))
    if json:
        print_json({"token_id": record.token_id, "revoked": True})
    else:
        note(f"{record.token_id} (`{record.name}`) is revoked")
    return 0


def _named(wanted: str, records: Sequence[TokenView]) -> TokenView:
    """The token with this id; or the one with this name that is not revoked, where there is one alone."""
    found = [record for record in records if record.token_id == wanted]
    found = found or [record for record in records if record.name == wanted and record.revoked_at is None]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(record.token_id for record in found)
        raise UsageError(f"Several tokens are called `{wanted}`: {ids}. Say which by its id.")
    raise UsageError(f"There is no token `{wanted}`. `treadle tokens list` shows those there are.")


def _new(wanted: Wanted) -> tokens.CreateToken:
    expires_at = None
    if wanted.expires is not None:
        try:
            expires_at = datetime.fromtimestamp(time.time() + parse_duration(wanted.expires), UTC)
        except (ValueError, OverflowError, OSError):
            raise UsageError(f"--expires is `{wanted.expires}`; accepted: a time such as 90d or 12h.") from None
    try:
        quotas = Quotas(wanted.tokens_per_hour, wanted.tool_calls_per_minute, wanted.credits)
    except ValueError as error:
        raise UsageError(f"The token cannot have these quotas: {error}.") from None
    return tokens.CreateToken(
        wanted.name,
        wanted.scopes or DEFAULT_SCOPES,
        wanted.agents or None,
        expires_at,
        None if quotas == NO_QUOTAS else quotas,
        wanted.user,
        wanted.visibility,
    )


def _row(record: TokenView) -> tuple[str, ...]:
    agents = "all" if record.agents is None else ", ".join(record.agents)
    created, state = _date(record.created_at), _state(record)
    user = "its own" if record.user == record.token_id else record.user
    return record.token_id, record.name, user, record.visibility, " ".join(record.scopes), agents, created, state


def _user(record: TokenView) -> str:
    if record.user == record.token_id:
        return "a user of its own"
    return "the local user" if record.user == LOCAL_USER else f"the user `{record.user}`"


def _state(record: TokenView) -> str:
    if record.revoked_at is not None:
        return f"revoked {_date(record.revoked_at)}"
    if record.expires_at is None:
        return "valid"
    is_valid = record.expires_at > datetime.now(UTC)
    return f"{'valid until' if is_valid else 'expired'} {_date(record.expires_at)}"


def _date(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


def _home() -> Home:
    return Home.from_environment(os.environ)
