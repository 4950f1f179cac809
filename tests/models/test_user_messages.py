"""Two messages of the user in a row, for models whose chat templates refuse them."""

import json
from typing import Any

import pytest

from tests.models.chat import HELLO
from treadle.domain.messages import Image, Message, Text, user
from treadle.domain.models import ModelFacts, Profile
from treadle.domain.providers import ProviderConfig
from treadle.models.catalog import Catalog
from treadle.models.formats.chat_completions import encode_request
from treadle.ports.model import Conversation, ModelRequest, Preamble

TURNS = [user("one"), user("two"), Message("assistant", (Text("three"),)), user("four"), user('f"ive')]


def contents(*messages: Message, system: str = "", **fields: Any) -> list[Any]:
    request = ModelRequest("m-1", Preamble(system, ()), Conversation(messages), HELLO.settings, **fields)
    return [message["content"] for message in json.loads(encode_request(request))["messages"]]


def test_user_messages_are_not_merged_by_default() -> None:
    assert contents(*TURNS) == ["one", "two", "three", "four", 'f"ive']


@pytest.mark.parametrize("how", [{"profile": Profile(alternating_roles=True)}, {"plain": True}])
def test_user_messages_are_merged_if_the_profile_or_a_refusal_requires_it(how: dict[str, Any]) -> None:
    assert contents(*TURNS, **how) == ["one\n\ntwo", "three", 'four\n\nf"ive']
    assert contents(*TURNS, **how, system="s") == ["s", "one\n\ntwo", "three", 'four\n\nf"ive']


def test_a_picture_is_not_merged() -> None:
    picture = Message("user", (Text("look"), Image("image/png", "QUJD")))
    assert len(contents(user("one"), picture, user("two"), profile=Profile(alternating_roles=True))) == 3


@pytest.mark.parametrize(
    ("model", "alternates"),
    [
        ("gemma-2-9b-it", True),
        ("mixtral:8x7b", True),
        ("llama2:7b", True),
        ("qwen3:8b", False),
        ("llama-3.1-8b", False),
    ],
)
def test_models_that_need_alternating_roles_are_known(model: str, alternates: bool) -> None:
    config = ProviderConfig("http://127.0.0.1:8080/v1")
    assert Catalog().profile("p", model, config).alternating_roles is alternates
    facts = {f"p/{model}": ModelFacts(alternating_roles=True)}
    assert Catalog(models=facts).profile("p", model, config).alternating_roles is True
