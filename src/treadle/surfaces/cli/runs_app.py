"""The commands `treadle runs`."""

from functools import partial
from typing import Annotated

from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.forks_app import forks_app
from treadle.surfaces.cli.shared_options import BaseUrl, FurtherYes, Json, RunArgument, decision_of

runs_app = Group("runs")


@runs_app.command("list")
def list_runs(
    limit: Annotated[int, Option(min=1, help="Maximum number of rows.")] = 20,
    agent: Annotated[str | None, Option("-a", "--agent", metavar="NAME", help="Only this agent.")] = None,
    session: Annotated[str | None, Option(metavar="SESSION", help="Only this session.")] = None,
    json: Json = False,
) -> None:
    """List runs, newest first."""
    from treadle.surfaces.cli import process, runs

    process.perform(partial(runs.list_runs, limit, agent, session, json))


@runs_app.command("show")
def show_run(run_id: RunArgument, json: Json = False) -> None:
    """Show the state, outcome, cost and answer of a run."""
    from treadle.surfaces.cli import process, runs

    process.perform(partial(runs.show_run, run_id, json))


@runs_app.command("events")
def show_events(
    run_id: RunArgument,
    after: Annotated[int, Option(min=0, metavar="N", help="Print only events after this sequence number.")] = 0,
    follow: Annotated[bool, Option("--follow", help="Follow the run until it ends.")] = False,
    json: Json = False,
) -> None:
    """Print the events of a run."""
    from treadle.surfaces.cli import process, runs

    process.perform(partial(runs.show_events, run_id, after, follow, json))


@runs_app.command("prompt")
def show_prompt(
    run_id: RunArgument,
    step: Annotated[int | None, Option(min=1, metavar="N", help="The step. Default: the latest.")] = None,
    json: Annotated[bool, Option("--json", help="Print the bytes of the request body.")] = False,
) -> None:
    """Print the exact request that the model received at a step."""
    from treadle.surfaces.cli import process, prompt_view

    process.perform(partial(prompt_view.show_prompt, run_id, step, json))


@runs_app.command("steps")
def show_steps(run_id: RunArgument, json: Json = False) -> None:
    """Print the steps of a run: model, tokens, time, attempts and tool calls."""
    from treadle.surfaces.cli import process, steps

    process.perform(partial(steps.show_steps, run_id, json))


@runs_app.command("tree")
def show_tree(run_id: RunArgument, json: Json = False) -> None:
    """Print a run with all its child runs: state, steps, tokens and cost of each, and the totals."""
    from treadle.surfaces.cli import process, tree

    process.perform(partial(tree.show_tree, run_id, json))


@runs_app.command("resume")
def resume_run(run_id: RunArgument, base_url: BaseUrl = None, yes: FurtherYes = None, json: Json = False) -> None:
    """Resume an interrupted run, or follow a run that is in progress, until it ends.

    The exit codes are those of `treadle run`."""
    from treadle.surfaces.cli import process, runs

    process.perform(partial(runs.resume_run, run_id, runs.Going(json, base_url, decision_of(yes))))


@runs_app.command("answer")
def answer_run(
    run_id: RunArgument,
    call_id: Annotated[str, Argument(metavar="CALL", help="The id of the question, as the run printed it.")],
    text: Annotated[str, Argument(metavar="TEXT", help="Your answer.")],
    base_url: BaseUrl = None,
    yes: FurtherYes = None,
    json: Json = False,
) -> None:
    """Answer the question of an agent and follow its run."""
    from treadle.surfaces.cli import process, runs

    going = runs.Going(json, base_url, decision_of(yes))
    process.perform(partial(runs.answer_run, run_id, call_id, text, going))


@runs_app.command("cancel")
def cancel_run(run_id: RunArgument, json: Json = False) -> None:
    """Cancel a run."""
    from treadle.surfaces.cli import process, runs

    process.perform(partial(runs.cancel_run, run_id, json))


runs_app.include(forks_app)
