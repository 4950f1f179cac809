"""Each format is sent the settings that it has, and no model those that it refuses."""

import json

import pytest

from tests.models.chat import HELLO
from treadle.domain.agents import ModelSettings
from treadle.domain.call_settings import fit_settings, list_unsent
from treadle.domain.models import Profile
from treadle.domain.providers import ProviderConfig
from treadle.models.catalog import Catalog
from treadle.models.formats import anthropic_messages, chat_completions, responses
from treadle.ports.model import ModelRequest

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
