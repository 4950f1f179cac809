"""Replies that a refusal or a filter ended, conversations that a filter rejects, replies that filled the context
window, and answers that no reader can see."""

from pathlib import Path
from typing import Any

import pytest

from tests import anthropic_wire, responses_wire
from tests.engine.running import agent, in_virtual_time, journal, opened, virtually
from tests.engine.test_compaction import UNCOUNTED, Recorder, is_summary, look
from tests.engine.test_cut_replies import Session, in_sessions
from tests.fake_endpoint import DONE, Answer, Behaviour, delta, event, refuses, usage
from tests.observed import all_told
from treadle.domain import events as e
from treadle.domain.agents import Limits
from treadle.domain.messages import Text
from treadle.domain.providers import ApiMode
from treadle.domain.runs import Usage
from treadle.ports.model import Completed, Failed, ModelRequest, Show
from treadle.testing.models import FunctionModel, ScriptedFailure, ScriptedModel, ScriptStep, ask, call, say

HALF = "Half of an"


def _chat(word: str, **fields: Any) -> Answer:
    return Answer([delta(role="assistant", content=HALF), delta(finish=word, **fields), usage(), DONE])


def _error(status: int, code: str, message: str) -> Answer:
    return refuses(status, {"error": {"code": code, "message": message}})


BLOCKED = event({"choices": [], "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})
REFUSALS: dict[str, tuple[ApiMode, Behaviour, str, str]] = {
    "Anthropic": (
        "anthropic_messages",
        Answer(anthropic_wire.stream(anthropic_wire.text(0, HALF), stop="refusal")),
        HALF,
        "The model refused",
    ),
    "Bedrock": ("chat_completions", _chat("guardrail_intervened"), HALF, "guardrail_intervened"),
    "Gemini, safety": ("chat_completions", _chat("SAFETY"), HALF, "SAFETY"),
    "Gemini, recitation": ("chat_completions", _chat("content_filter: RECITATION"), HALF, "RECITATION"),
    "Gemini, a blocked prompt": ("chat_completions", Answer([BLOCKED, DONE]), "", "PROHIBITED_CONTENT"),
    "OpenAI": ("chat_completions", _chat("stop", refusal=" answer."), f"{HALF} answer.", "The model refused"),
    "Azure": ("chat_completions", _chat("content_filter"), HALF, "filtered the reply"),
    "Zhipu": ("chat_completions", _chat("sensitive"), HALF, "sensitive"),
    "Responses": (
        "responses",
        Answer(
            responses_wire.wire(
                responses_wire.CREATED,
                *responses_wire.told(0, responses_wire.message(HALF)),
                responses_wire.incomplete_event(responses_wire.message(HALF), reason="content_filter"),
            )
        ),
        HALF,
        "filtered the reply",
    ),
    "Azure, a blocked prompt": (
        "chat_completions",
        _error(400, "content_filter", "The response was filtered."),
        "",
        "The response was filtered.",
    ),
    "OpenRouter, a blocked prompt": (
        "chat_completions",
        _error(403, "403", "This model requires moderation. Your input was flagged for violence."),
        "",
        "Your input was flagged",
    ),
    "MiniMax, a blocked prompt": (
        "chat_completions",
        Answer([event({"base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}})]),
        "",
        "new_sensitive",
    ),
}


def _whole(body: dict[str, Any], status: int = 200) -> Answer:
    """Return the single document of a server that does not stream."""
    return refuses(status, body)


def _choice(finish: str, **message: Any) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return _whole({"id": "1", "object": "chat.completion", "choices": [choice]})


UNSTREAMED: dict[str, tuple[ApiMode, Behaviour, str, str]] = {
    "Anthropic": (
        "anthropic_messages",
        _whole(
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "text", "text": HALF}],
                "stop_reason": "refusal",
                "usage": {"input_tokens": 10, "output_tokens": 5},
            }
        ),
        HALF,
        "The model refused",
    ),
    "Azure": ("chat_completions", _choice("content_filter", content=HALF), HALF, "filtered the reply"),
    "Gemini": ("chat_completions", _choice("SAFETY", content=HALF), HALF, "SAFETY"),
    "OpenAI": (
        "chat_completions",
        _choice("stop", content=None, refusal="I will not."),
        "I will not.",
        "The model refused",
    ),
    "Responses, filtered": (
        "responses",
        _whole(
            responses_wire.response(
                "incomplete",
                (responses_wire.message(HALF),),
                responses_wire.usage(),
                incomplete_details={"reason": "content_filter"},
            )
        ),
        HALF,
        "filtered the reply",
    ),
    "Responses, refused": (
        "responses",
        _whole(responses_wire.response("completed", (responses_wire.refusal("I will not."),))),
        "I will not.",
        "The model refused",
    ),
}


@pytest.mark.parametrize("refusals", [REFUSALS, UNSTREAMED], ids=["streamed", "unstreamed"])
def test_every_refusal_ends_the_run_as_refused_with_what_was_received(
    tmp_path: Path, refusals: dict[str, tuple[ApiMode, Behaviour, str, str]]
) -> None:
    async def work(session: Session) -> None:
        for name, (mode, reply, text, quoted) in refusals.items():
            end = (await session.survives(mode, reply, tools=False))[-1]
            assert isinstance(end, e.RunEnd)
            assert (end.outcome, end.status, end.text) == ("refused", "failed", text), name
            assert quoted in end.reason, (name, end.reason)
            assert "another model" in end.next

    in_sessions(tmp_path, work)


def test_an_account_that_is_blocked_is_not_a_refusal(tmp_path: Path) -> None:
    blocked = _error(403, "forbidden", "Your account was flagged for a violation of our usage policies.")

    async def work(session: Session) -> None:
        end = (await session.survives("chat_completions", blocked, tools=False))[-1]
        assert end.outcome == "model_error"

    in_sessions(tmp_path, work)


def test_a_refusal_asks_no_fallback_model_and_no_analyzer() -> None:
    filtered = ScriptedFailure("invalid_request", "a filter rejects it", False, next_model=True, filtered=True)

    async def scenario() -> None:
        for step in (say("I will not.", stop="refusal"), filtered):
            async with in_virtual_time(ScriptedModel(step)) as engine:
                engine.add_model("other", ScriptedModel())
                hero = agent(fallbacks=["other/x"])
                result = await engine.run(hero, "Do it.")
                kinds = {event.type for event in await journal(engine, result.run_id)}
            assert result.outcome == "refused"
            assert not kinds & {"llm_fallback", "breaker_opened", "error_analyzed", "agent_spawn"}

    virtually(scenario())


@pytest.mark.parametrize("text", ["I will not do that.", ""])
def test_the_model_of_a_parent_is_told_that_its_child_was_refused(text: str) -> None:
    told: list[str] = []

    def policy(request: ModelRequest) -> ScriptStep:
        if request.conversation.messages[0].text == "task":
            return say(text, stop="refusal")
        last = request.conversation.messages[-1]
        if last.role != "tool":
            return ask(call("agent_spawn", message="task"))
        told.append(all_told(last.parts)[0].content)
        return say("The child was refused.")

    async def scenario() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            result = await engine.run(agent(tools=["agent_spawn"]), "go")
            [end] = [
                each.data for each in await journal(engine, result.run_id) if isinstance(each.data, e.AgentEnd)
            ]
        assert (result.outcome, result.text) == ("completed", "The child was refused.")
        assert end.outcome == "refused"

    virtually(scenario())
    [result] = told
    assert "The model refused" in result
    assert text in result


def test_a_message_that_came_in_the_meantime_is_answered(tmp_path: Path) -> None:
    from tests.core.run_scenario import RunScenario
    from treadle.core.steps import CallModel, Finish
    from treadle.domain.messages import user

    scenario = RunScenario()
    scenario.asks()
    scenario.replies(text="No.", stop="refusal")
    assert isinstance(scenario.decision(), Finish)
    scenario.happens(e.MessageSteered(user("Then do this."), "steer"))
    assert isinstance(scenario.decision(), CallModel)


# ── A full context window ──────────────────────────────────────────────────────────────────────────


class FillsWindow(Recorder):
    """Replies that fill the window until the conversation is shorter."""

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        end = await super().reply(request, show)
        if isinstance(end, Completed) and end.stop == "max_tokens":
            return Completed(end.parts, "max_tokens", end.usage, window_full=True)
        return end


async def test_a_reply_that_fills_the_window_is_continued_after_a_summary(tmp_path: Path) -> None:
    def answer(request: ModelRequest, model: Recorder) -> ScriptStep:
        if is_summary(request):
            return say("## Done\nlooked", usage=UNCOUNTED)
        if len(model.asked) < 8:
            return ask(call("look", f"c{len(model.asked)}", at=len(model.asked)), usage=UNCOUNTED)
        if len(model.asked[-1]) < len(model.asked[7]):
            return say("and the other.", usage=UNCOUNTED)
        return say("One half ", stop="max_tokens", usage=UNCOUNTED)

    async with opened(tmp_path, FillsWindow(answer)) as engine:
        result = await engine.run(agent(tools=[look], limits=Limits(context_window=20_000)), "Look around.")
        types = [event.type for event in await journal(engine, result.run_id)]
    assert (result.outcome, result.text) == ("completed", "One half and the other.")
    assert types.count("continuation") == 1
    assert types.index("context_compacted") < types.index("continuation")


@pytest.mark.parametrize(
    ("word", "is_full"), [("model_context_window_exceeded", True), ("length", False), ("max_tokens", False)]
)
def test_a_full_window_is_read_from_the_finish_word(tmp_path: Path, word: str, is_full: bool) -> None:
    async def work(session: Session) -> None:
        chat = await session.survives("chat_completions", _chat(word), tools=False)
        stream = anthropic_wire.stream(anthropic_wire.text(0, HALF), stop=word)
        anthropic = await session.survives("anthropic_messages", Answer(stream), tools=False)
        for events in (chat, anthropic):
            first = next(data for data in events if isinstance(data, e.LlmResponse))
            assert (first.stop, first.window_full) == ("max_tokens", is_full)

    in_sessions(tmp_path, work)


# ── Answers that no reader can see ─────────────────────────────────────────────────────────────────

UNSEEN = (
    "\u200b",
    " \u200b\n\u200d ",
    "\ufeff",
    "\u2060\u2060",
    "\u00ad",
    "\x00\x07",
    "\u2800",
    "\u3164",
    "\u00a0",
)


def test_an_answer_without_visible_characters_is_empty() -> None:
    async def scenario() -> None:
        for text in UNSEEN:
            async with in_virtual_time(_says(text)) as engine:
                result = await engine.run(agent(), "Hello?")
            assert result.outcome == "empty", repr(text)
        for text in ("\U0001f44d", "\u200b.", "\u0645", "0"):
            async with in_virtual_time(_says(text)) as engine:
                assert (await engine.run(agent(), "Hello?")).outcome == "completed", repr(text)

    virtually(scenario())


def _says(text: str) -> Any:
    class Says:
        async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
            return Completed((Text(text),), "end_turn", Usage())

    return Says()
