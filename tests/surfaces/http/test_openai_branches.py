"""Conversations that branch, and requests that are sent again."""

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, delta, says, usage
from tests.surfaces.http.compatible import Talking, talking
from tests.surfaces.http.served_home import wants_a_file

WORDS = [delta(role="assistant", content="One "), delta(content="two.")]
END = [delta(finish="stop"), usage(), DONE]


def texts(talk: Talking) -> list[str]:
    return [one["content"] for one in talk.sent]


async def test_a_response_sees_only_what_it_follows(tmp_path: Path) -> None:
    async with talking(tmp_path, *(says(f"Answer {name}.") for name in "ABCDE")) as talk:
        create = talk.client.responses.create
        first = await create(model="one", input="A?")
        second = await create(model="one", input="B?", previous_response_id=first.id)
        assert second.conversation == first.conversation
        third = await create(model="one", input="C?", previous_response_id=first.id)
        assert texts(talk) == ["A?", "Answer A.", "C?"]
        assert third.conversation != first.conversation
        await create(model="one", input="D?", previous_response_id=third.id)
        assert texts(talk) == ["A?", "Answer A.", "C?", "Answer C.", "D?"]
        await create(model="one", input="E?", previous_response_id=second.id)
        assert texts(talk) == ["A?", "Answer A.", "B?", "Answer B.", "E?"]


async def test_responses_that_follow_one_at_the_same_time_do_not_see_each_other(tmp_path: Path) -> None:
    async with talking(tmp_path, *([says("Fine.")] * 6)) as talk:
        first = await talk.client.responses.create(model="one", input="Zero?")
        follow = [
            talk.client.responses.create(model="one", input=f"{number}?", previous_response_id=first.id)
            for number in range(5)
        ]
        made = await asyncio.gather(*follow)
        assert len({each.conversation.id for each in made}) == 5
        sent = [request.json["messages"] for request in talk.endpoint.requests[1:]]
        asked = [[one["content"] for one in messages if one["role"] == "user"] for messages in sent]
        assert sorted(asked) == [["Zero?", f"{number}?"] for number in range(5)]


async def test_a_branch_from_a_run_that_waited_sees_what_its_response_saw(tmp_path: Path) -> None:
    async with talking(tmp_path, wants_a_file(), says("Left."), says("Branched.")) as talk:
        create = talk.client.responses.create
        first = await create(model="asking", input="Write it.")
        assert first.status == "incomplete"
        second = asyncio.ensure_future(create(model="asking", input="Leave it.", previous_response_id=first.id))
        [approval] = await talk.engine.service.approvals()
        answer = await second
        assert answer.id != first.id
        await talk.server.ask("POST", f"/v1/approvals/{approval.approval_id}", {"decision": "deny"})
        await talk.engine.service.wait(approval.origin.run_id)
        branch = await create(model="asking", input="What now?", previous_response_id=first.id)
        assert branch.output_text == "Branched."
        told = str(talk.sent)
        assert "Write it." in told
        assert "What now?" in told
        assert "Leave it." not in told


async def test_a_conversation_has_everything_of_its_session(tmp_path: Path) -> None:
    async with talking(tmp_path, says("A."), says("B."), says("C.")) as talk:
        create = talk.client.responses.create
        first = await create(model="one", input="A?")
        await create(model="one", input="B?", conversation=first.conversation.id)
        await create(model="one", input="C?", conversation={"id": first.conversation.id})
        assert texts(talk) == ["A?", "A.", "B?", "B.", "C?"]


async def test_another_user_cannot_branch(tmp_path: Path) -> None:
    async with talking(tmp_path, says("Secret."), says("Mine.")) as talk:
        first = await talk.client.responses.create(model="one", input="Go.")
        await talk.client.responses.create(model="one", input="On.", previous_response_id=first.id)
        other = talk.another(await talk.server.mint("run"))
        with pytest.raises(openai.NotFoundError):
            await other.responses.create(model="one", input="Tell.", previous_response_id=first.id)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_retry_with_the_same_key_continues_after_a_cut_line(tmp_path: Path, api: str, stream: bool) -> None:
    async with talking(tmp_path, Answer([WORDS[0], PAUSE, WORDS[1], *END])) as talk:
        key = {"Idempotency-Key": "once"}
        chat: Any = {"model": "one", "messages": [{"role": "user", "content": "Go."}]}
        body: Any = chat if api == "chat" else {"model": "one", "input": "Go."}
        create = talk.client.chat.completions.create if api == "chat" else talk.client.responses.create
        asking = asyncio.ensure_future(create(**body, stream=stream, extra_headers=key))
        await talk.endpoint.asked.wait()
        if stream:
            await (await asking).response.aclose()
        else:
            asking.cancel()
        again = asyncio.ensure_future(create(**body, stream=stream, extra_headers=key))
        await asyncio.sleep(0)
        talk.endpoint.go_on.set()
        found = await again
        if stream:
            events = [event async for event in found]
            text = "".join(_text_of(event) for event in events)
        else:
            text = found.choices[0].message.content if api == "chat" else found.output_text
        assert text == "One two."
        assert len(talk.endpoint.requests) == 1
        assert len(await talk.engine.service.runs()) == 1


def _text_of(event: Any) -> str:
    if hasattr(event, "choices"):
        return event.choices[0].delta.content or "" if event.choices else ""
    return event.delta if event.type == "response.output_text.delta" else ""
