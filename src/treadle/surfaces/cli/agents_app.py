"""The commands `treadle agents`."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option

agents_app = Group("agents")

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]
AgentArgument = Annotated[
    str, Argument(metavar="NAME", help="The name of an agent.", suggest=completion.agent_names)
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
    """Show the settings of an agent."""
    from treadle.surfaces.cli import agents, process

    process.perform(partial(agents.show_agent, name, json))


@agents_app.command("create")
def create_agent(
    name: Annotated[str, Argument(metavar="NAME", help="The name of the new agent.")],
    model: Annotated[
        str | None, Option("-m", "--model", metavar="MODEL", help="An alias or provider/model-id.")
    ] = None,
    source: Annotated[
        Path | None, Option("--from", metavar="FILE", help="Copy the settings from this agent file.")
    ] = None,
    json: Json = False,
) -> None:
    """Create an agent with a model or from a file. Change other settings with `treadle agents edit`."""
    from treadle.surfaces.cli import agents, process

    process.perform(partial(agents.create_agent, name, model, source, json))


@agents_app.command("edit")
def edit_agent(name: AgentArgument) -> None:
    """Edit the file of an agent in $VISUAL or $EDITOR. The file is validated before it is saved."""
    from treadle.surfaces.cli import agents, process

    process.perform(partial(agents.edit_agent, name))


@agents_app.command("delete")
def delete_agent(
    name: AgentArgument,
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Delete the file of an agent. Its sessions and memories are kept."""
    from treadle.surfaces.cli import agents, process

    process.perform(partial(agents.delete_agent, name, yes, json))


@agents_app.command("state")
def agent_state(
    name: AgentArgument,
    state: Annotated[
        State | None,
        Argument(metavar="[running|paused|stopped]", help="The new state. Default: print the state."),
    ] = None,
    json: Json = False,
) -> None:
    """Show or set whether an agent accepts messages. Runs in progress continue."""
    from treadle.surfaces.cli import agents, process

    process.perform(partial(agents.agent_state, name, None if state is None else state.value, json))
