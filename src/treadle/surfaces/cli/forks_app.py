"""What can be typed to take a run up again elsewhere: `treadle runs fork`, `replay` and `diff`."""

from functools import partial
from typing import Annotated

import typer

from treadle.surfaces.cli import completion

forks_app = typer.Typer()

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The id of a run: run_…", autocompletion=completion.run_ids)
]
Model = Annotated[str | None, typer.Option("-m", "--model", metavar="MODEL", help="Ask another model.")]
Agent = Annotated[
    str | None,
    typer.Option(
        "-a", "--agent", metavar="NAME", help="Go on with another agent.", autocompletion=completion.agent_names
    ),
]
Message = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Say this: at the first step in the place of what was asked, later after the results; - reads it from "
        "standard input.",
    ),
]
Step = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Begin just before this step; without it before the last.")
]
BaseUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Use the OpenAI-compatible endpoint at this address.")
]
Yes = Annotated[
    bool | None,
    typer.Option("--yes/--no", help="Answer every approval so; without it you are asked, at a terminal."),
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
    json: Annotated[bool, typer.Option("--json", help="Print every event as JSON, one per line.")] = False,
) -> None:
    """Begin a new run from a step of an old one, with all results up to there, and follow it to its end.

    Nothing of the old run is changed, and none of its tools is run again. The exit codes are those of
    `treadle run`."""
    from treadle.surfaces.cli import forks, process
    from treadle.surfaces.cli.runs import Going

    going = Going(json, base_url, None if yes is None else "approve" if yes else "deny")
    process.perform(partial(forks.fork_run, run_id, forks.Wanted(step, model, message, agent), going))


@forks_app.command("replay")
def replay_run(run_id: RunArgument, json: Json = False) -> None:
    """Play the journal of a run through the code of today, offline, and print where they part first.

    Exit code: 0 nothing differs, 1 something does, 3 it cannot be told, because not enough is on record."""
    from treadle.surfaces.cli import process, replays

    process.perform(partial(replays.replay_run, run_id, json))


@forks_app.command("diff")
def diff_runs(
    a: Annotated[str, typer.Argument(metavar="A", help="The id of a run.", autocompletion=completion.run_ids)],
    b: Annotated[str, typer.Argument(metavar="B", help="That of another.", autocompletion=completion.run_ids)],
    json: Json = False,
) -> None:
    """Print what differs between two runs: their agents, where they part first, and what they used."""
    from treadle.surfaces.cli import process, run_diff

    process.perform(partial(run_diff.diff_runs, a, b, json))
