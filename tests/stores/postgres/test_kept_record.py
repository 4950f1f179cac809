"""The record that is kept with a summary, on PostgreSQL: a compacted session continues in another process."""

from pathlib import Path
from typing import Any

from bench.context import text_of

import treadle
from tests.engine.running import agent, journal
from tests.engine.test_compaction import UNCOUNTED
from tests.stores.postgres.test_engines import engine
from treadle.core.context.compaction import INSTRUCTIONS
from treadle.core.context.kept_record import USER_MESSAGES
from treadle.domain.events import ContextCompacted, ToolCallEnd
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say

DEMAND = "You must never rename the table orders."
LONG = "This is how it began. " * 60 + DEMAND


@treadle.tool(effect="read")
def look(at: int) -> str:
    """Look."""
    return f"seen {at}. " + "The service waits for requests. " * 150


def read_texts(request: ModelRequest) -> str:
    return "\n".join(map(text_of, request.conversation.messages))


def work(request: ModelRequest) -> ScriptStep:
    """Read a file and look around until the conversation was summarised."""
    if request.preamble.system.startswith(INSTRUCTIONS):
        return say("## Done\n- looked around", usage=UNCOUNTED)
    messages = request.conversation.messages
    text = read_texts(request)
    if "word for word" in text or messages[-1].text in ("Hello.", LONG):
        return say("Enough.", usage=UNCOUNTED)
    turns = sum(message.role == "tool" for message in messages)
    step = call("read_file", "r1", path="a.txt") if turns == 0 else call("look", f"c{turns}", at=turns)
    return ask(step, usage=UNCOUNTED)


def remember(request: ModelRequest) -> ScriptStep:
    """Recall what the record names."""
    if request.conversation.messages[-1].role == "tool":
        return say("I know.", usage=UNCOUNTED)
    return ask(call("recall", "k1", call_id=USER_MESSAGES), call("recall", "k2", call_id="r1"), usage=UNCOUNTED)


async def test_the_record_and_what_it_recalls_reach_another_process(url: str, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a.txt").write_text("the content of the file\n")
    seen: list[str] = []

    def second(request: ModelRequest) -> ScriptStep:
        seen.append(read_texts(request))
        return remember(request)

    settings: dict[str, Any] = {
        "tools": ["read_file", "recall", look],
        "workspace": str(workspace),
        "limits": {"context_window": 20_000},
    }

    async with engine(url, tmp_path, FunctionModel(work)) as here:
        result = await here.run(agent(**settings), "Hello.")
        for message in (LONG, "Look around."):
            result = await here.run(agent(**settings), message, session=result.session_id)
        assert result.outcome == "completed", result.reason
        events = [event.data for event in await journal(here, result.run_id)]
        [compacted] = [data for data in events if isinstance(data, ContextCompacted)]
        assert DEMAND in compacted.record
    async with engine(url, tmp_path, FunctionModel(second)) as there:
        again = await there.run(agent(**settings), "What must you not do?", session=result.session_id)
        assert again.text == "I know."
        events = [event.data for event in await journal(there, again.run_id)]
        recalled = {data.call_id: data.content for data in events if isinstance(data, ToolCallEnd)}
    assert DEMAND in seen[0]
    assert LONG not in seen[0]
    assert f'recall(call_id="{USER_MESSAGES}")' in seen[0]
    assert LONG in recalled["k1"]
    assert "the content of the file" in recalled["k2"]
