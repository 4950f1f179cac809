"""Texts that are longer on a platform than in Markdown, or empty there, and texts that a platform refuses."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.channels.home import AGENT, chatting
from tests.channels.test_telegram import ANNA
from tests.patience import HANG_SECONDS
from treadle.channels import matrix, slack, telegram
from treadle.channels.markdown import MATRIX, PLAIN, SLACK, TELEGRAM, Dialect, measure, render
from treadle.channels.parts import split_message
from treadle.ports.channel import Outgoing, Traits
from treadle.testing.models import FunctionModel, ScriptedModel, ask, call, say

ROWS = [f"| item {number} | {number} |" for number in range(60)]
EXPLANATION = "a long explanation of this option " * 8
WIDE_TABLE = "\n".join(["| Option | Cost |", "|---|---|", f"| {EXPLANATION} | 5 |", *ROWS])
NARROW_TABLE = "\n".join(["| Option | Cost |", "|---|---|", f"| {'x' * 60} | 5 |", *["|a|b|"] * 500])


@pytest.mark.parametrize("text", [WIDE_TABLE, NARROW_TABLE])
async def test_an_answer_with_a_table_is_delivered(tmp_path: Path, text: str) -> None:
    async with asyncio.timeout(HANG_SECONDS), chatting(tmp_path, FunctionModel(lambda _: say(text))) as chat:
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "go")
        last = text.splitlines()[-1].split("|")[1].strip()
        await chat.fake.wait_for(lambda: chat.fake.texts(ANNA) and last in chat.fake.texts(ANNA)[-1])
        [view] = await chat.engine.context.channels().list()
        assert view.failed == 0


@pytest.mark.parametrize("traits", [telegram.TRAITS, slack.TRAITS, matrix.TRAITS])
@pytest.mark.parametrize("text", [WIDE_TABLE, NARROW_TABLE, "&" * 9000, "- a\n" * 3000, "```\n" + "a\n" * 3000])
def test_parts_fit_in_the_platform(traits: Traits, text: str) -> None:
    parts = split_message(text, traits.max_characters, traits.measure)
    assert all(traits.measure(part) <= traits.max_characters for part in parts)
    shown = "".join(render(part, PLAIN) for part in parts)
    for letter in "ab&":
        assert shown.count(letter) >= text.count(letter), "nothing is lost"


def test_a_table_that_is_cut_gets_its_header_again() -> None:
    parts = split_message(NARROW_TABLE, 2000, lambda text: measure(text, TELEGRAM))
    assert len(parts) > 2
    assert all(part.startswith("| Option | Cost |\n|---|---|\n") for part in parts)
    assert sum(part.count("|a|b|") for part in parts) == 500
    after = split_message("| a |\n|---|\n| b |\n\n" + "text " * 200, 100)
    assert not any(part.startswith("| a |") for part in after[1:]), "the table is over"


def test_a_wide_table_is_a_list() -> None:
    assert render("|a|b|\n|---|---|\n|1|2|\n", PLAIN) == "    a  b\n    -  -\n    1  2"
    wide = render(f"|name|about|\n|---|---|\n|x|{'word ' * 30}|\n|<b>|2|", TELEGRAM)
    assert wide.startswith("<b>name</b>: x\n<b>about</b>: word word")
    assert wide.endswith("<b>name</b>: &lt;b&gt;\n<b>about</b>: 2")


@pytest.mark.parametrize("dialect", [TELEGRAM, MATRIX, SLACK, PLAIN])
@pytest.mark.parametrize("text", ["[x]: http://example.org", "#", "```\n```", "[](http://example.org)", ">"])
def test_a_text_never_becomes_empty(text: str, dialect: Dialect) -> None:
    assert dialect.show(render(text, dialect)).strip()


async def test_a_person_learns_that_the_platform_refuses_an_answer(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(HANG_SECONDS),
        chatting(tmp_path, FunctionModel(lambda _: say("short")), streaming=False) as chat,
    ):
        await chat.admit(ANNA)
        error = {"error_code": 400, "description": "Bad Request: message is too long"}
        chat.fake.errors["sendMessage"] = [error]
        await chat.fake.write(ANNA, "go")
        [text] = await chat.fake.wait_for(lambda: chat.fake.texts(ANNA))
        assert "the platform refuses it: Bad Request: message is too long." in text
        [run] = await chat.engine.context.service.runs()
        assert run.origin.run_id in text
        blocked = {"error_code": 403, "description": "Forbidden: bot was blocked by the user"}
        chat.fake.errors["sendMessage"] = [blocked]
        await chat.fake.write(ANNA, "go")
        await chat.fake.wait_for(lambda: not chat.fake.errors["sendMessage"])
        await chat.fake.write(ANNA, "again")
        await chat.says(ANNA, "short")
        assert len(chat.fake.texts(ANNA)) == 2, "a person who cannot be reached gets no notice"


async def test_every_text_is_sent_in_parts_and_the_last_one_has_the_buttons(tmp_path: Path) -> None:
    """Also texts that are not answers, such as those of schedules and of tools."""

    model = ScriptedModel(ask(call("write_file", path="a.txt", content="x")), say("done"))
    agent = AGENT + "tools: [write_file]\napprovals: {default: ask}\n"
    async with asyncio.timeout(HANG_SECONDS), chatting(tmp_path, model, agent=agent) as chat:
        await chat.admit(ANNA, "direct", "approve")
        long = Outgoing("tool/1", str(ANNA), "\n\n".join("word " * 100 for _ in range(20)))
        manager: Any = chat.engine.context.channels()
        await manager.store.finish("telegram", [long], 0.0)
        await chat.fake.write(ANNA, "go")
        await chat.fake.wait_for(lambda: any(each["markup"] for each in chat.fake.sent))
        assert sum(text.count("word") for text in chat.fake.texts(ANNA)) == 2000
        assert len(chat.fake.texts(ANNA)) > 3
