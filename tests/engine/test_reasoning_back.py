"""Reasoning that a provider wants back with the calls that it led to: kept in the journal, sent to the provider and
model that it came from, and to no other."""

import json
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import Gate, agent, journal, until
from tests.fake_endpoint import (
    DONE,
    Answer,
    Behaviour,
    FakeEndpoint,
    Policy,
    Request,
    delta,
    fragment,
    refuses,
    says,
    usage,
)
from tests.models.chat import HELLO
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.events import ApprovalRequested, LlmError, LlmRetry
from treadle.domain.messages import CallExtra, Message, Text, Thinking, ToolResult, ToolUse, user
from treadle.domain.models import ModelFacts, Profile
from treadle.domain.providers import ProviderConfig
from treadle.models.catalog import Catalog
from treadle.models.formats.chat_completions import encode_request
from treadle.models.formats.reasoning_return import REASONING_PLACEHOLDER
from treadle.ports.model import Conversation, ModelRequest, Preamble

SIGNATURE = {"google": {"thought_signature": "c2lnbmVk"}}


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def make_call_reply(number: int = 1, extra: Any = None, **fields: Any) -> Answer:
    """A reply that reasons, in these fields, and calls `look`."""
    call = fragment(0, f"call_{number}", "look", json.dumps({"place": f"room {number}"}))
    if extra is not None:
        call["extra_content"] = extra
    reasons = [delta(role="assistant", **fields)] if fields else []
    return Answer([*reasons, delta(tool_calls=[call]), delta(finish="tool_calls"), usage(), DONE])


class SessionRecord:
    """What a session made of its messages."""

    def __init__(self, results: list[treadle.Result], requests: list[Request], events: list[Any]) -> None:
        self.results = results
        self.requests = requests
        self.events = events

    def assistants(self, place: int = -1) -> list[dict[str, Any]]:
        return [message for message in self.requests[place].json["messages"] if message["role"] == "assistant"]


async def run(
    folder: Path, *script: Behaviour, policy: Policy | None = None, messages: int = 1, model: str = "m"
) -> SessionRecord:
    """Send messages to one session of an agent over a server that follows the script or the policy."""

    async with FakeEndpoint(*script, policy=policy) as server:
        engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder / "home"))
        engine.add_provider("fake", base_url=server.url, api_mode="chat_completions", api_key="sk-fake-1234")
        async with engine:
            hero = agent(model=f"fake/{model}", tools=[look], retry={"attempts": 0})
            results = [await engine.run(hero, f"message {n}", session="s") for n in range(messages)]
            events = [event.data for result in results for event in await journal(engine, result.run_id)]
        return SessionRecord(results, server.requests, events)


# ── What goes back ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_sent_back_in_its_own_field(tmp_path: Path, field: str) -> None:
    fields: dict[str, Any] = {field: "Let me think."}
    ran = await run(tmp_path, make_call_reply(**fields), says("Nothing."), says("Bye."), messages=2)
    assert [result.outcome for result in ran.results] == ["completed", "completed"]
    assert ran.assistants(1)[0][field] == "Let me think."
    assert ran.assistants(2)[0][field] == "Let me think.", "also when the next message comes"
    assert ran.requests[2].body.startswith(ran.requests[1].body.rpartition(b"]")[0])


async def test_reasoning_details_are_assembled_from_their_pieces(tmp_path: Path) -> None:
    pieces: list[dict[str, Any]] = [
        {"reasoning_details": [{"type": "reasoning.text", "text": text, "format": "x-v1", "index": 0}]}
        for text in ("Let ", "me ", "think.")
    ]
    pieces += [
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "", "signature": "c2ln", "index": 0, "id": None}
            ]
        },
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "QUJD", "id": "rs_1", "index": 1}]},
    ]
    call = delta(tool_calls=[fragment(0, "c", "look", '{"place": "hall"}')])
    answer = Answer([*(delta(**piece) for piece in pieces), call, delta(finish="tool_calls"), usage(), DONE])
    ran = await run(tmp_path, answer, says("Nothing."))
    assert ran.assistants()[0]["reasoning_details"] == [
        {
            "type": "reasoning.text",
            "format": "x-v1",
            "index": 0,
            "text": "Let me think.",
            "signature": "c2ln",
            "id": None,
        },
        {"type": "reasoning.encrypted", "id": "rs_1", "index": 1, "data": "QUJD"},
    ]


async def test_extra_content_of_a_call_is_sent_back_with_it(tmp_path: Path) -> None:
    ran = await run(tmp_path, make_call_reply(extra=SIGNATURE), says("Nothing."))
    assert ran.assistants()[0]["tool_calls"][0]["extra_content"] == SIGNATURE


async def test_thinking_inside_the_content_goes_back_inside_the_content(tmp_path: Path) -> None:
    ran = await run(tmp_path, make_call_reply(content="<think>Let me think.</think>\n\nI look."), says("Nothing."))
    assert ran.assistants()[0]["content"] == "<think>\nLet me think.\n</think>\n\nI look."


async def test_opaque_reasoning_goes_back_with_its_readable_text(tmp_path: Path) -> None:
    first = make_call_reply(reasoning_text="Let me think.", reasoning_opaque="b3BhcXVl")
    ran = await run(tmp_path, first, make_call_reply(2, reasoning_opaque="c2Vjb25k"), says("Nothing."))
    sent = [(one.get("reasoning_text"), one["reasoning_opaque"]) for one in ran.assistants()]
    assert sent == [("Let me think.", "b3BhcXVl"), (None, "c2Vjb25k")]
    assert not ran.assistants()[0]["content"]


async def test_thoughts_between_control_tokens_do_not_go_back(tmp_path: Path) -> None:
    thought = (
        "<|channel|>analysis<|message|>Let me think.<|end|><|start|>assistant<|channel|>final<|message|>I look."
    )
    ran = await run(tmp_path, make_call_reply(content=thought), says("Nothing."))
    assert ran.assistants()[0]["content"] == "I look."
    assert ran.results[0].outcome == "completed"


# ── Providers that insist ──────────────────────────────────────────────────────────────────────────


def make_insisting_policy(wanted: str, refusal: str, *script: Behaviour) -> Policy:
    """A provider that refuses a call in the conversation without its reasoning."""
    left = list(script)

    def answer(request: Request) -> Behaviour:
        for message in request.json["messages"]:
            if message.get("tool_calls") and not json.dumps(message).count(wanted):
                return refuses(400, {"error": {"message": refusal, "type": "invalid_request_error"}})
            if message["role"] == "assistant" and message.get("reasoning_content") == "":
                return refuses(400, {"error": {"message": refusal, "type": "invalid_request_error"}})
        return left.pop(0)

    return answer


DEEPSEEK = "The `reasoning_content` in the thinking mode must be passed back to the API."
KIMI = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"
GEMINI = "Function call is missing a thought_signature in functionCall parts. This is required for tools to work"


@pytest.mark.parametrize("refusal", [DEEPSEEK, KIMI])
async def test_a_provider_that_requires_reasoning_gets_it_in_every_step(tmp_path: Path, refusal: str) -> None:
    script = (
        make_call_reply(1, reasoning_content="One."),
        make_call_reply(2, reasoning_content="Two."),
        says("Nothing."),
        says("Bye."),
    )
    ran = await run(tmp_path, policy=make_insisting_policy("reasoning_content", refusal, *script), messages=2)
    assert [result.outcome for result in ran.results] == ["completed", "completed"]
    assert not [data for data in ran.events if isinstance(data, LlmError)]


@pytest.mark.parametrize(
    ("refusal", "wanted", "model"),
    [
        (DEEPSEEK, "reasoning_content", "m"),
        (KIMI, "reasoning_content", "m"),
        (GEMINI, "thought_signature", "gemini-3"),
    ],
)
async def test_missing_reasoning_is_sent_back_as_a_placeholder(
    tmp_path: Path, refusal: str, wanted: str, model: str
) -> None:
    ran = await run(
        tmp_path,
        policy=make_insisting_policy(wanted, refusal, make_call_reply(), says("Nothing."), says("x")),
        messages=2,
        model=model,
    )
    assert [result.outcome for result in ran.results] == ["completed", "completed"]
    retries = [data for data in ran.events if isinstance(data, LlmRetry)]
    assert [retry.filled for retry in retries] == [True, True], "once in each run"
    if wanted == "reasoning_content":
        assert ran.assistants()[0]["reasoning_content"] == REASONING_PLACEHOLDER


@pytest.mark.parametrize(
    "refusal",
    [
        "property 'messages.1.assistant.reasoning_content' is unsupported",
        "Extra inputs are not permitted",
        "Corrupted thought signature.",
    ],
)
async def test_a_provider_that_refuses_reasoning_gets_one_retry_without_it(tmp_path: Path, refusal: str) -> None:
    def answer(request: Request) -> Behaviour:
        if b"reasoning_content" in request.body or b"extra_content" in request.body:
            return refuses(400, {"error": {"message": refusal, "type": "invalid_request_error"}})
        return left.pop(0)

    left = [
        make_call_reply(1, extra=SIGNATURE, reasoning_content="One."),
        make_call_reply(2, reasoning_content="Two."),
        says("Nothing."),
    ]
    ran = await run(tmp_path, policy=answer)
    assert ran.results[0].outcome == "completed"
    assert [data.plain for data in ran.events if isinstance(data, LlmRetry)] == [True], "and stays without it"


# ── What does not go back ──────────────────────────────────────────────────────────────────────────

THOUGHT = Thinking("hm", "fake", "m-1", field="reasoning_content")
CALL = ToolUse("c1", "add", "{}", CallExtra("fake", "m-1", '{"google":{"thought_signature":"s"}}'))
TURNS = [
    user("hello"),
    Message("assistant", (THOUGHT, Text("hi"))),
    user("add"),
    Message("assistant", (THOUGHT, CALL)),
    Message("tool", (ToolResult("c1", "1"),)),
    Message("assistant", (THOUGHT, Text("It is 1."))),
    user("thanks"),
]


def send_history(back: Any = "tool_loop", **changes: Any) -> list[bool]:
    """Which of the three replies in `TURNS` go back with reasoning."""
    fields: dict[str, Any] = {"provider": "fake", "profile": Profile(reasoning_back=back), **changes}
    model = fields.pop("model", "m-1")
    body = encode_request(ModelRequest(model, HELLO.preamble, Conversation(TURNS), HELLO.settings, **fields))
    replies = [message for message in json.loads(body)["messages"] if message["role"] == "assistant"]
    extra = ["extra_content" in call for reply in replies for call in reply.get("tool_calls", ())]
    assert extra == [not fields.get("plain") and (fields["provider"], model) == ("fake", "m-1")]
    return ["reasoning_content" in reply for reply in replies]


def test_the_profile_decides_when_reasoning_goes_back() -> None:
    assert send_history("never") == [False, False, False]
    assert send_history("tool_loop") == [False, True, True]
    assert send_history("always") == [True, True, True]


def test_reasoning_is_not_sent_to_another_provider_or_model() -> None:
    assert send_history("always", provider="other") == [False, False, False]
    assert send_history("always", model="m-2") == [False, False, False]
    assert send_history("always", plain=True) == [False, False, False]


def test_reasoning_of_old_journals_is_not_sent_back() -> None:
    old = [user("x"), Message("assistant", (Thinking("hm", "fake", "m-1"), ToolUse("c", "add", "{}")))]
    request = ModelRequest("m-1", Preamble("", ()), Conversation(old), HELLO.settings, provider="fake")
    assert b"hm" not in encode_request(request)


def test_very_long_reasoning_is_truncated_in_the_middle() -> None:
    long = Thinking("x" * 1_000_000, "fake", "m-1", field="reasoning")
    turns = [user("x"), Message("assistant", (long, ToolUse("c", "add", "{}")))]
    body = encode_request(
        ModelRequest("m-1", Preamble("", ()), Conversation(turns), HELLO.settings, provider="fake")
    )
    assert 300_000 < len(body) < 410_000


@pytest.mark.parametrize(
    ("url", "model", "back"),
    [
        ("https://api.moonshot.ai/v1", "kimi-k2.5", "always"),
        ("https://openrouter.ai/api/v1", "moonshotai/kimi-k2-thinking", "always"),
        ("https://api.z.ai/api/paas/v4", "glm-5", "always"),
        ("https://api.minimax.io/v1", "MiniMax-M2", "always"),
        ("https://api.deepseek.com/v1", "deepseek-v4-pro", "tool_loop"),
        ("https://api.mistral.ai/v1", "magistral-medium", "never"),
        ("http://127.0.0.1:8080/v1", "anything", "tool_loop"),
    ],
)
def test_the_reasoning_rules_of_known_providers_are_built_in(url: str, model: str, back: str) -> None:
    assert Catalog().profile("p", model, ProviderConfig(url)).reasoning_back == back
    facts = {f"p/{model}": ModelFacts(reasoning_back="never")}
    assert Catalog(models=facts).profile("p", model, ProviderConfig(url)).reasoning_back == "never"


# ── Engines that go away, reviewers that take their time, and forks ────────────────────────────────

KEPT: dict[str, tuple[dict[str, Any], Any]] = {
    "reasoning_content": ({"reasoning_content": "Let me think."}, None),
    "reasoning_details": (
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "QUJD", "id": "rs_1", "index": 0}]},
        None,
    ),
    "extra_content": ({}, SIGNATURE),
}


def find_kept_field(request: Request, kept: str) -> Any:
    """Return what goes back with the call of a request."""
    [said] = [message for message in request.json["messages"] if message["role"] == "assistant"]
    return said["tool_calls"][0].get(kept) if kept == "extra_content" else said.get(kept)


def engine_at(folder: Path, server: FakeEndpoint) -> HostedEngine:
    engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder / "home"))
    engine.add_provider("fake", base_url=server.url, api_mode="chat_completions", api_key="sk-fake-1234")
    return engine


@pytest.mark.parametrize("kept", KEPT)
async def test_reasoning_goes_back_after_a_crash_in_the_tool_loop(tmp_path: Path, kept: str) -> None:
    fields, extra = KEPT[kept]
    gate = Gate()

    @treadle.tool(effect="read", repeatable=True, name="look")
    async def looks(place: str) -> str:
        """Look somewhere."""
        await gate.pass_through()
        return f"nothing in {place}"

    async with FakeEndpoint(make_call_reply(extra=extra, **fields), says("Nothing.")) as server:
        async with engine_at(tmp_path, server) as engine:
            run_id = await engine.submit(agent(model="fake/m", tools=[looks]), "go")
            await gate.reached.wait()
        async with engine_at(tmp_path, server) as engine:
            gate.open.set()
            engine.add_tools(looks)
            assert (await engine.wait(run_id)).text == "Nothing."
        assert find_kept_field(server.requests[1], kept) == (extra or fields.get(kept))


@pytest.mark.parametrize("kept", KEPT)
async def test_reasoning_goes_back_after_an_approval_that_another_process_waited_for(
    tmp_path: Path, kept: str
) -> None:
    fields, extra = KEPT[kept]

    async with FakeEndpoint(make_call_reply(extra=extra, **fields), says("Nothing.")) as server:
        async with engine_at(tmp_path, server) as engine:
            hero = agent(model="fake/m", tools=[look], approvals={"default": "ask", "via": "api"})
            run_id = await engine.submit(hero, "go")
            asked = await until(engine, run_id, "approval_requested")
            await until(engine, run_id, "run_waiting")
        async with engine_at(tmp_path, server) as engine:
            engine.add_tools(look)
            assert isinstance(asked.data, ApprovalRequested)
            await engine.decide(asked.data.approval_id, "approve")
            assert (await engine.wait(run_id)).text == "Nothing."
        assert find_kept_field(server.requests[1], kept) == (extra or fields.get(kept))


@pytest.mark.parametrize("kept", KEPT)
async def test_reasoning_goes_back_in_a_fork(tmp_path: Path, kept: str) -> None:
    fields, extra = KEPT[kept]

    async with FakeEndpoint(
        make_call_reply(extra=extra, **fields), says("Nothing."), says("Still nothing.")
    ) as server:
        async with engine_at(tmp_path, server) as engine:
            result = await engine.run(agent(model="fake/m", tools=[look]), "go")
            forked = await engine.wait(await engine.fork(result.run_id, step=2))
            assert (result.text, forked.text) == ("Nothing.", "Still nothing.")
        assert find_kept_field(server.requests[2], kept) == (extra or fields.get(kept))
