"""The one table of finish words, and what each word means for the calls of a reply, in all three wire formats."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests import anthropic_wire, responses_wire
from tests.fake_endpoint import DONE, Answer, delta, event, fragment
from tests.models import chat
from tests.models.chat import completed
from treadle.domain.messages import ToolUse
from treadle.models.finish import Ending, ReplyEnd, classify_finish_word
from treadle.ports.model import Completed, Failed

WORDS: dict[ReplyEnd, tuple[str, ...]] = {
    "ended": ("stop", "STOP", "end_turn", "stop_sequence", "eos", "eos_token", "COMPLETE", "FinishReason.STOP"),
    "tools": ("tool_calls", "TOOL_CALLS", "tool-calls", "toolUse", "function_call", "tool_use"),
    "cut": (
        "length", "LENGTH", "max_tokens", "MAX_TOKENS", "model_length", "max_output_tokens",
        "FINISH_REASON_MAX_TOKENS",
        "model_context_window_exceeded", "token_limit_reached", "truncated_by_server", "pause_turn",
    ),
    "filtered": (
        "content_filter", "CONTENT_FILTER", "content-filter", "SAFETY", "RECITATION", "PROHIBITED_CONTENT", "SPII",
        "refusal", "sensitive", "guardrail_intervened", "BLOCKLIST", "IMAGE_SAFETY", "blocked_by_policy",
    ),
    "malformed": ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "malformed_tool_use", "TOO_MANY_TOOL_CALLS"),
    "failed": (
        "error", "ERROR", "abort", "aborted", "insufficient_system_resource", "network_error", "cancelled",
        "timeout",
        "server_error", "upstream_failure",
    ),
    "unknown": ("flux_capacitor", "OTHER", "null"),
}  # fmt: skip
"""From the references of OpenAI, Anthropic, Google, Mistral (`model_length`), DeepSeek
(`insufficient_system_resource`), Zhipu (`sensitive`, `network_error`), Bedrock (`guardrail_intervened`),
vLLM (`abort`) and OpenRouter (`error`)."""
EACH = [(end, word) for end, words in WORDS.items() for word in words]


@pytest.mark.parametrize(("end", "word"), EACH)
def test_finish_words_are_classified(end: ReplyEnd, word: str) -> None:
    assert classify_finish_word(word) == end


@pytest.mark.parametrize(("end", "word"), EACH)
def test_a_reply_in_three_formats_runs_its_calls_only_if_it_ended_well(end: ReplyEnd, word: str) -> None:
    for last in _calls_that_end_with(word):
        if end in ("ended", "tools"):
            assert isinstance(last, Completed)
            assert [part.name for part in last.parts if isinstance(part, ToolUse)] == ["add"]
            assert last.stop == "tool_use"
        elif end in ("cut", "filtered"):
            assert isinstance(last, Completed)
            assert not any(isinstance(part, ToolUse) for part in last.parts)
            assert (last.stop, last.dropped_calls) == ("max_tokens" if end == "cut" else "refusal", ("add",))
        else:
            assert isinstance(last, Failed)
            assert last.retryable
            assert word in last.message


def _calls_that_end_with(word: str) -> Iterator[Completed | Failed]:
    call = delta(tool_calls=[fragment(0, "c", "add", '{"a": 1}')])
    yield _last(chat.events_of(Answer([call, delta(finish=word), DONE])))
    yield _last(
        anthropic_wire.events_of(
            Answer(anthropic_wire.stream(anthropic_wire.asks(0, "c", "add", '{"a": 1}'), stop=word))
        )
    )


def _last(events: list[Any]) -> Completed | Failed:
    assert isinstance(events[-1], Completed | Failed)
    return events[-1]


@pytest.mark.parametrize("reason", [*WORDS["cut"], "flux_capacitor"])
def test_an_incomplete_response_is_cut_for_any_reason(reason: str) -> None:
    item = responses_wire.call("c", "add", '{"a": 1}')
    events = (
        responses_wire.CREATED,
        *responses_wire.told(0, item),
        responses_wire.incomplete_event(item, reason=reason),
    )
    last = responses_wire.completed(*events)
    assert (last.parts, last.stop, last.dropped_calls) == ((), "max_tokens", ("add",))


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (("length", "stop"), "cut"),
        (("stop", "length"), "cut"),
        (("tool_calls", "content_filter"), "filtered"),
        (("content_filter", "tool_calls"), "filtered"),
        (("length", "error"), "failed"),
        (("stop", "tool_calls"), "tools"),
        (("flux_capacitor", "stop"), "unknown"),
    ],
)
def test_the_most_cautious_of_several_finish_words_counts(words: tuple[str, ...], end: ReplyEnd) -> None:
    ending = Ending()
    for word in words:
        ending.add(word)
    assert ending.end == end


def test_a_reply_that_says_length_and_then_stop_was_cut() -> None:
    call = delta(tool_calls=[fragment(0, "c", "add", '{"a": 1}')])
    last = completed(call, delta(finish="length"), delta(finish="stop"), DONE)
    assert (last.parts, last.stop) == ((), "max_tokens")


def test_the_error_of_the_provider_behind_a_gateway_decides() -> None:
    call = {"tool_calls": [fragment(0, "c", "add", '{"a": 1}')]}
    for native, runs in (("STOP", True), ("completed", True), ("flux", True), ("MAX_TOKENS", False)):
        choice = {"delta": call, "finish_reason": "tool_calls", "native_finish_reason": native}
        assert bool(completed(event({"choices": [choice]}), DONE).parts) is runs


def test_an_error_inside_a_choice_is_a_failed_attempt() -> None:
    wrong = {"code": 502, "message": "Upstream idle timeout"}
    choice = {"delta": {"content": "x"}, "finish_reason": "error", "error": wrong}
    failure = chat.broken(delta(content="half"), event({"choices": [choice]}), DONE)
    assert (failure.kind, failure.retryable, failure.status) == ("server", True, 502)
    assert "Upstream idle timeout" in failure.message


def test_a_reply_without_a_finish_word_is_not_complete() -> None:
    failure = chat.broken(delta(tool_calls=[fragment(0, "c", "add", '{"a": 1}')]), DONE)
    assert (failure.kind, failure.retryable) == ("malformed", True)
