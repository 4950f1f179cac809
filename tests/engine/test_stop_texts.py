"""Stop texts end a reply of any model."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.running import agent, journal, opened
from treadle.domain.events import LlmResponse, ToolCallStart
from treadle.engine.stop_texts import StopTextFilter, find_stop_text
from treadle.testing.models import ScriptedModel, ask, call, say


@given(
    st.lists(st.text("abE", max_size=5), max_size=8), st.lists(st.text("abE", min_size=1, max_size=3), min_size=1)
)
def test_what_is_shown_does_not_depend_on_the_pieces(pieces: list[str], stops: list[str]) -> None:
    found = StopTextFilter(stops)
    shown = "".join(map(found.add, pieces)) + found.flush()
    whole = "".join(pieces)
    place = find_stop_text(whole, stops)
    if place is None:
        assert shown == found.text == whole
    else:  # a shorter prefix of the whole may already contain a stop text that begins later
        assert found.is_found
        assert whole.startswith(shown)
        assert find_stop_text(shown, stops) is None


@pytest.mark.parametrize(("said", "text"), [("One.STOP two", "One."), ("One ST", "One ST"), ("One", "One")])
async def test_a_reply_ends_at_a_stop_text(tmp_path: Path, said: str, text: str) -> None:
    async with opened(tmp_path, ScriptedModel(say(said))) as engine:
        result = await engine.run(agent(model_settings={"stop": ["STOP"]}), "go")
        assert (result.outcome, result.text) == ("completed", text)
        [reply] = [
            event.data for event in await journal(engine, result.run_id) if isinstance(event.data, LlmResponse)
        ]
        assert (reply.stop, reply.usage.estimated) == ("end_turn", said != text)


async def test_calls_after_a_stop_text_do_not_run(tmp_path: Path) -> None:
    reply = ask(call("glob", pattern="*"), text="Done.STOP")
    async with opened(tmp_path, ScriptedModel(reply)) as engine:
        result = await engine.run(agent(tools=["glob"], model_settings={"stop": ["STOP"]}), "go")
        assert result.text == "Done."
        assert not [
            event for event in await journal(engine, result.run_id) if isinstance(event.data, ToolCallStart)
        ]
