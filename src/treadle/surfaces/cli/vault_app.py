"""The commands `treadle vault`."""

from functools import partial
from typing import Annotated

from treadle.surfaces.cli.command_line import Argument, Group, Option

vault_app = Group("vault")

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]
Name = Annotated[str, Argument(metavar="NAME", help="The name of the secret, for example GITHUB_TOKEN.")]
Agents = Annotated[list[str] | None, Option("--agent", metavar="AGENT", help="An agent or a glob. Repeatable.")]
Tools = Annotated[
    list[str] | None,
    Option("--tool", metavar="TOOL", help="A tool or a glob. Repeatable. Default: every tool."),
]


@vault_app.command("set")
def set_secret(
    name: Name,
    value: Annotated[list[str] | None, Argument(hidden=True, metavar="")] = None,
    agent: Agents = None,
    tool: Tools = None,
    force: Annotated[bool, Option("--force", help="Accept a value of fewer than 8 characters.")] = False,
    json: Json = False,
) -> None:
    """Store a secret. The value is read from a prompt or from standard input."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.set_secret, name, bool(value), agent or (), tool or (), force, json))


@vault_app.command("list")
def list_secrets(json: Json = False) -> None:
    """List the secrets and their grants. Values are never printed."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.list_secrets, json))


@vault_app.command("remove")
def remove_secret(name: Name, json: Json = False) -> None:
    """Delete a secret and its grants."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.remove_secret, name, json))


@vault_app.command("grant")
def grant_secret(name: Name, agent: Agents = None, tool: Tools = None, json: Json = False) -> None:
    """Grant a secret to agents, for every tool or for some tools."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.grant_secret, name, agent or (), tool or (), json))


@vault_app.command("revoke")
def revoke_secret(name: Name, agent: Agents = None, tool: Tools = None, json: Json = False) -> None:
    """Revoke grants of a secret: those of an agent, those of a tool, or both."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.revoke_secret, name, agent or (), tool or (), json))


@vault_app.command("rotate")
def rotate_key(json: Json = False) -> None:
    """Encrypt all secrets with a new key."""
    from treadle.surfaces.cli import process, vault

    process.perform(partial(vault.rotate_key, json))
