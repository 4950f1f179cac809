"""The command `treadle run`."""

from functools import partial
from typing import Annotated

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import BaseUrl, Yes, decision_of

run_app = Group()


@run_app.command("run")
def run(
    message: Annotated[str, Argument(metavar="MESSAGE", help="The message. `-` reads it from standard input.")],
    agent: Annotated[
        str,
        Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="The agent. Default: `default`.",
            suggest=completion.agent_names,
        ),
    ] = "default",
    model: Annotated[
        str | None,
        Option("-m", "--model", metavar="MODEL", help="Use this model: an alias or provider/model-id."),
    ] = None,
    base_url: BaseUrl = None,
    session: Annotated[
        str | None,
        Option(
            metavar="SESSION",
            help="Continue this session. Default: a new session.",
            suggest=completion.session_ids,
        ),
    ] = None,
    json: Annotated[bool, Option("--json", help="Print every event as JSON, one per line.")] = False,
    yes: Yes = None,
) -> None:
    """Run an agent on one message and stream the answer.

    Exit code: 0 completed, 1 failed, 2 usage, 3 a limit was reached, 4 an approval or an answer is needed, 130
    interrupted (Ctrl-C; the run can be resumed)."""
    from treadle.surfaces.cli import process
    from treadle.surfaces.cli import run as command

    request = command.Request(message, agent, model, base_url, session, json, decision_of(yes))
    process.perform(partial(command.run, request))
