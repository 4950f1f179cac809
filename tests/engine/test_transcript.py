"""The exact events of a plain run and the exact request that the model gets."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

import treadle
from tests.engine.running import agent, journal, opened
from treadle.domain.envelope import Event
from treadle.ports.model import ModelRequest
from treadle.testing.models import ScriptedModel, ask, call, say
from treadle.testing.time import CountingIds, FakeClock

GOLDEN = Path(__file__).parent.parent / "golden"


@treadle.tool(effect="read", repeatable=True)
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


def render_events(events: Sequence[Event]) -> str:
    return "".join(f"{event.sequence:>2} {event.type} {event.raw.decode()}\n" for event in events)


def render_requests(requests: Sequence[ModelRequest]) -> str:
    lines: list[str] = []
    for number, request in enumerate(requests, start=1):
        lines.append(f"── request {number}: {request.model}, tools {request.tool_choice}")
        lines.append(f"system: {request.preamble.system}")
        lines += [f"tool: {msgspec.json.encode(tool).decode()}" for tool in request.preamble.tools]
        lines += [
            f"{message.role}: {msgspec.json.encode(message.parts).decode()}"
            for message in request.conversation.messages
        ]
    return "\n".join(lines) + "\n"


async def test_the_transcript_of_two_steps_matches_the_record(tmp_path: Path) -> None:
    script = (
        ask(
            call("add", a=2, b=3), call("add", "call_2", a=4, b=5), text="I add.", thinking="2 and 3, then 4 and 5"
        ),
        say("5 and 9."),
    )

    with ScriptedModel(*script) as model:
        async with opened(tmp_path, model, clock=FakeClock(), ids=CountingIds()) as engine:
            calculator = agent(persona="You add.", tools=[add])
            result = await engine.run(calculator, "What is 2+3, and 4+5?")
            events, requests = render_events(await journal(engine, result.run_id)), render_requests(model.requests)
    events = events.replace(str(tmp_path), "")
    assert events == (GOLDEN / "two_steps_events.txt").read_text()
    assert requests == (GOLDEN / "two_steps_requests.txt").read_text()
