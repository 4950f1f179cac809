"""What can be typed after `treadle skills`. Each command imports its work when it is called."""

from functools import partial
from typing import Annotated

import typer

skills_app = typer.Typer(help="Read skills, and say which ones agents may use as they are.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a skill.")]
InWorkspace = Annotated[
    str | None,
    typer.Option("--workspace", metavar="PATH", help="One of this workspace, in its folder .agents/skills."),
]


@skills_app.command("list")
def list_skills(
    workspace: Annotated[
        str, typer.Option("--workspace", metavar="PATH", help="The workspace; without it, this folder.")
    ] = ".",
    json: Json = False,
) -> None:
    """List the skills of the home, of a workspace, and those that come with Treadle."""
    from treadle.surfaces.cli import process, skills

    process.perform(partial(skills.list_skills, workspace, json))


@skills_app.command("show")
def show_skill(name: Name, workspace: InWorkspace = None, json: Json = False) -> None:
    """Show a skill whole: what it asks for, and the text of all its files."""
    from treadle.surfaces.cli import process, skills

    process.perform(partial(skills.show_skill, name, workspace, json))


@skills_app.command("approve")
def approve_skill(
    name: Name,
    workspace: InWorkspace = None,
    yes: Annotated[bool, typer.Option("--yes", help="You have read it: do not show it and do not ask.")] = False,
    sha256: Annotated[
        str | None,
        typer.Option(
            "--sha256",
            metavar="HASH",
            help="Only if this is its hash, as `show` and `list --json` print it; 12 digits of it are enough.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Let agents use a skill, as it is now. When it changes, it waits for your approval again."""
    from treadle.surfaces.cli import process, skills

    process.perform(partial(skills.approve_skill, name, workspace, yes, sha256, json))


@skills_app.command("remove")
def remove_skill(
    name: Name,
    workspace: InWorkspace = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete its folder too, where it lies in the home.")
    ] = False,
    json: Json = False,
) -> None:
    """Take the approval of a skill back."""
    from treadle.surfaces.cli import process, skills

    process.perform(partial(skills.remove_skill, name, workspace, delete, json))
