"""Results too long for the context keep their head and tail; the whole text can be recalled."""

from pathlib import Path

import pytest

import treadle
from tests.engine.running import agent, journal, opened
from tests.observed import all_told
from treadle.core.context.projection import MAX_RESULT_CHARACTERS, MIN_RESULT_CHARACTERS, max_result_characters
from treadle.core.context.tokens import TokenCount
from treadle.core.state import new_state
from treadle.domain.envelope import Origin
from treadle.domain.events import ModelResolved, ResultTruncated, ToolCallEnd
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.engine.tool_results import truncate_text
from treadle.ports.tool import Observation, ToolError
from treadle.testing.models import ScriptedModel, ask, call, say

LONG = "".join(f"line {number}\n" for number in range(40_000))


@treadle.tool(effect="read", repeatable=True)
async def read_all(length: int) -> str:
    """Read a lot."""
    return LONG[:length]


@treadle.tool(effect="read", needs=["workspace"])
async def recalled(call_id: str, context: treadle.ToolContext) -> str:
    """Tell how long an earlier result was, and whether it is whole."""
    text = await context.recall(call_id)
    return "nothing" if text is None else f"{len(text)} {LONG.startswith(text)}"


async def test_a_long_result_is_truncated_and_can_be_recalled_by_a_later_run(tmp_path: Path) -> None:
    model = ScriptedModel(
        ask(call("read_all", "big", length=400_000)),
        ask(call("recalled", "c2", call_id="big")),
        say("read"),
        ask(call("recalled", "c3", call_id="big"), call("recalled", "c4", call_id="other")),
        say("again"),
    )

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[read_all, recalled])
        result = await engine.run(hero, "go")
        events = [event.data for event in await journal(engine, result.run_id)]
        await engine.run(hero, "and now?", session=result.session_id)
    [cut_event] = [data for data in events if isinstance(data, ResultTruncated)]
    assert cut_event.length == len(LONG[:400_000])
    ends = [data for data in events if isinstance(data, ToolCallEnd)]
    assert [end.truncated for end in ends] == [True, False]
    assert MAX_RESULT_CHARACTERS <= cut_event.shown == len(ends[0].content) < MAX_RESULT_CHARACTERS + 300
    assert ends[0].content.startswith("line 0\n")
    assert ends[0].content.endswith(LONG[:400_000][-100:])
    assert 'recall(call_id="big", start=' in ends[0].content
    assert ends[1].content == f"{cut_event.length} True"
    shown = [part.content for part in all_told(model.requests[-1].conversation.messages[-1].parts)]
    assert shown == [f"{cut_event.length} True", "nothing"]


def test_the_space_for_results_shrinks_as_the_context_fills() -> None:
    state = new_state(Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1")))
    state.model = ModelResolved("p", "m", "custom", "why", context_window=100_000)
    rooms: list[int] = []
    for counted in (1, 40_000, 80_000, 95_000, 99_999, 150_000):
        state.context.tokens = TokenCount(counted=counted)
        rooms.append(max_result_characters(state))
    assert rooms == sorted(rooms, reverse=True)
    assert (rooms[0], rooms[-1]) == (MAX_RESULT_CHARACTERS, MIN_RESULT_CHARACTERS)
    assert rooms[2] == 20_000


async def test_parallel_results_share_the_space(tmp_path: Path) -> None:
    calls = [call("read_all", f"c{n}", length=300_000 + n) for n in range(20)]
    model = ScriptedModel(ask(*calls), say("done"))

    async with opened(tmp_path, model) as engine:
        await engine.run(agent(tools=[read_all]), "go")
    total = sum(len(part.content) for part in all_told(model.requests[-1].conversation.messages[-1].parts))
    assert total < 200_000 * 4 * 0.26


@pytest.mark.parametrize(
    "length", [0, 1, MIN_RESULT_CHARACTERS - 1, MIN_RESULT_CHARACTERS, MIN_RESULT_CHARACTERS + 1]
)
async def test_short_results_are_not_changed(tmp_path: Path, length: int) -> None:
    model = ScriptedModel(ask(call("read_all", "c1", length=length)), say("done"))

    async with opened(tmp_path, model) as engine:
        await engine.run(agent(tools=[read_all]), "go")
    [told] = all_told(model.requests[-1].conversation.messages[-1].parts)
    assert told.content == LONG[:length]


def test_the_truncation_marker_matches_the_omitted_text() -> None:
    text = "".join(chr(33 + n % 90) for n in range(10_000))
    shown = truncate_text(text, 1000, "c1")
    head, _, rest = shown.partition("\n[… ")
    count = int(rest.split(" of ", 1)[0])
    tail = rest.partition("…]\n")[2]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + count + len(tail) == len(text)
    assert f"start={len(head)}" in shown


async def test_an_observation_carries_its_exit_code_and_whether_it_is_an_error(tmp_path: Path) -> None:
    @treadle.tool
    async def command(code: int) -> Observation:
        """Exit so."""
        if code < 0:
            raise ToolError("it could not be started; check the path")
        return Observation("out", exit_code=code, is_error=code > 1)

    model = ScriptedModel(*(ask(call("command", f"c{n}", code=n)) for n in (0, 1, 2, -1)), say("done"))

    async with opened(tmp_path, model) as engine:
        await engine.run(agent(tools=[command]), "go")
    parts = [m.parts[0] for m in model.requests[-1].conversation.messages if m.role == "tool"]
    ok, one, two, failed = [getattr(part, "content", "") for part in parts]
    assert ok.startswith('{"status":"ok","exit_code":0,"duration_ms":')
    assert '"exit_code":1' in one
    assert '"status":"failed","exit_code":2' in two
    assert "Do not make up a result" in two
    assert "`command` failed: it could not be started; check the path" in failed
