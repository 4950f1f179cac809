"""What can be typed after `treadle vault`. Each command imports its work when it is called."""

from functools import partial
from typing import Annotated

import typer

vault_app = typer.Typer(help="Keep secrets, and say which agents may use them.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a secret, for example GITHUB_TOKEN.")]
Agents = Annotated[
    list[str] | None, typer.Option("--agent", metavar="AGENT", help="An agent, or a glob; may be given often.")
]
Tools = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="TOOL", help="A tool, or a glob; may be given often. Without it: every tool."),
]


@vault_app.command("set")
def set_secret(
    name: Name,
    value: Annotated[list[str] | None, typer.Argument(hidden=True, metavar="")] = None,
    agent: Agents = None,
    tool: Tools = None,
    force: Annotated[bool, typer.Option("--force", help="Take a value of fewer than 8 characters.")] = False,
    json: Json = False,
) -> None:
    """Keep a secret, or give it another value. The value is asked for, or read from standard input."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.set_secret, name, bool(value), agent or (), tool or (), force, json))


@vault_app.command("list")
def list_secrets(json: Json = False) -> None:
    """List the secrets and who may use them; never their values."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.list_secrets, json))


@vault_app.command("remove")
def remove_secret(name: Name, json: Json = False) -> None:
    """Forget a secret and all its grants."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.remove_secret, name, json))


@vault_app.command("grant")
def grant_secret(name: Name, agent: Agents = None, tool: Tools = None, json: Json = False) -> None:
    """Let agents use a secret, with every tool or with some."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.grant_secret, name, agent or (), tool or (), json))


@vault_app.command("revoke")
def revoke_secret(name: Name, agent: Agents = None, tool: Tools = None, json: Json = False) -> None:
    """Take grants of a secret back: all those to an agent, all those for a tool, or both."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.revoke_secret, name, agent or (), tool or (), json))


@vault_app.command("rotate")
def rotate_key(json: Json = False) -> None:
    """Encrypt all secrets with a new key."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.rotate_key, json))
