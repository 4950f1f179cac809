"""The seven cases of the acceptance tests of Open Responses (openresponses.org), written from its specification.

A response has every field that the specification requires, of the type that it requires; each event of a stream
names its type twice and is numbered; items and their parts are added before their deltas and done after them."""

import json
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.fake_endpoint import DONE, Answer, Behaviour, delta, fragment, says, usage
from tests.surfaces.http.compatible import PIXEL, Talking, talking

NUMBER = (int, float)
FIELDS: Final[dict[str, tuple[type | None, ...]]] = {
    "id": (str,), "object": (str,), "created_at": (int,), "completed_at": (int, None), "status": (str,),
    "incomplete_details": (dict, None), "model": (str,), "previous_response_id": (str, None),
    "instructions": (str, None), "output": (list,), "error": (dict, None), "tools": (list,),
    "tool_choice": (str, dict), "truncation": (str,), "parallel_tool_calls": (bool,), "text": (dict,),
    "top_p": NUMBER, "presence_penalty": NUMBER, "frequency_penalty": NUMBER, "top_logprobs": (int,),
    "temperature": NUMBER, "reasoning": (dict, None), "user": (str, None), "usage": (dict, None),
    "max_output_tokens": (int, None), "max_tool_calls": (int, None), "store": (bool,), "background": (bool,),
    "service_tier": (str,), "metadata": (dict,), "safety_identifier": (str, None), "prompt_cache_key": (str, None),
}  # fmt: skip
ITEM_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "message": ("id", "status", "role", "content"),
    "reasoning": ("id", "summary"),
    "function_call": ("id", "call_id", "name", "arguments", "status"),
}
WEATHER: Final[dict[str, Any]] = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather of a place.",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}
CALLS: Final = Answer(
    [
        delta(role="assistant", tool_calls=[fragment(0, "c", "get_weather", '{"location": "Ulm"}')]),
        delta(finish="tool_calls"),
        usage(),
        DONE,
    ]
)


def ask(content: Any, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


CASES: Final[dict[str, tuple[dict[str, Any], Behaviour, str]]] = {
    "basic response": ({"input": [ask("Greet me.")]}, says("Hello to you."), "message"),
    "streaming": ({"input": [ask("Count to three.")], "stream": True}, says("1 2 3"), "message"),
    "system prompt": ({"input": [ask("Speak like a pirate.", "system"), ask("Hello.")]}, says("Ahoy."), "message"),
    "tool calling": ({"input": [ask("The weather in Ulm?")], "tools": [WEATHER]}, CALLS, "function_call"),
    "tool calling streaming": (
        {"input": [ask("The weather in Ulm?")], "tools": [WEATHER], "stream": True},
        CALLS,
        "function_call",
    ),
    "image input": (
        {
            "input": [
                ask(
                    [
                        {"type": "input_text", "text": "What is it?"},
                        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
                    ]
                )
            ]
        },
        says("A dot."),
        "message",
    ),
    "multiple turns": (
        {"input": [ask("I am Ada."), ask("Hello Ada.", "assistant"), ask("Who am I?")]},
        says("Ada."),
        "message",
    ),
}


def check_response(response: Any) -> None:
    """Check that a response has the required fields, and its items and usage theirs."""
    for name, kinds in FIELDS.items():
        assert name in response, name
        value = response[name]
        is_right = None in kinds if value is None else isinstance(value, tuple(kind for kind in kinds if kind))
        assert is_right, (name, value)
        assert not isinstance(value, bool) or bool in kinds, name
    for item in response["output"]:
        assert set(ITEM_FIELDS[item["type"]]) <= set(item)
        for part in item.get("content", ()):
            assert part.keys() >= {"type", "text", "annotations", "logprobs"}
    for tool in response["tools"]:
        assert tool.keys() >= {"type", "name", "description", "parameters", "strict"}
    assert response["text"]["format"]["type"] == "text"
    if response["usage"] is not None:
        counts = response["usage"]
        assert counts["input_tokens"] + counts["output_tokens"] == counts["total_tokens"]
        assert counts["input_tokens_details"]["cached_tokens"] >= 0
        assert counts["output_tokens_details"]["reasoning_tokens"] >= 0


async def send(talk: Talking, body: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Return the response, and the events if it was streamed."""
    headers = {"Authorization": f"Bearer {talk.server.token}"}
    url = f"{talk.server.url}/v1/responses"
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(url, json={"model": "one", **body}) as reply,
    ):
        assert reply.status == 200, await reply.text()
        if not body.get("stream"):
            return await reply.json(), []
        assert reply.content_type == "text/event-stream"
        events: list[Any] = []
        for block in (await reply.text()).split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
            if lines:
                event = json.loads(lines["data"])
                assert lines["event"] == event["type"]
                events.append(event)
        return events[-1]["response"], events


def check_events(events: list[Any]) -> None:
    """Check the order of the events, and that the deltas are the whole."""
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[:2] == ["created", "in_progress"]
    assert kinds[-1] == "completed"
    for event in events:
        if "response" in event:
            check_response(event["response"])
    for index, item in enumerate(events[-1]["response"]["output"]):
        own = [event for event in events if event.get("output_index") == index]
        assert own[0]["type"] == "response.output_item.added"
        assert own[0]["item"]["status"] == "in_progress"
        assert own[-1]["type"] == "response.output_item.done"
        assert own[-1]["item"] == item
        assert {event["item_id"] for event in own[1:-1]} == {item["id"]}
        joined = "".join(event["delta"] for event in own if event["type"].endswith(".delta"))
        whole = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert joined == whole
        [done] = [event for event in own if event["type"].endswith((".output_text.done", "_arguments.done"))]
        assert done["arguments" if item["type"] == "function_call" else "text"] == whole


@pytest.mark.parametrize("case", CASES)
async def test_the_case_passes(tmp_path: Path, case: str) -> None:
    body, reply, kind = CASES[case]
    async with talking(tmp_path, reply) as talk:
        response, events = await send(talk, body)
        check_response(response)
        assert response["status"] == "completed"
        assert [item["type"] for item in response["output"]] == [kind]
        assert response["completed_at"] >= response["created_at"]
        if events:
            check_events(events)
        kept = await talk.server.ask("GET", f"/v1/responses/{response['id']}")
        assert kept.json == response


async def test_the_model_is_told_each_part_of_the_input(tmp_path: Path) -> None:
    async with talking(tmp_path, *(reply for _, reply, _ in CASES.values())) as talk:
        for body, _, _ in CASES.values():
            await send(talk, body)
        told = [json.dumps(request.json["messages"]) for request in talk.endpoint.requests]
        assert "pirate" in told[2]
        assert talk.endpoint.requests[3].json["tools"][0]["function"]["name"] == "get_weather"
        assert PIXEL in told[5]
        assert [message["role"] for message in talk.endpoint.requests[6].json["messages"]] == [
            "system", "user", "assistant", "user",
        ]  # fmt: skip
