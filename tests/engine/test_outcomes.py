"""Every way in which a run of this version can end, with its status and exit code."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest

import treadle
from tests.engine.running import agent, in_a_world, in_virtual_time, journal, opened, types, until, virtually
from treadle.domain.agents import AgentSpec
from treadle.domain.ids import RunId
from treadle.domain.messages import user
from treadle.domain.runs import OutcomeKind, Status, outcome_exit_code, outcome_status
from treadle.operations.submissions import Submission
from treadle.ports.model import Completed, Model, ModelRequest, Show, TextDelta
from treadle.testing.faults import Fault, Operation, Plan
from treadle.testing.models import ScriptedFailure, ScriptedModel, ScriptStep, Silence, ask, call, say
from treadle.testing.simulation.world import World

SCHEMA = {"type": "object", "required": ["n"]}


@treadle.tool(effect="read")
async def look(at: str) -> str:
    return f"seen {at}"


CASES: dict[OutcomeKind, tuple[dict[str, Any], list[ScriptStep], str]] = {
    "completed": ({}, [say("Hello.")], "Hello."),
    "silent": ({}, [say("NO_REPLY")], ""),
    "truncated": (
        {"limits": {"max_continuations": 1}},
        [say("one ", stop="max_tokens"), say("two", stop="max_tokens")],
        "one two",
    ),
    "max_steps": ({"limits": {"max_steps": 1}}, [ask(call("look", at="a"), text="I look.")], "I look."),
    "deadline": ({"limits": {"deadline": 5}}, [Silence("so far")], "so far"),
    "stuck": (
        {"loop": {"doom_loop": "strict"}},
        [ask(*(call("look", at="a") for _ in range(3)), text="Hm.")],
        "Hm.",
    ),
    "empty": ({}, [say(""), say("")], ""),
    "refused": ({}, [say("I cannot ", stop="refusal")], "I cannot "),
    "model_error": ({}, [ScriptedFailure("auth", "the key is wrong", retryable=False)], ""),
    "failed": ({"output": SCHEMA}, [say("1"), say("2"), say("3")], "3"),
}

TABLE: dict[OutcomeKind, tuple[Status, int]] = {
    "completed": ("completed", 0),
    "silent": ("completed", 0),
    "truncated": ("failed", 3),
    "max_steps": ("failed", 3),
    "budget_exhausted": ("failed", 3),
    "quota_exceeded": ("failed", 3),
    "insufficient_credits": ("failed", 3),
    "deadline": ("failed", 3),
    "stuck": ("failed", 1),
    "empty": ("failed", 1),
    "refused": ("failed", 1),
    "context_overflow": ("failed", 1),
    "model_error": ("failed", 1),
    "tool_error": ("failed", 1),
    "approval_expired": ("failed", 1),
    "quarantined": ("failed", 1),
    "failed": ("failed", 1),
    "cancelled": ("cancelled", 130),
}


def test_every_outcome_has_the_expected_status_and_exit_code() -> None:
    assert set(TABLE) == set(get_args(OutcomeKind))
    assert {kind: (outcome_status(kind), outcome_exit_code(kind)) for kind in TABLE} == TABLE


@pytest.mark.parametrize("kind", CASES)
def test_a_run_ends_with_the_expected_outcome(kind: OutcomeKind) -> None:
    async def scenario() -> None:
        settings, script, text = CASES[kind]
        with ScriptedModel(*script) as model:
            async with in_virtual_time(model) as engine:
                result = await engine.run(agent(tools=[look], **settings), "go")
                last = (await journal(engine, result.run_id))[-1]
                record = await engine.service.run(result.run_id)
        assert (result.outcome, result.status, result.text) == (kind, TABLE[kind][0], text)
        assert (record.outcome, record.status) == (kind, TABLE[kind][0])
        assert last.type == "run_end"
        assert result.silent is (kind == "silent")
        if TABLE[kind][1] != 0:
            assert result.reason, "a person is told what happened"
            assert result.next, "and how to go on"

    virtually(scenario())


async def test_a_cancelled_run_ends_cancelled(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(Silence("so far"))) as engine:
        run_id = await engine.submit(agent(), "go")
        await until(engine, run_id, "token")
        await engine.cancel(run_id)
        result = await engine.wait(run_id)
    assert (result.outcome, result.status, result.text) == ("cancelled", "cancelled", "so far")


class RaisingModel:
    """An adapter that raises where it should have said how it failed."""

    async def reply(self, request: ModelRequest, show: Show) -> Completed:
        raise RuntimeError("the adapter is broken")


class CancellingModel:
    """An adapter that cancels itself."""

    async def reply(self, request: ModelRequest, show: Show) -> Completed:
        raise asyncio.CancelledError("an inner task was cancelled")


class EndlessModel:
    """An adapter that does not say how it ended."""

    async def reply(self, request: ModelRequest, show: Show) -> Any:
        show(TextDelta("half a"))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (RaisingModel(), "the adapter is broken"),
        (CancellingModel(), "an inner task"),
        (EndlessModel(), "not Completed or Failed"),
    ],
)
def test_an_adapter_error_ends_the_run_with_a_reason(
    model: Model, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with in_virtual_time(model) as engine:
            result = await engine.run(agent(), "go")
        assert (result.outcome, result.status) == ("model_error", "failed")
        assert words in result.reason

    virtually(scenario())
    caplog.clear()


def test_a_run_that_kills_its_worker_each_time_is_set_aside_and_others_are_not() -> None:
    """Five processes die, each right after its first write about the run; the sixth sets it aside."""

    async def scenario() -> None:
        world = World(Random(1), lambda request, world: say("fine"))

        def first_advance() -> Plan:
            operations: list[Operation] = []

            def plan(operation: Operation) -> Fault | None:
                operations.append(operation)
                return "after" if operation == "advance" and operations.count("advance") == 1 else None

            return plan

        agent_spec = AgentSpec("hero", "simulated", tools=("*",))
        run_id: RunId | None = None
        for _ in range(5):
            process = world.start(first_advance(), sole=True)
            await process.spawn(process.start())
            if run_id is None:
                run_id = (await process.spawn(process.service.submit(Submission(agent_spec, user("go"))))).run_id
            await asyncio.sleep(30)
            assert process.journal.dead
        assert run_id is not None
        last = world.start(lambda operation: None, sole=True)
        await last.spawn(last.start())
        other = (await last.spawn(last.service.submit(Submission(agent_spec, user("go"))))).run_id
        _, end = await last.spawn(last.service.wait(run_id))
        _, other_end = await last.spawn(last.service.wait(other))
        events = await last.spawn(last.store.read(run_id))
        assert (end.outcome, end.status) == ("quarantined", "failed")
        assert types(events)[-2:] == ["run_quarantined", "run_end"]
        assert types(events).count("run_recovered") == 5
        assert other_end.text == "fine"

    in_a_world(scenario())
