"""A person and an agent on Telegram: pairing, answers, streaming, approvals, and bad input."""

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest

import treadle
from tests.channels.fake_telegram import TOKEN, FakeTelegram, serve_fake_telegram
from tests.channels.home import AGENT, chatting
from tests.patience import HANG_SECONDS
from treadle.api.engine import HostedEngine
from treadle.channels import telegram
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptedModel, ask, call, say

ANNA, BEN, GROUP = 11, 22, -100


def echo() -> FunctionModel:
    def answer(request: ModelRequest) -> Any:
        return say("you said: " + request.conversation.messages[-1].text.splitlines()[-1])

    return FunctionModel(answer)


async def test_an_unknown_sender_gets_a_code_and_nothing_else(tmp_path: Path) -> None:
    model = ScriptedModel()  # any call would fail
    async with chatting(tmp_path, model) as chat:
        for text in ("hello", "are you there?", "AAAAAAAA"):
            await chat.fake.write(ANNA, text)
        for sender in (31, 32, 33, 34):
            await chat.fake.write(sender, "me too")
        await chat.fake.write(ANNA, "@treadle_test_bot hi", chat=GROUP, entities=[MENTION])
        await chat.fake.wait_for(lambda: chat.fake.confirmed >= 8)
        await chat.fake.wait_for(lambda: len(chat.fake.sent) >= 3)
        assert [each["chat"]["id"] for each in chat.fake.sent] == [ANNA, 31, 32], "at most three codes"
        assert "pairing code is" in chat.fake.sent[0]["text"]
        assert (await chat.engine.context.service.runs()) == []


MENTION = {"type": "mention", "offset": 0, "length": 17}


async def test_a_paired_person_is_answered_in_a_session_of_their_own(tmp_path: Path) -> None:
    async with chatting(tmp_path, echo()) as chat:
        await chat.admit(ANNA)
        await chat.admit(BEN)
        await chat.fake.write(ANNA, "one")
        await chat.says(ANNA, "you said: one")
        await chat.fake.write(BEN, "two")
        await chat.says(BEN, "you said: two")
        await chat.fake.write(ANNA, "three")
        await chat.says(ANNA, "you said: three")
        runs = await chat.engine.context.service.runs()
        assert [run.owner for run in runs] == ["telegram|11", "telegram|22", "telegram|11"]
        assert len({run.origin.session_id for run in runs}) == 2
        async with asyncio.timeout(HANG_SECONDS):
            while (view := (await chat.engine.context.channels().list())[0]).unsent:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # the platform has the answer before it is recorded as sent
        assert (view.status, view.account, view.running) == ("connected", "@treadle_test_bot", 0)


async def test_a_message_that_arrives_twice_is_answered_once(tmp_path: Path) -> None:
    async with chatting(tmp_path, echo()) as chat:
        await chat.admit(ANNA)
        number = await chat.fake.write(ANNA, "once")
        await chat.says(ANNA, "you said: once")
        await chat.fake.write(ANNA, "once", message_id=number)
        await chat.fake.write(ANNA, "then")
        await chat.says(ANNA, "you said: then")
        assert chat.fake.texts(ANNA) == ["you said: once", "you said: then"]


async def test_in_groups_only_mentions_and_replies_count(tmp_path: Path) -> None:
    async with chatting(tmp_path, echo()) as chat:
        await chat.admit(ANNA, "direct", "groups")
        await chat.admit(BEN)
        await chat.fake.write(ANNA, "not for you", chat=GROUP)
        await chat.fake.write(BEN, "@treadle_test_bot let me in", chat=GROUP, entities=[MENTION])
        await chat.fake.write(ANNA, "@treadle_test_bot", chat=GROUP, entities=[MENTION])
        await chat.fake.write(ANNA, "@treadle_test_bot hi", chat=GROUP, entities=[MENTION])
        await chat.fake.wait_for(lambda: len(chat.fake.texts(GROUP)) == 2)
        assert chat.fake.texts(GROUP) == [
            "Your message has no text. Write what I should do.",
            "you said: Person 11: hi",
        ]
        [run] = await chat.engine.context.service.runs()
        assert run.owner not in ("telegram|11", "local"), "a group has memories of its own"


async def test_an_approval_is_a_button_for_people_who_may_approve(tmp_path: Path) -> None:
    done: list[str] = []

    @treadle.tool(effect="external")
    async def act(what: str) -> str:
        """Act.

        Args:
            what: What to do.
        """
        done.append(what)
        return "done"

    model = ScriptedModel(ask(call("act", what="it")), say("finished"))
    agent = AGENT + "tools: [act]\napprovals: {default: ask}\n"

    def prepare(engine: HostedEngine) -> None:
        engine.add_tools(act)

    async with chatting(tmp_path, model, agent=agent, prepare=prepare) as chat:
        await chat.admit(BEN, "direct", "groups")
        await chat.admit(ANNA, "direct", "groups", "approve")
        await chat.fake.write(BEN, "@treadle_test_bot do it", chat=GROUP, entities=[MENTION])
        [prompt] = await chat.fake.wait_for(lambda: [m for m in chat.fake.sent if m["chat"]["id"] == GROUP])
        assert "act" in prompt["text"]
        await chat.fake.press(BEN, prompt, "approve")
        allow = "treadle channels approve telegram:22 --grant direct --grant groups --grant approve"
        await chat.fake.wait_for(lambda: any(allow in text for text in chat.fake.texts(GROUP)))
        assert done == []
        forged = {**prompt, "chat": {"id": ANNA, "type": "private"}}
        await chat.fake.press(ANNA, forged, "approve")
        await chat.fake.wait_for(lambda: any("no longer valid" in text for text in chat.fake.texts(ANNA)))
        assert done == [], "a button counts in its own conversation only"
        await chat.fake.press(ANNA, prompt, "approve")
        await chat.says(GROUP, "finished")
        assert done == ["it"]
        assert "Approved by Person 11 (telegram)." in chat.fake.texts(GROUP)


async def test_a_long_answer_is_streamed_and_split(tmp_path: Path) -> None:
    text = "\n\n".join(f"Paragraph {number}: " + "word " * 60 for number in range(30))
    async with chatting(tmp_path, ScriptedModel(say(text))) as chat:
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "long")
        await chat.fake.wait_for(lambda: "Paragraph 29" in "".join(chat.fake.texts(ANNA)))
        parts = chat.fake.texts(ANNA)
        assert all(part.startswith("Paragraph") for part in parts), "cut between paragraphs"
        assert "".join("".join(parts).split()) == "".join(text.split())


async def test_a_silent_completion_sends_nothing(tmp_path: Path) -> None:
    async with chatting(tmp_path, ScriptedModel(say("NO_REPLY"), say("loud"))) as chat:
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "fyi")
        async with asyncio.timeout(HANG_SECONDS):
            while not any(each.outcome for each in await chat.engine.context.service.runs()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # a message that arrives earlier is part of the first run
        await chat.fake.write(ANNA, "and now?")
        await chat.says(ANNA, "loud")
        assert chat.fake.texts(ANNA) == ["loud"]


@pytest.mark.parametrize(
    ("error", "texts"),
    [
        ({"error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 0.1}}, 1),
        ({"error_code": 403, "description": "Forbidden: bot was blocked by the user"}, 0),
    ],
)
async def test_a_rate_limit_is_retried_and_a_blocked_chat_is_not(
    tmp_path: Path, error: dict[str, Any], texts: int
) -> None:
    async with chatting(tmp_path, echo(), streaming=False) as chat:
        await chat.admit(ANNA)
        await chat.admit(BEN)
        chat.fake.errors["sendMessage"] = [error]
        await chat.fake.write(ANNA, "one")
        await chat.fake.wait_for(lambda: not chat.fake.errors["sendMessage"])
        await chat.fake.write(BEN, "two")
        await chat.says(BEN, "you said: two")
        if texts:
            await chat.says(ANNA, "you said: one")
        [view] = await chat.engine.context.channels().list()
        assert view.failed == 1 - texts


class EagerTelegram(FakeTelegram):
    """A Bot API server that does not wait for updates."""

    polls = 0

    async def _on_getUpdates(self, values: dict[str, Any]) -> Any:
        self.polls += 1
        return []


async def test_polls_pause_if_the_server_answers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telegram, "POLL_PAUSE_SECONDS", 0.2)
    fake = EagerTelegram()
    async with serve_fake_telegram(fake):
        channel = telegram.Telegram("telegram", {"token": TOKEN, "url": fake.url})
        began = time.monotonic()
        receiving = asyncio.create_task(channel.receive(cast("Any", None)))
        await fake.wait_for(lambda: fake.polls >= 4, HANG_SECONDS)
        receiving.cancel()
        assert time.monotonic() - began >= 0.5, "three pauses"
        await channel.close()
