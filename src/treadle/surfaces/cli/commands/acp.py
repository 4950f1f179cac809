"""`treadle acp`: agents in editors."""

from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Annotated, Any

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Group, Option

group = Group()
INSTALL = "`treadle acp` needs the extra `acp`: pip install 'treadle[acp]'"


@group.command("acp")
def acp(
    agent: Annotated[
        str,
        Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="The agent of new sessions. Default: `default`.",
            suggest=completion.agent_names,
        ),
    ] = "default",
    setup: Annotated[
        bool, Option("--setup", help="Open the terminal UI instead, to choose a model. Editors use this.")
    ] = False,
) -> Coroutine[Any, Any, int]:
    """Serve an editor over the Agent Client Protocol on standard input and output.

    The editor starts it. Sessions are sessions of the home, with the folder of the editor as the workspace. It logs
    to logs/acp.log in the home. It needs the extra `acp`: pip install 'treadle[acp]'."""
    from treadle.domain.errors import UsageError
    from treadle.surfaces.home_access.connection import current_home

    if setup:
        from treadle.surfaces.tui.launch import ChatOptions, open_chat

        return open_chat(ChatOptions(agent))
    if find_spec("acp") is None:
        raise UsageError(INSTALL)
    home = current_home()
    if agent != "default":
        home.refuse_unknown(agent)
    from treadle.surfaces.acp.sdk import import_sdk

    import_sdk()
    from treadle.surfaces.acp.server import serve_editor

    return serve_editor(home, agent)
