"""Decisions and answers as people write them: with marks, punctuation, signatures and more lines."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.channels.home import AGENT, Chat, chatting
from tests.channels.test_telegram import ANNA
from tests.patience import HANG_SECONDS
from treadle.domain.events import ApprovalDecided, ClarifyAnswered
from treadle.testing.models import ScriptedModel, ask, call, say

T = TypeVar("T")
WRITER = AGENT + "tools: [write_file, clarify]\napprovals: {default: ask}\n"


@asynccontextmanager
async def open_chat_with_approval(
    folder: Path, *calls: Any, grants: tuple[str, ...] = ("direct", "approve")
) -> AsyncGenerator[Chat, None]:
    """Yield a chat in which the agent has asked for an approval or an answer."""
    model = ScriptedModel(ask(*calls or (call("write_file", path="a.txt", content="x"),)), say("done"))
    async with asyncio.timeout(HANG_SECONDS), chatting(folder, model, agent=WRITER) as chat:
        await chat.admit(ANNA, "direct", "approve")
        await chat.fake.write(ANNA, "go")
        await chat.fake.wait_for(lambda: chat.fake.sent)
        yield chat


async def read(chat: Chat, kind: type[T]) -> list[T]:
    """Return the events of a type in the only run."""
    [run] = await chat.engine.context.service.runs()
    events = [event.data async for event in chat.engine.events(run.origin.run_id)]
    return [data for data in events if isinstance(data, kind)]


async def wait_for(chat: Chat, part: str) -> None:
    """Wait for a message of the bot that contains a text."""
    await chat.fake.wait_for(lambda: any(part in said for said in chat.fake.texts(ANNA)))


async def reply(chat: Chat, text: str) -> None:
    """Reply to the prompt."""
    prompt = chat.fake.sent[0]["message_id"]
    manager: Any = chat.engine.context.channels()
    while (  # noqa: ASYNC110 -- a row of a database
        await manager.store.find_sent("telegram", message_id=str(prompt), conversation=str(ANNA)) is None
    ):
        await asyncio.sleep(0.01)
    await chat.fake.write(ANNA, text, reply_to_message={"message_id": prompt, "from": {"id": 1}})


@pytest.mark.parametrize(
    ("text", "decision", "note"),
    [
        ("approve\n\nSent from my iPhone", "approve", "Sent from my iPhone"),
        ("Deny\nthis is wrong", "deny", "this is wrong"),
        (" Approve! ", "approve", ""),
        ("approve: ok", "approve", "ok"),
        ("**Deny**", "deny", ""),
        ("“No”. Too risky", "deny", "Too risky"),
    ],
)
async def test_a_decision_may_have_a_note(tmp_path: Path, text: str, decision: str, note: str) -> None:
    async with open_chat_with_approval(tmp_path) as chat:
        await reply(chat, text)
        await chat.says(ANNA, "done")
        [decided] = await read(chat, ApprovalDecided)
        assert (decided.decision, decided.note) == (decision, note)


@pytest.mark.parametrize("command", ["/approve not yet", "/approve, but later", "/approve no", "/approve me?"])
async def test_a_command_with_a_text_approves_nothing(tmp_path: Path, command: str) -> None:
    async with open_chat_with_approval(tmp_path) as chat:
        await chat.fake.write(ANNA, command)
        await chat.fake.wait_for(lambda: any("Nothing was decided" in said for said in chat.fake.texts(ANNA)))
        assert len(await chat.engine.context.service.approvals()) == 1
        await chat.fake.write(ANNA, "/approve: go on")
        await chat.says(ANNA, "done")
        [decided] = await read(chat, ApprovalDecided)
        assert (decided.decision, decided.note) == ("approve", "go on")


@pytest.mark.parametrize("command", ["/deny\nthis is wrong", "/Deny this is wrong"])
async def test_a_command_may_have_more_lines(tmp_path: Path, command: str) -> None:
    async with open_chat_with_approval(tmp_path) as chat:
        await chat.fake.write(ANNA, command)
        await chat.says(ANNA, "done")
        [decided] = await read(chat, ApprovalDecided)
        assert (decided.decision, decided.note) == ("deny", "this is wrong")


@pytest.mark.parametrize(
    "text",
    ["approve?", "Approval is fine", "don't approve", "what does it do?", "Allow me to check with Bob first"],
)
async def test_a_reply_that_is_not_a_decision_is_answered(tmp_path: Path, text: str) -> None:
    async with open_chat_with_approval(tmp_path) as chat:
        await reply(chat, text)
        await chat.fake.wait_for(lambda: any("This is not a decision" in said for said in chat.fake.texts(ANNA)))
        assert len(await chat.engine.context.service.approvals()) == 1
        await reply(chat, "approve")
        await chat.says(ANNA, "done")


@pytest.mark.parametrize("text", ["2", "2.\n\nSent from my iPhone", "**2**"])
async def test_an_option_is_chosen_by_its_number(tmp_path: Path, text: str) -> None:
    question = call("clarify", question="Which one?", options=["red", "blue"])
    async with open_chat_with_approval(tmp_path, question) as chat:
        await reply(chat, text)
        await chat.says(ANNA, "done")
        assert [answered.text for answered in await read(chat, ClarifyAnswered)] == ["blue"]


async def test_stop_may_have_a_signature(tmp_path: Path) -> None:
    async with open_chat_with_approval(tmp_path) as chat:
        await chat.fake.write(ANNA, "/stop\n\nSent from my iPhone")
        await chat.fake.wait_for(lambda: any("stopped on the channel" in said for said in chat.fake.texts(ANNA)))
