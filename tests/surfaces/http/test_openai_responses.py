"""An agent asked through responses, by the official client."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.fake_endpoint import DONE, PAUSE, Answer, delta, fragment, refuses, says, usage
from tests.surfaces.http.compatible import PIXEL, Talking, talking
from tests.surfaces.http.served_home import wants_a_file

WORDS = [delta(role="assistant", content=""), delta(content="One "), delta(content="two "), delta(content="three.")]
END = [delta(finish="stop"), usage(), DONE]
CUT = Answer([*WORDS[:2], delta(finish="length"), usage(), DONE])
BREAKS = Answer([*WORDS[:3], PAUSE], ending="cut")


async def collect_stream(talk: Talking, **more: Any) -> list[Any]:
    """The events of a stream, as their own helper reads them; their numbers increase. A model that pauses
    goes on when the first of its words has come."""
    events: list[Any] = []
    async with talk.client.responses.stream(**{"model": "one", "input": "Go."} | more) as stream:
        async for event in stream:
            events.append(event)
            if event.type == "response.output_text.delta":
                talk.endpoint.go_on.set()
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    return events


def texts(events: list[Any]) -> list[str]:
    """The messages that were streamed."""
    return [event.text for event in events if event.type == "response.output_text.done"]


async def test_a_response_is_returned_and_can_be_retrieved_again(tmp_path: Path) -> None:
    async with talking(tmp_path, says("Forty-two.")) as talk:
        made = await talk.client.responses.create(
            model="one", input="What is it?", instructions="Be brief.", metadata={"k": "v"}
        )
        assert (made.status, made.output_text, made.metadata) == ("completed", "Forty-two.", {"k": "v"})
        assert made.usage is not None
        assert (made.usage.input_tokens, made.usage.output_tokens, made.usage.total_tokens) == (10, 5, 15)
        assert made.id.startswith("resp_run_")
        assert talk.sent == [{"role": "user", "content": "What is it?"}]
        assert talk.system.startswith("You are one.")
        assert talk.system.endswith("Be brief.")
        kept = await talk.client.responses.retrieve(made.id)
        assert (kept.status, kept.output_text, kept.instructions) == ("completed", "Forty-two.", "Be brief.")
        assert kept.usage == made.usage


async def test_the_openai_stream_helper_accepts_the_stream(tmp_path: Path) -> None:
    async with talking(tmp_path, Answer([*WORDS[:2], PAUSE, *WORDS[2:], *END])) as talk:
        said: list[str] = []
        async with talk.client.responses.stream(model="one", input="Go.") as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    said.append(event.delta)
                    talk.endpoint.go_on.set()  # the rest comes only when the first word has
            final = await stream.get_final_response()
        assert said[0] == "One "
        assert final.output_text == "".join(said) == "One two three."
        assert final.status == "completed"
        assert final.usage is not None


async def test_a_stream_has_the_expected_events(tmp_path: Path) -> None:
    thinks = Answer([delta(role="assistant", reasoning_content="Hm."), delta(content="Yes."), *END])

    async with talking(tmp_path, thinks) as talk:
        events = await collect_stream(talk)
        assert [event.type.removeprefix("response.") for event in events] == [
            "created", "in_progress",
            "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
            "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
            "output_item.added", "content_part.added", "output_text.delta",
            "output_text.done", "content_part.done", "output_item.done",
            "completed",
        ]  # fmt: skip
        assert events[7].item.summary[0].text == "Hm."
        assert events[-1].response.output_text == "Yes."


async def test_text_between_calls_is_a_separate_message(tmp_path: Path) -> None:
    looks = fragment(0, "call_1", "glob", '{"pattern": "*"}')
    first = Answer(
        [delta(role="assistant", content="I look."), delta(tool_calls=[looks]), delta(finish="tool_calls"), DONE]
    )

    async with talking(tmp_path, first, says("Nothing."), more="tools: [glob]") as talk:
        events = await collect_stream(talk)
        assert texts(events) == ["I look.", "Nothing."]
        assert events[-1].response.output_text == "Nothing."


async def test_text_of_a_failed_attempt_is_not_in_the_response(tmp_path: Path) -> None:
    async with talking(tmp_path, BREAKS, says("Eins."), more="fallbacks: [fake/m2]") as talk:
        events = await collect_stream(talk)
        assert texts(events) == ["One two ", "Eins."]
        done = [event.item.status for event in events if event.type == "response.output_item.done"]
        assert done == ["incomplete", "completed"]
        assert events[-1].response.output_text == "Eins."


async def test_a_response_continues_its_session(tmp_path: Path) -> None:
    async with talking(tmp_path, says("Hi."), says("Yes."), says("Still.")) as talk:
        create = talk.client.responses.create
        first = await create(model="one", input="Hello.", instructions="Be brief.")
        second = await create(model="one", input="There?", previous_response_id=first.id)
        assert second.previous_response_id == first.id
        assert [one["content"] for one in talk.sent] == ["Hello.", "Hi.", "There?"]
        assert "Be brief." not in talk.system, "instructions are for one response"
        assert second.conversation is not None
        assert second.conversation == first.conversation
        several: Any = [{"role": "user", "content": "And"}, {"role": "user", "content": "now?"}]
        await create(model="one", input=several, conversation=second.conversation.id)
        assert [one["content"] for one in talk.sent] == ["Hello.", "Hi.", "There?", "Yes.", "And\n\nnow?"]
        with pytest.raises(openai.NotFoundError):
            await create(model="one", input="Hm?", previous_response_id="resp_run_none")
        with pytest.raises(openai.NotFoundError):
            await create(model="one", input="Hm?", conversation="ses_none")
        with pytest.raises(openai.BadRequestError):
            await create(model="one", input="Hm?", previous_response_id=first.id, conversation="ses_x")


async def test_every_kind_of_input_item_is_accepted(tmp_path: Path) -> None:
    picture = f"data:image/png;base64,{PIXEL}"
    items: Any = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "The time?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "12:00"},
        {
            "type": "message", "id": "m", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": "Noon.", "annotations": []}],
        },
        {"role": "user", "content": [{"type": "input_image", "image_url": picture, "detail": "auto"}]},
    ]  # fmt: skip

    async with talking(tmp_path, says("A clock.")) as talk:
        made = await talk.client.responses.create(model="one", input=items)
        assert made.output_text == "A clock."
        roles = [one["role"] for one in talk.sent]
        assert roles == ["user", "assistant", "user", "assistant", "user"]
        told = json.dumps(talk.sent)
        assert all(each in told for each in ("The time?", "clock", "12:00", "Noon.", picture))
        assert talk.system.endswith("Be kind.")


async def test_a_background_response_can_be_fetched_later(tmp_path: Path) -> None:
    async with talking(tmp_path, Answer([PAUSE, *WORDS, *END])) as talk:
        made = await talk.client.responses.create(model="one", input="Go.", background=True)
        assert made.status == "queued"
        await talk.endpoint.asked.wait()
        assert (await talk.client.responses.retrieve(made.id)).status == "in_progress"
        talk.endpoint.go_on.set()
        await talk.engine.service.wait(made.id.removeprefix("resp_"))
        done = await talk.client.responses.retrieve(made.id)
        assert (done.status, done.output_text) == ("completed", "One two three.")
        again = await talk.client.responses.cancel(made.id)
        assert again.status == "completed", "what has ended stays as it is"


async def test_a_response_can_be_cancelled(tmp_path: Path) -> None:
    async with talking(tmp_path, Answer([PAUSE, *WORDS, *END])) as talk:
        made = await talk.client.responses.create(model="one", input="Go.", background=True)
        await talk.endpoint.asked.wait()
        assert (await talk.client.responses.cancel(made.id)).status == "cancelled"
        assert (await talk.client.responses.retrieve(made.id)).status == "cancelled"


@pytest.mark.parametrize("background", [False, True])
async def test_only_a_response_in_the_background_outlives_its_client(tmp_path: Path, background: bool) -> None:
    async with talking(tmp_path, Answer([*WORDS[:2], PAUSE, *WORDS[2:], *END])) as talk:
        stream = await talk.client.responses.create(model="one", input="Go.", stream=True, background=background)
        await anext(aiter(stream))
        await stream.close()
        [run] = await talk.engine.service.runs()
        if background:
            for _ in range(20):  # a cancel takes less
                assert (await talk.server.ask("GET", f"/v1/runs/{run.origin.run_id}")).json["outcome"] is None
            talk.endpoint.go_on.set()
        _, end = await talk.engine.service.wait(run.origin.run_id)
        assert end.outcome == ("completed" if background else "cancelled")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("background", [False, True])
async def test_a_run_that_waits_for_a_reviewer_is_reported(tmp_path: Path, stream: bool, background: bool) -> None:
    async with talking(tmp_path, wants_a_file(), says("Written.")) as talk:
        create, asked = talk.client.responses.create, {"model": "asking", "input": "Go."}
        if stream:
            events = await collect_stream(talk, **asked, background=background)
            made = events[-1].response
            assert events[-1].type == f"response.{made.status}"
        else:
            made: Any = await create(**asked, background=background)
        if background and not stream:
            while not made.output:
                made = await talk.client.responses.retrieve(made.id)
        [approval] = await talk.engine.service.approvals()
        assert approval.approval_id in made.output_text
        assert made.status == ("in_progress" if background else "incomplete")
        await talk.server.ask("POST", f"/v1/approvals/{approval.approval_id}", {"decision": "approve"})
        await talk.engine.service.wait(approval.origin.run_id)
        assert (await talk.client.responses.retrieve(made.id)).output_text == "Written."


async def test_a_truncated_answer_is_incomplete(tmp_path: Path) -> None:
    async with talking(tmp_path, CUT, CUT) as talk:
        made = await talk.client.responses.create(model="one", input="Go.", max_output_tokens=3)
        assert made.incomplete_details is not None
        assert (made.status, made.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert (made.output_text, made.max_output_tokens) == ("One ", 3)
        last = (await collect_stream(talk, max_output_tokens=3))[-1]
        assert (last.type, last.response.output_text) == ("response.incomplete", "One ")


async def test_a_failure_in_the_middle_is_the_last_event(tmp_path: Path) -> None:
    async with talking(tmp_path, BREAKS) as talk:
        last = (await collect_stream(talk))[-1]
        assert last.type == "response.failed"
        assert (last.response.error.code, last.response.error.type) == ("server_error", "model_error")
        kept = await talk.client.responses.retrieve(last.response.id)
        assert kept.status == "failed"
        assert kept.error is not None


async def test_a_failure_before_the_first_byte_is_the_answer(tmp_path: Path) -> None:
    failure = refuses(500, {"error": {"message": "boom"}})
    async with talking(tmp_path, failure, failure) as talk:
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError, match="boom"):
                await talk.client.responses.create(model="one", input="Go.", stream=stream)


class Point(BaseModel):
    x: int


async def test_a_response_matches_its_schema(tmp_path: Path) -> None:
    async with talking(tmp_path, says("nothing"), says('{"x": 1}'), says('{"x": 2}')) as talk:
        parsed = await talk.client.responses.parse(model="one", input="Go.", text_format=Point)
        assert parsed.output_parsed == Point(x=1)
        async with talk.client.responses.stream(model="one", input="Go.", text_format=Point) as stream:
            assert (await stream.get_final_response()).output_parsed == Point(x=2)


async def test_effort_cannot_exceed_the_agents_setting(tmp_path: Path) -> None:
    settings = "model_settings: {reasoning: medium}"
    async with talking(tmp_path, says("a"), says("b"), more=settings) as talk:
        for wanted, got in (("high", "medium"), ("low", "low")):
            made = await talk.client.responses.create(model="one", input="Go.", reasoning={"effort": wanted})
            assert made.reasoning is not None
            assert made.reasoning.effort == got


async def test_responses_of_an_invisible_agent_do_not_exist(tmp_path: Path) -> None:
    async with talking(tmp_path, says("Secret.")) as talk:
        made = await talk.client.responses.create(model="one", input="Go.")
        limited = talk.another(await talk.server.mint("run", agents=["two"]))
        with pytest.raises(openai.NotFoundError):
            await limited.responses.retrieve(made.id)
        with pytest.raises(openai.NotFoundError):
            await limited.responses.cancel(made.id)
        with pytest.raises(openai.NotFoundError):
            await limited.responses.create(model="two", input="Tell.", previous_response_id=made.id)


async def test_the_same_key_returns_the_same_response(tmp_path: Path) -> None:
    async with talking(tmp_path, says("Once.")) as talk:
        key = {"Idempotency-Key": "k"}
        first = await talk.client.responses.create(model="one", input="Go.", extra_headers=key)
        second = await talk.client.responses.create(model="one", input="Go.", extra_headers=key)
        assert first == second
