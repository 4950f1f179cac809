"""`treadle tokens`: access tokens for the HTTP API."""

import time
from datetime import UTC, datetime
from typing import Annotated, Literal

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.domain.access import Scope
from treadle.domain.durations import parse_duration
from treadle.domain.errors import UsageError
from treadle.domain.quotas import NO_QUOTAS, Quotas
from treadle.domain.users import LOCAL_USER
from treadle.operations import tokens
from treadle.operations.operation import NoParameters
from treadle.operations.tokens import NewTokenView, TokenView
from treadle.surfaces.cli import completion
from treadle.surfaces.cli.admin_references import find_token
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.home_access.connection import current_home, open_admin_caller
from treadle.surfaces.terminal.output import Column, note, print_json, print_list, print_result, short_id, when

DEFAULT_SCOPES: tuple[Scope, ...] = ("read", "run")
group = Group("tokens")


@group.command("list")
async def list_tokens(json: Json = False) -> int:
    """List access tokens, oldest first. The secrets are not stored."""
    async with open_persistent_readonly_caller(current_home()) as caller:
        records = (await caller.call(tokens.LIST, NoParameters())).items
    head = (
        *("TOKEN", Column("NAME", shrinks_to=10), Column("USER", shrinks_to=7, is_optional=True)),
        *(Column("SEES", is_optional=True), "SCOPES", Column("AGENTS", shrinks_to=6)),
        *(Column("CREATED", is_optional=True), "STATE"),
    )
    empty = "No access tokens yet. Create one: treadle tokens create NAME"
    print_list(records, head, _row, json=json, empty=empty)
    return 0


@group.command("create")
async def create_token(
    name: Annotated[str, Argument(metavar="NAME", help="A name for the token.")],
    scope: Annotated[
        list[Literal["read", "run", "approve", "admin"]] | None,
        Option("--scope", help="A scope: read, run, approve or admin. Repeatable. Default: read and run."),
    ] = None,
    agent: Annotated[
        list[str] | None,
        Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="Limit the token to this agent. Repeatable. Default: all agents.",
            suggest=completion.agent_names,
        ),
    ] = None,
    expires: Annotated[
        str | None, Option(metavar="TIME", help="Lifetime, for example 90d or 12h. Default: no expiry.")
    ] = None,
    tokens_per_hour: Annotated[int | None, Option(metavar="N", help="Quota: model tokens per hour.")] = None,
    tool_calls_per_minute: Annotated[int | None, Option(metavar="N", help="Quota: tool calls per minute.")] = None,
    credit: Annotated[float | None, Option("--credits", metavar="N", help="Quota: credits in total.")] = None,
    user: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="The owner of what the token creates: a name, `local` for the local user, or the id of another "
            "token. Default: a user of its own.",
        ),
    ] = None,
    visibility: Annotated[
        Literal["own", "all"] | None,
        Option(
            help="Whether the token sees the sessions, runs and memories of its own user or of all users. "
            "Default: own if the only scope is run, else all."
        ),
    ] = None,
    multi_user: Annotated[
        bool,
        Option(
            "--multi-user",
            help="The token serves several people, such as the visitors of a site. Requests name whom they are "
            "for; those that name no one remember nothing.",
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Create an access token. It is printed once, on standard output."""
    home = current_home()
    for each in agent or ():
        home.refuse_unknown(each)
    new = tokens.CreateToken(
        name=name,
        scopes=tuple(scope or DEFAULT_SCOPES),
        agents=tuple(agent) if agent else None,
        expires_at=_expiry(expires),
        quotas=_quotas(tokens_per_hour, tool_calls_per_minute, credit),
        user=user,
        visibility=visibility,
        multi_user=multi_user,
    )
    async with open_admin_caller(home) as caller:
        record = await caller.call(tokens.CREATE, new)
    if json:
        print_json(record)
        return 0
    _print_new_token(record)
    return 0


@group.command("revoke")
async def revoke_token(
    token: Annotated[
        str,
        Argument(
            metavar="TOKEN", help="The id of the token, tok_…, a unique beginning of it, its name, or `last`."
        ),
    ],
    json: Json = False,
) -> int:
    """Revoke a token. Its open streams are closed."""
    from treadle.operations.token_service import PREFIX

    if token.startswith(PREFIX):
        raise UsageError(
            "That is the token itself, which does not belong on a command line. Revoke it by its id or its name: "
            "`treadle tokens list` shows them."
        )
    async with open_admin_caller(current_home()) as caller:
        record = await find_token(caller, token)
        await caller.call(tokens.REVOKE, tokens.RevokeToken(record.token_id))
    value = {"token_id": record.token_id, "revoked": True}
    print_result(value, f"Revoked {record.token_id} (`{record.name}`).", json=json)
    return 0


def _print_new_token(record: NewTokenView) -> None:
    """Print the token on standard output, and its owner and its id on standard error."""
    seen = "that user alone" if record.visibility == "own" else "all users"
    note(f"What it creates belongs to {_user(record)}. It sees sessions, runs and memories of {seen}.")
    if record.multi_user:
        note("It serves several people: name whom a request is for with `user`, or nothing is remembered.")
    note(f"{record.token_id} for `{record.name}`. The token is shown only once:")
    print(record.token)


def _expiry(lifetime: str | None) -> datetime | None:
    if lifetime is None:
        return None
    try:
        return datetime.fromtimestamp(time.time() + parse_duration(lifetime), UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"--expires is `{lifetime}`; accepted: a time such as 90d or 12h.") from None


def _quotas(tokens_per_hour: int | None, tool_calls_per_minute: int | None, credits: float | None) -> Quotas | None:
    try:
        quotas = Quotas(tokens_per_hour, tool_calls_per_minute, credits)
    except ValueError as error:
        raise UsageError(f"The token cannot have these quotas: {error}.") from None
    return None if quotas == NO_QUOTAS else quotas


def _row(record: TokenView) -> tuple[str, ...]:
    agents = "all" if record.agents is None else ", ".join(record.agents)
    user = "its own" if record.user == record.token_id else record.user
    return (
        short_id(record.token_id),
        record.name,
        user,
        record.visibility,
        " ".join(record.scopes),
        agents,
        when(record.created_at),
        _state(record),
    )


def _user(record: TokenView) -> str:
    if record.user == record.token_id:
        return "a user of its own"
    return "the local user" if record.user == LOCAL_USER else f"the user `{record.user}`"


def _state(record: TokenView) -> str:
    if record.revoked_at is not None:
        return f"revoked {when(record.revoked_at)}"
    if record.expires_at is None:
        return "valid"
    is_valid = record.expires_at > datetime.now(UTC)
    return f"expires {when(record.expires_at)}" if is_valid else f"expired {when(record.expires_at)}"
