"""An agent asked through chat completions, by the official client."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from pydantic import BaseModel

from tests.fake_endpoint import DONE, PAUSE, Answer, calls, delta, fragment, refuses, says, usage
from tests.surfaces.http.compatible import PIXEL, Talking, talking
from tests.surfaces.http.served_home import wants_a_file
from treadle.surfaces.http import open_streams
from treadle.surfaces.http.openai import run_answer

GO: list[Any] = [{"role": "user", "content": "Go."}]
WORDS = [delta(role="assistant", content=""), delta(content="One "), delta(content="two "), delta(content="three.")]
END = [delta(finish="stop"), usage(), DONE]


async def collect_stream(talk: Talking, **more: Any) -> list[Any]:
    """The chunks of a stream. A model that pauses goes on when the first of its words has come."""
    stream = await talk.client.chat.completions.create(**{"model": "one", "messages": GO} | more, stream=True)
    return [chunk async for chunk in pace_stream(stream, talk)]


async def pace_stream(stream: Any, talk: Talking) -> AsyncGenerator[Any, None]:
    async for chunk in stream:
        yield chunk
        if chunk.choices and chunk.choices[0].delta.content:
            talk.endpoint.go_on.set()


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def test_the_agent_sees_the_conversation_and_keeps_its_persona(tmp_path: Path) -> None:
    async with talking(tmp_path, says("Forty-two.")) as talk:
        answer = await talk.client.chat.completions.create(
            model="one",
            messages=[
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello."},
                {"role": "assistant", "content": "Yes?"},
                {"role": "developer", "content": "And kind."},
                {"role": "user", "content": [{"type": "text", "text": "What is it?"}]},
            ],
        )
        assert answer.choices[0].message.content == "Forty-two."
        assert answer.choices[0].finish_reason == "stop"
        assert answer.model == "one"
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 5)
        assert talk.sent == [
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": "What is it?"},
        ]
        assert talk.system.startswith("You are one.")
        assert talk.system.endswith("Be brief.\n\nAnd kind.")


async def test_text_is_streamed_as_the_model_writes_it(tmp_path: Path) -> None:
    async with talking(tmp_path, Answer([*WORDS[:2], PAUSE, *WORDS[2:], *END])) as talk:
        said: list[str] = []
        async with talk.client.chat.completions.stream(
            model="one", messages=GO, stream_options={"include_usage": True}
        ) as stream:
            async for event in stream:
                if event.type == "content.delta" and event.delta:
                    said.append(event.delta)
                    talk.endpoint.go_on.set()  # the rest comes only when the first word has
            final = await stream.get_final_completion()
        assert said[0] == "One "
        assert final.choices[0].message.content == "One two three."
        assert final.choices[0].finish_reason == "stop"
        assert final.usage is not None
        assert final.usage.total_tokens == 15


async def test_usage_is_sent_only_on_request(tmp_path: Path) -> None:
    async with talking(tmp_path, says("Hi.")) as talk:
        chunks = await collect_stream(talk)
        assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
        assert chunks[-1].choices[0].finish_reason == "stop"


async def test_text_between_calls_is_a_separate_paragraph(tmp_path: Path) -> None:
    looks = fragment(0, "call_1", "glob", '{"pattern": "*"}')
    first = Answer(
        [delta(role="assistant", content="I look."), delta(tool_calls=[looks]), delta(finish="tool_calls"), DONE]
    )

    async with talking(
        tmp_path,
        first,
        says("Nothing."),
        first,
        says("Nothing."),
        more="tools: [glob]\napprovals: {default: auto}",
    ) as talk:
        assert text_of(await collect_stream(talk)) == "I look.\n\nNothing."
        whole = await talk.client.chat.completions.create(model="one", messages=GO)
        assert whole.choices[0].message.content == "Nothing."


async def test_a_continued_answer_is_one_text(tmp_path: Path) -> None:
    cut = Answer([*WORDS[:2], delta(finish="length"), usage(), DONE])

    async with talking(tmp_path, cut, says("and more.")) as talk:
        assert text_of(await collect_stream(talk)) == "One and more."


BREAKS = Answer([*WORDS[:3], PAUSE], ending="cut")


@pytest.mark.parametrize(
    ("then", "text"),
    [
        ("One two three.", "One two three."),
        ("One two ", "One two "),
        ("Eins.", "One two \n\n[The model failed here. Another attempt starts the answer again.]\n\nEins."),
        ("One", "One two \n\n[The model failed here. Another attempt starts the answer again.]\n\nOne"),
    ],
)
async def test_text_is_not_duplicated_when_another_model_takes_over(tmp_path: Path, then: str, text: str) -> None:
    async with talking(tmp_path, BREAKS, says(then), more="fallbacks: [fake/m2]") as talk:
        assert text_of(await collect_stream(talk)) == text


async def test_an_answer_at_the_clients_limit_ends_with_length(tmp_path: Path) -> None:
    cut = Answer([*WORDS[:2], delta(finish="length"), usage(), DONE])

    async with talking(tmp_path, cut, cut, cut, more="model_settings: {max_tokens: 100}") as talk:
        answer = await talk.client.chat.completions.create(
            model="one", messages=GO, max_completion_tokens=7, temperature=0.5
        )
        assert answer.choices[0].finish_reason == "length"
        assert answer.choices[0].message.content == "One "
        asked = talk.endpoint.requests[-1].json
        assert asked["temperature"] == 0.5
        assert 7 in (asked.get("max_tokens"), asked.get("max_completion_tokens"))
        chunks = await collect_stream(talk, max_tokens=1_000_000)
        assert chunks[-1].choices[0].finish_reason == "length"
        asked = talk.endpoint.requests[-1].json
        assert 100 in (asked.get("max_tokens"), asked.get("max_completion_tokens")), "the agent's own is lower"
        await talk.client.chat.completions.create(model="one", messages=GO, max_tokens=5)


class Point(BaseModel):
    x: int


async def test_an_answer_with_a_schema_is_sent_when_it_is_valid(tmp_path: Path) -> None:
    async with talking(tmp_path, says("no JSON"), says('{"x": 1}'), says('{"y": 1}'), says('{"x": 2}')) as talk:
        parsed = await talk.client.chat.completions.parse(model="one", messages=GO, response_format=Point)
        assert parsed.choices[0].message.parsed == Point(x=1)
        async with talk.client.chat.completions.stream(model="one", messages=GO, response_format=Point) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].message.parsed == Point(x=2)


async def test_images_are_sent_with_the_request(tmp_path: Path) -> None:
    def shows(url: str) -> list[Any]:
        return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]

    async def perform() -> None:
        async with talking(tmp_path, says("A dot.")) as talk:
            own = f"data:image/png;base64,{PIXEL}"
            answer = await talk.client.chat.completions.create(model="one", messages=shows(own))
            assert answer.choices[0].message.content == "A dot."
            assert own in json.dumps(talk.sent)
            for url in (
                "http://127.0.0.1:9/x.png",
                "ftp://example.com/x.png",
                "data:image/png;base64,!!",
                "data:text/html;base64,AAAA",
            ):
                with pytest.raises(openai.BadRequestError) as refused:
                    await talk.client.chat.completions.create(model="one", messages=shows(url))
                assert refused.value.param == "messages[0].content[0]"

    await perform()


async def test_calls_of_client_tools_become_text(tmp_path: Path) -> None:
    called: Any = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    told: list[Any] = [
        {"role": "user", "content": "The time?"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
    ]

    async with talking(tmp_path, says("Noon.")) as talk:
        await talk.client.chat.completions.create(model="one", messages=told)
        asked, call, result = talk.sent
        assert "clock" in call["content"]
        assert "12:00" in result["content"]
        assert [one["role"] for one in (asked, call, result)] == ["user", "assistant", "user"]


async def test_a_continued_session_uses_only_the_latest_message(tmp_path: Path) -> None:
    async with talking(tmp_path, says("Hi."), says("Still here."), says("And here.")) as talk:
        create = talk.client.chat.completions.with_raw_response.create
        session = (await create(model="one", messages=GO)).headers["x-treadle-session"]
        whole: list[Any] = [*GO, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "There?"}]
        again = await create(model="one", messages=whole, extra_headers={"X-Treadle-Session": session})
        assert again.headers["x-treadle-session"] == session
        assert [one["content"] for one in talk.sent] == ["Go.", "Hi.", "There?"]
        named = {"treadle_session": session}
        await create(model="one", messages=[{"role": "user", "content": "And now?"}], metadata=named)
        assert [one["content"] for one in talk.sent] == ["Go.", "Hi.", "There?", "Still here.", "And now?"]
        with pytest.raises(openai.NotFoundError):
            await create(model="one", messages=GO, extra_headers={"X-Treadle-Session": "ses_none"})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("keep", [False, True])
async def test_a_disconnecting_client_cancels_its_run_unless_it_asks_to_keep_it(
    tmp_path: Path, stream: bool, keep: bool
) -> None:
    async with talking(tmp_path, Answer([*WORDS[:2], PAUSE, *WORDS[2:], *END])) as talk:
        headers = {"X-Treadle-On-Disconnect": "keep"} if keep else {}
        asking = asyncio.ensure_future(
            talk.client.chat.completions.create(model="one", messages=GO, stream=stream, extra_headers=headers)
        )
        await talk.endpoint.asked.wait()
        if stream:
            await (await asking).response.aclose()
        else:
            asking.cancel()
        [run] = await talk.engine.service.runs()
        if keep:
            for _ in range(20):  # a cancel takes less
                assert (await talk.server.ask("GET", f"/v1/runs/{run.origin.run_id}")).json["outcome"] is None
            talk.endpoint.go_on.set()
        _, end = await talk.engine.service.wait(run.origin.run_id)
        assert end.outcome == ("completed" if keep else "cancelled")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_that_waits_for_a_reviewer_is_reported_and_stays(tmp_path: Path, stream: bool) -> None:
    async with talking(tmp_path, wants_a_file(), says("Written.")) as talk:
        if stream:
            chunks = await collect_stream(talk, model="asking")
            text, finish = text_of(chunks), chunks[-1].choices[0].finish_reason
        else:
            answer = await talk.client.chat.completions.create(model="asking", messages=GO)
            text, finish = answer.choices[0].message.content or "", answer.choices[0].finish_reason
        [approval] = await talk.engine.service.approvals()
        assert approval.approval_id in text
        assert "write_file" in text
        assert finish == "stop"
        run_id = approval.origin.run_id
        assert (await talk.engine.service.run(run_id)).status == "waiting"
        decided = await talk.server.ask("POST", f"/v1/approvals/{approval.approval_id}", {"decision": "approve"})
        assert decided.status == 200
        _, end = await talk.engine.service.wait(run_id)
        assert (end.outcome, end.text) == ("completed", "Written.")


async def test_text_before_a_question_is_a_separate_paragraph(tmp_path: Path) -> None:
    writes = fragment(0, "call_1", "write_file", '{"path": "x.txt", "content": "hello"}')
    asks = Answer(
        [delta(role="assistant", content="I write."), delta(tool_calls=[writes]), delta(finish="tool_calls"), DONE]
    )

    async with talking(tmp_path, asks) as talk:
        text = text_of(await collect_stream(talk, model="asking"))
        assert text.startswith("I write.\n\nThe agent waits for an approval:")


async def test_a_database_failure_during_a_stream_is_reported(tmp_path: Path) -> None:
    async with talking(tmp_path, Answer([*WORDS[:2], PAUSE, *WORDS[2:], *END])) as talk:
        stream = await talk.client.chat.completions.create(model="one", messages=GO, stream=True)
        chunks = aiter(stream)
        await anext(chunks)
        await talk.engine.__aexit__()

        async def read() -> None:
            async for _ in chunks:
                pass

        with pytest.raises(openai.APIError, match="closed"):
            await read()


async def test_a_message_to_a_waiting_session_explains_the_wait_again(tmp_path: Path) -> None:
    async with talking(tmp_path, wants_a_file()) as talk:
        create = talk.client.chat.completions.with_raw_response.create
        first = await create(model="asking", messages=GO)
        session = {"X-Treadle-Session": first.headers["x-treadle-session"]}
        second = await create(
            model="asking", messages=[{"role": "user", "content": "Leave it."}], extra_headers=session
        )
        assert second.headers["x-treadle-run"] == first.headers["x-treadle-run"]
        assert "apr_" in (second.parse().choices[0].message.content or "")


async def test_a_question_is_answered_by_the_next_message(tmp_path: Path) -> None:
    asks = calls(fragment(0, "call_1", "clarify", '{"question": "Red or blue?"}'))

    async with talking(tmp_path, asks, says("Blue it is."), more="tools: [clarify]\napprovals: {via: api}") as talk:
        create = talk.client.chat.completions.with_raw_response.create
        first = await create(model="one", messages=GO)
        assert "Red or blue?" in first.parse().choices[0].message.content
        session = {"X-Treadle-Session": first.headers["x-treadle-session"]}
        blue = [{"role": "user", "content": "Blue."}]
        second = await create(model="one", messages=blue, extra_headers=session)
        assert second.parse().choices[0].message.content == "Blue it is."
        assert "Blue." in json.dumps(talk.sent)


async def test_a_silent_agent_returns_an_empty_answer(tmp_path: Path) -> None:
    async with talking(tmp_path, says("NO_REPLY"), says("NO_REPLY"), says("NO")) as talk:
        assert text_of(await collect_stream(talk)) == ""
        answer = await talk.client.chat.completions.create(model="one", messages=GO)
        assert answer.choices[0].message.content == ""
        assert text_of(await collect_stream(talk)) == "NO", "which only begins as that does"


async def test_the_same_key_returns_the_same_run(tmp_path: Path) -> None:
    async with talking(tmp_path, says("Once.")) as talk:
        key = {"Idempotency-Key": "k1"}
        create = talk.client.chat.completions.create
        first = await create(model="one", messages=GO, extra_headers=key)
        second = await create(model="one", messages=GO, extra_headers=key)
        assert first == second
        with pytest.raises(openai.UnprocessableEntityError):
            await create(model="two", messages=GO, extra_headers=key)


async def test_a_stream_with_a_key_can_be_repeated(tmp_path: Path) -> None:
    async with talking(tmp_path, Answer([*WORDS, *END])) as talk:
        key = {"Idempotency-Key": "k2"}
        first = await collect_stream(talk, extra_headers=key)
        second = await collect_stream(talk, extra_headers=key)
        assert text_of(first) == text_of(second) == "One two three."
        assert first[0].id == second[0].id


async def test_comments_keep_an_idle_stream_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_streams, "HEARTBEAT_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(run_answer, "FIRST_BYTE_SECONDS", 0.02)

    async with talking(tmp_path, Answer([PAUSE, *WORDS, *END])) as talk:
        body = json.dumps({"model": "one", "messages": GO, "stream": True})
        headers = {"Authorization": f"Bearer {talk.server.token}", "Content-Type": "application/json"}
        url = f"{talk.server.url}/v1/chat/completions"
        async with aiohttp.ClientSession(headers=headers) as http, http.post(url, data=body) as reply:
            assert reply.status == 200
            assert (await reply.content.readline()).startswith(b'data: {"id":"chatcmpl-')
            for _ in range(2):
                while await reply.content.readline() != b":\n":
                    pass
            talk.endpoint.go_on.set()
            assert DONE in await reply.content.read()


async def test_a_failure_during_a_stream_is_reported_in_it(tmp_path: Path) -> None:
    async with talking(tmp_path, BREAKS) as talk:
        stream = await talk.client.chat.completions.create(model="one", messages=GO, stream=True)
        said: list[Any] = []

        async def read() -> None:
            async for chunk in pace_stream(stream, talk):
                said.append(chunk)  # noqa: PERF401 -- what came before the failure is to be seen

        with pytest.raises(openai.APIError) as failed:
            await read()
        assert text_of(said) == "One two "
        assert failed.value.code == "model_error"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_byte_is_the_answer(tmp_path: Path, stream: bool) -> None:
    async with talking(tmp_path, refuses(500, {"error": {"message": "boom"}})) as talk:
        patient = talk.client.with_options(max_retries=2)  # which must not ask again: the agent has
        with pytest.raises(openai.InternalServerError) as failed:
            await patient.chat.completions.create(model="one", messages=GO, stream=stream)
        assert failed.value.status_code == 502
        assert failed.value.code == "model_error"
        assert "boom" in failed.value.message
