"""What can be typed after `treadle agents`. Each command imports its work when it is called."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from treadle.surfaces.cli import completion

agents_app = typer.Typer(help="Look after the agents of the home.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
AgentArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of an agent.", autocompletion=completion.agent_names)
]


class State(StrEnum):
    """What can be said after the name of an agent."""

    running = "running"
    paused = "paused"
    stopped = "stopped"


@agents_app.command("list")
def list_agents(json: Json = False) -> None:
    """List the agents."""
    from treadle.surfaces.cli import agents, process

    process.perform(partial(agents.list_agents, json))


@agents_app.command("show")
def show_agent(name: AgentArgument, json: Json = False) -> None:
    """Show an agent with all its settings."""
    from treadle.surfaces.cli import agents, process

    process.perform(partial(agents.show_agent, name, json))


@agents_app.command("create")
def create_agent(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A new name.")],
    model: Annotated[
        str | None, typer.Option("-m", "--model", metavar="MODEL", help="An alias, or provider/model-id.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="With the settings of this agent file.")
    ] = None,
    json: Json = False,
) -> None:
    """Make an agent, with this model or as a file says. What else it is, is said in its file (`agents edit`)."""
    from treadle.surfaces.cli import agents, process

    process.perform(partial(agents.create_agent, name, model, source, json))


@agents_app.command("edit")
def edit_agent(name: AgentArgument) -> None:
    """Change the file of an agent in your editor ($VISUAL, $EDITOR). It is checked before it counts."""
    from treadle.surfaces.cli import agents, process

    process.perform(partial(agents.edit_agent, name))


@agents_app.command("delete")
def delete_agent(
    name: AgentArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete the file of an agent. Its sessions and its memories stay."""
    from treadle.surfaces.cli import agents, process

    process.perform(partial(agents.delete_agent, name, yes, json))


@agents_app.command("state")
def agent_state(
    name: AgentArgument,
    state: Annotated[
        State | None, typer.Argument(metavar="[running|paused|stopped]", help="Without it, the state is shown.")
    ] = None,
    json: Json = False,
) -> None:
    """Say whether an agent takes messages: running, paused for a while, or stopped. Runs under way go on."""
    from treadle.surfaces.cli import agents, process

    process.perform(partial(agents.agent_state, name, None if state is None else state.value, json))
