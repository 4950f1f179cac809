"""Channels with real servers: mail over IMAP and SMTP, and a server that is killed while people write."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from bench.channels import find_faults, measure

from tests.channels.home import write_home
from tests.channels.mail_server import AUTHSERV, PASSWORD, MailServers, serve_mail
from tests.channels.test_telegram import echo
from tests.engine.running import opened
from tests.patience import HANG_SECONDS
from treadle.channels.email import Email
from treadle.domain.channels import Person
from treadle.testing.channels import check_channel

ANNA, EVE = "anna@example.com", "eve@example.com"


async def test_mail_keeps_the_contract_of_channels() -> None:
    async with serve_mail() as mail:
        mail.refused.add("nobody@example.com")
        channel = Email("email", mail.settings())

        async def texts() -> list[str]:
            return mail.texts(ANNA)

        await check_channel(channel, ANNA, "nobody@example.com", texts)


async def test_a_thread_is_a_session_and_forged_mail_is_not_read(tmp_path: Path) -> None:
    async with serve_mail() as mail:
        settings = mail.settings(password="{{vault:MAIL}}")
        channels = {"email": {"agent": "hero", "settings": settings}}
        write_home(tmp_path, channels, {"MAIL": PASSWORD})
        async with opened(tmp_path, echo()) as engine:
            manager: Any = engine.context.channels()
            await manager.store.save_person(
                Person(channel="email", sender=ANNA, name="Anna", user="anna", grants=("direct",), added_at=0.0)
            )
            async with manager.run_in_background():
                while await manager.store.cursor("email") is None:  # noqa: ASYNC110 -- a row of a database
                    await asyncio.sleep(0.01)
                await converse(mail)
            runs = await engine.context.service.runs()
            assert [run.owner for run in runs] == ["anna"] * 3
            assert len({run.origin.session_id for run in runs}) == 2, "each thread is a session"


async def converse(mail: MailServers) -> None:
    await mail.deliver(ANNA, "one\n\nOn Monday you wrote:\n> old", 1)
    [answer] = await mail.wait_for(lambda: list(mail.sent))
    assert mail.texts(ANNA) == ["you said: one"]
    assert (answer["Subject"], answer["In-Reply-To"]) == ("Re: Hello", "<m1@client>")
    assert answer["Auto-Submitted"] == "auto-replied"
    forged = {"Authentication_Results": f"{AUTHSERV}; dmarc=fail header.from=example.com"}
    await mail.deliver(ANNA, "forged", 2, **forged)
    await mail.deliver(ANNA, "from elsewhere", 3, Authentication_Results="evil.example; dmarc=pass")
    await mail.deliver(ANNA, "two authors", 4, From=f"{ANNA}, ben@example.com")
    await mail.deliver(ANNA, "out of office", 5, Auto_Submitted="auto-replied")
    await mail.deliver(ANNA, "a list", 6, List_Id="<list.example.com>")
    await mail.append(b"\xff\xfe not a mail at all \x00\r\n\r\n")
    await mail.deliver(
        ANNA, "two", 7, In_Reply_To=answer["Message-ID"], References="<m1@client>", Subject="Re: Hello"
    )
    await mail.deliver(ANNA, "three", 8, Subject="Another matter")
    await mail.wait_for(lambda: len(mail.sent) == 3)
    assert sorted(mail.texts(ANNA)) == ["you said: one", "you said: three", "you said: two"]
    await mail.deliver(EVE, "let me in", 9)
    [code] = await mail.wait_for(lambda: mail.texts(EVE))
    assert "treadle channels approve" in code


@pytest.mark.parametrize("platforms", [("telegram", "slack"), ("matrix", "email")])
async def test_a_server_that_is_killed_answers_every_message_once_and_in_order(
    tmp_path: Path, platforms: tuple[str, ...]
) -> None:
    found = await measure(6, 3, 4, 1, tmp_path, streaming=True, platforms=platforms, finish_seconds=HANG_SECONDS)
    for name in platforms:
        assert found[f"{name} answered"] + found[f"{name} reported"] == 12, found
    assert find_faults(found, platforms) == [], found
