"""Answers that are shown while they are written: the end replaces what was shown, whenever it comes."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.channels.fake_slack import APP_TOKEN, TOKEN, FakeSlack, serve_fake_slack
from tests.channels.home import AGENT, chatting, write_home
from tests.channels.test_slack import ANNA
from tests.engine.running import opened
from tests.patience import HANG_SECONDS
from treadle.channels.prompts import HELP, add_recalled, describe_end, spell_commands
from treadle.domain.envelope import Event
from treadle.domain.ids import RunId
from treadle.domain.transcript import EndItem
from treadle.operations.service import LocalService
from treadle.ports.model import Completed, Failed, ModelRequest, Show
from treadle.testing.models import FunctionModel, ScriptedModel, perform, say

READER = 11
TEXT = "An answer that is long enough to be shown while it is written."


class PausedModel:
    """Shows its whole answer, and ends it when the test says so."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        found = await perform(say(TEXT), show)
        await self.go_on.wait()
        return found


class StuckSlack(FakeSlack):
    """Stores messages, and does not say so while it is stuck."""

    is_stuck = True

    async def answer(self, request: Any) -> Any:
        response = await super().answer(request)
        while self.is_stuck and request.match_info["method"] == "chat.postMessage":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return response


async def test_an_answer_that_ends_while_its_beginning_is_sent_is_one_message(tmp_path: Path) -> None:
    model, go_on = PausedModel(), asyncio.Event()
    async with asyncio.timeout(HANG_SECONDS), chatting(tmp_path, model) as chat:
        await chat.admit(11)
        send: Any = getattr(chat.fake, "_on_sendMessage")  # noqa: B009

        async def send_slowly(values: dict[str, Any]) -> Any:
            result = await send(values)
            model.go_on.set()
            await go_on.wait()
            return result

        setattr(chat.fake, "_on_sendMessage", send_slowly)  # noqa: B010
        await chat.fake.write(11, "go")
        manager: Any = chat.engine.context.channels()
        while not (await manager.list())[0].unsent:  # noqa: ASYNC110 -- a row of a database
            await asyncio.sleep(0.01)
        go_on.set()
        await chat.says(11, TEXT)
        assert chat.fake.texts(11) == [TEXT]


async def test_an_answer_whose_beginning_was_sent_before_the_server_ended_is_completed(tmp_path: Path) -> None:
    fake = StuckSlack()
    async with asyncio.timeout(HANG_SECONDS), serve_fake_slack(fake):
        settings = {"token": "{{vault:BOT}}", "app_token": "{{vault:APP}}", "url": fake.url}
        channels = {"slack": {"agent": "hero", "settings": settings}}
        write_home(tmp_path, channels, {"BOT": TOKEN, "APP": APP_TOKEN})
        async with opened(tmp_path, PausedModel()) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(ANNA)
            async with manager.run_in_background():
                await fake.write("UANNA", "go")
                await fake.wait_for(lambda: fake.texts("DUANNA"), HANG_SECONDS)
        assert fake.texts("DUANNA") == [f"{TEXT} …"]
        fake.is_stuck = False
        async with (
            opened(tmp_path, FunctionModel(lambda _: say(TEXT))) as engine,
            engine.context.channels().run_in_background(),
        ):
            await fake.wait_for(lambda: fake.texts("DUANNA") == [TEXT], HANG_SECONDS)


async def test_answers_of_a_conversation_keep_their_order_if_a_later_one_is_read_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, go_on, ended = LocalService.events, asyncio.Event(), asyncio.Event()
    order: list[RunId] = []

    async def read_late(service: LocalService, run_id: RunId) -> AsyncGenerator[Event, None]:
        """Yield the events of the first run after those of the second."""
        order.extend([] if run_id in order else [run_id])
        if run_id == order[0]:
            await go_on.wait()
        async for event in read(service, run_id):
            if run_id != order[0] and event.type == "run_end":
                ended.set()
            yield event

    model = FunctionModel(lambda request: say(f"re: {request.conversation.messages[-1].text.splitlines()[-1]}"))
    async with asyncio.timeout(HANG_SECONDS), chatting(tmp_path, model) as chat:
        await chat.admit(11)
        monkeypatch.setattr(LocalService, "events", read_late)
        await chat.fake.write(11, "one")
        while not [each for each in await chat.engine.service.runs() if each.outcome]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await chat.fake.write(11, "two")
        await ended.wait()
        for _ in range(30):
            await asyncio.sleep(0.01)
            assert chat.fake.texts(11) == []
        go_on.set()
        await chat.says(11, "re: two")
        assert chat.fake.texts(11) == ["re: one", "re: two"]


@pytest.mark.parametrize("prefix", ["/", "!"])
def test_lines_under_an_answer_are_not_part_of_its_code_block(prefix: str) -> None:
    answer = "Look:\n```python\nx = 1\n"
    line = f"*recalled 2 notes; `{prefix}memory` lists what I remember*"
    assert add_recalled(answer, 2, prefix) == f"Look:\n```python\nx = 1\n```\n\n{line}"
    assert add_recalled("`a` b", 2, prefix) == f"`a` b\n\n{line}"
    assert add_recalled(answer, 0, prefix) == answer
    end = EndItem(
        key="9.0",
        run_id=RunId("run_1"),
        sequence=9,
        at=0.0,
        status="failed",
        outcome="model_error",
        reason="too long.",
        next="Send /compact, not /etc/reset.",
    )
    assert describe_end(end, answer, prefix) == (
        "Look:\n```python\nx = 1\n```\n\n**This was not finished**: too long. "
        f"Send {prefix}compact, not /etc/reset."
    )
    assert f"`{prefix}stop` ends" in spell_commands(HELP, prefix)


async def test_an_answer_says_how_many_notes_were_recalled_and_a_silent_run_says_nothing(tmp_path: Path) -> None:
    remembering = AGENT.replace("{recall: 0, remember: false}", "{embedder: none}")

    model = ScriptedModel(say("Noted."), say("At ten."), say("NO_REPLY"))
    async with asyncio.timeout(HANG_SECONDS), chatting(tmp_path, model, agent=remembering) as chat:
        await chat.admit(READER)
        await chat.fake.write(READER, "the train leaves at ten")
        await chat.says(READER, "Noted.")
        for text in ("/reset", "when does the train leave?", "/reset", "the train, again", "/usage"):
            await chat.fake.write(READER, text)
        await chat.fake.wait_for(lambda: any("context" in text for text in chat.fake.texts(READER)))
        said = chat.fake.texts(READER)
        assert [text for text in said if "recalled" in text] == [
            "At ten.\n\nrecalled 1 note; /memory lists what I remember"
        ], said
