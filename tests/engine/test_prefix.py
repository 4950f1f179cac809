"""Each request begins with the bytes of the previous one, in every wire format, whatever happens to the run."""

import asyncio
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest

import treadle
from tests.engine.running import Gate, agent, opened
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Message, Part, Text, Thinking, ToolResult, ToolUse, user
from treadle.domain.providers import ApiMode
from treadle.domain.tools import ToolSpec
from treadle.models.formats import load_format
from treadle.ports.model import Conversation, ModelRequest, Preamble
from treadle.testing.models import FunctionModel, ScriptedFailure, ScriptStep, ask, call, say

MODES: tuple[ApiMode, ...] = ("anthropic_messages", "chat_completions", "responses")
STEPS = 60


def history_of(body: bytes) -> bytes:
    """Return a request up to its last message. What follows may differ between requests."""
    return body[: body.rindex(b"]")]


def long_run(tmp_path: Path) -> list[ModelRequest]:
    """The requests of a run in which everything happens: calls side by side, failing ones, refused ones, a loop
    that is warned of, an unknown tool, retries, messages in between, an empty turn."""
    asked: list[ModelRequest] = []
    gate = Gate()

    @treadle.tool(effect="read", repeatable=True)
    async def look(place: str) -> str:
        """Look somewhere."""
        if place == "7":
            await gate.pass_through()
        return f"nothing in {place}"

    @treadle.tool(effect="write")
    async def fail(why: str) -> str:
        """Fail."""
        raise RuntimeError(why)

    def answer(request: ModelRequest) -> ScriptStep:
        frozen = Conversation(request.conversation.messages)
        asked.append(
            ModelRequest(
                request.model,
                request.preamble,
                frozen,
                request.settings,
                request.tool_choice,
                provider=request.provider,
            )
        )
        number = len(asked)
        if number >= STEPS:
            return say("done")
        match number % 10:
            case 1:
                return ask(call("look", f"a{number}", place="same"), text="Again.", thinking="I wonder.")
            case 2:
                return ask(*(call("look", f"b{number}_{i}", place=f"{number}{i}") for i in range(3)))
            case 3:
                return ask(call("fail", f"c{number}", why=str(number)))
            case 4:
                return ScriptedFailure(retry_after=0.0)
            case 5:
                return ask(call("lok", f"d{number}", place="x"))
            case 6:
                return say("") if number < 10 else ask(call("look", f"e{number}", place=f"x{number}"))
            case _:
                return ask(call("look", f"f{number}", place=str(number)), text="Ünïcode 😀 too.")

    async def scenario() -> None:
        async with opened(tmp_path, FunctionModel(answer)) as engine:
            hero = agent(tools=[look, fail], persona="Be brief.", limits={"max_steps": None}, budget_hints=True)
            run_id = await engine.submit(hero, "go")
            await gate.reached.wait()
            await engine.steer(run_id, "and look in the hall, too")
            gate.open.set()
            await engine.wait(run_id)

    asyncio.run(scenario())
    return asked


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[ModelRequest]:
    return long_run(tmp_path_factory.mktemp("prefix"))


@pytest.mark.parametrize("mode", MODES)
def test_the_prefix_only_ever_grows(requests: list[ModelRequest], mode: ApiMode) -> None:
    bodies = [load_format(mode).encode(request) for request in requests]
    assert len(bodies) >= 20
    for before, after in pairwise(bodies):
        assert after.startswith(history_of(before))


@pytest.mark.parametrize("mode", MODES)
def test_a_cached_conversation_and_a_new_one_give_the_same_bytes(
    requests: list[ModelRequest], mode: ApiMode
) -> None:
    last = requests[-1]
    growing, body = Conversation(), b""
    for message in last.conversation.messages:
        growing.messages.append(message)
        request = ModelRequest(last.model, last.preamble, growing, last.settings, provider=last.provider)
        body = load_format(mode).encode(request)
    whole = ModelRequest(
        last.model,
        Preamble(last.preamble.system, last.preamble.tools),
        Conversation(last.conversation.messages),
        last.settings,
        provider=last.provider,
    )
    assert load_format(mode).encode(whole) == body


# ── A long history ─────────────────────────────────────────────────────────────────────────────────


def history(steps: int) -> Conversation:
    messages = [user("go")]
    for number in range(steps):
        said: tuple[Part, ...] = (
            Thinking("hm " * 20, "p", "m", signature="s" * 200),
            Text(f"Step {number}."),
            ToolUse(f"call_{number}", "look", f'{{"place": "room {number}"}}'),
        )
        messages.append(Message("assistant", said))
        messages.append(Message("tool", (ToolResult(f"call_{number}", f"there is nothing in {number} " * 20),)))
    return Conversation(messages)


@pytest.mark.parametrize("mode", MODES)
def test_a_step_after_300_steps_allocates_at_most_one_and_a_half_times_the_sent_bytes(mode: ApiMode) -> None:
    """One more step on a history of 300: what is allocated to send it, against what is sent."""
    conversation = history(300)
    look = ToolSpec("look", "Look somewhere.", {"type": "object"})
    request = ModelRequest("m", Preamble("Be brief.", (look,)), conversation, ModelSettings(), provider="p")
    encode = load_format(mode).encode
    encode(request)  # all but the last step was sent before
    more = history(1).messages[1:]
    conversation.messages.extend(more)
    tracemalloc.start()
    try:
        body = encode(request)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(body) > 150_000
    assert peak <= 1.5 * len(body), f"{peak} bytes were allocated to send {len(body)}"
