"""`treadle chat`: the terminal UI."""

from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Annotated, Any

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import Continue, Here, Mode, Model, New, There, folder_choice_of

group = Group()


@group.command("chat")
def chat(
    message: Annotated[str, Argument(metavar="[MESSAGE]", help="Send this first.")] = "",
    agent: Annotated[
        str,
        Option(
            "-a", "--agent", metavar="NAME", help="The agent. Default: `default`.", suggest=completion.agent_names
        ),
    ] = "default",
    model: Model = None,
    mode: Mode = None,
    session: Annotated[
        str | None,
        Option(
            metavar="SESSION",
            help="Open this session: its id, a beginning of it, its title, or `last`, which means the current "
            "folder. Default: a new session.",
            suggest=completion.session_ids,
        ),
    ] = None,
    last: Continue = False,
    resume: Annotated[
        bool, Option("-r", "--resume", help="Choose from the sessions of the current folder.")
    ] = False,
    here: Here = False,
    there: There = False,
    new: New = False,
    inline: Annotated[
        bool, Option("--inline", help="Print line by line, without the full screen and without colours if wanted.")
    ] = False,
) -> Coroutine[Any, Any, int]:
    """Open the terminal UI: chat, steer, approve and search.

    `treadle` opens it too, alone, with these options, or with a message of several words: treadle "fix the tests".
    It needs the extra `tui`: pip install 'treadle[tui]'."""
    from treadle.domain.errors import UsageError

    if find_spec("textual") is None:
        from treadle.surfaces.tui.texts import INSTALL

        raise UsageError(INSTALL)
    if (session is not None) + last + resume > 1:
        raise UsageError("--session, --continue and --resume each name a session. Use one of them.")
    if resume and inline:
        raise UsageError("--resume needs the full screen. With --inline, name the session: --session SESSION.")
    from treadle.surfaces.home_access.references import LAST
    from treadle.surfaces.tui.launch import ChatOptions, open_chat

    return open_chat(
        ChatOptions(
            agent=agent,
            message=message,
            model=model,
            mode=mode,
            session=LAST if last else session,
            chooses=resume,
            inline=inline,
            folder=folder_choice_of(here, there),
            new=new,
        )
    )
