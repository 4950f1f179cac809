"""Each format is sent the settings and tool choices that it has, and no model those that it refuses."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.models.chat import HELLO
from treadle.domain.agents import ModelSettings
from treadle.domain.call_settings import fit_settings, list_unsent
from treadle.domain.models import Profile
from treadle.domain.providers import ProviderConfig
from treadle.domain.tools import ToolSpec
from treadle.models.catalog import Catalog
from treadle.models.formats import anthropic_messages, chat_completions, responses
from treadle.ports.model import ModelRequest, Preamble

ALL = ModelSettings(
    top_p=0.5, frequency_penalty=0.1, presence_penalty=0.2, seed=7, logit_bias={"5": -1.0}, stop=("END", "\n")
)
FORMATS = {each.name: each for each in (anthropic_messages.FORMAT, chat_completions.FORMAT, responses.FORMAT)}


@pytest.mark.parametrize(
    ("mode", "sent", "unsent"),
    [
        (
            "chat_completions",
            {
                "top_p": 0.5, "frequency_penalty": 0.1, "presence_penalty": 0.2, "seed": 7,
                "logit_bias": {"5": -1.0}, "stop": ["END", "\n"],
            },
            (),
        ),
        (
            "anthropic_messages",
            {"top_p": 0.5, "stop_sequences": ["END"]},
            ("frequency_penalty", "presence_penalty", "seed", "logit_bias"),
        ),
        (
            "responses",
            {"top_p": 0.5},
            ("frequency_penalty", "presence_penalty", "seed", "logit_bias", "stop"),
        ),
    ],
)  # fmt: skip
def test_a_request_has_what_its_format_takes(mode: str, sent: dict[str, object], unsent: tuple[str, ...]) -> None:
    def body_of(settings: ModelSettings) -> dict[str, object]:
        request = ModelRequest("m", HELLO.preamble, HELLO.conversation, fit_settings(settings, mode, Profile()))
        return json.loads(FORMATS[mode].encode(request))

    plain, full = body_of(ModelSettings()), body_of(ALL)
    assert {name: value for name, value in full.items() if name not in plain} == sent
    assert list_unsent(ALL, mode, Profile()) == unsent
    assert list_unsent(ModelSettings(), mode, Profile()) == ()


def test_anthropic_takes_top_p_only_alone() -> None:
    for other in (ModelSettings(top_p=0.5, temperature=0.5), ModelSettings(top_p=0.5, reasoning="low")):
        assert list_unsent(other, "anthropic_messages", Profile()) == ("top_p",)
        assert fit_settings(other, "anthropic_messages", Profile()).top_p is None
        assert list_unsent(other, "chat_completions", Profile()) == ()


def test_reasoning_models_of_openai_refuse_sampling() -> None:
    def refused(model: str, url: str) -> tuple[str, ...]:
        return Catalog().profile("p", model, ProviderConfig(base_url=url)).refuses

    assert "top_p" in refused("gpt-5", "https://api.openai.com/v1")
    assert refused("gpt-4o", "https://api.openai.com/v1") == refused("gpt-5", "https://proxy.test/v1") == ()


TOOLS = (
    ToolSpec("add", "Add.", {"type": "object", "properties": {}}),
    ToolSpec("look", "Look.", {"type": "object", "properties": {}}),
)
CHOICES: list[tuple[dict[str, Any], Any, Any, Any]] = [
    ({}, None, None, None),
    ({"tool_choice": "none"}, "none", {"type": "none"}, "none"),
    ({"tool_choice": "required"}, "required", {"type": "any"}, "required"),
    (
        {"tool_choice": "required", "named_tool": "look"},
        {"type": "function", "function": {"name": "look"}},
        {"type": "tool", "name": "look"},
        {"type": "function", "name": "look"},
    ),
]


@pytest.mark.parametrize(("wanted", "chat", "anthropic", "response"), CHOICES)
def test_each_format_has_each_tool_choice(wanted: dict[str, Any], chat: Any, anthropic: Any, response: Any) -> None:
    expected = {"chat_completions": chat, "anthropic_messages": anthropic, "responses": response}
    for mode, choice in expected.items():
        request = ModelRequest("m", Preamble("", TOOLS), HELLO.conversation, ModelSettings(), **wanted)
        assert json.loads(FORMATS[mode].encode(request)).get("tool_choice") == choice
        bare = replace(request, preamble=Preamble("", ()))
        assert "tool_choice" not in json.loads(FORMATS[mode].encode(bare))


@pytest.mark.parametrize("parallel", [None, False, True])
def test_parallel_calls_can_be_switched_off(parallel: bool | None) -> None:
    settings = ModelSettings(parallel_tool_calls=parallel)
    for mode, format_ in FORMATS.items():
        request = ModelRequest("m", Preamble("", TOOLS), HELLO.conversation, settings)
        body = json.loads(format_.encode(request))
        if mode == "anthropic_messages":
            wanted = {"type": "auto", "disable_parallel_tool_use": True} if parallel is False else None
            assert body.get("tool_choice") == wanted
        else:
            assert body.get("parallel_tool_calls") == parallel


def test_a_call_that_must_be_made_is_not_preceded_by_thinking() -> None:
    request = ModelRequest("m", Preamble("", TOOLS), HELLO.conversation, ModelSettings(reasoning="high"))
    assert "thinking" in json.loads(anthropic_messages.FORMAT.encode(request))
    assert "thinking" not in json.loads(anthropic_messages.FORMAT.encode(replace(request, tool_choice="required")))


def test_a_model_that_writes_its_calls_is_given_the_schema_of_a_call() -> None:
    request = ModelRequest(
        "m", Preamble("", TOOLS), HELLO.conversation, ModelSettings(), profile=Profile(tools="schema")
    )

    def choices(**wanted: Any) -> list[str]:
        body = json.loads(chat_completions.FORMAT.encode(replace(request, **wanted)))
        schema = body["response_format"]["json_schema"]["schema"]
        forms = schema.get("oneOf", [schema])
        return [form["properties"]["tool"]["const"] if "tool" in form["properties"] else "answer" for form in forms]

    assert choices() == ["add", "look", "answer"]
    assert choices(tool_choice="required") == ["add", "look"]
    assert choices(tool_choice="required", named_tool="look") == ["look"]
    assert choices(tool_choice="none") == ["answer"]
