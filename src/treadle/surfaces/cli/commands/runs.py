"""`treadle runs`: list, inspect, resume, fork and cancel runs."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, get_args

from treadle.bootstrap.callers import open_readonly_caller
from treadle.domain.errors import UsageError
from treadle.domain.runs import OutcomeKind, Status
from treadle.operations import runs
from treadle.operations.operation import list_items
from treadle.ports.journal import RunOrder
from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.run_view import print_runs, read_messages
from treadle.surfaces.cli.shared_options import (
    BaseUrl,
    Decisions,
    EventsJson,
    FurtherDecisions,
    Json,
    Limit,
    OnlyMetadata,
    OnlyTags,
    OnlyUser,
    RunArgument,
    Yes,
    decision_of,
)
from treadle.surfaces.home_access.connection import current_home
from treadle.surfaces.home_access.references import find_question, find_run, find_session
from treadle.surfaces.terminal.output import (
    note,
    parse_since,
    print_json,
    print_list,
)

if TYPE_CHECKING:
    from treadle.surfaces.cli.follow import FollowOptions

FOLLOW_INTERVAL_SECONDS = 0.25
"""Poll interval for a run that another process executes."""
MAX_CANCEL_POLLS = 200
"""How often a command polls whether a run has ended that nothing in its session holds up."""
SAME, DIFFERENT, UNDECIDED = 0, 1, 3
"""Exit codes of `treadle runs replay`."""
LaterRuns = Annotated[bool, Option("--later", help="Also what the later runs of its session changed.")]
group = Group("runs")


# ── Inspecting ─────────────────────────────────────────────────────────────────────────────────────


@group.command("list")
async def list_runs(
    limit: Limit = 20,
    agent: Annotated[
        str | None,
        Option("-a", "--agent", metavar="NAME", help="Only this agent.", suggest=completion.agent_names),
    ] = None,
    session: Annotated[
        str | None,
        Option(metavar="SESSION", help="Only this session: its id or title.", suggest=completion.session_ids),
    ] = None,
    state: Annotated[
        str | None,
        Option(
            "--status",
            "--state",
            metavar="STATE",
            help="Only this status or outcome, for example running, waiting or failed.",
        ),
    ] = None,
    since: Annotated[
        str | None, Option(metavar="TIME", help="Only the last 2h or 7d, or from a day on, such as 2026-03-01.")
    ] = None,
    until: Annotated[
        str | None, Option(metavar="TIME", help="Only before 2h or 7d ago, or before a day, such as 2026-04-01.")
    ] = None,
    text: Annotated[
        str | None, Option("-t", "--text", metavar="TEXT", help="Only runs whose message contains this.")
    ] = None,
    min_cost: Annotated[
        float | None, Option(metavar="DOLLARS", help="Only runs that cost at least this much.")
    ] = None,
    tag: OnlyTags = None,
    metadata: OnlyMetadata = None,
    user: OnlyUser = None,
    order: Annotated[
        RunOrder, Option(metavar="ORDER", help="The largest cost, tokens, steps, duration or score first.")
    ] = "created",
    ascending: Annotated[bool, Option("--ascending", help="The smallest first; with --order.")] = False,
    json: Json = False,
) -> int:
    """List runs, newest first."""
    status, outcome = _state_filter(state)
    async with open_readonly_caller() as caller:
        session_id = None if session is None else await find_session(caller, session)
        wanted = runs.ListRuns(
            agent,
            session_id,
            status,
            outcome,
            since=None if since is None else parse_since(since),
            until=None if until is None else parse_since(until),
            text=text,
            min_cost=min_cost,
            tag=tuple(tag or ()),
            metadata=tuple(metadata or ()),
            user=user,
            order=order,
            ascending=ascending,
        )
        views = await list_items(caller, runs.LIST, wanted, limit)
        messages = [] if json else await read_messages(caller, views)
    if json or not views:
        is_filtered = any((agent, session, state, since, until, text, min_cost is not None, tag, metadata, user))
        empty = "No runs match." if is_filtered else 'No runs yet. Start one: treadle run "Hello."'
        print_list(views, (), lambda _: (), json=json, empty=empty)
        return 0
    print_runs(views, messages)
    return 0


@group.command("show")
async def show_run(run: RunArgument, json: Json = False) -> int:
    """Show the state, outcome, cost and answer of a run."""
    from treadle.surfaces.cli.run_view import print_run
    from treadle.surfaces.cli.wait_hint import explain_wait

    async with open_readonly_caller() as client:
        view = await client.call(runs.SHOW, runs.ShowRun(await find_run(client, run)))
        waits = await explain_wait(client, view, current_home())
    if json:
        print_json(view)
    else:
        print_run(view, waits)
    return 0


@group.command("events")
async def show_events(
    run: RunArgument,
    after: Annotated[int, Option(min=0, metavar="N", help="Print only events after this sequence number.")] = 0,
    follow: Annotated[bool, Option("--follow", help="Follow the run until it ends.")] = False,
    json: Json = False,
) -> int:
    """Print the events of a run."""
    from treadle.surfaces.cli.wait_hint import PARKED
    from treadle.surfaces.terminal.event_output import EventLines, JsonLines

    lines = JsonLines() if json else EventLines()
    async with open_readonly_caller() as client:
        view = await client.call(runs.SHOW, runs.ShowRun(await find_run(client, run)))
        last = after
        while True:
            async for event in client.read_stored(view.run_id, last):
                lines.show(event)
                last = event.sequence
            view = await client.call(runs.SHOW, runs.ShowRun(view.run_id))
            if view.sequence > last:
                continue
            if not follow or view.outcome is not None:
                return 0
            if view.waiting_for in PARKED:
                note(f"{view.run_id} waits ({view.waiting_for}). Resume it: treadle runs resume {view.run_id}")
                return 0
            await asyncio.sleep(FOLLOW_INTERVAL_SECONDS)


@group.command("prompt")
async def show_prompt(
    run: RunArgument,
    step: Annotated[int | None, Option(min=1, metavar="N", help="The step. Default: the latest.")] = None,
    json: Annotated[bool, Option("--json", help="Print the bytes of the request body.")] = False,
) -> int:
    """Print the exact request that the model received at a step."""
    from treadle.operations.run_inspection import PROMPT, ShowPrompt
    from treadle.surfaces.cli.prompt_view import print_prompt

    async with open_readonly_caller() as caller:
        prompt = await caller.call(PROMPT, ShowPrompt(await find_run(caller, run), step or 0))
    print_prompt(prompt, json=json)
    return 0


@group.command("steps")
async def show_steps(run: RunArgument, json: Json = False) -> int:
    """Print the steps of a run: model, tokens, time, attempts and tool calls."""
    from treadle.surfaces.cli.steps_view import print_steps

    async with open_readonly_caller() as caller:
        records = await caller.call(runs.STEPS, runs.OneRun(await find_run(caller, run)))
    if json:
        print_json(records)
    else:
        print_steps(records)
    return 0


@group.command("tree")
async def show_tree(run: RunArgument, json: Json = False) -> int:
    """Print a run with all its child runs: state, steps, tokens and cost of each, and the totals."""
    from treadle.operations.run_inspection import TREE
    from treadle.surfaces.cli.tree_view import print_tree

    async with open_readonly_caller() as caller:
        tree = await caller.call(TREE, runs.OneRun(await find_run(caller, run)))
    print_tree(tree, json=json)
    return 0


@group.command("replay")
async def replay_run(run: RunArgument, json: Json = False) -> int:
    """Replay a run with the current code, offline, and print the first event that differs.

    Exit code: 0 no difference, 1 a difference, 3 the journal does not hold enough to tell."""
    from treadle.bootstrap.offline_service import open_service_with_tools_readonly
    from treadle.surfaces.cli.comparison_view import describe_replay

    home = current_home()
    async with open_readonly_caller(home) as caller:
        run_id = await find_run(caller, run)
    async with open_service_with_tools_readonly(home) as service:
        replayed = await service.replay(run_id)
    if json:
        print_json(replayed)
    else:
        for line in describe_replay(replayed):
            print(line)
    return DIFFERENT if replayed.divergence else UNDECIDED if replayed.cannot else SAME


@group.command("diff")
async def diff_runs(
    a: Annotated[str, Argument(metavar="A", help="A run.", suggest=completion.run_ids)],
    b: Annotated[str, Argument(metavar="B", help="Another run.", suggest=completion.run_ids)],
    json: Json = False,
) -> int:
    """Compare two runs: their agents, the first step that differs, and their usage."""
    from treadle.operations.run_inspection import DIFF, DiffRuns
    from treadle.surfaces.cli.comparison_view import print_diff

    async with open_readonly_caller() as client:
        found = await client.call(DIFF, DiffRuns(await find_run(client, a), await find_run(client, b)))
    if json:
        print_json(found)
    else:
        print_diff(found)
    return 0


@group.command("files")
async def list_files(
    run: RunArgument,
    later: LaterRuns = False,
    diff: Annotated[bool, Option("--diff", help="Print the changes as diffs.")] = False,
    json: Json = False,
) -> int:
    """Print the files that a run and its sub-agents changed, up to now."""
    from treadle.operations.file_changes import FILES, ListChangedFiles
    from treadle.surfaces.cli.files_view import print_changed_files

    async with open_readonly_caller() as caller:
        request = ListChangedFiles(await find_run(caller, run), later, diff)
        found = await caller.call(FILES, request)
    print_changed_files(found, json=json)
    return 0


# ── Acting ─────────────────────────────────────────────────────────────────────────────────────────


@group.command("resume")
async def resume_run(
    run: RunArgument, base_url: BaseUrl = None, yes: FurtherDecisions = None, json: Json = False
) -> int:
    """Resume an interrupted run, or follow a run that is in progress, until it ends.

    The exit codes are those of `treadle run`."""
    from treadle.operations.run_control import RESUME
    from treadle.surfaces.cli.follow import FollowOptions, must_be_resumed, refuse_behind_parked
    from treadle.surfaces.cli.wait_hint import FOR_AN_ANSWER
    from treadle.surfaces.terminal.process import Stop

    options = FollowOptions(json, base_url, decision_of(yes))
    with Stop() as stop:
        async with options.open() as access:
            client = access.client
            view = await client.call(runs.SHOW, runs.ShowRun(await find_run(client, run)))
            await refuse_behind_parked(client, view)
            follower = options.follow(access, stop)
            await follower.announce(view.run_id)
            since = view.sequence
            if access.engine is not None:
                access.engine.adopt(view.run_id)
            if view.waiting_for not in FOR_AN_ANSWER and await must_be_resumed(client, view):
                since = (await client.call(RESUME, runs.OneRun(view.run_id))).sequence
            code = await follower.follow(view.run_id, after=view.sequence, since=since)
            await follower.wait_for_others(view.run_id)
            return code


@group.command("answer")
async def answer_run(
    run: RunArgument,
    call_id: Annotated[
        str, Argument(metavar="CALL", help="The id of the question, a unique beginning of it, or `last`.")
    ],
    text: Annotated[str, Argument(metavar="TEXT", help="Your answer.")],
    base_url: BaseUrl = None,
    yes: FurtherDecisions = None,
    json: Json = False,
) -> int:
    """Answer the question of an agent and follow its run. Ctrl-C leaves the run, which continues."""
    from treadle.operations.run_control import ANSWER, AnswerQuestion
    from treadle.operations.run_tree import find_root
    from treadle.surfaces.cli.follow import FollowOptions
    from treadle.surfaces.cli.reviewer import follow_as_reviewer
    from treadle.surfaces.terminal.process import Stop

    options = FollowOptions(json, base_url, decision_of(yes), on_stop="leave")
    with Stop() as stop:
        async with options.open() as access:
            client = access.client
            run_id = await find_run(client, run)
            root = await find_root(client, run_id)
            question = await find_question(client, run_id, call_id)
            since = (await client.call(ANSWER, AnswerQuestion(run_id, question, text))).sequence
            follower = options.follow(access, stop, "your answer")
            await follower.announce(root.run_id)
            return await follow_as_reviewer(follower, root, run_id, since)


@group.command("cancel")
async def cancel_run(run: RunArgument, json: Json = False) -> int:
    """Cancel a run."""
    from treadle.operations.run_control import CANCEL, StopRun
    from treadle.surfaces.cli.follow import POLL_INTERVAL_SECONDS, is_behind_another, make_engine
    from treadle.surfaces.home_access.connection import open_home

    home = current_home()
    async with open_home(make_engine(home), home) as access:
        client = access.client
        run_id = await find_run(client, run)
        await client.call(CANCEL, StopRun(run_id, "asked for by the user"))
        view = await client.call(runs.SHOW, runs.ShowRun(run_id))
        polls, most = 0, 0 if await is_behind_another(client, view) else MAX_CANCEL_POLLS
        while view.outcome is None and (access.busy or polls < most):
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
            view, polls = await client.call(runs.SHOW, runs.ShowRun(run_id)), polls + 1
    if json:
        print_json(view)
    elif view.outcome is None:
        print(f"{run_id} will be cancelled when its turn comes in its session")
    else:
        print(f"{run_id} {view.outcome}")
    return 0


@group.command("fork")
def fork_run(
    run: RunArgument,
    step: Annotated[
        int | None, Option(min=1, metavar="N", help="Start before this step. Default: the last step.")
    ] = None,
    model: Annotated[str | None, Option("-m", "--model", metavar="MODEL", help="Use another model.")] = None,
    message: Annotated[
        str | None,
        Option(
            metavar="TEXT",
            help="A message. At step 1 it replaces the original message; at later steps it follows the results. "
            "`-` reads it from standard input.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        Option("-a", "--agent", metavar="NAME", help="Use another agent.", suggest=completion.agent_names),
    ] = None,
    base_url: BaseUrl = None,
    yes: Decisions = None,
    json: EventsJson = False,
) -> Coroutine[Any, Any, int]:
    """Start a new run from a step of an old run, with all results up to that step, and follow it until it ends.

    The old run is not changed, and no tool call of it is repeated. The exit codes are those of `treadle run`."""
    from treadle.surfaces.cli.follow import FollowOptions
    from treadle.surfaces.terminal.line_input import read_message

    text = None if message is None else read_message(message)
    return _fork(run, step, model, text, agent, FollowOptions(json, base_url, decision_of(yes)))


async def _fork(
    run: str, step: int | None, model: str | None, message: str | None, agent: str | None, options: "FollowOptions"
) -> int:
    from treadle.operations.forks import Fork
    from treadle.operations.local_admin import FORK, ForkWhole
    from treadle.surfaces.cli.follow import add_endpoint, make_engine
    from treadle.surfaces.home_access.connection import open_home
    from treadle.surfaces.home_access.session_folder import use_current_folder
    from treadle.surfaces.terminal.process import Stop

    home = current_home()
    spec = None if agent is None else use_current_folder(home.agent(agent, model))
    engine = make_engine(home)
    provider = None if options.base_url is None else add_endpoint(engine, options.base_url)
    with Stop() as stop:
        async with open_home(engine, home, options.base_url) as access:
            client, follower = access.client, options.follow(access, stop)
            run_id = await find_run(client, run)
            await follower.announce(run_id)
            if stop.asked.is_set():
                return stop.exit_code
            fork = Fork(run_id, step, model, message, spec, asker=options.asker(stop), provider=provider)
            ticket = await client.call(FORK, ForkWhole(fork))
            follower.printer.note(f"{ticket.run_id} continues from {run_id}.")
            code = await follower.follow(ticket.run_id)
            await follower.wait_for_others(ticket.run_id)
            return code


@group.command("undo-files")
async def undo_files(
    run: RunArgument,
    later: LaterRuns = False,
    path: Annotated[list[str] | None, Option("--path", metavar="PATH", help="Only this path. Repeatable.")] = None,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Also undo changes of files that someone else changed.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print what would be undone.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> int:
    """Undo the changes that a run and its sub-agents made to files.

    Exit code: 0 all files are as they were before the run, 1 some are not."""
    from treadle.operations.file_changes import FILES, UNDO_FILES, ListChangedFiles, UndoFiles
    from treadle.surfaces.cli.files_view import choose_files, print_changed_files, print_undone_files
    from treadle.surfaces.terminal.line_input import Prompt, ask_yes_or_no

    async with open_readonly_caller() as caller:
        run_id = await find_run(caller, run)
        found = await caller.call(FILES, ListChangedFiles(run_id, later))
        chosen = choose_files(found, path or ())
        if dry_run:
            print_changed_files(chosen, json=json)
            return 0
        if chosen.files and not yes and not json:
            print_changed_files(chosen, json=False)
            if not Prompt.is_possible():
                raise UsageError("There is no terminal to confirm it at. Add --yes to undo these changes.")
            if not await ask_yes_or_no("Undo these changes?"):
                note("Nothing was changed.")
                return 1
        done = await caller.call(UNDO_FILES, UndoFiles(run_id, later, tuple(path or ()), overwrite))
    return print_undone_files(done, json=json)


def _state_filter(state: str | None) -> "tuple[Status | None, OutcomeKind | None]":
    """Return the filter for a state as the list prints it: a status or an outcome."""
    if state is None:
        return None, None
    statuses, outcomes = get_args(Status), get_args(OutcomeKind)
    if state in outcomes:
        return None, state  # pyright: ignore[reportReturnType] -- it is one of the outcomes
    if state in statuses:
        return state, None  # pyright: ignore[reportReturnType] -- it is one of the statuses
    known = ", ".join(dict.fromkeys((*statuses, *outcomes)))
    raise UsageError(f"--status is `{state}`; accepted: {known}.")
