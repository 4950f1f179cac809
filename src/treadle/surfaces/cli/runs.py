"""`treadle runs`: what has been done, what is under way, and going on with it or not."""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
from msgspec import Struct

from treadle.api.engine import create_engine
from treadle.bootstrap.callers import open_readonly_caller
from treadle.bootstrap.stores import ONLY_OWN
from treadle.config.home import Home
from treadle.domain.errors import InvalidState
from treadle.domain.events import Decision, MessageSteered, ResumeRequested, RunInterrupted
from treadle.domain.ids import RunId, SessionId
from treadle.operations import runs
from treadle.operations.operation import Caller, EventSource, list_items
from treadle.operations.run_control import ANSWER, CANCEL, RESUME, AnswerQuestion, StopRun
from treadle.operations.run_tree import root_of
from treadle.operations.runs import RunDetail, RunView
from treadle.surfaces.cli.approval_prompt import Asking
from treadle.surfaces.cli.connection import Reached, reached
from treadle.surfaces.cli.event_output import EventLines, JsonLines, note
from treadle.surfaces.cli.process import Stop
from treadle.surfaces.cli.run import add_endpoint, printer, prompt_for
from treadle.surfaces.cli.run_view import LOOK_SECONDS, Following, unfinished_runs
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import amount, inert, one_line, print_json
from treadle.surfaces.cli.tree import cost_of
from treadle.surfaces.cli.wait_hint import FOR_AN_ANSWER, PARKED, endpoint_option, explained

FOLLOW_SECONDS = 0.25
"""How often the journal is looked at for a run that another process works on."""
LOOKS_AT_ANOTHERS = 100
"""How often a command looks whether another process has ended a run."""
NOT_PRINTED = ("result", "agent_id", "wake_at", "owner")
"""Fields of a run that are left to `--json`; the result is printed below the others."""


# ── Looking ──


async def list_runs(limit: int, agent: str | None, session: str | None, json: bool) -> int:
    wanted = runs.ListRuns(agent, None if session is None else SessionId(session))
    async with open_readonly_caller() as caller:
        views = await list_items(caller, runs.LIST, wanted, limit)
        shown = [] if json else [await caller.call(runs.SHOW, runs.ShowRun(view.run_id)) for view in views]
    if json:
        for view in views:
            print_json(view)
    elif shown:
        head = ("RUN", "CREATED", "STATUS", "OUTCOME", "AGENT", "MESSAGE")
        print_table(head, [_row(view) for view in shown])
    else:
        note("no runs yet")
    return 0


async def show_run(run_id: str, json: bool) -> int:
    async with open_readonly_caller() as client:
        view = await client.call(runs.SHOW, runs.ShowRun(RunId(run_id)))
        waits = await explained(client, view, Home.from_environment(os.environ))
    if json:
        print_json(view)
    else:
        _print_run(view, waits)
    return 0


async def show_events(run_id: str, after: int, follow: bool, json: bool) -> int:
    lines = JsonLines() if json else EventLines()
    async with open_readonly_caller() as client:
        run = await client.call(runs.SHOW, runs.ShowRun(RunId(run_id)))
        last = after
        while True:
            async for event in client.stored(run.run_id, last):
                lines.show(event)
                last = event.sequence
            run = await client.call(runs.SHOW, runs.ShowRun(run.run_id))
            if run.sequence > last:
                continue
            if not follow or run.outcome is not None:
                return 0
            if run.waiting_for in PARKED:
                note(f"it waits ({run.waiting_for}); go on with: treadle runs resume {run_id}")
                return 0
            await asyncio.sleep(FOLLOW_SECONDS)


# ── Acting ──


class Going(Struct, frozen=True):
    """How a command goes on with a run."""

    json: bool = False
    base_url: str | None = None
    decision: Decision | None = None
    """The answer to every approval that is still to come."""

    def reached(self, home: Home) -> AbstractAsyncContextManager[Reached]:
        engine = create_engine(home=home, share=ONLY_OWN)
        if self.base_url is not None:
            add_endpoint(engine, self.base_url)
        return reached(engine, home, self.base_url)

    def follow(self, home_of: Reached, home: Home, stop: Stop, recorded: str = "") -> Following:
        """How a run is followed from here, and who answers what it asks."""
        out = printer(self.json)
        asking = Asking(home_of.client, home, out, prompt_for(stop, self.json), self.decision)
        return Following(home_of, out, stop, asking, endpoint_option(self.base_url), recorded)


async def resume_run(run_id: str, going: Going) -> int:
    home = Home.from_environment(os.environ)
    with Stop() as stop:
        async with going.reached(home) as home_of:
            client = home_of.client
            run = await client.call(runs.SHOW, runs.ShowRun(RunId(run_id)))
            await _refuse_behind_parked(client, run)
            following = going.follow(home_of, home, stop)
            await following.announce(run.run_id)
            since = run.sequence
            if home_of.engine is not None:
                home_of.engine.adopt(run.run_id)
            if run.waiting_for not in FOR_AN_ANSWER and await _waits_for_somebody(client, run):
                since = (await client.call(RESUME, runs.OneRun(run.run_id))).sequence
            code = await following.run(run.run_id, after=run.sequence, since=since)
            await following.see_off_others(run.run_id)
            return code


async def answer_run(run_id: str, call_id: str, text: str, going: Going) -> int:
    """Answer a question, and go on with the run."""
    home = Home.from_environment(os.environ)
    with Stop() as stop:
        async with going.reached(home) as home_of:
            root = await root_of(home_of.client, RunId(run_id))
            since = (await home_of.client.call(ANSWER, AnswerQuestion(RunId(run_id), call_id, text))).sequence
            following = going.follow(home_of, home, stop, "your answer")
            return await following.whole(root, RunId(run_id), since)


async def cancel_run(run_id: str, json: bool) -> int:
    home = Home.from_environment(os.environ)
    async with reached(create_engine(home=home, share=ONLY_OWN), home) as home_of:
        client, wanted = home_of.client, runs.ShowRun(RunId(run_id))
        await client.call(CANCEL, StopRun(RunId(run_id), "asked for by the user"))
        run = await client.call(runs.SHOW, wanted)
        looks, most = 0, 0 if home_of.engine and not home_of.is_shared else LOOKS_AT_ANOTHERS
        while run.outcome is None and (home_of.busy or looks < most):
            await asyncio.sleep(LOOK_SECONDS)
            run, looks = await client.call(runs.SHOW, wanted), looks + 1
    if json:
        print_json(run)
    elif run.outcome is None:
        print(f"{run_id} will be cancelled when its turn comes in its session")
    else:
        print(f"{run_id} {run.outcome}")
    return 0


async def _waits_for_somebody(source: EventSource, run: RunView) -> bool:
    """Whether the run must be asked to go on: it has ended (which the answer will say), it is parked, or its
    process was gone before it could be."""
    if run.outcome is not None or run.waiting_for in PARKED:
        return True
    interrupted = False
    async for event in source.stored(run.run_id):
        match event.data:
            case RunInterrupted():
                interrupted = True
            case ResumeRequested() | MessageSteered():
                interrupted = False
            case _:
                pass
    return interrupted


async def _refuse_behind_parked(caller: Caller, run: RunView) -> None:
    """A run behind one that waits for somebody would be followed for ever."""
    for other in await unfinished_runs(caller):
        if other.run_id == run.run_id:
            return
        if other.session_id == run.session_id and other.waiting_for in PARKED:
            raise InvalidState(
                f"{run.run_id} is behind {other.run_id} of the same session, which waits "
                f"({other.waiting_for}). Resume or cancel that one first."
            )


# ── Printing ──


def _row(view: RunDetail) -> tuple[str, ...]:
    created = view.created_at.astimezone().strftime("%Y-%m-%d %H:%M")
    outcome = view.outcome or view.waiting_for or ""
    return view.run_id, created, view.status, outcome, view.agent, view.message


def _print_run(view: RunDetail, waits: Sequence[str]) -> None:
    result = view.result
    for name, value in msgspec.structs.asdict(view).items():
        if value not in (None, "") and name not in NOT_PRINTED:
            print(f"{name.replace('_', ' '):<12} {one_line(str(value))}")
    for line in waits:
        print(f"{'waits for':<12} {line}")
    if result is None:
        return
    for name in ("reason", "next"):
        if said := getattr(result, name):
            print(f"{name:<12} {one_line(said)}")
    metrics = result.metrics
    print(
        f"{'used':<12} {metrics.steps} steps, {metrics.model_calls} model calls, {metrics.actions} tool calls, "
        f"{metrics.input_tokens} tokens in, {metrics.output_tokens} out, {metrics.duration_ms / 1000:.1f} s"
    )
    print(f"{'cost':<12} {cost_of(metrics)}, {amount(metrics.credits)} credits")
    if result.score is not None:
        reasons = f": {one_line(result.score_reasons)}" if result.score_reasons else ""
        print(f"{'score':<12} {result.score:.2f}{reasons}")
    if result.diagnosis:
        print(f"{'diagnosis':<12} {one_line(result.diagnosis)}")
    if result.text:
        print(f"\n{inert(result.text) if sys.stdout.isatty() else result.text}")
