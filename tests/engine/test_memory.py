"""Memory around a run: what is recalled, where it is in the prompt, and what is recorded."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import agent, journal, opened, until
from treadle.domain import events as e
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptedModel, ScriptStep, Silence, ask, call, say
from treadle.vault.store import SecretGrant, VaultStore

BY_WORDS: dict[str, Any] = {"memory": {"embedder": "none"}}
CANARY = "s3cr3t-canary-value"


def of(kind: type[Any], events: list[Any]) -> list[Any]:
    return [event.data for event in events if isinstance(event.data, kind)]


@treadle.tool(effect="read")
async def look() -> str:
    """Look around."""
    return "a green door"


async def test_memories_are_recalled_in_other_sessions_only(tmp_path: Path) -> None:
    model = ScriptedModel(say("Ada likes green tea."), say("It is green tea."), say("Yes."), say("Who knows."))

    async with opened(tmp_path, model) as engine:
        hero = agent(**BY_WORDS)
        first = await engine.run(hero, "What does Ada like to drink?", user="ada")
        await engine.run(hero, "Does Ada like to drink it hot?", session=first.session_id, user="ada")
        other = await engine.run(hero, "What was it that Ada likes to drink?", user="ada")
        stranger = await engine.run(agent(name="stranger", **BY_WORDS), "What does Ada like to drink?", user="ada")
        events = await journal(engine, other.run_id)
        assert not of(e.MemoryRecalled, await journal(engine, stranger.run_id)), "it is the agent's own"
    asked = [request.conversation.messages[-1].text for request in model.requests]
    assert asked[1] == "Does Ada like to drink it hot?", "it stands in the conversation already"
    assert asked[2].startswith("[from memory:")
    assert "Answered: Ada likes green tea." in asked[2]
    assert asked[2].endswith("[end of memory]\n\nWhat was it that Ada likes to drink?"), "the question is last"
    [recalled] = of(e.MemoryRecalled, events)
    assert recalled.by == "text"
    types = [event.type for event in events]
    assert types.index("memory_recalled") < types.index("llm_request")
    assert types[-2:] == ["memory_saved", "run_end"]


async def test_memory_can_be_in_the_system_prompt_or_recalled_before_every_step(tmp_path: Path) -> None:
    script = (say("The key is under the mat."), say("so"), ask(call("look"), text="the green door"), say("done"))
    model = ScriptedModel(*script)

    async with opened(tmp_path, model) as engine:
        await engine.run(agent(**BY_WORDS), "Where is the key of the green door?", user="ada")
        system = agent(memory={"embedder": "none", "place": "system"})
        await engine.run(system, "The key of the green door, please.", user="ada")
        stepwise = agent(tools=[look], memory={"embedder": "none", "when": "step"})
        await engine.run(stepwise, "Look around you.", user="ada")
    assert "under the mat" in model.requests[1].preamble.system
    assert model.requests[1].conversation.messages[0].text == "The key of the green door, please."
    assert "under the mat" not in str(model.requests[2].conversation.messages)
    assert "under the mat" in model.requests[3].conversation.messages[-1].text


async def test_memories_are_recalled_for_a_steered_message_too(tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> ScriptStep:
        asked.append(request.conversation.messages[-1].text)
        if len(asked) == 1:
            return say("The harbour opens at nine.")
        return Silence("hm") if len(asked) == 2 else say("done")

    asked: list[str] = []

    async with opened(tmp_path, FunctionModel(answer)) as engine:
        hero = agent(**BY_WORDS)
        await engine.run(hero, "When does the harbour open?", user="ada")
        run_id = await engine.submit(hero, "Say something nice.", user="ada")
        await until(engine, run_id, "llm_request")
        await engine.steer(run_id, "And when did the harbour open again?", mode="interrupt")
        await engine.wait(run_id)
    assert "from memory" not in asked[1]
    assert "opens at nine" in asked[2]


async def test_a_repeated_fact_is_remembered_once(tmp_path: Path) -> None:
    model = ScriptedModel(*(say("Nine.") for _ in range(3)))

    async with opened(tmp_path, model) as engine:
        hero = agent(**BY_WORDS)
        results = [await engine.run(hero, "When does it open?", user="ada") for _ in range(3)]
        saved = [of(e.MemorySaved, await journal(engine, result.run_id))[0] for result in results]
        listed = await engine.run(hero, "/memory", user="ada")
    assert saved[0].repeats is None
    assert [each.repeats for each in saved[1:]] == [saved[0].memory_id] * 2
    assert listed.text.count("When does it open?") == 1


@pytest.mark.parametrize(
    ("memory", "message"),
    [({"remember": False}, "hello there"), ({"recall": 0}, "hello there")],
)
async def test_memory_can_be_disabled(tmp_path: Path, memory: dict[str, Any], message: str) -> None:
    model = ScriptedModel(say("hello yourself"), say("hello yourself"))

    async with opened(tmp_path, model) as engine:
        hero = agent(memory=memory | {"embedder": "none"})
        await engine.run(hero, message, user="ada")
        result = await engine.run(hero, message, user="ada")
        types = [event.type for event in await journal(engine, result.run_id)]
    assert "memory_recalled" not in types
    assert ("memory_saved" in types) == memory.get("remember", True)


async def test_tools_save_search_and_note_without_secrets(tmp_path: Path) -> None:
    script = (
        ask(call("memory_save", text=f"The token of the office is {CANARY}, ask Bob.")),
        ask(call("journal_write", text="A quiet day at the office.")),
        ask(call("memory_search", query="token of the office")),
        say("done"),
        say("so"),
    )
    model = ScriptedModel(*script)

    with closing(VaultStore(tmp_path / "home", {})) as store:
        store.put("TOKEN", CANARY, (SecretGrant("other"),))
    async with opened(tmp_path, model) as engine:
        hero = agent(tools=["memory_*", "journal_write"], memory={"embedder": "none", "remember": False})
        result = await engine.run(hero, "go", user="ada")
        await engine.run(hero, "How was the day at the office?", user="ada")
        events = await journal(engine, result.run_id)
    assert not any(CANARY in event.raw.decode() for event in events)
    assert CANARY.encode() not in (tmp_path / "t.db").read_bytes()
    [written] = of(e.JournalWritten, events)
    assert written.text == "A quiet day at the office."
    assert "A quiet day" in model.requests[-1].conversation.messages[-1].text
