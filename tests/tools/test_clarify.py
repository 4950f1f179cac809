"""clarify."""

import pytest

from treadle.domain.ids import RunId, SessionId
from treadle.ports.tool import InvalidArguments, Tool, ToolContext
from treadle.tools.clarify import clarify

CONTEXT = ToolContext(RunId("run_1"), SessionId("ses_1"), "c1", "run_1/c1", lambda text: None)


def test_clarify_declares_that_it_asks_a_person() -> None:
    made: Tool = clarify
    spec = made.spec
    assert (spec.name, spec.asks_a_person, spec.interactive, spec.effect) == ("clarify", True, True, "none")
    assert spec.schema["required"] == ["question"]
    assert "Only for a decision that is theirs" in spec.description


def test_the_question_and_the_options_are_parsed() -> None:
    arguments = clarify.parse('{"question": "Which?", "options": ["a", "b"]}')
    assert (arguments.question, arguments.options) == ("Which?", ("a", "b"))
    assert clarify.parse('{"question": "Which?"}').options == ()
    with pytest.raises(InvalidArguments):
        clarify.parse('{"question": ""}')


async def test_the_tool_is_never_run() -> None:
    with pytest.raises(RuntimeError, match="never run"):
        await clarify.run(clarify.parse('{"question": "Which?"}'), CONTEXT)
