"""Messages while a run is in progress, and commands on a channel."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.channels.encrypted_person import open_person
from tests.channels.fake_matrix import BOT, PASSWORD, FakeMatrix, serve_fake_matrix
from tests.channels.home import Chat, chatting, write_home
from tests.channels.test_matrix_encryption import ANNA as ANNA_ON_MATRIX
from tests.channels.test_matrix_encryption import BEN, ROOM
from tests.channels.test_sent_files import READER
from tests.channels.test_telegram import ANNA
from tests.engine.running import opened
from tests.patience import HANG_SECONDS
from treadle.domain.channels import Person
from treadle.domain.events import CancelRequested, MessageSteered
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, say


class GatedModel:
    """Answers with the number of the call. The first call waits for a gate."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.gate = asyncio.Event()
        self.model = FunctionModel(self._answer)

    async def _answer(self, request: ModelRequest) -> Any:
        self.seen.append(request.conversation.messages[-1].text)
        if len(self.seen) == 1:
            await self.gate.wait()
        return say(f"answer {len(self.seen)}")

    async def wait_for_calls(self, count: int) -> None:
        while len(self.seen) < count:  # noqa: ASYNC110 -- within the time of the test
            await asyncio.sleep(0.01)


async def wait_for_event(chat: Chat, kind: type[Any]) -> None:
    """Wait for an event of the only run."""
    service = chat.engine.context.service
    [run] = await service.runs()
    async for event in chat.engine.events(run.origin.run_id):
        if isinstance(event.data, kind):
            return
    raise AssertionError(f"the run has ended without {kind}")


@pytest.mark.parametrize("mode", ["steer", "queue", "interrupt"])
async def test_a_message_during_a_run_steers_queues_or_interrupts_by_mode(tmp_path: Path, mode: str) -> None:
    gated = GatedModel()
    async with (
        asyncio.timeout(HANG_SECONDS),
        chatting(tmp_path, gated.model, mode=mode, streaming=False) as chat,
    ):
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "one")
        await gated.wait_for_calls(1)
        await chat.fake.write(ANNA, "two")
        match mode:
            case "steer":
                await wait_for_event(chat, MessageSteered)
            case "interrupt":
                await gated.wait_for_calls(2)
            case _:
                while len(await chat.engine.context.service.runs()) < 2:  # noqa: ASYNC110 -- rows of a database
                    await asyncio.sleep(0.01)
        assert len(gated.seen) == (2 if mode == "interrupt" else 1)
        early = ["answer 2"] if mode == "interrupt" else []  # the second call is not held back
        assert [text for text in chat.fake.texts(ANNA) if text not in early] == []
        gated.gate.set()
        await chat.says(ANNA, "answer 2")
        assert "two" in gated.seen[1]
        assert len(await chat.engine.context.service.runs()) == (2 if mode == "queue" else 1)
        assert ("answer 1" in chat.fake.texts(ANNA)) is (mode == "queue")


async def test_commands_are_answered_and_typing_is_shown_during_a_run(tmp_path: Path) -> None:
    gated = GatedModel()
    async with asyncio.timeout(HANG_SECONDS), chatting(tmp_path, gated.model) as chat:
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "/stop")
        await chat.says(ANNA, "Nothing is in progress.")
        await chat.fake.write(ANNA, "one")
        await gated.wait_for_calls(1)
        await chat.fake.wait_for(
            lambda: ("sendChatAction", {"chat_id": ANNA, "action": "typing"}) in chat.fake.calls
        )
        await chat.fake.write(ANNA, "/stop")
        await chat.fake.wait_for(lambda: any("stopped on the channel" in each for each in chat.fake.texts(ANNA)))
        await chat.fake.write(ANNA, "/usage")
        await chat.fake.wait_for(lambda: any("tokens" in each for each in chat.fake.texts(ANNA)))
        await chat.fake.write(ANNA, "/resett")
        await chat.says(ANNA, "There is no command /resett. Did you mean /reset?")
        for command, begins in (
            ("/mode plan", "Mode: plan."),
            ("/mode", "Mode: plan."),
            ("/mode auto", "The mode"),
        ):
            before = len(chat.fake.texts(ANNA))
            await chat.fake.write(ANNA, command)
            await chat.fake.wait_for(
                lambda before=before, begins=begins: any(
                    t.startswith(begins) for t in chat.fake.texts(ANNA)[before:]
                )
            )
        assert len(gated.seen) == 1, "commands call no model"
        await chat.fake.write(ANNA, "/etc is full")
        await chat.says(ANNA, "answer 2")


@pytest.mark.parametrize(("is_encrypted", "others"), [(False, ()), (False, (BEN,)), (True, ())])
async def test_an_edit_on_matrix_steers_the_run_and_a_deletion_cancels_it(
    tmp_path: Path, is_encrypted: bool, others: tuple[str, ...]
) -> None:
    gated, fake = GatedModel(), FakeMatrix()
    fake.add_room(ROOM, ANNA_ON_MATRIX, *others, is_encrypted=is_encrypted)
    async with asyncio.timeout(HANG_SECONDS), serve_fake_matrix(fake):
        settings = {"homeserver": fake.url, "user": BOT, "password": "{{vault:MATRIX}}"}
        write_home(tmp_path, {"matrix": {"agent": "hero", "settings": settings}}, {"MATRIX": PASSWORD}, READER)
        async with opened(tmp_path, gated.model) as engine:
            manager: Any = engine.context.channels()
            person = Person(
                channel="matrix",
                sender=ANNA_ON_MATRIX,
                name="Anna",
                user="anna",
                grants=("direct", "groups"),
                added_at=0.0,
            )
            await manager.store.save_person(person)
            async with (
                manager.run_in_background(),
                open_person(fake.url, ANNA_ON_MATRIX, PASSWORD, BOT, tmp_path / "anna") as anna,
            ):
                while await manager.store.cursor("matrix") is None:  # noqa: ASYNC110 -- a row of a database
                    await asyncio.sleep(0.01)
                first = await anna.write(ROOM, f"{BOT} frist")
                await gated.wait_for_calls(1)
                relation = {"rel_type": "m.replace", "event_id": first}
                fresh = {"msgtype": "m.text", "body": f"{BOT} first"}
                await anna.write(ROOM, "* first", **{"m.new_content": fresh, "m.relates_to": relation})
                chat = Chat(engine, Any)  # pyright: ignore[reportArgumentType] -- only its engine is used
                await wait_for_event(chat, MessageSteered)
                await fake.redact(ANNA_ON_MATRIX, ROOM, first)
                await wait_for_event(chat, CancelRequested)


async def test_messages_are_counted_for_the_metrics(tmp_path: Path) -> None:
    gated = GatedModel()
    gated.gate.set()
    async with asyncio.timeout(HANG_SECONDS), chatting(tmp_path, gated.model) as chat:
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "one")
        await chat.says(ANNA, "answer 1")
        manager: Any = chat.engine.context.channels()
        [runner] = manager._runners.values()
        assert runner.status == "connected"
        assert runner.counts["received"] == 1
        while runner.counts["sent"] < 3:  # noqa: ASYNC110 -- the code, the welcome and the answer
            await asyncio.sleep(0.01)
