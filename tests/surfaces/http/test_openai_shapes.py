"""Every response matches OpenAI's own types exactly. Their client accepts more than that."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.fake_endpoint import DONE, PAUSE, Answer, Behaviour, delta, fragment, says, usage
from tests.surfaces.http.compatible import Talking, talking
from tests.surfaces.http.served_home import wants_a_file

GO: list[Any] = [{"role": "user", "content": "Go."}]
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
LOOKS = fragment(0, "call_1", "glob", '{"pattern": "*"}')
SCENARIOS: dict[str, tuple[Behaviour, ...]] = {
    "answered": (says("Yes."),),
    "thought": (
        Answer([delta(reasoning_content="Hm."), delta(content="Yes."), delta(finish="stop"), DONE]),
    ),
    "looked": (
        Answer([delta(content="I look."), delta(tool_calls=[LOOKS]), delta(finish="tool_calls"), DONE]),
        says("Nothing."),
    ),
    "cut": (Answer([delta(role="assistant", content="On"), delta(finish="length"), usage(), DONE]),),
    "fell back": (Answer([delta(content="On"), PAUSE], ending="cut"), says("Yes.")),
    "failed": (Answer([delta(content="On"), PAUSE], ending="cut"),) * 2,
}  # fmt: skip
each_scenario = pytest.mark.parametrize("scenario", SCENARIOS)


async def lines(talk: Talking, path: str, body: dict[str, Any]) -> list[str]:
    """Return the events of a stream. A model that pauses continues after the first event."""
    headers, found = {"Authorization": f"Bearer {talk.server.token}"}, list[str]()
    url = talk.server.url + path
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, json=body | {"stream": True}, headers=headers) as reply,
    ):
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        async for line in reply.content:
            talk.endpoint.go_on.set()
            if line.startswith(b"data: "):
                found.append(line.decode().removeprefix("data: ").rstrip())
    return found


@each_scenario
async def test_chat_chunks_match_the_official_types(tmp_path: Path, scenario: str) -> None:
    async with talking(tmp_path, *SCENARIOS[scenario], more="tools: [glob]\nfallbacks: [fake/m2]") as talk:
        body = {"model": "one", "messages": GO, "max_tokens": 50, "stream_options": {"include_usage": True}}
        *chunks, end = await lines(talk, CHAT, body)
        assert end == "[DONE]"
        if scenario == "failed":
            assert '"error"' in chunks.pop()
        found = [ChatCompletionChunk.model_validate_json(chunk, strict=True) for chunk in chunks]
        assert len({chunk.id for chunk in found}) == 1
        assert found[0].choices[0].delta.role == "assistant"
        finished = [choice.finish_reason for chunk in found for choice in chunk.choices if choice.finish_reason]
        assert finished == {"cut": ["length"], "failed": []}.get(scenario, ["stop"])


@each_scenario
async def test_response_events_match_the_official_types(tmp_path: Path, scenario: str) -> None:
    async with talking(tmp_path, *SCENARIOS[scenario], more="tools: [glob]\nfallbacks: [fake/m2]") as talk:
        body = {"model": "one", "input": "Go.", "max_output_tokens": 50}
        found = [EVENTS.validate_json(line) for line in await lines(talk, RESPONSES, body)]
        last = {"cut": "response.incomplete", "failed": "response.failed"}
        assert found[-1].type == last.get(scenario, "response.completed")
        numbers = [event.sequence_number for event in found]
        assert numbers == sorted(set(numbers))


async def test_complete_answers_match_the_official_types(tmp_path: Path) -> None:
    async with talking(tmp_path, says("a"), says("b"), wants_a_file(), wants_a_file()) as talk:
        ask = talk.server.ask
        for agent in ("one", "asking"):
            chat = await ask("POST", CHAT, {"model": agent, "messages": GO})
            ChatCompletion.model_validate_json(chat.body, strict=True)
            made = await ask("POST", RESPONSES, {"model": agent, "input": "Go."})
            Response.model_validate_json(made.body)
            kept = await ask("GET", f"{RESPONSES}/{made.json['id']}")
            Response.model_validate_json(kept.body)
        Model.model_validate_json((await ask("GET", "/v1/models/one")).body, strict=True)
