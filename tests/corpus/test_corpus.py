"""The golden corpus: journals of an earlier version fold to the same state, project the same requests byte for
byte, and resume, on both stores."""

import asyncio
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import treadle
from tests.corpus.databases import STORES, lines_of, load_postgres, load_sqlite, projection_of
from tests.corpus.projection import project
from tests.corpus.stories import PRICES, TIMEOUT_SECONDS, open_engine
from tests.stores.postgres.servers import shared
from treadle.api.engine import HostedEngine
from treadle.bootstrap.offline_service import open_service_readonly
from treadle.config.home import Home
from treadle.domain.envelope import VERSION, Event
from treadle.domain.events import ApprovalRequested, ClarifyRequested, ToolCallError
from treadle.domain.events.run import WaitReason
from treadle.domain.ids import RunId
from treadle.operations.service import LocalService
from treadle.stores.postgres.schema import migrate
from treadle.stores.sqlite.connection import open_database
from treadle.testing.time import FakeClock

A_DAY_LATER = 1_700_086_400.0
SHORT_OF_TIME = ("limited", "parent")
"""Agents whose runs may end otherwise, as time has passed: a quota is used up, a child took too long."""
PRESENT = {"context_compacted", "compaction_undone", "run_forked", "agent_spawn", "agent_end", "memory_recalled",
           "memory_saved", "journal_written", "budget_hint", "loop_warning", "tool_call_blocked", "stuck_detected",
           "phantom_action", "empty_turn", "continuation", "result_truncated", "llm_fallback", "message_steered",
           "approval_decided", "clarify_answered", "cancel_requested", "run_recovered"}  # fmt: skip
"""Events that the corpus must hold."""
YOUNGER = {"client_tool"}
"""Reasons to wait that came after it was recorded."""


@pytest.fixture(params=STORES)
def corpus(
    request: pytest.FixtureRequest, tmp_path: Path, testrun_uid: str
) -> Generator[tuple[str, str], None, None]:
    """Yield a store, and the URL of a database with the corpus in its recorded format."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            url = load_sqlite(tmp_path / "treadle.db")
        else:
            url = stack.enter_context(shared(testrun_uid).one("template1"))
            asyncio.run(load_postgres(url))
        yield request.param, url


def recorded_states(store: str) -> dict[str, dict[str, Any]]:
    lines = [msgspec.json.decode(line) for line in lines_of(projection_of(store)) if line]
    return {line["run"]: line["state"] for line in lines if "state" in line}


async def update(store: str, url: str) -> None:
    """Bring the database to the format of this version."""
    if store == "sqlite":
        open_database(url.removeprefix("sqlite:///")).close()
    else:
        await migrate(url)


async def events_of(service: LocalService) -> dict[str, list[Event]]:
    return {
        record.origin.run_id: [event async for event in service.read_stored(record.origin.run_id)]
        for record in await service.runs(limit=1000)
    }


async def test_the_corpus_contains_every_reason_to_wait_and_every_kind_of_event(corpus: tuple[str, str]) -> None:
    store, url = corpus

    await update(store, url)
    async with open_service_readonly(url) as service:
        events = await events_of(service)
    states = recorded_states(store)
    recorded = {state["waiting"][0] for state in states.values() if state["waiting"]}
    assert recorded == set(get_args(WaitReason)) - YOUNGER
    assert {event.type for run in events.values() for event in run} >= PRESENT
    assert {"completed", "max_steps", "stuck", "empty", "silent", "model_error", "cancelled"} <= {
        state["outcome"] for state in states.values()
    }


async def test_journals_fold_to_the_same_state_and_project_the_same_requests(corpus: tuple[str, str]) -> None:
    store, url = corpus

    await update(store, url)
    async with open_service_readonly(url) as service:
        found = (await project(service)).decode().split("\n")
    expected = lines_of(projection_of(store))
    for line, wanted in zip(found, expected, strict=True):
        assert msgspec.json.decode(line or "{}") == msgspec.json.decode(wanted or "{}")


def is_later_than_now(waiting: list[Any] | None) -> bool:
    return bool(waiting) and waiting[0] == "retry" and waiting[1] > time.time()


async def finish(engine: HostedEngine, run_id: RunId, waiting: str) -> treadle.Result:
    """Answer what a run waits for, and wait for its end."""
    if waiting == "interrupted":
        await engine.resume(run_id)
    elif waiting in ("approval", "answer"):
        async for event in engine.events(run_id):
            match event.data:
                case ApprovalRequested(approval_id):
                    await engine.decide(approval_id, "approve")
                case ClarifyRequested(call_id):
                    await engine.answer(run_id, call_id, "this one")
                case _:
                    continue
            break
    return await engine.wait(run_id)


async def test_unfinished_runs_resume_and_nothing_recorded_changes(corpus: tuple[str, str], tmp_path: Path) -> None:
    store, url = corpus
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(PRICES)
    clock = FakeClock(A_DAY_LATER) if store == "sqlite" else None

    await update(store, url)
    async with open_service_readonly(url) as service:
        before = await events_of(service)
    unfinished = {run: state for run, state in recorded_states(store).items() if state["outcome"] is None}
    assert len(unfinished) == 15
    for run, state in list(unfinished.items()):
        if store == "postgres" and is_later_than_now(state["waiting"]):
            del unfinished[run]  # only within an hour of recording: PostgreSQL goes by the clock of its server
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        open_engine(url, Home(tmp_path / "home"), None, clock=clock) as engine,
    ):
        for run, state in unfinished.items():
            waiting = state["waiting"][0] if state["waiting"] else ""
            result = await finish(engine, RunId(run), waiting)
            assert result.outcome == "completed" or state["agent"] in SHORT_OF_TIME, (run, state, result)
        after = await events_of(engine.service)
    for run, events in before.items():
        assert [(event.sequence, event.type, event.raw) for event in after[run]][: len(events)] == [
            (event.sequence, event.type, event.raw) for event in events
        ]
        assert [event.version for event in after[run]][: len(events)] == [event.version for event in events]
        assert {event.version for event in after[run][len(events) :]} <= {VERSION}
    assert any(len(after[run]) > len(before[run]) for run in unfinished)
    unknown = [
        event.data.call_id
        for run in unfinished
        for event in after[run][len(before[run]) :]
        if isinstance(event.data, ToolCallError) and event.data.cause == "outcome_unknown"
    ]
    assert unknown == ["c2"], "a call that is not repeatable is never made twice"
