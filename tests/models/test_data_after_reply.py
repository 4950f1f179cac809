"""What follows the event that ends a reply does not belong to it, in any format: it is not shown and not kept."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests import anthropic_wire, responses_wire
from tests.fake_endpoint import DONE, Answer, Behaviour, delta, event, fragment, usage
from tests.models import chat
from tests.models.chat import ModelEvent
from treadle.domain.messages import Text
from treadle.domain.runs import Usage
from treadle.ports.model import Completed, TextDelta


class ReplyWithLateData(NamedTuple):
    """A whole reply in one format, and what comes too late."""

    events_of: Callable[[Behaviour], list[ModelEvent]]
    reply: list[bytes]
    late: list[bytes]


LATE_CALL: dict[str, Any] = {"call_id": "late", "name": "add", "arguments": "{}"}
FORMATS = {
    "chat_completions": ReplyWithLateData(
        chat.events_of,
        [delta(content="hi"), delta(finish="stop"), usage(10, 5), DONE],
        [
            delta(content=" late", reasoning_content="late"),
            delta(tool_calls=[fragment(0, "late", "add", "{}")], finish="tool_calls"),
            usage(99, 99),
            event({"error": {"message": "late"}}),
            event(b"not JSON"),
        ],
    ),
    "anthropic_messages": ReplyWithLateData(
        anthropic_wire.events_of,
        anthropic_wire.stream(anthropic_wire.text(0, "hi")),
        [
            anthropic_wire.more(0, "text_delta", text=" late"),
            *anthropic_wire.asks(1, "late", "add", "{}"),
            anthropic_wire.ends("tool_use", tokens=99),
            anthropic_wire.event("error", error={"type": "overloaded_error", "message": "late"}),
            event(b"not JSON"),
        ],
    ),
    "responses": ReplyWithLateData(
        responses_wire.events_of,
        responses_wire.wire(*responses_wire.replied(responses_wire.message("hi"), cuts=())),
        responses_wire.wire(
            responses_wire.text_delta(" late"),
            *responses_wire.told(1, responses_wire.call(**LATE_CALL)),
            responses_wire.completed_event(usage=responses_wire.usage(99, 99)),
            responses_wire.failed_event("late", "server_error"),
            event(b"not JSON"),
        ),
    ),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("together", [True, False], ids=["in one piece", "in pieces"])
def test_data_after_the_end_is_ignored(name: str, together: bool) -> None:
    ended = FORMATS[name]
    pieces = [*ended.reply, *ended.late]
    events = ended.events_of(Answer([b"".join(pieces)] if together else pieces))
    assert events == [TextDelta("hi"), Completed((Text("hi"),), "end_turn", Usage(10, 5))]


@pytest.mark.parametrize("name", FORMATS)
def test_a_body_that_breaks_off_after_the_end_is_a_complete_reply(name: str) -> None:
    ended = FORMATS[name]
    events = ended.events_of(Answer([*ended.reply, *ended.late], ending="cut"))
    assert isinstance(events[-1], Completed)
