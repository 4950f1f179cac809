"""What can be typed: the commands, their arguments and their help. Each imports its work when it is called."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from treadle import __version__
from treadle.surfaces.cli import completion
from treadle.surfaces.cli.agents_app import agents_app
from treadle.surfaces.cli.forks_app import forks_app
from treadle.surfaces.cli.inbound_webhooks_app import hooks_app
from treadle.surfaces.cli.maintenance_app import house_app
from treadle.surfaces.cli.memory_app import memory_app
from treadle.surfaces.cli.schedules_app import schedules_app
from treadle.surfaces.cli.serve_app import serve_app
from treadle.surfaces.cli.sessions_app import sessions_app
from treadle.surfaces.cli.skills_app import skills_app
from treadle.surfaces.cli.tokens_app import tokens_app
from treadle.surfaces.cli.usage_app import usage_app
from treadle.surfaces.cli.vault_app import vault_app
from treadle.surfaces.cli.webhooks_app import webhooks_app

if TYPE_CHECKING:
    from treadle.domain.events import Decision

app = typer.Typer(
    help="Treadle runs agents: durable, guarded, observable.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help needs no rich, which takes longer to import than the rest
    pretty_exceptions_enable=False,
)
runs_app = typer.Typer(help="List, inspect, resume, cancel, fork and replay runs.", no_args_is_help=True)
app.add_typer(runs_app, name="runs")
runs_app.add_typer(forks_app)
models_app = typer.Typer(help="List, inspect, download and test models.", no_args_is_help=True)
app.add_typer(agents_app, name="agents")
approvals_app = typer.Typer(help="List and decide pending approvals.", no_args_is_help=True)
app.add_typer(approvals_app, name="approvals")
app.add_typer(models_app, name="models")
app.add_typer(vault_app, name="vault")
app.add_typer(memory_app, name="memory")
app.add_typer(sessions_app, name="sessions")
app.add_typer(skills_app, name="skills")
app.add_typer(tokens_app, name="tokens")
app.add_typer(schedules_app, name="schedules")
app.add_typer(hooks_app, name="hooks")
app.add_typer(webhooks_app, name="webhooks")
app.add_typer(serve_app)
app.add_typer(house_app)
app.add_typer(usage_app)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The id of the run, run_…", autocompletion=completion.run_ids)
]
ApprovalArgument = Annotated[str, typer.Argument(metavar="APPROVAL", help="The id of the approval, apr_…")]
Note = Annotated[str, typer.Option(metavar="TEXT", help="A note for the agent.")]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="An alias or provider/model-id.")]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Use the OpenAI-compatible endpoint at this address, with the key in OPENAI_API_KEY if set.",
    ),
]

Yes = Annotated[
    bool | None,
    typer.Option("--yes/--no", help="Approve or deny every request. Default: ask at the terminal."),
]
FurtherYes = Annotated[
    bool | None,
    typer.Option("--yes/--no", help="Approve or deny every further request. Default: ask at the terminal."),
]


def _decision(yes: bool | None) -> "Decision | None":
    return None if yes is None else "approve" if yes else "deny"


def _version(wanted: bool) -> None:
    if wanted:
        print(f"treadle {__version__}")
        raise typer.Exit


@app.callback()
def treadle(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    message: Annotated[
        str, typer.Argument(metavar="MESSAGE", help="The message. `-` reads it from standard input.")
    ],
    agent: Annotated[
        str,
        typer.Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="The agent. Default: `default`.",
            autocompletion=completion.agent_names,
        ),
    ] = "default",
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", metavar="MODEL", help="Use this model: an alias or provider/model-id."),
    ] = None,
    base_url: BaseUrl = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            help="Continue this session. Default: a new session.",
            autocompletion=completion.session_ids,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print every event as JSON, one per line.")] = False,
    yes: Yes = None,
) -> None:
    """Run an agent on one message and stream the answer.

    Exit code: 0 completed, 1 failed, 2 usage, 3 a limit was reached, 4 an approval or an answer is needed, 130
    interrupted (Ctrl-C; the run can be resumed)."""
    from treadle.surfaces.cli import process
    from treadle.surfaces.cli import run as command

    request = command.Request(message, agent, model, base_url, session, json, _decision(yes))
    process.perform(partial(command.run, request))


@runs_app.command("list")
def list_runs(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 20,
    json: Json = False,
) -> None:
    """List runs, newest first."""
    from treadle.surfaces.cli import process, runs

    process.perform(partial(runs.list_runs, limit, json))


@runs_app.command("show")
def show_run(run_id: RunArgument, json: Json = False) -> None:
    """Show the state, outcome, cost and answer of a run."""
    from treadle.surfaces.cli import process, runs

    process.perform(partial(runs.show_run, run_id, json))


@runs_app.command("events")
def show_events(
    run_id: RunArgument,
    after: Annotated[
        int, typer.Option(min=0, metavar="N", help="Print only events after this sequence number.")
    ] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Follow the run until it ends.")] = False,
    json: Json = False,
) -> None:
    """Print the events of a run."""
    from treadle.surfaces.cli import process, runs

    process.perform(partial(runs.show_events, run_id, after, follow, json))


@runs_app.command("prompt")
def show_prompt(
    run_id: RunArgument,
    step: Annotated[int | None, typer.Option(min=1, metavar="N", help="The step. Default: the latest.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the bytes of the request body.")] = False,
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

    process.perform(partial(runs.resume_run, run_id, runs.Going(json, base_url, _decision(yes))))


@runs_app.command("answer")
def answer_run(
    run_id: RunArgument,
    call_id: Annotated[str, typer.Argument(metavar="CALL", help="The id of the question, as the run printed it.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Your answer.")],
    base_url: BaseUrl = None,
    yes: FurtherYes = None,
    json: Json = False,
) -> None:
    """Answer the question of an agent and follow its run."""
    from treadle.surfaces.cli import process, runs

    going = runs.Going(json, base_url, _decision(yes))
    process.perform(partial(runs.answer_run, run_id, call_id, text, going))


@runs_app.command("cancel")
def cancel_run(run_id: RunArgument, json: Json = False) -> None:
    """Cancel a run."""
    from treadle.surfaces.cli import process, runs

    process.perform(partial(runs.cancel_run, run_id, json))


@approvals_app.command("list")
def list_approvals(json: Json = False) -> None:
    """List pending approvals, oldest first."""
    from treadle.surfaces.cli import approvals, process

    process.perform(partial(approvals.list_approvals, json))


@approvals_app.command("show")
def show_approval(approval_id: ApprovalArgument, json: Json = False) -> None:
    """Show an approval with the exact arguments of the call."""
    from treadle.surfaces.cli import approvals, process

    process.perform(partial(approvals.show_approval, approval_id, json))


@approvals_app.command("approve")
def approve(
    approval_id: ApprovalArgument,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run the call with these arguments instead.")
    ] = None,
    session: Annotated[
        bool, typer.Option("--session", help="Approve such calls for the rest of the session.")
    ] = False,
    note: Note = "",
    base_url: BaseUrl = None,
    yes: FurtherYes = None,
    json: Json = False,
) -> None:
    """Approve a call and follow its run."""
    from treadle.operations import Answer
    from treadle.surfaces.cli import approvals, process
    from treadle.surfaces.cli.runs import Going

    answer = Answer("approve", arguments, note, "command line", "session" if session else "once")
    process.perform(partial(approvals.decide, approval_id, answer, Going(json, base_url, _decision(yes))))


@approvals_app.command("deny")
def deny(
    approval_id: ApprovalArgument,
    note: Note = "",
    base_url: BaseUrl = None,
    yes: FurtherYes = None,
    json: Json = False,
) -> None:
    """Deny a call and follow its run."""
    from treadle.operations import Answer
    from treadle.surfaces.cli import approvals, process
    from treadle.surfaces.cli.runs import Going

    answer = Answer("deny", None, note, "command line")
    process.perform(partial(approvals.decide, approval_id, answer, Going(json, base_url, _decision(yes))))


@models_app.command("list")
def list_models(
    probe: Annotated[bool, typer.Option("--probe", help="Also ask hosted providers that have a key.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time limit of each probe.")] = 2.0,
    json: Json = False,
) -> None:
    """List providers and model aliases.

    Providers on this machine are asked for their models; hosted ones only with --probe. No model is called."""
    from treadle.surfaces.cli import models, process

    process.perform(partial(models.list_models, probe, timeout, json))


@models_app.command("show")
def show_model(model: ModelArgument, json: Json = False) -> None:
    """Show what an alias stands for, and the context window, prices and features of the model."""
    from treadle.surfaces.cli import models, process

    process.perform(partial(models.show_model, model, json))


@models_app.command("pull")
def pull_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the model, for example smollm2.")],
) -> None:
    """Download the weights of a local model. An interrupted download is resumed."""
    from treadle.surfaces.cli import models, process

    process.perform(partial(models.pull_model, name))


@models_app.command("test")
def try_model(model: ModelArgument, base_url: BaseUrl = None, json: Json = False) -> None:
    """Send a one-word request to a model, and print whether the key works, the latency and the cost."""
    from treadle.surfaces.cli import models, process

    process.perform(partial(models.try_model, model, base_url, json))
