"""Submitting: sessions and their order, idempotency keys, and what is refused before anything is written."""

import asyncio
from pathlib import Path

import pytest

import treadle
from tests.engine.running import Gate, agent, in_virtual_time, journal, opened, types, until, virtually
from tests.patience import HANG_SECONDS
from treadle.domain.errors import SizeLimitExceeded, UnknownModel, UsageError
from treadle.testing.models import ScriptedFailure, ScriptedModel, Silence, ask, call, say


async def test_a_session_continues_where_its_last_run_ended(tmp_path: Path) -> None:
    model = ScriptedModel(say("Hello, Ann."), say("Ann."))
    async with opened(tmp_path, model) as engine:
        first = await engine.run(agent(), "I am Ann.")
        await engine.run(agent(), "Who am I?", session=first.session_id)
    messages = model.requests[-1].conversation.messages
    assert [message.text for message in messages] == ["I am Ann.", "Hello, Ann.", "Who am I?"]


async def test_a_session_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(say("Hello."))) as engine:
        first = await engine.run(agent(), "Hi.")
    model = ScriptedModel(say("Again."))
    async with opened(tmp_path, model) as engine:
        await engine.run(agent(), "Hi again.", session=first.session_id)
    assert [message.text for message in model.requests[0].conversation.messages] == [
        "Hi.",
        "Hello.",
        "Hi again.",
    ]


async def test_runs_of_one_session_execute_in_order(tmp_path: Path) -> None:
    gate = Gate()

    @treadle.tool
    async def hold() -> str:
        await gate.pass_through()
        return "held"

    model = ScriptedModel(ask(call("hold")), say("one"), say("two"), say("three"))
    async with opened(tmp_path, model) as engine:
        first = await engine.submit(agent(tools=[hold]), "1")
        session = (await engine.service.run(first)).origin.session_id
        await gate.reached.wait()
        later = [await engine.submit(agent(), text, session=session) for text in ("2", "3")]
        assert [(await engine.service.run(run_id)).status for run_id in later] == ["pending", "pending"]
        gate.open.set()
        results = [await engine.wait(run_id) for run_id in (first, *later)]
    assert [result.text for result in results] == ["one", "two", "three"]
    assert [message.text for message in model.requests[-1].conversation.messages if message.text] == [
        "1", "one", "2", "two", "3",
    ]  # fmt: skip


async def test_runs_of_several_sessions_do_not_wait_for_each_other(tmp_path: Path) -> None:
    gate = Gate()

    @treadle.tool
    async def hold() -> str:
        await gate.pass_through()
        return "held"

    model = ScriptedModel(ask(call("hold")), say("other"), say("first"))
    async with opened(tmp_path, model) as engine:
        first = await engine.submit(agent(tools=[hold]), "1")
        await gate.reached.wait()
        assert (await engine.run(agent(), "2")).text == "other"
        gate.open.set()
        assert (await engine.wait(first)).text == "first"


async def test_a_run_behind_another_can_be_cancelled_without_waiting_for_it(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(Silence("for ever"))) as engine:
        first = await engine.submit(agent(), "1")
        await until(engine, first, "token")
        session = (await engine.service.run(first)).origin.session_id
        second = await engine.submit(agent(), "2", session=session)
        await engine.cancel(second)
        async with asyncio.timeout(HANG_SECONDS):
            assert (await engine.wait(second)).outcome == "cancelled"


# ── Keys ──


async def test_one_key_creates_one_run(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(say("once"))) as engine:
        first = await engine.run(agent(), "go", key="k")
        second = await engine.run(agent(), "go", key="k")
        assert (second.run_id, second.session_id, second.text) == (first.run_id, first.session_id, "once")
        both = await asyncio.gather(*(engine.submit(agent(), "go", key="k") for _ in range(3)))
        assert set(both) == {first.run_id}
        assert len(await engine.service.runs()) == 1


def test_a_request_sent_again_while_its_run_waits_is_not_a_message_to_it() -> None:
    async def scenario() -> None:
        model = ScriptedModel(ScriptedFailure(retry_after=60.0), say("done"))
        async with in_virtual_time(model) as engine:
            first = await engine.submit(agent(), "go", key="k", session="ses_1")
            await until(engine, first, "run_waiting")
            again = await engine.submit(agent(), "go", key="k", session="ses_1")
            await engine.wait(first)
            told = types(await journal(engine, first))
        assert again == first
        assert "message_steered" not in told
        assert [message.text for message in model.requests[-1].conversation.messages] == ["go"]

    virtually(scenario())


async def test_a_request_that_went_to_a_waiting_run_starts_no_run_when_sent_again(tmp_path: Path) -> None:
    model = ScriptedModel(Silence("half"), say("yes"))
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(), "go", session="ses_1")
        await until(engine, run_id, "token")
        await engine.interrupt(run_id)
        await until(engine, run_id, "run_waiting")
        sent = await engine.submit(agent(), "go on", session="ses_1", key="k")
        await engine.wait(run_id)
        again = await engine.submit(agent(), "go on", session="ses_1", key="k")
        assert [sent, again] == [run_id, run_id]
        assert len(await engine.service.runs()) == 1


# ── Refused ──


@treadle.tool
async def known() -> None: ...


async def test_an_invalid_submission_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        engine.add_tools(known)
        with pytest.raises(UnknownModel, match="nobody"):
            await engine.submit(agent(model="nobody/x"), "go")
        with pytest.raises(UsageError, match="did you mean `known`"):  # tools are checked before the model
            await engine.submit(agent(tools=["knwon"], model="nobody/x"), "go")
        with pytest.raises(SizeLimitExceeded, match="128001"):
            await engine.submit(agent(), "x" * 128_001)
        assert await engine.service.runs() == []


async def test_a_message_of_exactly_the_limit_is_accepted(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(say("long"))) as engine:
        assert (await engine.run(agent(), "é" * 128_000)).text == "long"


async def test_a_message_with_invalid_unicode_is_repaired_or_refused(tmp_path: Path) -> None:
    model = ScriptedModel(say("ok"))
    async with opened(tmp_path, model) as engine:
        await engine.run(agent(), "caf\udce9")
    [message] = model.requests[0].conversation.messages
    assert message.text == "caf\ufffd"


async def test_an_engine_that_is_not_open_reports_it(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        with pytest.raises(UsageError, match="open already"):
            await engine.__aenter__()
    with pytest.raises(UsageError, match="not open"):
        await engine.submit(agent(), "go")
