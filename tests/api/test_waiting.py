"""Runs of programs that wait: for an approval, for an answer, or for something that the engine lacks."""

import asyncio
import logging
from pathlib import Path

import pytest

import treadle
from tests.api.programs import HELPER, OPERATOR, deploy, make_engine
from tests.patience import until
from treadle.domain.errors import InvalidState, UsageError
from treadle.testing.models import ScriptedModel, Silence, ask, call, say

ASKS = ask(call("deploy", version="1.2"))
QUESTION = ask(call("clarify", "c1", question="Which one?", options=["1.2", "1.3"]))


async def test_a_run_that_needs_an_approval_returns_and_goes_on_when_it_is_decided(tmp_path: Path) -> None:
    async with make_engine(tmp_path, ASKS, say("It is live.")) as engine:
        waiting = await engine.run(OPERATOR, "Deploy 1.2.")
        assert (waiting.status, waiting.outcome) == ("waiting", None)
        [approval] = waiting.approvals
        assert (approval.tool, approval.arguments, approval.run_id) == (
            "deploy",
            '{"version":"1.2"}',
            waiting.run_id,
        )
        assert await engine.list_approvals() == (approval,)
        assert await engine.wait(waiting.run_id) == waiting  # nothing has changed
        await engine.decide(approval.approval_id, "approve")
        result = await engine.wait(waiting.run_id)
        assert (result.status, result.text, result.approvals) == ("completed", "It is live.", ())


@pytest.mark.parametrize("decision", ["approve", True])
async def test_a_function_decides_at_once(tmp_path: Path, decision: bool) -> None:
    asked: list[str] = []

    async def decide(approval: treadle.ApprovalView) -> bool:
        asked.append(approval.tool)
        return decision

    async with make_engine(tmp_path, ASKS, say("It is live.")) as engine:
        assert (await engine.run(OPERATOR, "Deploy 1.2.", on_approval=decide)).text == "It is live."
    assert asked == ["deploy"]


async def test_a_function_answers_a_question_and_another_denies_the_call(tmp_path: Path) -> None:
    async with make_engine(tmp_path, QUESTION, ASKS, say("Then not.")) as engine:
        result = await engine.run(
            OPERATOR, "Deploy.", on_clarify=lambda question: question.options[0], on_approval=lambda _: "deny"
        )
        assert (result.text, [refused.tool for refused in result.denied]) == ("Then not.", ["deploy"])
        answers = [
            item.answer for item in await engine.transcript(result.run_id) if isinstance(item, treadle.QuestionItem)
        ]
        assert answers == ["1.2"]


async def test_a_question_without_a_function_is_in_the_result(tmp_path: Path) -> None:
    async with make_engine(tmp_path, QUESTION, say("As you say.")) as engine:
        waiting = await engine.run(OPERATOR, "Deploy.", on_approval=lambda _: True)
        [question] = waiting.questions
        assert (waiting.status, question.question, question.options) == ("waiting", "Which one?", ("1.2", "1.3"))
        await engine.answer(question.run_id, question.call_id, "1.3")
        assert (await engine.wait(waiting.run_id)).text == "As you say."


async def test_a_decision_that_is_none_is_refused_and_the_run_still_waits(tmp_path: Path) -> None:
    async with make_engine(tmp_path, ASKS, say("It is live.")) as engine:
        with pytest.raises(TypeError, match='"approve" or "deny"'):
            await engine.run(OPERATOR, "Deploy 1.2.", on_approval=lambda _: "fine")  # pyright: ignore[reportArgumentType, reportReturnType] -- the mistake
        [approval] = await engine.list_approvals()
        with pytest.raises(TypeError, match='"approve" or "deny"'):
            await engine.decide(approval.approval_id, "yes")  # pyright: ignore[reportArgumentType] -- the mistake
        await engine.decide(approval.approval_id, True)
        assert (await engine.wait(approval.run_id)).text == "It is live."
        with pytest.raises(InvalidState):
            await engine.decide(approval.approval_id, True)


async def test_a_run_with_other_callbacks_returns_as_well(tmp_path: Path) -> None:
    said: list[str] = []
    async with make_engine(tmp_path, ASKS, say("It is live."), ASKS, say("Again.")) as engine:
        waiting = await engine.run(OPERATOR, "Deploy 1.2.", treadle.Callbacks(on_stream_delta=said.append))
        assert (waiting.status, len(waiting.approvals)) == ("waiting", 1)
        deciding = treadle.Callbacks(on_approval=lambda _: "approve", on_stream_delta=said.append)
        assert (await engine.run(OPERATOR, "Deploy 1.2.", deciding)).text == "It is live."
    assert "".join(said) == "It is live."


async def test_calls_are_denied_where_the_program_says_so(tmp_path: Path) -> None:
    async with make_engine(tmp_path, ASKS, say("I may not."), approvals="deny") as engine:
        result = await engine.run(OPERATOR, "Deploy 1.2.")
        assert (result.text, len(result.denied)) == ("I may not.", 1)
    with pytest.raises(UsageError, match='"wait" or "deny"'):
        make_engine(tmp_path, approvals="ask")


async def test_an_approval_of_a_child_run_is_in_the_result_of_its_root(tmp_path: Path) -> None:
    lead = treadle.Agent("lead", model="scripted/any", tools=["invoke_agent", deploy])
    replies = (
        ask(call("invoke_agent", agent="operator", message="Deploy 1.2.")),
        ASKS,
        say("It is live."),
        say("Done."),
    )
    async with make_engine(tmp_path, *replies) as engine:
        engine.add_agents(OPERATOR)
        waiting = await engine.run(lead, "Have 1.2 deployed.")
        [approval] = waiting.approvals
        assert approval.parent_run_id == waiting.run_id
        await engine.decide(approval.approval_id, "approve")
        assert (await engine.wait(waiting.run_id)).text == "Done."


async def test_a_program_can_wait_until_others_have_decided(tmp_path: Path) -> None:
    async with make_engine(tmp_path, ASKS, ask(call("deploy", version="1.3")), say("Both are live.")) as engine:
        first = await engine.run(OPERATOR, "Deploy 1.2 and 1.3.")
        waiting = asyncio.create_task(engine.wait(first.run_id, until="ended"))
        await engine.decide(first.approvals[0].approval_id, "approve")
        second = await engine.wait(first.run_id)
        assert second.approvals[0].arguments == '{"version":"1.3"}'
        assert not waiting.done()
        await engine.decide(second.approvals[0].approval_id, "approve")
        assert (await waiting).text == "Both are live."


@pytest.mark.parametrize("stop", ["cancel", "interrupt"])
async def test_a_run_that_is_stopped_while_it_waits_does_not_seem_to_wait_for_people(
    tmp_path: Path, stop: str
) -> None:
    async with make_engine(tmp_path, ASKS, say("It is live.")) as engine:
        run_id = (await engine.run(OPERATOR, "Deploy 1.2.")).run_id
        if stop == "cancel":
            await engine.cancel(run_id)
            assert (await engine.wait(run_id)).outcome == "cancelled"
        else:
            await engine.steer(run_id, "Stop.", "interrupt")
            assert (await engine.wait(run_id)).text == "It is live."  # the call was superseded


# ── Programs that start again ──


async def test_a_run_that_lacks_a_tool_raises_with_the_reason_until_it_is_added(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_engine(tmp_path, ASKS) as engine:
        waiting = await engine.run(OPERATOR, "Deploy 1.2.")
        await engine.decide(waiting.approvals[0].approval_id, "approve")
    with caplog.at_level(logging.WARNING):
        async with make_engine(tmp_path, say("It is live.")) as engine:
            with pytest.raises(treadle.RunUnavailable, match=r"needs the tool `deploy`, .* Add it"):
                await engine.wait(waiting.run_id)
            assert engine.recovered.resumed == ()
            [(run_id, lacks)] = engine.recovered.blocked.items()
            assert (run_id, "`deploy`" in lacks) == (waiting.run_id, True)
            await until(lambda: "cannot continue here" in caplog.text)
            engine.add_tools(deploy)
            assert (await engine.wait(waiting.run_id)).text == "It is live."
            assert engine.recovered == treadle.Recovered((waiting.run_id,), {})


async def test_a_run_whose_child_lacks_something_raises_with_the_reason(tmp_path: Path) -> None:
    lead = treadle.Agent("lead", model="scripted/any", tools=["invoke_agent"])
    helper = treadle.Agent("helper", model="other/any")
    async with make_engine(tmp_path, ask(call("invoke_agent", agent="helper", message="Go."))) as engine:
        engine.add_model("other", ScriptedModel(Silence("I")))
        engine.add_agents(helper)
        run_id = await engine.submit(lead, "Go.")
        while not any(run.agent == "helper" and run.status == "running" for run in await engine.list_runs()):  # noqa: ASYNC110 -- nothing announces it
            await asyncio.sleep(0.01)
    async with make_engine(tmp_path, say("Done.")) as engine:
        with pytest.raises(treadle.RunUnavailable, match="no provider is called `other`"):
            await engine.wait(run_id)
        engine.add_model("other", ScriptedModel(say("Helped.")))
        assert (await engine.wait(run_id)).text == "Done."


async def test_old_runs_are_left_alone_until_one_is_resumed(tmp_path: Path) -> None:
    async with make_engine(tmp_path, Silence(), Silence()) as engine:
        old = {await engine.submit(HELPER, text) for text in ("One.", "Two.")}
    async with make_engine(tmp_path, say("New."), say("Old."), resume=False) as engine:
        assert (await engine.run(HELPER, "Hello.")).text == "New."
        assert {run.run_id for run in await engine.list_runs(unfinished=True)} == old
        first, second = sorted(old)
        await engine.resume(second)
        assert (await engine.wait(second)).text == "Old."
        assert [run.run_id for run in await engine.list_runs(unfinished=True)] == [first]
