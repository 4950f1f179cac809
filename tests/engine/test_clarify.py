"""An agent asks a person something: the run is parked, and the answer is the result of the call."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import treadle
from tests.engine.running import agent, in_virtual_time, journal, opened, types, until, virtually
from tests.observed import all_told
from treadle.domain.errors import InvalidState
from treadle.domain.events import ClarifyRequested
from treadle.testing.models import ScriptedModel, ask, call, say
from treadle.tools.clarify import Clarify

TERMINAL: dict[str, Any] = {"asker": "terminal"}


def which() -> Any:
    return ask(call("clarify", "c1", question="Which key?", options=["iron", "brass"]))


def read_last_result(model: ScriptedModel) -> str:
    [result] = all_told(model.requests[-1].conversation.messages[-1].parts)
    return result.content


async def test_the_answer_is_the_result_of_the_call(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(which())) as engine:
        run_id = await engine.submit(agent(tools=["clarify"]), "go", **TERMINAL)
        asked = await until(engine, run_id, "clarify_requested")
        assert isinstance(asked.data, ClarifyRequested)
        assert (asked.data.question, asked.data.options) == ("Which key?", ("iron", "brass"))
        await until(engine, run_id, "run_waiting")
    model = ScriptedModel(say("brass it is"))
    async with opened(tmp_path, model) as engine:
        [question] = await engine.service.questions(run_id)
        with pytest.raises(InvalidState, match="no open question"):
            await engine.answer(run_id, "c9", "brass")
        await engine.answer(run_id, question.call_id, "brass")
        assert (await engine.wait(run_id)).text == "brass it is"
        with pytest.raises(InvalidState):
            await engine.answer(run_id, question.call_id, "iron")
        assert "tool_call_start" not in types(await journal(engine, run_id)), "nothing was run"
    assert read_last_result(model) == "brass"


async def test_without_a_user_the_agent_is_told_to_continue(tmp_path: Path) -> None:
    model = ScriptedModel(which(), say("I assumed brass"))

    async with opened(tmp_path, model) as engine:
        await engine.run(agent(tools=["clarify"]), "go")
    assert "No user can be asked" in read_last_result(model)


async def test_a_message_instead_of_an_answer_continues_the_run(tmp_path: Path) -> None:
    model = ScriptedModel(which(), say("fine"))

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=["clarify"]), "go", **TERMINAL)
        await until(engine, run_id, "run_waiting")
        await engine.steer(run_id, "forget the keys")
        assert (await engine.wait(run_id)).text == "fine"
    assert "forget the keys" in model.requests[-1].conversation.messages[-1].text


@pytest.mark.parametrize("later", [False, True])
async def test_a_callback_answers(tmp_path: Path, later: bool) -> None:
    model = ScriptedModel(which(), say("done"))

    async def in_a_while() -> str:
        await asyncio.sleep(0)
        return "iron"

    async with opened(tmp_path, model) as engine:
        callbacks = treadle.Callbacks(on_clarify=lambda event: in_a_while() if later else "iron")
        await engine.run(agent(tools=["clarify"]), "go", callbacks)
    assert read_last_result(model) == "iron"


async def test_only_one_of_several_concurrent_answers_counts(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(which(), say("done"))) as engine:
        run_id = await engine.submit(agent(tools=["clarify"]), "go", **TERMINAL)
        await until(engine, run_id, "run_waiting")
        answers = await asyncio.gather(
            *(engine.answer(run_id, "c1", text) for text in ("iron", "brass", "gold")), return_exceptions=True
        )
        assert sum(isinstance(answer, InvalidState) for answer in answers) == 2
        assert types(await journal(engine, run_id)).count("clarify_answered") == 1


async def test_any_tool_may_ask_a_question(tmp_path: Path) -> None:
    class Confirm(Clarify):
        """The same under another name."""

        def __init__(self) -> None:
            super().__init__()
            self.spec = msgspec.structs.replace(self.spec, name="confirm")

    model = ScriptedModel(ask(call("confirm", "c1", question="Sure?")), say("done"))

    async with opened(tmp_path, model) as engine:
        callbacks = treadle.Callbacks(on_clarify=lambda event: "sure")
        await engine.run(agent(tools=[Confirm()]), "go", callbacks)
    assert read_last_result(model) == "sure"


def test_an_unanswered_question_times_out() -> None:
    model = ScriptedModel(which(), say("I assumed brass"))

    async def scenario() -> None:
        async with in_virtual_time(model) as engine:
            hero = agent(tools=["clarify"], approvals={"expires": "1h"})
            run_id = await engine.submit(hero, "go", **TERMINAL)
            assert (await engine.wait(run_id, until="ended")).text == "I assumed brass"
        assert "No answer came in time" in read_last_result(model)

    virtually(scenario())


async def test_an_answer_has_the_size_limit_of_a_message(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(which())) as engine:
        run_id = await engine.submit(agent(tools=["clarify"]), "go", **TERMINAL)
        await until(engine, run_id, "run_waiting")
        with pytest.raises(treadle.TreadleError, match="the limit is 128000"):
            await engine.answer(run_id, "c1", "x" * 200_000)
        await engine.cancel(run_id)
