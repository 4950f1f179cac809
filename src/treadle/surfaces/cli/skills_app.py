"""The commands `treadle skills`."""

from functools import partial
from typing import Annotated

from treadle.surfaces.cli.command_line import Argument, Group, Option

skills_app = Group("skills")

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]
Name = Annotated[str, Argument(metavar="NAME", help="The name of the skill.")]
InWorkspace = Annotated[
    str | None,
    Option("--workspace", metavar="PATH", help="A skill in the folder .agents/skills of this workspace."),
]


@skills_app.command("list")
def list_skills(
    workspace: Annotated[
        str, Option("--workspace", metavar="PATH", help="The workspace. Default: the current folder.")
    ] = ".",
    json: Json = False,
) -> None:
    """List the skills in the home, in a workspace, and those included with Treadle."""
    from treadle.surfaces.cli import process, skills

    process.perform(partial(skills.list_skills, workspace, json))


@skills_app.command("show")
def show_skill(name: Name, workspace: InWorkspace = None, json: Json = False) -> None:
    """Show a skill: the tools that it requests and the text of all its files."""
    from treadle.surfaces.cli import process, skills

    process.perform(partial(skills.show_skill, name, workspace, json))


@skills_app.command("approve")
def approve_skill(
    name: Name,
    workspace: InWorkspace = None,
    yes: Annotated[bool, Option("--yes", help="Do not show the skill and do not ask for confirmation.")] = False,
    sha256: Annotated[
        str | None,
        Option(
            "--sha256",
            metavar="HASH",
            help="Approve only if the skill has this hash, as `show` prints it (at least 12 digits).",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Approve the current content of a skill. A changed skill needs a new approval."""
    from treadle.surfaces.cli import process, skills

    process.perform(partial(skills.approve_skill, name, workspace, yes, sha256, json))


@skills_app.command("remove")
def remove_skill(
    name: Name,
    workspace: InWorkspace = None,
    delete: Annotated[bool, Option("--delete", help="Also delete its folder, if it is in the home.")] = False,
    json: Json = False,
) -> None:
    """Revoke the approval of a skill."""
    from treadle.surfaces.cli import process, skills

    process.perform(partial(skills.remove_skill, name, workspace, delete, json))
