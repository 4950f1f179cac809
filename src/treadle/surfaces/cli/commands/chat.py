"""`treadle chat`: the terminal UI."""

from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Annotated, Any

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Group, Option
from treadle.surfaces.cli.shared_options import Here, New, There, folder_choice_of

group = Group()


@group.command("chat")
def chat(
    agent: Annotated[
        str,
        Option(
            "-a", "--agent", metavar="NAME", help="The agent. Default: `default`.", suggest=completion.agent_names
        ),
    ] = "default",
    session: Annotated[
        str | None,
        Option(
            metavar="SESSION",
            help="Open this session: its id, a beginning of it, its title, or `last`, which means the current "
            "folder. Default: a new session.",
            suggest=completion.session_ids,
        ),
    ] = None,
    here: Here = False,
    there: There = False,
    new: New = False,
    inline: Annotated[
        bool, Option("--inline", help="Print line by line, without the full screen and without colours if wanted.")
    ] = False,
) -> Coroutine[Any, Any, int]:
    """Open the terminal UI: chat, steer, approve and search.

    `treadle` without arguments opens it too. It needs the extra `tui`: pip install 'treadle[tui]'."""
    if find_spec("textual") is None:
        from treadle.domain.errors import UsageError
        from treadle.surfaces.tui.texts import INSTALL

        raise UsageError(INSTALL)
    from treadle.surfaces.tui.launch import ChatOptions, open_chat

    return open_chat(ChatOptions(agent, session, inline, folder_choice_of(here, there), new))
