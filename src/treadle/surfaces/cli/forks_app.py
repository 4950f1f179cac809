"""What can be typed to take a run up again elsewhere: `treadle runs fork`, `replay` and `diff`."""

from functools import partial
from typing import Annotated

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option

forks_app = Group("runs")

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]
RunArgument = Annotated[str, Argument(metavar="RUN", help="The id of the run, run_…", suggest=completion.run_ids)]
Model = Annotated[str | None, Option("-m", "--model", metavar="MODEL", help="Use another model.")]
Agent = Annotated[
    str | None,
    Option("-a", "--agent", metavar="NAME", help="Use another agent.", suggest=completion.agent_names),
]
Message = Annotated[
    str | None,
    Option(
        metavar="TEXT",
        help="A message. At step 1 it replaces the original message; at later steps it follows the results. `-` "
        "reads it from standard input.",
    ),
]
Step = Annotated[int | None, Option(min=1, metavar="N", help="Start before this step. Default: the last step.")]
BaseUrl = Annotated[str | None, Option(metavar="URL", help="Use the OpenAI-compatible endpoint at this address.")]
Yes = Annotated[
    bool | None,
    Option("--yes/--no", help="Approve or deny every request. Default: ask at the terminal."),
]


@forks_app.command("fork")
def fork_run(
    run_id: RunArgument,
    step: Step = None,
    model: Model = None,
    message: Message = None,
    agent: Agent = None,
    base_url: BaseUrl = None,
    yes: Yes = None,
    json: Annotated[bool, Option("--json", help="Print every event as JSON, one per line.")] = False,
) -> None:
    """Start a new run from a step of an old run, with all results up to that step, and follow it until it ends.

    The old run is not changed, and no tool call of it is repeated. The exit codes are those of `treadle run`."""
    from treadle.surfaces.cli import forks, process
    from treadle.surfaces.cli.runs import Going

    going = Going(json, base_url, None if yes is None else "approve" if yes else "deny")
    process.perform(partial(forks.fork_run, run_id, forks.Wanted(step, model, message, agent), going))


@forks_app.command("replay")
def replay_run(run_id: RunArgument, json: Json = False) -> None:
    """Replay a run with the current code, offline, and print the first event that differs.

    Exit code: 0 no difference, 1 a difference, 3 the journal does not hold enough to tell."""
    from treadle.surfaces.cli import process, replays

    process.perform(partial(replays.replay_run, run_id, json))


@forks_app.command("diff")
def diff_runs(
    a: Annotated[str, Argument(metavar="A", help="The id of a run.", suggest=completion.run_ids)],
    b: Annotated[str, Argument(metavar="B", help="The id of another run.", suggest=completion.run_ids)],
    json: Json = False,
) -> None:
    """Compare two runs: their agents, the first step that differs, and their usage."""
    from treadle.surfaces.cli import process, run_diff

    process.perform(partial(run_diff.diff_runs, a, b, json))
