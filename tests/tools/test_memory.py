"""memory_search, memory_save and journal_write."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from treadle.domain.events import EventData, JournalWritten, MemoryDegraded, MemorySaved
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.memories import Memory, MemoryKind
from treadle.ports.memory import FoundMemory, Recall
from treadle.ports.tool import InvalidArguments, Tool, ToolContext, ToolError
from treadle.tools.memory import (
    MAX_FACT_CHARACTERS,
    MAX_NOTE_CHARACTERS,
    MAX_QUERY_CHARACTERS,
    journal_write,
    memory_save,
    memory_search,
)

MARCH = 1_772_400_000.0


def memory(number: int, text: str, kind: MemoryKind = "long_term") -> Memory:
    return Memory(f"mem_{number}", AgentId("agt_1"), kind, text, MARCH)


class FakeMemory:
    """What an agent remembers, and what it was asked and told."""

    def __init__(self, *memories: Memory, notes: Sequence[Memory] = (), degraded: str | None = None) -> None:
        found = tuple(FoundMemory(item, 0.5, "vectors") for item in memories)
        trouble = None if degraded is None else MemoryDegraded("local", degraded)
        self.recall = Recall(found, tuple(notes), degraded=trouble)
        self.asked: list[tuple[str, int]] = []
        self.reported: list[EventData] = []

    async def search(self, text: str, limit: int) -> Recall:
        self.asked.append((text, limit))
        return self.recall

    def call(self, tool: Tool, **arguments: Any) -> str:
        context = ToolContext(
            RunId("run_1"),
            SessionId("ses_1"),
            "c1",
            "run_1/c1",
            lambda text: None,
            report=self.reported.append,
            search_memory=self.search,
            new_memory_id=lambda: "mem_new",
        )
        return str(asyncio.run(tool.run(tool.parse(json.dumps(arguments)), context)))  # type: ignore[arg-type] -- any of them


def test_results_show_their_date() -> None:
    remembered = FakeMemory(memory(1, "Likes tea.\nA lot."), notes=[memory(2, "go on", "journal")])
    assert remembered.call(memory_search, query=" what to drink? ") == (
        "- 2026-03-01: Likes tea. A lot. (score 0.50)\nYour latest journal notes:\n- 2026-03-01: go on"
    )
    assert remembered.asked == [("what to drink?", 5)]


def test_empty_results_and_word_only_searches_are_reported() -> None:
    assert FakeMemory().call(memory_search, query="x", limit=20) == "Nothing that is remembered fits."
    shown = FakeMemory(degraded="down").call(memory_search, query="x")
    assert shown.endswith("[only words were compared, not meanings: if nothing fits, try other words]")


def test_a_saved_memory_is_stored_and_recorded() -> None:
    remembered = FakeMemory()
    assert remembered.call(memory_save, text="  Likes tea. ", pinned=True) == "Remembered as mem_new."
    assert remembered.reported == [MemorySaved("mem_new", "Likes tea.", "tool", True)]


@pytest.mark.parametrize(
    ("known", "repeats"),
    [
        (memory(7, "the user likes  tea"), "mem_7"),
        (memory(7, "The user likes coffee."), None),
        (memory(7, "The user likes tea.", "journal"), None),
    ],
)
def test_a_known_fact_is_updated(known: Memory, repeats: str | None) -> None:
    remembered = FakeMemory(memory(1, "Something else."), known)
    told = remembered.call(memory_save, text="The user likes tea.")
    assert remembered.reported == [MemorySaved("mem_new", "The user likes tea.", "tool", repeats=repeats)]
    assert ("remembered already (mem_7)" in told) == (repeats is not None)


def test_a_note_is_stored_and_recorded() -> None:
    remembered = FakeMemory()
    assert remembered.call(journal_write, text="stopped at step 3\n") == "Noted."
    assert remembered.reported == [JournalWritten("mem_new", "stopped at step 3")]
    assert remembered.asked == []


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        (memory_search, {"query": " "}, "the query is empty"),
        (memory_search, {"query": "x" * (MAX_QUERY_CHARACTERS + 1)}, "1001 characters, and at most 1000"),
        (memory_save, {"text": "\n"}, "the text is empty"),
        (
            memory_save,
            {"text": "x" * (MAX_FACT_CHARACTERS + 1)},
            "2001 characters, .*one fact at a time",
        ),
        (journal_write, {"text": ""}, "the text is empty"),
        (journal_write, {"text": "x" * (MAX_NOTE_CHARACTERS + 1)}, "4001 characters, and at most 4000"),
    ],
)
def test_invalid_texts_are_refused(tool: Tool, arguments: dict[str, Any], words: str) -> None:
    remembered = FakeMemory()
    with pytest.raises(ToolError, match=words):
        remembered.call(tool, **arguments)
    assert remembered.reported == []


def test_invalid_arguments_are_refused() -> None:
    for arguments in ({"query": "x", "limit": 0}, {"query": "x", "limit": 21}, {"limit": 2}):
        with pytest.raises(InvalidArguments):
            FakeMemory().call(memory_search, **arguments)


def test_the_memory_tools_declare_their_names_and_needs() -> None:
    assert [tool.spec.name for tool in (memory_search, memory_save, journal_write)] == [
        "memory_search",
        "memory_save",
        "journal_write",
    ]
    assert {tool.spec.needs for tool in (memory_search, memory_save, journal_write)} == {("memory",)}
    assert (memory_search.spec.effect, memory_save.spec.effect, journal_write.spec.effect) == (
        "read",
        "write",
        "write",
    )
    assert "context" not in memory_save.spec.schema["properties"]
