"""Questions and approvals of child runs: they reach the person, and the answers reach the child."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.channels.home import AGENT, chatting, direct
from tests.channels.test_telegram import ANNA
from treadle.api.engine import HostedEngine
from treadle.channels.decisions import Decisions
from treadle.domain.channels import Person
from treadle.domain.events import ClarifyAnswered
from treadle.domain.ids import RunId
from treadle.ports.model import ModelRequest
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.testing.models import FunctionModel, ask, call, say


def delegate(*question: Any) -> FunctionModel:
    """Return a model that gives its task to a helper, which asks a person."""

    def answer(request: ModelRequest) -> Any:
        last = request.conversation.messages[-1]
        text = last.text
        match last.role, text:
            case "user", "helper task":
                return ask(*question)
            case "user", _:
                return ask(call("agent_spawn", message="helper task"))
            case _:
                is_helper = any(each.text == "helper task" for each in request.conversation.messages)
                return say(f"helper: {last.parts}" if is_helper else f"root: {last.parts}")

    return FunctionModel(answer)


async def test_a_plain_message_answers_the_question_of_a_child_run(tmp_path: Path) -> None:
    model = delegate(call("clarify", question="Which colour?"))
    agent = AGENT + "tools: [agent_spawn, clarify]\n"
    async with chatting(tmp_path, model, agent=agent, streaming=False) as chat:
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "paint it")
        await chat.says(ANNA, "Which colour?")
        await chat.fake.write(ANNA, "blue")
        texts = await chat.fake.wait_for(lambda: [each for each in chat.fake.texts(ANNA) if "root:" in each])
        assert "blue" in texts[0]
        assert "Answered." in chat.fake.texts(ANNA)
        service = chat.engine.context.service
        children = [run for run in await service.runs() if run.origin.parent_run_id is not None]
        events = [event.data async for event in service.read_stored(children[0].origin.run_id)]
        assert [each.text for each in events if isinstance(each, ClarifyAnswered)] == ["blue"]


async def test_the_answer_to_a_child_run_does_not_read_the_journal_of_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 30
    read: Counter[str] = Counter()
    plain_read = SqliteJournal.read

    async def counted(journal: SqliteJournal, run_id: RunId, after: int = 0, limit: int = 1000) -> Any:
        events = await plain_read(journal, run_id, after, limit)
        read[run_id] += len(events)
        return events

    @treadle.tool(effect="read", repeatable=True)
    async def look(place: int) -> str:
        """Look.

        Args:
            place: Where.
        """
        return f"nothing at {place}"

    def answer(request: ModelRequest) -> Any:
        messages = request.conversation.messages
        if any(each.text == "helper task" for each in messages):
            return ask(call("clarify", question="Which colour?")) if messages[-1].role == "user" else say("done")
        if len(messages) < 2 * steps:
            return ask(call("look", place=len(messages)))
        is_over = len(messages) > 2 * steps + 1
        return say("root") if is_over else ask(call("agent_spawn", message="helper task"))

    agent = AGENT + "tools: [agent_spawn, clarify, look]\nlimits: {max_steps: 100}\n"

    def prepare(engine: HostedEngine) -> None:
        engine.add_tools(look)

    async with chatting(tmp_path, FunctionModel(answer), agent=agent, prepare=prepare, streaming=False) as chat:
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "paint it")
        await chat.says(ANNA, "Which colour?")
        service = chat.engine.context.service
        manager: Any = chat.engine.context.channels()
        [root] = [run for run in await service.runs() if run.origin.parent_run_id is None]
        monkeypatch.setattr(SqliteJournal, "read", counted)
        decisions = Decisions("telegram", manager.store, service)
        person = Person(
            channel="telegram",
            sender=str(ANNA),
            name="Anna",
            user="telegram|11",
            grants=("direct",),
            added_at=0.0,
        )
        said = await decisions.answer(direct("m", "blue"), person, root, "telegram|11")
        assert said == "", "the question was found"
        assert root.sequence > 4 * steps
        assert read[root.origin.run_id] <= 64, "only the latest step is read"


async def test_an_option_of_a_child_run_is_a_button_for_the_person_who_started_it(tmp_path: Path) -> None:
    model = delegate(call("clarify", question="Which colour?", options=["red", "blue"]))
    agent = AGENT + "tools: [agent_spawn, clarify]\n"
    async with chatting(tmp_path, model, agent=agent, streaming=False) as chat:
        await chat.admit(ANNA)
        await chat.fake.write(ANNA, "paint it")
        [prompt] = await chat.fake.wait_for(lambda: [m for m in chat.fake.sent if "colour" in m["text"]])
        await chat.fake.press(ANNA, prompt, "option/1")
        texts = await chat.fake.wait_for(lambda: [each for each in chat.fake.texts(ANNA) if "root:" in each])
        assert "blue" in texts[0]


async def test_an_approval_of_a_child_run_is_decided_in_the_chat(tmp_path: Path) -> None:
    done: list[str] = []

    @treadle.tool(effect="external")
    async def act(what: str) -> str:
        """Act.

        Args:
            what: What to do.
        """
        done.append(what)
        return "acted"

    agent = AGENT + "tools: [agent_spawn, act]\napprovals: {rules: [{tool: act, do: ask}]}\n"
    model = delegate(call("act", what="it"))

    def prepare(engine: HostedEngine) -> None:
        engine.add_tools(act)

    async with chatting(tmp_path, model, agent=agent, prepare=prepare, streaming=False) as chat:
        await chat.admit(ANNA, "direct", "approve")
        await chat.fake.write(ANNA, "do it")
        [prompt] = await chat.fake.wait_for(lambda: open_prompts(chat.fake))
        await chat.fake.press(ANNA, prompt, "approve")
        await chat.fake.wait_for(lambda: any("root:" in each for each in chat.fake.texts(ANNA)))
        assert done == ["it"]
        assert any(each.startswith("Approved") for each in chat.fake.texts(ANNA)), "the prompt shows the decision"
        assert not open_prompts(chat.fake)


def open_prompts(fake: Any) -> list[dict[str, Any]]:
    return [dict(message) for message in fake.sent if message["text"].startswith("Approval needed")]
