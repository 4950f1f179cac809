"""Bad input on Matrix, Slack and by mail. `test_bad_input` has the same on Telegram."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.channels.fake_matrix import BOT, PASSWORD, FakeMatrix, serve_fake_matrix
from tests.channels.fake_slack import APP_TOKEN, BOT_USER, TOKEN, FakeSlack, serve_fake_slack
from tests.channels.home import Chat, chatting, write_home
from tests.channels.test_hostile_input import BOT as PARSED_BOT
from tests.channels.test_hostile_input import MAIL, make_matrix
from tests.channels.test_modes import GatedModel, wait_for_event
from tests.channels.test_telegram import ANNA
from tests.engine.running import opened
from tests.patience import HANG_SECONDS
from treadle.channels.email import Email
from treadle.channels.mail_parts import parse_mail
from treadle.domain.channels import Grant, Person
from treadle.domain.events import CancelRequested, MessageSteered
from treadle.ports.channel import Incoming
from treadle.ports.model import Model
from treadle.testing.models import ScriptedModel, say

CODE = "treadle channels approve"
HINT = "Your message has no text. Write what I should do."


@asynccontextmanager
async def open_slack(
    folder: Path, model: Model | None = None, *grants: Grant
) -> AsyncGenerator[tuple[FakeSlack, Any], None]:
    fake = FakeSlack()
    async with asyncio.timeout(HANG_SECONDS), serve_fake_slack(fake):
        settings = {"token": "{{vault:BOT}}", "app_token": "{{vault:APP}}", "url": fake.url}
        channels = {"slack": {"agent": "hero", "settings": settings}}
        write_home(folder, channels, {"BOT": TOKEN, "APP": APP_TOKEN})
        async with opened(folder, model or ScriptedModel()) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(
                Person(
                    channel="slack",
                    sender="UANNA",
                    name="Anna",
                    user="anna",
                    grants=("groups", *grants),
                    added_at=0.0,
                )
            )
            async with manager.run_in_background():
                yield fake, engine


async def test_on_slack_strangers_and_mentions_without_text_cost_no_model_call(tmp_path: Path) -> None:
    async with open_slack(tmp_path) as (fake, engine):
        await fake.write("UEVE", "let me in")
        [code] = await fake.wait_for(lambda: fake.texts("DUEVE"))
        assert CODE in code
        await fake.write("UMAL", f"<@{BOT_USER}> in a channel", channel="C1")
        await fake.write("UANNA", f"<@{BOT_USER}>", channel="C1")
        assert await fake.wait_for(lambda: fake.texts("C1")) == [HINT], "strangers get nothing in groups"
        assert await engine.context.service.runs() == []


async def test_an_edit_on_slack_steers_the_run_and_a_deletion_cancels_it(tmp_path: Path) -> None:
    gated = GatedModel()
    async with open_slack(tmp_path, gated.model, "direct") as (fake, engine):
        ts = await fake.write("UANNA", "frist")
        await gated.wait_for_calls(1)
        old, fresh = {"user": "UANNA", "text": "frist", "ts": ts}, {"user": "UANNA", "text": "first", "ts": ts}
        place = {"type": "message", "channel": "DUANNA", "channel_type": "im"}
        change = {"subtype": "message_changed", "ts": "9.1", "message": fresh, "previous_message": old}
        await fake.deliver({**place, **change})
        chat = Chat(engine, Any)  # pyright: ignore[reportArgumentType] -- only its engine is used
        await wait_for_event(chat, MessageSteered)
        gone = {"subtype": "message_deleted", "ts": "9.2", "deleted_ts": ts, "previous_message": fresh}
        await fake.deliver({**place, **gone})
        await wait_for_event(chat, CancelRequested)


async def test_a_bot_on_telegram_is_ignored(tmp_path: Path) -> None:
    async with chatting(tmp_path, ScriptedModel(say("hello, person"))) as chat:
        await chat.admit(ANNA)
        sender: dict[str, Any] = {"from": {"id": ANNA, "is_bot": True, "first_name": "Anna"}}
        await chat.fake.write(ANNA, "beep", **sender)
        await chat.fake.write(ANNA, "hello")
        await chat.says(ANNA, "hello, person")
        assert len(await chat.engine.context.service.runs()) == 1


async def test_on_matrix_strangers_and_mentions_without_text_cost_no_model_call(tmp_path: Path) -> None:
    eve, anna, direct, group = (
        "@eve:fake.example",
        "@anna:fake.example",
        "!direct:fake.example",
        "!group:fake.example",
    )

    mal = "@mal:fake.example"

    fake = FakeMatrix()
    fake.add_room(direct, eve)
    fake.add_room(group, anna, mal)
    async with asyncio.timeout(HANG_SECONDS), serve_fake_matrix(fake):
        settings = {"homeserver": fake.url, "user": BOT, "password": "{{vault:MATRIX}}"}
        write_home(tmp_path, {"matrix": {"agent": "hero", "settings": settings}}, {"MATRIX": PASSWORD})
        async with opened(tmp_path, ScriptedModel()) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(
                Person(channel="matrix", sender=anna, name="Anna", user="anna", grants=("groups",), added_at=0.0)
            )
            async with manager.run_in_background():
                while await manager.store.cursor("matrix") is None:  # noqa: ASYNC110 -- a row of a database
                    await asyncio.sleep(0.01)
                await fake.write(eve, direct, "let me in")
                [code] = await fake.wait_for(lambda: fake.texts(direct))
                assert CODE in code
                await fake.write(mal, group, f"{BOT}: hello")
                await fake.write(anna, group, f"{BOT}:")
                assert await fake.wait_for(lambda: fake.texts(group)) == [HINT]
                assert await engine.context.service.runs() == []


async def test_a_notice_on_matrix_is_the_message_of_a_bot() -> None:
    matrix = make_matrix()
    source: dict[str, Any] = {"type": "m.room.message", "sender": "@eve:x", "event_id": "$1"}
    source["content"] = {"msgtype": "m.notice", "body": f"{PARSED_BOT} beep"}
    [found] = matrix._read("!r", [SimpleNamespace(source=source)])  # pyright: ignore[reportPrivateUsage]
    assert found is not None
    assert found.is_bot
    await matrix.close()


def read_mail(sender: str, **headers: str) -> Incoming:
    lines = {
        "From": sender,
        "Message-ID": "<m1@client>",
        "Authentication-Results": "mx; dmarc=pass header.from=example.org",
    }
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    raw = "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\nhello\r\n"
    return Email("email", MAIL)._parse(parse_mail(raw.encode()), "1.2")  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("header", ["In_Reply_To", "References"])
def test_a_mail_that_names_the_thread_of_another_person_is_a_separate_conversation(header: str) -> None:
    anna = read_mail("anna@example.org", References="<thread@client>")
    eve = read_mail("eve@example.org", **{header: "<thread@client>"})
    assert anna.conversation != eve.conversation
