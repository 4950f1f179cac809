"""Images in tool results, in the requests of every wire format."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.models.chat import HELLO
from treadle.domain.messages import Image, Message, ToolResult, ToolUse, user
from treadle.domain.models import ModelFacts, Profile
from treadle.domain.providers import ProviderConfig
from treadle.models.catalog import Catalog
from treadle.models.formats import anthropic_messages, chat_completions, responses
from treadle.ports.model import Conversation, ModelRequest, Preamble

PIXEL = Image("image/png", "QUJD")
CALLS = Message("assistant", (ToolUse("c1", "look", "{}"), ToolUse("c2", "look", "{}")))
RESULTS = Message("tool", (ToolResult("c1", "[image 1]", images=(PIXEL, PIXEL)), ToolResult("c2", "none")))
URL = "data:image/png;base64,QUJD"


def encode(encode_request: Callable[[ModelRequest], bytes], **fields: Any) -> Any:
    talk = Conversation([user("go"), CALLS, RESULTS])
    return json.loads(encode_request(ModelRequest("m-1", Preamble("", ()), talk, HELLO.settings, **fields)))


def test_anthropic_messages_sends_images_in_the_result() -> None:
    first, second = encode(anthropic_messages.encode_request)["messages"][-1]["content"]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    assert first["content"] == [{"type": "text", "text": "[image 1]"}, image, image]
    assert second["content"] == "none" or second["content"][0]["text"] == "none"


def test_responses_sends_images_in_the_output() -> None:
    first, second = encode(responses.encode_request)["input"][-2:]
    image = {"type": "input_image", "image_url": URL, "detail": "auto"}
    assert first["output"] == [{"type": "input_text", "text": "[image 1]"}, image, image]
    assert second["output"] == "none"


def test_chat_completions_sends_images_after_the_results() -> None:
    *_, first, second, images = encode(chat_completions.encode_request, profile=Profile(image_results=True))[
        "messages"
    ]
    assert (first["role"], first["content"], second["content"]) == ("tool", "[image 1]", "none")
    image = {"type": "image_url", "image_url": {"url": URL}}
    text = {"type": "text", "text": "(Images of the result of c1:)"}
    assert images == {"role": "user", "content": [text, image, image]}


def test_chat_completions_sends_no_images_to_models_without_vision() -> None:
    sent = encode(chat_completions.encode_request)["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool", "tool"]
    assert "QUJD" not in json.dumps(sent)


def test_a_conversation_is_encoded_for_each_kind_of_model() -> None:
    """A fallback that sees no images continues the same conversation."""
    talk = Conversation([user("go"), CALLS, RESULTS])

    def sizes(profile: Profile) -> int:
        request = ModelRequest("m-1", Preamble("", ()), talk, HELLO.settings, profile=profile)
        return len(json.loads(chat_completions.encode_request(request))["messages"])

    assert [sizes(Profile(image_results=sees)) for sees in (True, False, True)] == [5, 4, 5]


@pytest.mark.parametrize(
    ("model", "sees"),
    [("gpt-5.2", True), ("openai/gpt-4o", True), ("qwen2.5-vl-72b", True), ("llava:13b", True), ("gemma-3", True),
     ("claude-sonnet-5.5", True), ("gpt-3.5-turbo", False), ("deepseek-chat", False), ("qwen3:8b", False),
     ("llama-3.1-8b", False)],
)  # fmt: skip
def test_models_with_vision_are_known(model: str, sees: bool) -> None:
    config = ProviderConfig("http://127.0.0.1:8080/v1")
    assert Catalog().profile("p", model, config).image_results is sees
    facts = {f"p/{model}": ModelFacts(image_results=not sees)}
    assert Catalog(models=facts).profile("p", model, config).image_results is not sees
