"""Replies that a model refused or a filter cut, as OpenAI's official client reads them."""

from pathlib import Path
from typing import Any

import openai
import pytest

from tests.fake_endpoint import DONE, Answer, Behaviour, delta, refuses, usage
from tests.surfaces.http.compatible import talking

HALF = "Half of an"
CUT = Answer([delta(role="assistant", content=HALF), delta(finish="content_filter"), usage(), DONE])
REFUSED = Answer([delta(role="assistant", refusal="I will not."), delta(finish="stop"), usage(), DONE])
BLOCKED = refuses(400, {"error": {"code": "content_filter", "message": "The prompt was filtered."}})
CASES = [
    pytest.param(CUT, HALF, id="cut"),
    pytest.param(REFUSED, "I will not.", id="refused"),
    pytest.param(BLOCKED, "", id="blocked"),
]


@pytest.mark.parametrize(("reply", "text"), CASES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_completion_ends_with_content_filter(
    tmp_path: Path, reply: Behaviour, text: str, stream: bool
) -> None:
    async with talking(tmp_path, reply) as talk:
        asked: dict[str, Any] = {"model": "one", "messages": [{"role": "user", "content": "Go."}]}
        if not stream:
            choice = (await talk.client.chat.completions.create(**asked)).choices[0]
            assert (choice.finish_reason, choice.message.content) == ("content_filter", text)
            return
        chunks = [chunk async for chunk in await talk.client.chat.completions.create(stream=True, **asked)]
        choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
        assert "".join(choice.delta.content or "" for choice in choices) == text
        assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["content_filter"]


async def test_the_official_parser_raises_its_error_for_filtered_content(tmp_path: Path) -> None:
    async with talking(tmp_path, CUT) as talk:
        with pytest.raises(openai.ContentFilterFinishReasonError):
            await talk.client.chat.completions.parse(model="one", messages=[{"role": "user", "content": "Go."}])


@pytest.mark.parametrize(("reply", "text"), CASES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_incomplete_because_of_the_filter(
    tmp_path: Path, reply: Behaviour, text: str, stream: bool
) -> None:
    async with talking(tmp_path, reply) as talk:
        if stream:
            async with talk.client.responses.stream(model="one", input="Go.") as events:
                last = [event async for event in events][-1]
            assert last.type == "response.incomplete"
            made = last.response
        else:
            made = await talk.client.responses.create(model="one", input="Go.")
        for found in (made, await talk.client.responses.retrieve(made.id)):
            assert (found.status, found.output_text) == ("incomplete", text)
            assert found.incomplete_details.reason == "content_filter"
            assert found.error is None
