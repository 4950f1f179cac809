"""`treadle eval`: suites of cases, and what they say about agents."""

from pathlib import Path
from typing import Annotated, Literal

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import AgentOption, Json, Limit, RunArgument

group = Group("eval")


@group.command("add")
async def add_case(
    run: Annotated[
        str,
        Argument(
            metavar="RUN",
            help="The id of the run, run_…, a unique beginning of it, or `last`. Optional with --search and "
            "--feedback.",
            suggest=completion.run_ids,
        ),
    ] = "",
    step: Annotated[
        int | None, Option("--step", min=1, help="Begin at this step: what the run did before is told as history.")
    ] = None,
    suite: Annotated[
        str | None, Option("--suite", metavar="SUITE", help="The suite. Default: the name of the agent.")
    ] = None,
    name: Annotated[str, Option("--name", metavar="NAME", help="The name of the case.")] = "",
    contains: Annotated[
        list[str] | None,
        Option("--contains", metavar="TEXT", help="Check that the answer contains this. Repeatable."),
    ] = None,
    search: Annotated[
        str | None, Option("--search", metavar="TEXT", help="Add every ended run whose message has this text.")
    ] = None,
    feedback: Annotated[
        Literal["good", "bad"] | None,
        Option("--feedback", help="Add every run that people scored so."),
    ] = None,
    limit: Limit = 20,
    json: Json = False,
) -> int:
    """Add a case that is made of a recorded run, with the results of its tool calls.

    It needs no network and has no side effect. The suite is the file evals/SUITE.yaml of the current folder."""
    from treadle.surfaces.cli.evaluation_commands import RequestedCase, add_cases

    wanted = RequestedCase(
        run=run,
        step=step,
        suite=suite,
        name=name,
        contains=tuple(contains or ()),
        search=search,
        feedback=feedback,
        limit=limit,
    )
    return await add_cases(wanted, json)


@group.command("run")
async def run_suites(
    suites: Annotated[
        list[str], Argument(metavar="SUITE", help="A suite: NAME for evals/NAME.yaml, or the path of a file.")
    ],
    repeat: Annotated[int, Option("--repeat", min=1, help="Run every case so often.")] = 1,
    parallel: Annotated[int, Option("--parallel", min=1, help="Runs at a time.")] = 4,
    max_cost: Annotated[
        float | None, Option("--max-cost", metavar="DOLLARS", help="Start no further run beyond this cost.")
    ] = None,
    lane: Annotated[
        Literal["observed", "baseline", "candidate"],
        Option(
            "--lane",
            help="candidate: new runs. observed: grade the recorded runs. baseline: replay the recorded runs with "
            "today's settings.",
        ),
    ] = "candidate",
    agent: Annotated[
        str | None,
        Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="Use this agent or version instead of those of the suite.",
            suggest=completion.agent_names,
        ),
    ] = None,
    name: Annotated[str, Option("--name", metavar="NAME", help="Record the results under this name.")] = "",
    baseline: Annotated[
        str | None, Option("--baseline", metavar="NAME", help="Compare with the latest evaluation of this name.")
    ] = None,
    fail_below: Annotated[
        float | None,
        Option("--fail-below", metavar="RATE", help="Fail only if fewer pass: a share from 0 to 1."),
    ] = None,
    fresh: Annotated[bool, Option("--fresh", help="Pay again for cases that were run before.")] = False,
    junit: Annotated[Path | None, Option("--junit", metavar="FILE", help="Write the results as JUnit XML.")] = None,
    html: Annotated[Path | None, Option("--html", metavar="FILE", help="Write a report as a web page.")] = None,
    json: Json = False,
) -> int:
    """Run suites and print a verdict. A repeated command continues where it stopped, and pays nothing twice.

    Exit code: 0 passed, 1 too few passed or worse than the baseline, 2 usage, 3 the cost limit was reached."""
    from treadle.surfaces.cli.evaluation_commands import WantedEvaluation, evaluate

    wanted = WantedEvaluation(
        suites=tuple(suites),
        repeat=repeat,
        parallel=parallel,
        max_cost=max_cost,
        lane=lane,
        agent=agent,
        name=name,
        baseline=baseline,
        fail_below=fail_below,
        fresh=fresh,
        junit=junit,
        html=html,
    )
    return await evaluate(wanted, json)


@group.command("feedback")
async def give_feedback(
    run: RunArgument,
    opinion: Annotated[
        str, Argument(metavar="good|bad|SCORE", help="What you think of the run; a score is from 0 to 1.")
    ],
    note: Annotated[str, Argument(metavar="NOTE", help="Why.")] = "",
    json: Json = False,
) -> int:
    """Score a run, with a note. `eval add --feedback bad` makes cases of the runs that people disliked."""
    from treadle.surfaces.cli.evaluation_commands import score_run

    return await score_run(run, opinion, note, json)


@group.command("import")
async def import_cases(
    file: Annotated[Path, Argument(metavar="FILE", help="JSON lines in the shape of OpenAI or LangSmith.")],
    suite: Annotated[str, Option("--suite", metavar="SUITE", help="The suite that gets the cases.")],
    agent: AgentOption = "default",
    json: Json = False,
) -> int:
    """Add the cases of a data set to a suite. An expected answer becomes a check that the answer contains it."""
    from treadle.surfaces.cli.evaluation_commands import import_file

    return import_file(file, suite, agent, json)


@group.command("export")
async def export_cases(
    suite: Annotated[str, Argument(metavar="SUITE", help="The suite.")],
    shape: Annotated[Literal["openai", "langsmith"], Option("--shape", help="The shape of the lines.")] = "openai",
    results: Annotated[
        str | None, Option("--results", metavar="NAME", help="Add the results of this evaluation.")
    ] = None,
) -> int:
    """Print the cases of a suite as JSON lines."""
    from treadle.surfaces.cli.evaluation_commands import export_suite

    return await export_suite(suite, shape, results)


@group.command("list")
async def list_evaluations(limit: Limit = 20, json: Json = False) -> int:
    """List evaluations, the newest first."""
    from treadle.surfaces.cli.evaluation_commands import print_evaluations

    return await print_evaluations(limit, json)


@group.command("show")
async def show_evaluation(
    name: Annotated[str, Argument(metavar="NAME", help="The id of an evaluation, or its name for the latest.")],
    html: Annotated[Path | None, Option("--html", metavar="FILE", help="Write a report as a web page.")] = None,
    json: Json = False,
) -> int:
    """Show the results of an evaluation."""
    from treadle.surfaces.cli.evaluation_commands import print_stored

    return await print_stored(name, html, json)
