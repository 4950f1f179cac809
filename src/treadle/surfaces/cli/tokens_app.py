"""What can be typed after `treadle tokens`. Each command imports its work when it is called."""

from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from treadle.surfaces.cli import completion

tokens_app = typer.Typer(help="Say who may ask over HTTP, and for what.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]


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
    """List the access tokens, the oldest first; the tokens themselves are kept nowhere."""
    from treadle.surfaces.cli import process, tokens

    process.perform(partial(tokens.list_tokens, json))


@tokens_app.command("create")
def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, for you to know it by.")],
    scope: Annotated[
        list[ScopeName] | None,
        typer.Option("--scope", help="What it may do; may be repeated. Without it: read and run."),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="Only with this agent; may be repeated. Without it: with all.",
            autocompletion=completion.agent_names,
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is valid: 90d, 12h. Without it: for good.")
    ] = None,
    tokens_per_hour: Annotated[
        int | None, typer.Option(metavar="N", help="Model tokens that its runs may use in an hour.")
    ] = None,
    tool_calls_per_minute: Annotated[
        int | None, typer.Option(metavar="N", help="Tool calls that its runs may make in a minute.")
    ] = None,
    credit: Annotated[
        float | None, typer.Option("--credits", metavar="N", help="Credits that its runs may use in all.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Who owns the sessions, runs and memories that it begins: a name, `local` for the local user, or "
            "the id of another token. Without it: a user of its own.",
        ),
    ] = None,
    visibility: Annotated[
        VisibilityName | None,
        typer.Option(
            help="Whose sessions, runs and memories exist for it: of its own user, or of all users. Without it: "
            "own for a token with the scope run alone, all for others."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make an access token. It is printed this once, on standard output."""
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
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The id of a token: tok_…, or its name.")],
    json: Json = False,
) -> None:
    """Take a token back, at once and for good. Streams that it holds open are cut."""
    from treadle.surfaces.cli import process, tokens

    process.perform(partial(tokens.revoke_token, token, json))
