"""Bad input, each kind with a defined result, on the core alone and on Telegram."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.channels.home import chatting
from tests.channels.test_telegram import ANNA, echo
from treadle.channels.access import Access
from treadle.channels.markdown import MATRIX, PLAIN, SLACK, TELEGRAM, render
from treadle.channels.parts import split_message
from treadle.domain.channels import ChannelConfig, ChannelLimits, Person, name_user
from treadle.domain.events import CancelRequested, MessageSteered, UserMessage
from treadle.domain.messages import Image, Text
from treadle.ports.channel import Incoming
from treadle.ports.model import ModelRequest
from treadle.stores.sqlite.channels import SqliteChannels
from treadle.stores.sqlite.connection import open_database
from treadle.stores.sqlite.writer import InlineWriter
from treadle.testing.models import FunctionModel, say

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


async def test_a_message_of_a_megabyte_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with chatting(tmp_path, echo()) as chat:
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "x" * 1_000_000)
        [text] = await chat.fake.wait_for(lambda: chat.fake.texts(ANNA))
        assert "1000000 characters; at most 128000 are accepted" in text
        assert await chat.engine.context.service.runs() == []


async def test_images_and_texts_are_read_and_other_files_are_named(tmp_path: Path) -> None:
    async with chatting(tmp_path, FunctionModel(lambda _: say("seen"))) as chat:
        await chat.admit(ANNA)
        chat.fake.files = {"good": PNG, "bad": b"MZ\x00program", "big": b"x" * 6_000_000, "text": b"notes"}
        photo = [{"file_id": "good", "file_size": len(PNG)}]
        await chat.fake.write(ANNA, caption="look", photo=photo)
        await chat.says(ANNA, "seen")
        document = {"file_id": "bad", "file_name": "setup.exe", "mime_type": "image/png"}
        await chat.fake.write(ANNA, caption="run it", document=document)
        document = {"file_id": "big", "file_name": "big.png", "mime_type": "image/png"}
        await chat.fake.write(ANNA, caption="too big", document=document)
        document = {"file_id": "text", "file_name": "notes.txt", "mime_type": "text/plain"}
        await chat.fake.write(ANNA, caption="read", document=document)
        await chat.fake.wait_for(lambda: len(chat.fake.texts(ANNA)) >= 2)
        messages: list[Any] = []
        while len(messages) < 4:
            messages = []
            for run in reversed(await chat.engine.context.service.runs()):
                for event in await chat.engine.context.service.page(run.origin.run_id):
                    if isinstance(event.data, UserMessage | MessageSteered):
                        messages.append(event.data.message)
            await asyncio.sleep(0.01)
        photo_message, program, big, notes = messages
        assert isinstance(photo_message.parts[1], Image)
        assert "setup.exe: files of the type image/png are not accepted" in program.text
        assert "big.png: it has more than 5000000 bytes" in big.text
        assert notes.parts[1] == Text("[File notes.txt]\nnotes")


async def test_an_edit_changes_a_message_in_progress_and_a_later_one_changes_nothing(tmp_path: Path) -> None:
    gate = asyncio.Event()
    seen: list[str] = []

    async def answer(request: ModelRequest) -> Any:
        seen.append(request.conversation.messages[-1].text)
        await gate.wait()
        return say(f"answer {len(seen)}")

    async with chatting(tmp_path, FunctionModel(answer)) as chat:
        await chat.admit(ANNA)
        number = await chat.fake.write(ANNA, "frist")
        while not seen:  # noqa: ASYNC110 -- the model is asked in another task
            await asyncio.sleep(0.01)
        await chat.fake.edit(ANNA, number, "first")
        await chat.fake.edit(22, number, "forged by a stranger")
        await chat.fake.wait_for(lambda: chat.fake.confirmed >= 4)
        [run] = await chat.engine.context.service.runs()
        async for event in chat.engine.events(run.origin.run_id):
            if isinstance(event.data, MessageSteered):
                assert event.data.message.text.endswith("It now says:]\nfirst")
                break
        gate.set()
        await chat.fake.wait_for(lambda: chat.fake.texts(ANNA))
        await chat.fake.edit(ANNA, number, "too late")
        await chat.fake.write(ANNA, "next")
        await chat.fake.wait_for(lambda: len(chat.fake.texts(ANNA)) == 2)
        assert not any("too late" in text for text in seen)


async def test_a_deletion_cancels_the_run_that_the_message_started(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def answer(request: ModelRequest) -> Any:
        await gate.wait()
        return say("never")

    async with chatting(tmp_path, FunctionModel(answer)) as chat:
        await chat.admit(ANNA)
        number = await chat.fake.write(ANNA, "do something")
        while not (runs := await chat.engine.context.service.runs()):  # noqa: ASYNC110 -- rows of a database
            await asyncio.sleep(0.01)
        manager: Any = chat.engine.context.channels()
        runner = manager._runners["telegram"]
        gone = Incoming("d1", str(ANNA), str(ANNA), kind="delete", target=f"{ANNA}/{number}")
        await runner.accept([gone])
        kinds = [type(event.data) async for event in chat.engine.events(runs[0].origin.run_id)]
        assert CancelRequested in kinds


async def test_bots_are_ignored_or_answered_a_few_times() -> None:
    store = SqliteChannels(InlineWriter(open_database(":memory:")))
    for sender in ("bot", "anna"):
        await store.save_person(
            Person(channel="c", sender=sender, name=sender, user=sender, grants=("direct",), added_at=0.0)
        )
    beep = Incoming("1", "x", "bot", text="beep", is_bot=True)
    ignoring = Access("c", ChannelConfig(), store, lambda: 0.0)
    assert (await ignoring.judge(beep)).dropped == "bot"
    config = ChannelConfig(bots="answer", limits=ChannelLimits(bot_answers=2, messages_per_minute=5))
    access = Access("c", config, store, lambda: 0.0)
    found = [(await access.judge(beep)).dropped for _ in range(4)]
    assert found == [None, None, "loop", "loop"]
    person = Incoming("2", "x", "anna", text="stop that")
    assert (await access.judge(person)).person is not None
    assert (await access.judge(beep)).person is not None, "a person has written in between"
    verdicts = [await access.judge(person) for _ in range(7)]
    assert [verdict.reply != "" for verdict in verdicts] == [False] * 4 + [True, False, False]
    distrusted = Incoming("3", "x", "anna", text="hi", distrust="forged")
    assert (await access.judge(distrusted)).dropped == "distrusted"


@pytest.mark.parametrize("dialect", [TELEGRAM, MATRIX, SLACK, PLAIN])
def test_markdown_of_a_model_is_never_markup_of_the_platform(dialect: Any) -> None:
    shown = render("<b>x</b> & <script> **bold** [a](http://b/?c&d) <!channel> @here", dialect)
    if dialect is not PLAIN:
        assert "<script>" not in shown
        assert "<!channel>" not in shown
    assert "bold" in shown


def test_long_answers_are_cut_between_paragraphs_and_code_stays_code() -> None:
    text = "intro\n\n```python\n" + "\n".join(f"line {number}" for number in range(200)) + "\n```\n\nend"
    parts = split_message(text, 500)
    assert all(len(part) <= 500 for part in parts)
    assert all(part.count("```") % 2 == 0 for part in parts)
    assert split_message("", 500) == []
    assert "".join(split_message("x" * 5000, 500)) == "x" * 5000


def test_different_senders_have_different_user_names() -> None:
    names = {name_user("matrix", sender) for sender in ("@a:b.c", "a:b.c", "@A:b.c", "a b", "../../x", "")}
    assert len(names) == 6
    assert "local" not in names
