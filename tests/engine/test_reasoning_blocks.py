"""Reasoning without a signature or a seal in the formats in which it is a block or an item: it goes back in its own
form, and refused conversations are repaired."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests import anthropic_wire, responses_wire
from tests.engine.running import agent, journal
from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, Policy, Request, refuses
from tests.models.chat import HELLO
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.events import LlmRetry
from treadle.domain.messages import Message, Text, Thinking, ToolUse, user
from treadle.domain.models import Profile
from treadle.domain.providers import ApiMode, ProviderConfig
from treadle.models.catalog import Catalog
from treadle.models.formats import anthropic_messages, responses
from treadle.models.formats.reasoning_return import REASONING_PLACEHOLDER
from treadle.models.formats.responses_items import make_lists
from treadle.models.http.reasoning_errors import is_reasoning_missing
from treadle.ports.model import Conversation, ModelRequest, Preamble

ANTHROPIC, RESPONSES = "anthropic_messages", "responses"
BLOCK = {"type": "thinking", "thinking": "THOUGHT"}
MISSING_BLOCK = {"type": "thinking", "thinking": REASONING_PLACEHOLDER, "signature": ""}
ITEM = responses_wire.reasoning(thought="THOUGHT")
ARGUMENTS = '{"place":"hall"}'


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def blocks(*opening: dict[str, Any]) -> Answer:
    """A reply in the Anthropic format that opens with these blocks and calls `look`."""
    events: list[bytes] = []
    for index, block in enumerate(opening):
        events += (anthropic_wire.opens(index, **{"kind" if k == "type" else k: v for k, v in block.items()}),)
        events.append(anthropic_wire.closes(index))
    call = anthropic_wire.asks(len(opening), "c1", "look", ARGUMENTS)
    return Answer(anthropic_wire.stream(events, call, stop="tool_use"))


def items(*opening: dict[str, Any]) -> Answer:
    """A reply in the Responses format that opens with these items and calls `look`."""
    call = responses_wire.call("c1", "look", ARGUMENTS)
    return Answer(responses_wire.wire(*responses_wire.replied(*opening, call)))


def make_answer(mode: str) -> Answer:
    if mode == ANTHROPIC:
        return anthropic_wire.says("Nothing.")
    return Answer(responses_wire.wire(*responses_wire.replied(responses_wire.message("Nothing."))))


def replies(request: Request) -> list[Any]:
    """Return what a request holds of the model's own replies: their blocks or items."""
    sent = request.json
    if "input" in sent:
        return [item for item in sent["input"] if item.get("type") in ("reasoning", "function_call")]
    return [block for each in sent["messages"] if each["role"] == "assistant" for block in each["content"]]


class SessionRecord:
    def __init__(self, results: list[treadle.Result], requests: list[Request], events: list[Any]) -> None:
        self.outcomes = [result.outcome for result in results]
        self.requests = requests
        self.retries = [data for data in events if isinstance(data, LlmRetry)]


async def run(
    folder: Path, mode: ApiMode, *script: Behaviour, policy: Policy | None = None, messages: int = 1
) -> SessionRecord:
    async with FakeEndpoint(*script, policy=policy) as server:
        engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder / "home"))
        engine.add_provider("fake", base_url=server.url, api_mode=mode, api_key="sk-fake-1234")
        async with engine:
            hero = agent(model="fake/deepseek-v4", tools=[look], retry={"attempts": 0})
            results = [await engine.run(hero, f"message {n}", session="s") for n in range(messages)]
            events = [event.data for result in results for event in await journal(engine, result.run_id)]
        return SessionRecord(results, server.requests, events)


# ── What goes back ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "block",
    [
        BLOCK,
        BLOCK | {"signature": ""},
        BLOCK | {"signature": "c2ln"},
        {"type": "redacted_thinking", "data": "QUJD"},
    ],
)
async def test_a_thinking_block_goes_back_as_it_came(tmp_path: Path, block: dict[str, Any]) -> None:
    ran = await run(tmp_path, ANTHROPIC, blocks(block), make_answer(ANTHROPIC), make_answer(ANTHROPIC), messages=2)
    assert ran.outcomes == ["completed", "completed"]
    assert replies(ran.requests[1])[0] == block
    assert replies(ran.requests[2])[0] == block, "also when the next message comes"


@pytest.mark.parametrize(
    "item",
    [
        ITEM,
        responses_wire.reasoning(thought="THOUGHT", sealed="QUJD"),
        responses_wire.reasoning("So", thought="THOUGHT"),
        responses_wire.reasoning("So"),
        responses_wire.reasoning("So", sealed="QUJD"),
    ],
)
async def test_a_reasoning_item_goes_back_as_it_came(tmp_path: Path, item: dict[str, Any]) -> None:
    ran = await run(tmp_path, RESPONSES, items(item), make_answer(RESPONSES), make_answer(RESPONSES), messages=2)
    assert ran.outcomes == ["completed", "completed"]
    assert replies(ran.requests[1])[0] == item
    assert replies(ran.requests[2])[0] == item, "also when the next message comes"


ENCODERS: list[tuple[Callable[[ModelRequest], bytes], Thinking]] = [
    (anthropic_messages.encode_request, Thinking("THOUGHT", "fake", "m-1", field="thinking")),
    (responses.encode_request, Thinking("THOUGHT", "fake", "m-1", item_id="rs_1", field="reasoning_text")),
]


@pytest.mark.parametrize(("encode", "thought"), ENCODERS)
def test_a_block_goes_back_only_to_its_own_model_and_by_the_profile(
    encode: Callable[[ModelRequest], bytes], thought: Thinking
) -> None:
    def count(back: Any = "always", model: str = "m-1", provider: str = "fake", plain: bool = False) -> int:
        turns = [
            user("x"),
            Message("assistant", (thought, ToolUse("c", "add", "{}"))),
            user("y"),
            Message("assistant", (thought, Text("so"))),
        ]
        request = ModelRequest(
            model,
            Preamble("", ()),
            Conversation(turns),
            HELLO.settings,
            provider=provider,
            profile=Profile(reasoning_back=back),
            plain=plain,
        )
        return encode(request).count(b"THOUGHT")

    assert [count("never"), count("tool_loop"), count("always")] == [0, 1, 2]
    assert [count(model="m-2"), count(provider="other"), count(plain=True)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("url", "mode", "back"),
    [
        ("https://api.deepseek.com/anthropic", None, "always"),
        ("https://api.deepseek.com/v1", "responses", "always"),
        ("https://api.anthropic.com", None, "never"),
        ("https://api.openai.com/v1", None, "never"),
    ],
)
def test_unsigned_reasoning_goes_back_to_known_hosts_only(url: str, mode: ApiMode | None, back: str) -> None:
    assert Catalog().profile("p", "m", ProviderConfig(url, mode)).reasoning_back == back


# ── Providers that insist ──────────────────────────────────────────────────────────────────────────

THINKING_WANTED = "The `content[].thinking` in the thinking mode must be passed back to the API."
"""https://github.com/decolua/9router/issues/2397"""
BLOCK_EXPECTED = (
    "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` "
    "is enabled, a final `assistant` message must start with a thinking block"
)
"""https://github.com/Kilo-Org/kilocode/issues/5219"""
TEXT_WANTED = "The reasoning_text in the thinking mode must be passed back to the API."
"""https://github.com/dbeaver/dbeaver/issues/41814"""


@pytest.mark.parametrize(
    ("mode", "refusal", "placeholder"),
    [
        (ANTHROPIC, THINKING_WANTED, MISSING_BLOCK),
        (ANTHROPIC, BLOCK_EXPECTED, MISSING_BLOCK),
        (RESPONSES, TEXT_WANTED, {"type": "reasoning", "id": "rs_missing", **make_lists([], [" "])}),
    ],
)
async def test_a_conversation_without_reasoning_is_sent_with_a_placeholder(
    tmp_path: Path, mode: ApiMode, refusal: str, placeholder: dict[str, Any]
) -> None:
    """As after a model that did not think, or another one."""
    left = [blocks() if mode == ANTHROPIC else items(), make_answer(mode), make_answer(mode)]

    def answer(request: Request) -> Behaviour:
        said = replies(request)
        if said and said[0]["type"] not in ("thinking", "reasoning"):
            return refuses(400, {"error": {"message": refusal, "type": "invalid_request_error"}})
        return left.pop(0)

    ran = await run(tmp_path, mode, policy=answer, messages=2)
    assert ran.outcomes == ["completed", "completed"]
    assert [retry.filled for retry in ran.retries] == [True, True], "once in each run"
    assert replies(ran.requests[-1])[0] == placeholder


@pytest.mark.parametrize("mode", [ANTHROPIC, RESPONSES])
async def test_a_provider_that_refuses_unsigned_reasoning_gets_one_retry_without_it(
    tmp_path: Path, mode: ApiMode
) -> None:
    left = [blocks(BLOCK) if mode == ANTHROPIC else items(ITEM), make_answer(mode)]

    def answer(request: Request) -> Behaviour:
        if b"THOUGHT" in request.body:
            return refuses(400, {"error": {"message": "messages.1.content.0: bad block", "type": "x"}})
        return left.pop(0)

    ran = await run(tmp_path, mode, policy=answer)
    assert ran.outcomes == ["completed"]
    assert [retry.plain for retry in ran.retries] == [True]


@pytest.mark.parametrize("mode", [ANTHROPIC, RESPONSES])
@pytest.mark.parametrize("then", ["", "restart", "fork", "compaction"])
async def test_refused_thinking_is_not_sent_by_later_runs(tmp_path: Path, mode: ApiMode, then: str) -> None:
    opening = [blocks(BLOCK) if mode == ANTHROPIC else items(ITEM)] * 2
    left = [*opening, *[make_answer(mode)] * 5]

    def answer(request: Request) -> Behaviour:
        if b"THOUGHT" in request.body:
            return refuses(400, {"error": {"message": "messages.1.content.0: bad block", "type": "x"}})
        return left.pop(0)

    async def work() -> tuple[int, list[str | None]]:
        async with FakeEndpoint(policy=answer) as server:

            def open_engine() -> HostedEngine:
                engine = create_engine(f"sqlite:///{tmp_path}/t.db", home=Home(tmp_path / "home"))
                engine.add_provider("fake", base_url=server.url, api_mode=mode, api_key="sk-fake-1234")
                engine.add_tools(look)
                return engine

            hero = agent(model="fake/deepseek-v4", tools=[look], retry={"attempts": 0})
            async with open_engine() as engine:
                first = await engine.run(hero, "one", session="s")
                refused = len([each for each in server.requests if b"THOUGHT" in each.body])
                if then == "compaction":
                    await engine.run(hero, "/compact", session="s")
                results = [] if then == "restart" else [await follow(engine, hero, first)]
            if then == "restart":
                async with open_engine() as engine:
                    results = [await follow(engine, hero, first)]
            sent = [each for each in server.requests if b"THOUGHT" in each.body]
            assert len(sent) == refused, "run 2 sends no thinking that was refused"
            return refused, [result.outcome for result in (first, *results)]

    async def follow(engine: HostedEngine, hero: treadle.Agent, first: treadle.Result) -> treadle.Result:
        if then == "fork":
            return await engine.wait(await engine.fork(first.run_id, message="two"))
        return await engine.run(hero, "two", session="s")

    assert await work() == (1, ["completed", "completed"])


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        (THINKING_WANTED, True),
        (BLOCK_EXPECTED, True),
        (TEXT_WANTED, True),
        ("thinking is enabled but reasoning_content is missing in assistant tool call message at index 2", True),
        ("Function call is missing a thought_signature in functionCall parts.", True),
        ("In thinking mode each assistant message needs its reasoning.", True),
        ("reasoning_content cannot be empty", True),
        ("The thoughts of the previous turn were not returned", True),
        ("思考模式下必须回传 reasoning_content", True),
        ("property 'messages.1.assistant.reasoning_content' is unsupported", False),
        ("reasoning_content must not be included in the input messages", False),
        ("Unexpected field: thinking", False),
        ("Corrupted thought signature.", False),
        ("`max_tokens` must be greater than `thinking.budget_tokens`", False),
        ("tool `look` is missing a description", False),
    ],
)
def test_errors_about_missing_reasoning_are_recognised(message: str, missing: bool) -> None:
    assert is_reasoning_missing(message) is missing


def test_a_placeholder_is_sent_before_each_reply() -> None:
    turns = [user("x"), Message("assistant", (Text("a"),)), user("y"), Message("assistant", (Text("b"),))]
    request = ModelRequest(
        "m-1", Preamble("", ()), Conversation(turns), HELLO.settings, provider="fake", filled=True
    )
    sent = json.loads(anthropic_messages.encode_request(request))["messages"]
    assert [each["content"][0] for each in sent if each["role"] == "assistant"] == [MISSING_BLOCK, MISSING_BLOCK]
    kinds = [item.get("type", item.get("role")) for item in json.loads(responses.encode_request(request))["input"]]
    assert kinds == ["user", "reasoning", "assistant", "user", "reasoning", "assistant"]
