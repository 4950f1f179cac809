"""Runs are evaluated before they end: scored, sent back, diagnosed. The evaluation never fails a run."""

import asyncio
from typing import Any

from tests.engine.running import agent, in_virtual_time, journal, types, virtually
from tests.engine.test_children import children_of, first_said, look, of, results
from treadle.domain.events import AgentSpawn, ErrorAnalyzed, QualityScored, RunQueued, RunStart, ToolCallError
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptedFailure, ScriptStep, ask, call, say

CHECKED: dict[str, Any] = {"quality": {"checker": "quality-checker"}}
CAREFUL: dict[str, Any] = {"quality": {"checker": "quality-checker", "minimum": 0.7, "retries": 2}}
ANALYZED: dict[str, Any] = {"errors": {"analyzer": "error-analyzer"}}


def is_judge(request: ModelRequest) -> bool:
    return first_said(request).startswith("<task>")


def make_judge_policy(*given: str) -> "Any":
    """A model that answers `answer N`, and judges with each of these in turn."""
    left = list(given)

    def policy(request: ModelRequest) -> ScriptStep:
        if is_judge(request):
            return say(left.pop(0))
        asked = sum(message.role == "user" for message in request.conversation.messages)
        return say(f"answer {asked}")

    return policy


def test_an_answer_is_scored_by_a_separate_run_without_tools() -> None:
    async def work() -> None:
        model = FunctionModel(make_judge_policy('{"score": 0.9, "reasons": "complete"}'))
        async with in_virtual_time(model) as engine:
            result = await engine.run(agent(tools=["agent_spawn"], **CHECKED), "what is it?")
            assert (result.outcome, result.text) == ("completed", "answer 1")
            events = await journal(engine, result.run_id)
            [scored], [spawn] = of(events, QualityScored), of(events, AgentSpawn)
            assert (scored.score, scored.reasons, scored.run_id) == (0.9, "complete", spawn.run_id)
            assert types(events)[-1] == "run_end"
            judge = await journal(engine, spawn.run_id)
            [queued], [start] = of(judge, RunQueued), of(judge, RunStart)
            assert (queued.agent.name, start.tools, queued.agent.model) == ("quality-checker", (), "scripted/x")

    virtually(work())


def test_an_answer_below_the_minimum_is_sent_back_with_the_reasons() -> None:
    async def work() -> None:
        model = FunctionModel(
            make_judge_policy('{"score": 0.2, "reasons": "no source"}', '{"score": 0.8, "reasons": "good"}')
        )
        async with in_virtual_time(model) as engine:
            result = await engine.run(agent(**CAREFUL), "what is it?")
            assert (result.outcome, result.text) == ("completed", "answer 2")
            events = await journal(engine, result.run_id)
            first, second = of(events, QualityScored)
            assert "no source" in first.note
            assert (second.score, second.note) == (0.8, "")

    virtually(work())


def test_an_answer_is_sent_back_a_limited_number_of_times() -> None:
    async def work() -> None:
        bad = '{"score": 0.1, "reasons": "thin"}'
        async with in_virtual_time(FunctionModel(make_judge_policy(bad, bad, bad))) as engine:
            result = await engine.run(agent(**CAREFUL), "what is it?")
            assert (result.outcome, result.text) == ("completed", "answer 3")
            scored = of(await journal(engine, result.run_id), QualityScored)
            assert [bool(each.note) for each in scored] == [True, True, False]
            assert scored[-1].reasons == "thin"

    virtually(work())


def test_a_retry_that_fails_keeps_the_first_answer() -> None:
    def policy(request: ModelRequest) -> ScriptStep:
        if is_judge(request):
            return say('{"score": 0.1, "reasons": "thin"}')
        asked = sum(message.role == "user" for message in request.conversation.messages)
        return say("answer 1") if asked == 1 else ScriptedFailure(retryable=False)

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            result = await engine.run(agent(**CAREFUL), "what is it?")
            assert (result.outcome, result.text) == ("completed", "answer 1")

    virtually(work())


def test_an_invalid_verdict_changes_nothing() -> None:
    async def sleeps(request: ModelRequest) -> ScriptStep:
        if is_judge(request):
            await asyncio.sleep(10_000)
        return say("answer")

    wrong = ("no JSON at all", '{"score": 7, "reasons": ""}', '{"score": "high"}')
    judges: list[Any] = [FunctionModel(make_judge_policy(*[each] * 3)) for each in wrong]
    judges.append(
        FunctionModel(lambda request: ScriptedFailure(retryable=False) if is_judge(request) else say("answer"))
    )
    judges.append(FunctionModel(sleeps))

    async def work(model: Any) -> None:
        async with in_virtual_time(model) as engine:
            result = await engine.run(agent(**CAREFUL), "what is it?")
            assert result.outcome == "completed"
            assert result.text.startswith("answer")
            [scored] = of(await journal(engine, result.run_id), QualityScored)
            assert scored.score is None
            assert scored.reasons
            assert result.metrics.duration_ms < 200_000

    for model in judges:
        virtually(work(model))


def test_a_missing_checker_is_reported() -> None:
    async def work() -> None:
        async with in_virtual_time(FunctionModel(lambda _: say("answer"))) as engine:
            result = await engine.run(agent(quality={"checker": "nobody"}), "what is it?")
            [scored] = of(await journal(engine, result.run_id), QualityScored)
            assert (result.outcome, scored.score) == ("completed", None)
            assert "No agent is called `nobody`" in scored.reasons
            assert await children_of(engine, result.run_id) == []

    virtually(work())


def test_a_failed_run_is_diagnosed_and_stays_failed() -> None:
    def policy(request: ModelRequest) -> ScriptStep:
        if is_judge(request):
            assert "max_steps" in first_said(request)
            return say("It looked for ever.")
        return ask(call("agent_spawn", message=f"x {results(request)}", model="none/such"))

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            hero = agent(tools=["agent_spawn"], limits={"max_steps": 2}, **ANALYZED)
            result = await engine.run(hero, "what is it?")
            assert result.outcome == "max_steps"
            [analyzed] = of(await journal(engine, result.run_id), ErrorAnalyzed)
            assert analyzed.diagnosis == "It looked for ever."

    virtually(work())


def test_a_message_during_judging_is_answered_first() -> None:
    async def policy(request: ModelRequest) -> ScriptStep:
        if is_judge(request):
            await asyncio.sleep(5)
            return say('{"score": 1, "reasons": "fine"}')
        asked = sum(message.role == "user" for message in request.conversation.messages)
        return say(f"answer {asked}")

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            run_id = await engine.submit(agent(**CHECKED), "what is it?")
            await asyncio.sleep(1)
            await engine.steer(run_id, "and that?")
            result = await engine.wait(run_id)
            assert (result.outcome, result.text) == ("completed", "answer 2")
            scored = of(await journal(engine, run_id), QualityScored)
            assert [each.score for each in scored] == [None, 1]

    virtually(work())


def test_a_cancel_during_judging_ends_the_run_and_the_judge() -> None:
    async def policy(request: ModelRequest) -> ScriptStep:
        if is_judge(request):
            await asyncio.sleep(50)
        return say("answer")

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            run_id = await engine.submit(agent(**CHECKED), "what is it?")
            await asyncio.sleep(1)
            await engine.cancel(run_id)
            assert (await engine.wait(run_id)).outcome == "cancelled"
            assert [record.outcome for record in await engine.service.runs()] == ["cancelled", "cancelled"]

    virtually(work())


def test_open_calls_have_a_result_before_the_run_is_judged() -> None:
    def policy(request: ModelRequest) -> ScriptStep:
        if is_judge(request):
            return say("Nobody answered.")
        return ask(call("look", "c1", at="x"), call("look", "c2", at="y"))

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            rules = {"default": "ask", "via": "api", "expires": 5, "on_expiry": "end"}
            run_id = await engine.submit(agent(tools=[look], approvals=rules, **ANALYZED), "what is it?")
            result = await engine.wait(run_id, until="ended")
            assert (result.outcome, result.diagnosis) == ("approval_expired", "Nobody answered.")
            events = await journal(engine, result.run_id)
            assert sorted(data.call_id for data in of(events, ToolCallError)) == ["c1", "c2"]
            [spawn] = [event for event in events if isinstance(event.data, AgentSpawn)]
            assert all(event.sequence < spawn.sequence for event in events if event.type == "tool_call_error")

    virtually(work())


def test_a_retry_without_remaining_budget_keeps_the_first_answer() -> None:
    async def work() -> None:
        bad = '{"score": 0.1, "reasons": "thin"}'
        async with in_virtual_time(FunctionModel(make_judge_policy(bad))) as engine:
            hero = agent(limits={"max_steps": 2}, budget="shared", **CAREFUL)
            result = await engine.run(hero, "what is it?")
            assert (result.outcome, result.text, result.score) == ("completed", "answer 1", 0.1)
            [scored] = of(await journal(engine, result.run_id), QualityScored)
            assert scored.note == "", "it was not sent back"

    virtually(work())


def test_a_diagnosis_without_budget_is_skipped_and_reported() -> None:
    async def work() -> None:
        async with in_virtual_time(FunctionModel(lambda _: say("answer"))) as engine:
            result = await engine.run(agent(quotas={"max_llm_tokens_per_hour": 10}, **ANALYZED), "what is it?")
            assert result.outcome == "quota_exceeded"
            [analyzed] = of(await journal(engine, result.run_id), ErrorAnalyzed)
            assert analyzed.reason.startswith("It was not asked: Agent `hero` may use 10 model tokens")
            assert await children_of(engine, result.run_id) == []

    virtually(work())


def test_an_interrupt_during_judging_parks_both_runs_until_resumed() -> None:
    looked = 0

    async def policy(request: ModelRequest) -> ScriptStep:
        nonlocal looked
        if not is_judge(request):
            return say("answer")
        looked += 1
        await asyncio.sleep(10 if looked == 1 else 0)
        return say('{"score": 1, "reasons": "fine"}')

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            run_id = await engine.submit(agent(**CHECKED), "what is it?")
            await asyncio.sleep(1)
            await engine.interrupt(run_id)
            await asyncio.sleep(50)
            records = await engine.service.runs()
            assert [record.waiting_for for record in records] == ["interrupted"] * 2
            await engine.resume(run_id)
            result = await engine.wait(run_id)
            assert (result.outcome, result.text, result.score) == ("completed", "answer", 1)

    virtually(work())


def test_a_run_that_fails_to_answer_a_later_message_has_failed() -> None:
    """The answer that was sent back does not answer a message that came after it."""

    async def policy(request: ModelRequest) -> ScriptStep:
        if is_judge(request):
            return say('{"score": 0.1, "reasons": "thin"}')
        asked = sum(message.role == "user" for message in request.conversation.messages)
        if asked == 1:
            return say("answer 1")
        await asyncio.sleep(5)
        return ScriptedFailure(retryable=False)

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            run_id = await engine.submit(agent(**CAREFUL), "what is it?")
            await asyncio.sleep(2)
            await engine.steer(run_id, "and that?", "interrupt")
            assert (await engine.wait(run_id)).outcome == "model_error"

    virtually(work())
