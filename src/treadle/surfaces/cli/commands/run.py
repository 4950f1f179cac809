"""`treadle run`: run an agent on a message, or hold a conversation with it."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import (
    BaseUrl,
    Continue,
    Decisions,
    EventsJson,
    Here,
    Metadata,
    Mode,
    Model,
    New,
    Tags,
    There,
    decision_of,
    folder_choice_of,
)

group = Group()


@group.command("run")
def run(
    message: Annotated[
        str, Argument(metavar="MESSAGE", help="The message. `-` reads it from standard input. Optional with -i.")
    ] = "",
    agent: Annotated[
        str,
        Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="The agent, or a version of it: NAME@7, NAME@LABEL. Default: `default`.",
            suggest=completion.agent_names,
        ),
    ] = "default",
    model: Model = None,
    mode: Mode = None,
    base_url: BaseUrl = None,
    session: Annotated[
        str | None,
        Option(
            metavar="SESSION",
            help="Continue this session: its id, a beginning of it, its title, or `last`. Another name starts a "
            "new session with that id. Default: a new session.",
            suggest=completion.session_ids,
        ),
    ] = None,
    resume: Continue = False,
    here: Here = False,
    there: There = False,
    system: Annotated[
        str | None, Option("-s", "--system", metavar="TEXT", help="Use this system prompt instead of the persona.")
    ] = None,
    file: Annotated[
        list[Path] | None,
        Option("-f", "--file", metavar="FILE", help="Attach a text file or an image. Repeatable."),
    ] = None,
    tools: Annotated[
        str | None, Option(metavar="NAMES", help="Use only these tools: names, globs or sets, separated by commas.")
    ] = None,
    functions: Annotated[
        list[Path] | None,
        Option(metavar="FILE.py", help="Add the functions of a Python file as tools. The file is executed."),
    ] = None,
    tag: Tags = None,
    metadata: Metadata = None,
    user: Annotated[
        str | None, Option(metavar="NAME", help="Run for this user, who owns a new session. Default: `local`.")
    ] = None,
    interactive: Annotated[
        bool,
        Option("-i", "--interactive", help="Stay in a conversation: ask for the next message after each answer."),
    ] = False,
    new: New = False,
    plain: Annotated[bool, Option("--plain", help="Print the answer without activity and colours.")] = False,
    json: EventsJson = False,
    yes: Decisions = None,
) -> Coroutine[Any, Any, int]:
    """Run an agent on one message and stream the answer.

    Exit code: 0 completed, 1 failed, 2 usage, 3 a limit was reached, 4 an approval or an answer is needed, 130
    interrupted (Ctrl-C; the run can be resumed)."""
    from treadle.domain.errors import UsageError
    from treadle.surfaces.cli.conversation import RunArguments, RunConversation
    from treadle.surfaces.cli.follow import FollowOptions
    from treadle.surfaces.terminal.line_input import read_message

    if session is not None and resume:
        raise UsageError("--session and --continue name two sessions. Use one of them.")
    if json and interactive:
        raise UsageError("--json and --interactive exclude each other. Send single messages with --session NAME.")
    if json and plain:
        raise UsageError("--json and --plain exclude each other. Use one of them.")
    request = RunArguments(
        message="" if interactive and not message else read_message(message),
        agent=agent,
        model=model,
        mode=mode,
        session=session,
        continues=resume,
        system=system,
        files=tuple(file or ()),
        tools=None if tools is None else tuple(name.strip() for name in tools.split(",") if name.strip()),
        functions=tuple(functions or ()),
        tags=tuple(tag or ()),
        metadata=tuple(metadata or ()),
        user=user,
        interactive=interactive,
        folder=folder_choice_of(here, there),
        new=new,
    )
    return RunConversation(request, FollowOptions(json, base_url, decision_of(yes), plain)).hold()
