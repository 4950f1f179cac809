"""Responses that are read again: their items, their events and their input."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, Behaviour, delta, fragment, says, usage
from tests.surfaces.http.compatible import PIXEL, Talking, talking
from tests.surfaces.http.served_home import wants_a_file

END = [delta(finish="stop"), usage(), DONE]
WORDS = [delta(role="assistant", content="One "), delta(content="two "), delta(content="three.")]
LOOKS = fragment(0, "call_1", "glob", '{"pattern": "*"}')
SCENARIOS: dict[str, tuple[Behaviour, ...]] = {
    "answered": (Answer([*WORDS, *END]),),
    "thought": (Answer([delta(reasoning_content="H"), delta(reasoning_content="m."), *WORDS, *END]),),
    "looked": (
        Answer([delta(reasoning_content="Hm."), delta(content="I look."), delta(tool_calls=[LOOKS]),
                delta(finish="tool_calls"), DONE]),
        Answer([*WORDS, *END]),
    ),
    "continued": (Answer([*WORDS[:2], delta(finish="length"), usage(), DONE]), says("and more.")),
    "fell back": (Answer([*WORDS[:2], PAUSE], ending="cut"), Answer([*WORDS, *END])),
    "silent": (says("NO_REPLY"),),
}  # fmt: skip


async def read_events(talk: Talking, path: str, body: Any = None) -> list[Any]:
    """Return the events of a stream as they are on the wire."""
    headers, found = {"Authorization": f"Bearer {talk.server.token}"}, list[Any]()
    method = "GET" if body is None else "POST"
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, talk.server.url + path, json=body, headers=headers) as reply,
    ):
        assert reply.status == 200, await reply.text()
        async for line in reply.content:
            if line.startswith(b"data: "):
                talk.endpoint.go_on.set()
                found.append(json.loads(line.removeprefix(b"data: ")))
    return found


def join_deltas(events: list[Any]) -> list[Any]:
    """Return the events with adjacent deltas as one, numbered as the last of them."""
    joined: list[Any] = []
    for event in events:
        if joined and event["type"].endswith(".delta") and event["type"] == joined[-1]["type"]:
            joined[-1] = event | {"delta": joined[-1]["delta"] + event["delta"]}
        else:
            joined.append(event)
    return joined


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_response_is_the_same_in_the_stream_and_when_it_is_read_again(
    tmp_path: Path, scenario: str
) -> None:
    more = "tools: [glob]\nfallbacks: [fake/m2]"
    async with talking(tmp_path, *SCENARIOS[scenario], more=more) as talk:
        body = {"model": "one", "input": "Go.", "stream": True, "metadata": {"a": "b"}}
        events = await read_events(talk, "/v1/responses", body)
        final = events[-1]["response"]
        kept = (await talk.server.ask("GET", f"/v1/responses/{final['id']}")).json
        assert kept == final
        again = await read_events(talk, f"/v1/responses/{final['id']}?stream=true")
        if scenario == "fell back":  # the text of the failed attempt is not stored
            lost = [event["type"] for event in events].index("response.output_item.done")
            events = [*events[:2], *events[lost + 1 :]]
            shifted = [event for event in again if "output_index" in event]
            for event in shifted:
                event["output_index"] += 1
        assert join_deltas(again) == join_deltas(events)
        done = {
            event["item"]["id"]: event["item"] for event in events if event["type"].endswith("output_item.done")
        }
        assert all(done[item["id"]] == item for item in final["output"])


async def test_a_stream_can_be_continued_after_any_event(tmp_path: Path) -> None:
    async with talking(tmp_path, *SCENARIOS["looked"], more="tools: [glob]") as talk:
        events = await read_events(talk, "/v1/responses", {"model": "one", "input": "Go.", "stream": True})
        path = f"/v1/responses/{events[-1]['response']['id']}?stream=true&starting_after="
        for place, event in enumerate(events[:-1]):
            rest = await read_events(talk, f"{path}{event['sequence_number']}")
            assert join_deltas(rest) == join_deltas(events[place + 1 :])
        assert [event["type"] for event in await read_events(talk, f"{path}9999999")] == ["response.completed"]


async def test_a_background_stream_is_continued_while_the_run_is_in_progress(tmp_path: Path) -> None:
    async with talking(tmp_path, Answer([*WORDS[:2], PAUSE, *WORDS[2:], *END])) as talk:
        stream = await talk.client.responses.create(model="one", input="Go.", background=True, stream=True)
        last, text, response_id = -1, "", ""
        async for event in stream:
            last = event.sequence_number
            if event.type == "response.created":
                response_id = event.response.id
            if event.type == "response.output_text.delta":
                text += event.delta
                if text == "One two ":
                    break
        await stream.close()
        rest = await talk.client.responses.retrieve(response_id, stream=True, starting_after=last)
        talk.endpoint.go_on.set()
        events = [event async for event in rest]
        assert all(event.sequence_number > last for event in events)
        text += "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert text == "One two three."
        assert events[-1].type == "response.completed"
        assert events[-1].response.output_text == text


async def test_a_reader_that_leaves_cancels_nothing(tmp_path: Path) -> None:
    async with talking(tmp_path, Answer([*WORDS[:2], PAUSE, *WORDS[2:], *END])) as talk:
        made = await talk.client.responses.create(model="one", input="Go.", background=True)
        stream = await talk.client.responses.retrieve(made.id, stream=True)
        await anext(aiter(stream))
        await stream.close()
        for _ in range(20):  # a cancel takes less
            assert (await talk.client.responses.retrieve(made.id)).status == "in_progress"
        talk.endpoint.go_on.set()
        _, end = await talk.engine.service.wait(made.id.removeprefix("resp_"))
        assert end.outcome == "completed"


async def test_the_input_of_a_response_is_listed(tmp_path: Path) -> None:
    async with talking(tmp_path, says("A."), says("B.")) as talk:
        picture = f"data:image/png;base64,{PIXEL}"
        items: Any = [
            {"role": "user", "content": "First."},
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": [{"type": "input_image", "image_url": picture}]},
        ]
        made = await talk.client.responses.create(model="one", input=items, instructions="Be brief.")
        found = [item async for item in talk.client.responses.input_items.list(made.id, order="asc", limit=2)]
        assert [item.role for item in found] == ["user", "assistant", "user"]
        assert [item.content[0].type for item in found] == ["input_text", "output_text", "input_image"]
        assert found[2].content[0].image_url == picture
        latest = await talk.client.responses.input_items.list(made.id, limit=1)
        assert (latest.data[0].id, latest.has_more) == (found[2].id, True)
        after = await talk.client.responses.create(model="one", input="Second.", previous_response_id=made.id)
        [only] = (await talk.client.responses.input_items.list(after.id)).data
        assert only.content[0].text == "Second."
        other = talk.another(await talk.server.mint("run"))
        with pytest.raises(openai.NotFoundError):
            await other.responses.input_items.list(made.id)
        with pytest.raises(openai.BadRequestError):
            await talk.client.responses.input_items.list(made.id, after="in_none")


async def test_each_message_to_a_run_that_waits_is_a_response_of_its_own(tmp_path: Path) -> None:
    async with talking(tmp_path, wants_a_file(), says("Left.")) as talk:
        create = talk.client.responses.create
        first = await create(model="asking", input="Write it.")
        second = await create(model="asking", input="Leave it.", previous_response_id=first.id)
        assert first.id != second.id
        [item] = (await talk.client.responses.input_items.list(second.id)).data
        assert item.content[0].text == "Leave it."
        [approval] = await talk.engine.service.approvals()
        await talk.server.ask("POST", f"/v1/approvals/{approval.approval_id}", {"decision": "deny"})
        await talk.engine.service.wait(approval.origin.run_id)
        assert (await talk.client.responses.retrieve(second.id)).output_text == "Left."
        assert (await talk.client.responses.retrieve(first.id)).status == "incomplete"


async def test_a_response_is_deleted_with_its_session(tmp_path: Path) -> None:
    async with talking(tmp_path, says("A."), says("B."), says("C.")) as talk:
        admin = talk.another(talk.server.token)
        alone = await talk.client.responses.create(model="one", input="Go.")
        with pytest.raises(openai.PermissionDeniedError):
            await talk.client.responses.delete(alone.id)
        await admin.responses.delete(alone.id)
        with pytest.raises(openai.NotFoundError):
            await admin.responses.retrieve(alone.id)
        with pytest.raises(openai.NotFoundError):
            await admin.responses.delete(alone.id)
        first = await talk.client.responses.create(model="one", input="Go.")
        await talk.client.responses.create(model="one", input="On.", previous_response_id=first.id)
        with pytest.raises(openai.ConflictError, match="DELETE /v1/sessions/ses_"):
            await admin.responses.delete(first.id)


async def test_an_unstored_response_cannot_be_retrieved_or_continued(tmp_path: Path) -> None:
    async with talking(tmp_path, says("A.")) as talk:
        made = await talk.client.responses.create(model="one", input="Go.", store=False)
        assert (made.output_text, made.store) == ("A.", False)
        with pytest.raises(openai.NotFoundError, match="store: false"):
            await talk.client.responses.retrieve(made.id)
        with pytest.raises(openai.NotFoundError):
            await talk.client.responses.create(model="one", input="On.", previous_response_id=made.id)
