"""`treadle runs`: what has been done, what is under way, and going on with it or not."""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from treadle.api.engine import Engine
from treadle.bootstrap.engine import observe
from treadle.bootstrap.stores import ONLY_OWN
from treadle.config.home import Home
from treadle.domain.commands import in_words
from treadle.domain.errors import InvalidState
from treadle.domain.events import (
    Decision,
    MessageSteered,
    ResumeRequested,
    RunEnd,
    RunForked,
    RunInterrupted,
    RunQueued,
    UserMessage,
)
from treadle.domain.ids import RunId
from treadle.operations import Service
from treadle.operations.run_tree import root_of
from treadle.ports.journal import RunRecord
from treadle.surfaces.cli.approval_prompt import Asking
from treadle.surfaces.cli.connection import Reached, reached
from treadle.surfaces.cli.event_output import EventLines, JsonLines, note
from treadle.surfaces.cli.process import Stop
from treadle.surfaces.cli.run import add_endpoint, printer, prompt_for
from treadle.surfaces.cli.run_view import LOOK_SECONDS, Following
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import amount, inert, one_line, print_json
from treadle.surfaces.cli.tree import cost_of
from treadle.surfaces.cli.wait_hint import FOR_AN_ANSWER, PARKED, endpoint_option, explained

FOLLOW_SECONDS = 0.25
"""How often the journal is looked at for a run that another process works on."""
LOOKS_AT_ANOTHERS = 100
"""How often a command looks whether another process has ended a run."""
FIRST_EVENTS = 8
"""Among so many is the message of a run."""


class RunView(Struct, frozen=True):
    """A run as it is listed."""

    run_id: str
    session_id: str
    agent: str
    message: str
    status: str
    outcome: str | None
    waiting_for: str | None
    created_at: datetime
    events: int
    parent_run_id: str | None = None


# ── Looking ──


async def list_runs(limit: int, json: bool) -> int:
    async with observe() as service:
        views = [await view_of(service, record) for record in await service.runs(limit=limit)]
    if json:
        for view in views:
            _print_json(view)
    elif views:
        head = ("RUN", "CREATED", "STATUS", "OUTCOME", "AGENT", "MESSAGE")
        print_table(head, [_row(view) for view in views])
    else:
        note("no runs yet")
    return 0


async def show_run(run_id: str, json: bool) -> int:
    async with observe() as service:
        record = await service.run(RunId(run_id))
        view = await view_of(service, record)
        end = None if record.outcome is None else (await service.wait(record.origin.run_id))[1]
        waits = await explained(service, record, Home.from_environment(os.environ))
    if json:
        result = (
            None if end is None else {"score": end.score, "diagnosis": end.diagnosis, **msgspec.to_builtins(end)}
        )
        _print_json(msgspec.to_builtins(view) | {"waits": waits, "result": result})
    else:
        _print_run(view, waits, end)
    return 0


async def show_events(run_id: str, after: int, follow: bool, json: bool) -> int:
    lines = JsonLines() if json else EventLines()
    async with observe() as service:
        record = await service.run(RunId(run_id))
        last = after
        while True:
            async for event in service.stored(record.origin.run_id, last):
                lines.show(event)
                last = event.sequence
            record = await service.run(record.origin.run_id)
            if record.sequence > last:
                continue
            if not follow or record.outcome is not None:
                return 0
            if record.waiting_for in PARKED:
                note(f"it waits ({record.waiting_for}); go on with: treadle runs resume {run_id}")
                return 0
            await asyncio.sleep(FOLLOW_SECONDS)


async def view_of(service: Service, record: RunRecord) -> RunView:
    agent = message = ""
    async with aclosing(service.stored(record.origin.run_id)) as events:
        async for event in events:
            match event.data:
                case RunQueued(agent=spec, command=command):
                    agent = spec.name
                    if command is not None:
                        message = in_words(command)
                        break
                case RunForked(asked=asked):
                    message = asked
                case UserMessage(message=said):
                    message = said.text
                    break
                case _ if event.sequence >= FIRST_EVENTS:
                    break
                case _:
                    pass
    return RunView(
        record.origin.run_id,
        record.origin.session_id,
        agent,
        message,
        record.status,
        record.outcome,
        record.waiting_for,
        datetime.fromtimestamp(record.created_at, UTC),
        record.sequence,
        record.origin.parent_run_id,
    )


# ── Acting ──


class Going(Struct, frozen=True):
    """How a command goes on with a run."""

    json: bool = False
    base_url: str | None = None
    decision: Decision | None = None
    """The answer to every approval that is still to come."""

    def reached(self, home: Home) -> AbstractAsyncContextManager[Reached]:
        engine = Engine(home=home, share=ONLY_OWN)
        if self.base_url is not None:
            add_endpoint(engine, self.base_url)
        return reached(engine, home, self.base_url)

    def follow(self, home_of: Reached, home: Home, stop: Stop, recorded: str = "") -> Following:
        """How a run is followed from here, and who answers what it asks."""
        out = printer(self.json)
        asking = Asking(home_of.service, home, out, prompt_for(stop, self.json), self.decision)
        return Following(home_of, out, stop, asking, endpoint_option(self.base_url), recorded)


async def resume_run(run_id: str, going: Going) -> int:
    home = Home.from_environment(os.environ)
    with Stop() as stop:
        async with going.reached(home) as home_of:
            service = home_of.service
            record = await service.run(RunId(run_id))
            await _refuse_behind_parked(service, record)
            following = going.follow(home_of, home, stop)
            await following.announce(record.origin.run_id)
            since = record.sequence
            if home_of.engine is not None:
                home_of.engine.take_up(record.origin.run_id)
            if record.waiting_for not in FOR_AN_ANSWER and await _waits_for_somebody(service, record):
                since = await service.resume(record.origin.run_id)
            code = await following.run(record.origin.run_id, after=record.sequence, since=since)
            await following.see_off_others(record.origin.run_id)
            return code


async def answer_run(run_id: str, call_id: str, text: str, going: Going) -> int:
    """Answer a question, and go on with the run."""
    home = Home.from_environment(os.environ)
    with Stop() as stop:
        async with going.reached(home) as home_of:
            root = await root_of(home_of.service, RunId(run_id))
            since = await home_of.service.answer(RunId(run_id), call_id, text)
            following = going.follow(home_of, home, stop, "your answer")
            return await following.whole(root, RunId(run_id), since)


async def cancel_run(run_id: str, json: bool) -> int:
    home = Home.from_environment(os.environ)
    async with reached(Engine(home=home, share=ONLY_OWN), home) as home_of:
        service = home_of.service
        await service.cancel(RunId(run_id))
        record = await service.run(RunId(run_id))
        looks, most = 0, 0 if home_of.engine and not home_of.is_shared else LOOKS_AT_ANOTHERS
        while record.outcome is None and (home_of.busy or looks < most):
            await asyncio.sleep(LOOK_SECONDS)
            record, looks = await service.run(RunId(run_id)), looks + 1
        view = await view_of(service, record)
    if json:
        _print_json(view)
    elif record.outcome is None:
        print(f"{run_id} will be cancelled when its turn comes in its session")
    else:
        print(f"{run_id} {record.outcome}")
    return 0


async def _waits_for_somebody(service: Service, record: RunRecord) -> bool:
    """Whether the run must be asked to go on: it has ended (which the answer will say), it is parked, or its
    process was gone before it could be."""
    if record.outcome is not None or record.waiting_for in PARKED:
        return True
    interrupted = False
    async for event in service.stored(record.origin.run_id):
        match event.data:
            case RunInterrupted():
                interrupted = True
            case ResumeRequested() | MessageSteered():
                interrupted = False
            case _:
                pass
    return interrupted


async def _refuse_behind_parked(service: Service, record: RunRecord) -> None:
    """A run behind one that waits for somebody would be followed for ever."""
    for other in await service.unfinished():
        if other.origin.run_id == record.origin.run_id:
            return
        if other.origin.session_id == record.origin.session_id and other.waiting_for in PARKED:
            raise InvalidState(
                f"{record.origin.run_id} is behind {other.origin.run_id} of the same session, which waits "
                f"({other.waiting_for}). Resume or cancel that one first."
            )


# ── Printing ──


def _print_json(value: Any) -> None:
    print_json(value)


def _row(view: RunView) -> tuple[str, ...]:
    created = view.created_at.astimezone().strftime("%Y-%m-%d %H:%M")
    outcome = view.outcome or view.waiting_for or ""
    return view.run_id, created, view.status, outcome, view.agent, view.message


def _print_run(view: RunView, waits: Sequence[str], result: RunEnd | None) -> None:
    for name, value in msgspec.structs.asdict(view).items():
        if value is not None:
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
