"""The commands `treadle tokens`."""

from enum import StrEnum
from functools import partial
from typing import Annotated

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option

tokens_app = Group("tokens")

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]


class ScopeName(StrEnum):
    """What can be said after --scope."""

    read = "read"
    run = "run"
    approve = "approve"
    admin = "admin"


class VisibilityName(StrEnum):
    """What can be said after --visibility."""

    own = "own"
    all = "all"


@tokens_app.command("list")
def list_tokens(json: Json = False) -> None:
    """List access tokens, oldest first. The secrets are not stored."""
    from treadle.surfaces.cli import process, tokens

    process.perform(partial(tokens.list_tokens, json))


@tokens_app.command("create")
def create_token(
    name: Annotated[str, Argument(metavar="NAME", help="A name for the token.")],
    scope: Annotated[
        list[ScopeName] | None,
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
        VisibilityName | None,
        Option(
            help="Whether the token sees the sessions, runs and memories of its own user or of all users. "
            "Default: own if the only scope is run, else all."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Create an access token. It is printed once, on standard output."""
    from treadle.surfaces.cli import process, tokens

    wanted = tokens.Wanted(
        name,
        tuple(each.value for each in scope or ()),
        tuple(agent or ()),
        expires,
        tokens_per_hour,
        tool_calls_per_minute,
        credit,
        user,
        None if visibility is None else visibility.value,
    )
    process.perform(partial(tokens.create_token, wanted, json))


@tokens_app.command("revoke")
def revoke_token(
    token: Annotated[str, Argument(metavar="TOKEN", help="The id of the token, tok_…, or its name.")],
    json: Json = False,
) -> None:
    """Revoke a token. Its open streams are closed."""
    from treadle.surfaces.cli import process, tokens

    process.perform(partial(tokens.revoke_token, token, json))
