"""Sessions that start with an earlier conversation, and runs with additional instructions."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.engine.running import opened, until
from tests.engine.test_compaction import SMALL, UNCOUNTED, WORDS, is_summary
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import SizeLimitExceeded, UsageError
from treadle.domain.ids import SessionId
from treadle.domain.messages import Message, Text, user
from treadle.engine.model_resolution import CLIENT_INSTRUCTIONS_HEADING
from treadle.operations.schemas import Ticket
from treadle.operations.service import LocalService
from treadle.operations.submissions import MESSAGE_LIMIT, Submission
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptedModel, ScriptedReply, Silence, say
from treadle.vault.store import SecretGrant, VaultStore

HERO = AgentSpec("hero", "scripted/x", persona="You are brave.")
BEFORE = (user("My name is Ada."), Message("assistant", (Text("Hello, Ada."),)))
SAID = ["My name is Ada.", "Hello, Ada.", "Who am I?"]


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.conversation.messages]


async def submit_with_history(service: LocalService, agent: AgentSpec = HERO, message: str = "Who am I?") -> Ticket:
    return await service.submit(Submission(agent, user(message), before=BEFORE, instructions="Rhyme."))


async def test_a_session_starts_with_earlier_messages(tmp_path: Path) -> None:
    model = ScriptedModel(say("Ada."), say("Yes."))

    async with opened(tmp_path, model) as engine:
        ticket = await submit_with_history(engine.service)
        await engine.wait(ticket.run_id)
        again = await engine.service.submit(Submission(HERO, user("Sure?"), ticket.session_id))
        await engine.wait(again.run_id)
    first, second = model.requests
    assert texts(first) == SAID
    assert [message.role for message in first.conversation.messages] == ["user", "assistant", "user"]
    assert first.preamble.system.startswith("You are brave.")
    assert first.preamble.system.endswith(f"{CLIENT_INSTRUCTIONS_HEADING}\nRhyme.")
    assert texts(second) == [*SAID, "Ada.", "Sure?"]
    assert "Rhyme." not in second.preamble.system, "which was told for one run"


async def test_earlier_messages_survive_a_crash(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(Silence("half"))) as engine:
        ticket = await submit_with_history(engine.service)
        await until(engine, ticket.run_id, "token")
    model = ScriptedModel(say("Ada."), say("Yes."))
    async with opened(tmp_path, model) as engine:
        await engine.wait(ticket.run_id)
    async with opened(tmp_path, model) as engine:  # which has nothing of it in memory
        again = await engine.service.submit(Submission(HERO, user("Sure?"), ticket.session_id))
        await engine.wait(again.run_id)
    first, second = model.requests
    assert texts(first) == SAID
    assert first.preamble.system.endswith("Rhyme.")
    assert texts(second) == [*SAID, "Ada.", "Sure?"]


async def test_the_prompt_of_a_session_with_earlier_messages_can_be_shown(tmp_path: Path) -> None:
    model = ScriptedModel(say("Ada."))

    async with opened(tmp_path, model) as engine:
        ticket = await submit_with_history(engine.service)
        await engine.wait(ticket.run_id)
        shown = (await engine.service.prompt(ticket.run_id)).request
    assert texts(shown) == texts(model.requests[0]) == SAID
    assert shown.preamble.system == model.requests[0].preamble.system


async def test_long_earlier_messages_are_summarised_with_the_rest(tmp_path: Path) -> None:
    summed: list[str] = []
    asked: list[list[str]] = []

    def answer(request: ModelRequest) -> ScriptedReply:
        if is_summary(request):
            summed.append(request.conversation.messages[0].text)
            return say("They greeted each other at length.", usage=UNCOUNTED)
        asked.append(texts(request))
        return say("Ada.", usage=UNCOUNTED)

    turns = [(user(f"turn {n} {WORDS * 5}"), Message("assistant", (Text(f"noted {n}"),))) for n in range(20)]
    long = (*BEFORE, *(message for turn in turns for message in turn))

    small = AgentSpec("hero", "scripted/x", **SMALL)
    async with opened(tmp_path, FunctionModel(answer)) as engine:
        ticket = await engine.service.submit(Submission(small, user("Who am I?"), before=long))
        result = await engine.wait(ticket.run_id)
    assert result.outcome == "completed"
    assert "turn 3 " in summed[0]
    assert any("greeted each other" in text for text in asked[-1])
    assert asked[-1][-1] == "Who am I?"
    assert not any("turn 3 " in text for text in asked[-1])


async def test_secrets_in_earlier_messages_are_redacted(tmp_path: Path) -> None:
    model = ScriptedModel(say("Noted."))

    with closing(VaultStore(tmp_path / "home", {})) as vault:
        vault.put("KEY", "hunter2-hunter2", (SecretGrant("hero"),))
    async with opened(tmp_path, model) as engine:
        told = (user("The key is hunter2-hunter2."), Message("assistant", (Text("hunter2-hunter2, yes."),)))
        wanted = Submission(HERO, user("Go."), before=told, instructions="Use hunter2-hunter2.")
        ticket = await engine.service.submit(wanted)
        await engine.wait(ticket.run_id)
        [queued, *_] = await engine.service.page(ticket.run_id)
    assert b"hunter2" not in bytes(queued.raw)
    assert "hunter2" not in "".join(texts(model.requests[0])) + model.requests[0].preamble.system


async def test_an_existing_session_cannot_start_with_other_messages(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        wanted = Submission(HERO, user("Go."), SessionId("ses_x"), before=BEFORE)
        with pytest.raises(UsageError, match="new session"):
            await engine.service.submit(wanted)
        endless = (user("x" * (MESSAGE_LIMIT + 1)),)
        with pytest.raises(SizeLimitExceeded):
            await engine.service.submit(Submission(HERO, user("Go."), before=endless))
        with pytest.raises(SizeLimitExceeded):
            await engine.service.submit(Submission(HERO, user("Go."), instructions="x" * (MESSAGE_LIMIT + 1)))
        assert not await engine.service.runs()
