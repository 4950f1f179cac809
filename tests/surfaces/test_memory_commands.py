"""`treadle memory`: import and export, invalid input that changes nothing, and deletion."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.shell import Done, Shell
from treadle.memory.local_embedder import is_installed
from treadle.stores.sqlite.lock import DatabaseLock

FACT = "The children go to bed at eight."


async def do(shell: Shell, *arguments: str, stdin: str = "") -> Done:
    return await shell("memory", *arguments, stdin=stdin.encode())


async def run_concurrently(shell: Shell, *commands: tuple[str, ...]) -> list[Done]:
    return await asyncio.gather(*(shell("memory", *command) for command in commands))


async def list_memories(shell: Shell, *arguments: str) -> list[Any]:
    return (await do(shell, "list", "--json", *arguments)).json


def with_agents(shell: Shell, *names: str, embedder: str = "none") -> Shell:
    for name in names:
        settings = f"name: {name}\nmodel: fake/m\nmemory: {{embedder: {embedder}}}\n"
        shell.write(f"agents/{name}/config.yaml", settings)
    return shell


async def test_memories_are_added_listed_and_forgotten(shell: Shell) -> None:
    added = await do(shell, "add", FACT)
    assert (added.code, added.out) == (0, "")
    assert "Saved as mem_" in added.err
    assert "already remembers this" in (await do(shell, "add", FACT.upper())).err
    assert (await do(shell, "add", "-", "--kind", "journal", "--pinned", stdin="a note\n")).code == 0
    table = (await do(shell, "list")).out.splitlines()
    assert table[0].split() == ["MEMORY", "AGENT", "USER", "PINNED", "KIND", "SAVED", "TEXT"]
    assert "journal" in table[1]
    assert table[2].endswith(FACT)
    note, fact = await list_memories(shell)
    assert (note["text"], note["kind"], note["pinned"], note["agent"]) == ("a note", "journal", True, "default")
    assert fact["source"] == "person"
    gone = await do(shell, "forget", fact["memory_id"])
    assert "Deleted 1 memory with the index entries.\n" in gone.err
    assert "The journals of runs that saved or recalled them still hold the text.\n" in gone.err
    assert [item["text"] for item in await list_memories(shell)] == ["a note"]
    assert all(b"bed at eight" not in file.read_bytes() for file in shell.home.glob("treadle.db*"))


async def test_an_empty_memory_is_reported_and_nothing_is_created(shell: Shell) -> None:
    assert "No memories yet." in (await do(shell, "list")).err
    assert "No memories of the agent `default` yet" in (await do(shell, "list", "--agent", "default")).err
    assert "No memory of `default` matches" in (await do(shell, "search", "bedtime")).err
    assert (await do(shell, "export")).out == ""
    assert not (shell.home / "treadle.db").exists(), "looking makes nothing"


@pytest.mark.parametrize(
    "arguments",
    [("list", "-a"), ("search", "x", "-a"), ("add", "x", "-a"), ("export", "-a"), ("import", "-", "-a")],
)
async def test_an_unknown_agent_is_refused_with_a_suggestion(shell: Shell, arguments: tuple[str, ...]) -> None:
    with_agents(shell, "gardener")
    done = await do(shell, *arguments, "gardner")
    assert done.code == 2
    assert done.complaint == "No agent is called `gardner`. Did you mean `gardener`?"


@pytest.mark.skipif(not is_installed(), reason="the extra `local` is not installed")
async def test_search_by_meaning_says_how_it_was_found(shell: Shell) -> None:
    for text in (FACT, "Steel is sold by the ton.", "E4711 means that the disk is full."):
        await do(shell, "add", text)
    by_meaning = (await do(shell, "search", "when do the kids sleep?")).out.splitlines()
    assert by_meaning[0].split() == ["SCORE", "BY", "MEMORY", "USER", "SAVED", "TEXT"]
    assert by_meaning[1].split()[1] == "vectors"
    assert by_meaning[1].endswith(FACT)
    first, *_ = (await do(shell, "search", "what is E4711?", "--json")).json
    assert (first["text"], first["by"]) == ("E4711 means that the disk is full.", "both")
    assert 0 < first["score"] <= 1


async def test_search_uses_words_if_the_embedder_is_unusable(shell: Shell) -> None:
    with_agents(shell, "words")
    with_agents(shell, "broken", embedder="nobody/m")
    for agent in ("words", "broken"):
        await do(shell, "add", FACT, "-a", agent)
        (found,) = (await do(shell, "search", "children bed", "-a", agent, "--json")).json
        assert (found["text"], found["by"], found["agent"]) == (FACT, "text", agent)
    assert "Searched by words alone" in (await do(shell, "search", "children bed", "-a", "broken")).err
    assert "no provider is called `nobody`" in (await do(shell, "search", "children bed", "-a", "broken")).err
    assert len(await list_memories(shell)) == 2
    assert len(await list_memories(shell, "--agent", "words")) == 1


async def test_exported_memories_can_be_imported(shell: Shell, tmp_path: Path) -> None:
    with_agents(shell, "one", "two")
    await do(shell, "add", FACT, "-a", "one", "--pinned")
    await do(shell, "add", "zwei: Grüße", "-a", "two", "--kind", "journal")
    exported = await do(shell, "export")
    assert [item["agent"] for item in exported.json] == ["one", "two"]
    other = with_agents(Shell(tmp_path / "other"), "one", "two")
    assert (await do(other, "import", "-", stdin=exported.out)).err == "Imported 2 memories.\n"
    assert (
        await do(other, "import", "-", stdin=exported.out)
    ).err == "Imported 0 memories; skipped 2 that exist already.\n"
    assert (await do(other, "export")).out == exported.out
    assert (await do(other, "import", "-", "--json", stdin=exported.out)).json == [{"new": 0, "known": 2}]
    moved = other.write("memories.jsonl", f"\ufeff{exported.out}\n\n")
    assert (await do(other, "import", str(moved), "-a", "two", "--json")).json == [{"new": 1, "known": 1}]


async def test_memories_of_one_agent_are_imported_for_another(shell: Shell) -> None:
    with_agents(shell, "alice", "bob")
    await do(shell, "add", FACT, "-a", "alice", "--pinned")
    await do(shell, "add", "a note", "-a", "alice", "--kind", "journal")
    lines = (
        await do(shell, "export", "-a", "alice")
    ).out + '{"text": "no id"}\n{"text": "nor here", "kind": "journal"}\n'
    for new in (4, 0):
        assert (await do(shell, "import", "-", "-a", "bob", "--json", stdin=lines)).json == [
            {"new": new, "known": 4 - new}
        ]
    his = {item["text"]: item for item in await list_memories(shell, "-a", "bob")}
    for hers in await list_memories(shell, "-a", "alice"):
        assert hers["memory_id"] != his[hers["text"]]["memory_id"]
        assert {**hers, "memory_id": "", "agent": ""} == {**his[hers["text"]], "memory_id": "", "agent": ""}


async def test_a_known_id_with_another_text_is_a_new_memory(shell: Shell) -> None:
    await do(shell, "add", FACT)
    (his,) = await list_memories(shell)
    twice = json.dumps({**his, "text": "Another text under a known id."})
    both = f"{twice}\n{json.dumps({**his, 'text': 'A third one.'})}\n{twice}\n"
    assert (await do(shell, "import", "-", "--json", stdin=both)).json == [{"new": 2, "known": 1}]
    assert len({item["memory_id"] for item in await list_memories(shell)}) == 3


async def test_lines_of_an_unconfigured_agent_are_refused_unless_it_is_named(shell: Shell) -> None:
    line = '{"text": "x", "agent": "bob"}'
    refused = await do(shell, "import", "-", stdin=line)
    assert refused.code == 2
    assert refused.complaint == (
        "line 1: No agent is called `bob`. Known: default. Or pass --agent NAME for all lines. "
        "Nothing was imported."
    )
    with_agents(shell, "bob")
    await do(shell, "add", FACT, "-a", "bob")
    (shell.home / "agents/bob/config.yaml").unlink()
    assert (await do(shell, "import", "-", stdin=line)).code == 0
    assert len(await list_memories(shell, "-a", "bob")) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "line 2 is not a memory: JSON is malformed"),
        (
            '{"agent": "default"}',
            "line 2 is not a memory: Object missing required field `text`; each line is a JSON",
        ),
        (
            '{"text": "x", "kind": "dream"}',
            'line 2: kind: found "dream"; accepted: long_term or journal. Nothing was',
        ),
        (
            '{"text": "x", "agent": "default", "created_at": "0001-01-01"}',
            'line 2: created_at: found "0001-01-01"; accepted: a date and time such as 2026',
        ),
        (
            '{"text": "x", "agent": "default", "created_at": "0001-01-01T00:00:00"}',
            "line 2: created_at: found 0001-01-01T00:00:00; accepted: a date and time such as 2026",
        ),
        (
            '{"text": "x", "used_at": "0001-01-01T00:00:00+14:00"}',
            "line 2: used_at: found 0001-01-01T00:00:00+14:00",
        ),
        (
            '{"text": "x", "used_at": "9999-12-31T23:59:59-14:00"}',
            "line 2: used_at: found 9999-12-31T23:59:59-14:00",
        ),
        (
            f'{{"text": "x", "agent": "default", "uses": {"9" * 20}}}',
            "line 2: uses: found 99999999999999999999; accepted: a whole number from 0 to 1000000000. Nothing was",
        ),
        ('{"text": "x", "uses": -5}', "line 2: uses: found -5; accepted"),
        (f'{{"text": "x", "uses": {"9" * 9000}}}', "line 2: uses: found 99999"),
        ('{"text": "x", "uses": 1e300}', "line 2: uses: found 1e300; accepted"),
        ('{"text": "x", "memory_id": ""}', 'line 2: memory_id: found ""; accepted: mem_ followed by at most 64'),
        (r'{"text": "x", "memory_id": "mem_x\n"}', r'line 2: memory_id: found "mem_x\n"; accepted: mem_'),
        ('{"text": "x", "run_id": "rm -rf"}', 'line 2: run_id: found "rm -rf"; accepted: run_'),
        (r'{"text": "x", "session_id": "a\u001b"}', 'line 2: session_id: found "a\\u001b"; accepted: the name of'),
        ('{"text": "x", "agent": "dfault"}', "line 2: No agent is called `dfault`. Did you mean `default`?"),
        ("[" * 100_000, "line 2 is not a memory"),
        ('{"text": "x", "txet": "y"}', "line 2 is not a memory: Object contains unknown field `txet`"),
        ('{"text": "x"}', 'line 2 names no agent: add "agent"'),
        ('{"text": " ", "agent": "default"}', "line 2: the text is empty"),
        (json.dumps({"text": "x" * 8001, "agent": "default"}), "line 2: the text has 8001 characters"),
    ],
)
async def test_an_invalid_line_imports_nothing(shell: Shell, line: str, words: str) -> None:
    done = await do(shell, "import", "-", stdin=f'{{"text": "fine", "agent": "default"}}\n{line}\n')
    assert done.code == 2
    assert words in done.complaint
    assert "Nothing was " in done.complaint
    with closing(sqlite3.connect(shell.home / "treadle.db")) as db:
        assert db.execute("SELECT count(*) FROM memories").fetchone() == (0,)


async def test_a_failed_import_creates_no_agent(shell: Shell) -> None:
    with_agents(shell, "bob")
    assert (
        await do(shell, "import", "-", stdin='{"text": "x", "agent": "bob"}\n{"text": "x", "uses": -1}')
    ).code == 2
    (shell.home / "agents/bob/config.yaml").unlink()
    assert (await do(shell, "list", "-a", "bob")).complaint == "No agent is called `bob`. Known: default."


async def test_an_in_memory_database_is_refused(shell: Shell, tmp_path: Path) -> None:
    shell.cwd = tmp_path
    shell.environment["TREADLE_DATABASE_URL"] = "sqlite:///:memory:"
    done = await do(shell, "add", FACT)
    assert done.code == 2
    assert "sqlite:///:memory: is lost when this command ends" in done.complaint
    assert "Set TREADLE_DATABASE_URL to sqlite:///PATH" in done.complaint
    assert not list(tmp_path.glob("*.lock"))


async def test_an_unreadable_file_is_reported(shell: Shell) -> None:
    done = await do(shell, "import", str(shell.home / "nowhere"))
    assert done.code == 2
    assert "cannot be read: No such file" in done.complaint


async def test_memories_are_pinned_and_unpinned(shell: Shell) -> None:
    await do(shell, "add", FACT)
    (item,) = await list_memories(shell)
    assert "Pinned 1 memory" in (await do(shell, "pin", item["memory_id"])).err
    assert (await list_memories(shell))[0]["pinned"] is True
    assert (await do(shell, "unpin", item["memory_id"], "--json")).json == [
        {"memories": [item["memory_id"]], "pinned": False}
    ]
    assert "pinned" not in (await list_memories(shell))[0]


async def test_nothing_is_forgotten_if_one_id_is_unknown(shell: Shell) -> None:
    await do(shell, "add", FACT)
    (item,) = await list_memories(shell)
    for command in ("forget", "pin"):
        done = await do(shell, command, item["memory_id"], "mem_nope")
        assert done.code == 2
        assert done.complaint == "There is no memory mem_nope. `treadle memory list` shows all memories."
    assert await list_memories(shell) == [item]


async def test_remaining_copies_of_a_forgotten_memory_are_reported(shell: Shell) -> None:
    lines = [{"text": f"fact {name}", "agent": "default", "memory_id": f"mem_{name}"} for name in "abc"]
    lines[0]["run_id"] = lines[1]["run_id"] = "run_1"
    await do(shell, "import", "-", stdin="\n".join(map(json.dumps, lines)))
    assert (await do(shell, "forget", "mem_a")).err.splitlines() == [
        "Deleted 1 memory with the index entries.",
        "The journals of runs that saved or recalled them still hold the text, such as run_1.",
    ]
    assert (await do(shell, "forget", "mem_b", "mem_c", "--json")).json == [
        {"forgotten": ["mem_b", "mem_c"], "made_in_runs": ["run_1"], "journals_keep_the_text": True}
    ]


async def test_secrets_are_redacted_before_a_memory_is_stored(shell: Shell) -> None:
    canary = "canary-4f1d0e-in-a-coal-mine"
    await shell("vault", "set", "TOKEN", stdin=canary.encode())
    await do(shell, "add", f"the token is {canary}")
    await do(shell, "import", "-", stdin=json.dumps({"text": f"use {canary} there", "agent": "default"}))
    assert len(await list_memories(shell)) == 2
    assert canary not in (await do(shell, "export")).out
    assert all(canary.encode() not in file.read_bytes() for file in shell.home.glob("treadle.db*"))


async def test_an_owned_database_can_be_read_and_not_changed(shell: Shell) -> None:
    await do(shell, "add", FACT)
    lock = DatabaseLock(str(shell.home / "treadle.db"))
    try:
        assert [item["text"] for item in await list_memories(shell)] == [FACT]
        (item,) = await list_memories(shell)
        commands = ("add", "x"), ("forget", item["memory_id"]), ("pin", item["memory_id"]), ("import", "-")
        for done in await run_concurrently(shell, *commands):  # each waits a while for the owner to go
            assert done.code == 1
            assert "which does not answer yet. Waiting for it to start." in done.err
            assert f"Nothing was changed. The database {shell.home}/treadle.db is owned by process" in done.err
            assert "Wait for it to end, or stop it (kill " in done.err
            assert "Until then `treadle memory list`, `search` and `export` show its memories" in done.err
    finally:
        lock.release()


async def test_memories_are_shown_for_a_user_and_assigned_to_another(shell: Shell) -> None:
    with_agents(shell, "ada")
    for user, text in (("alice", "Likes tea."), ("bob", "Likes tea."), ("local", "Likes coffee.")):
        assert (await do(shell, "add", text, "-a", "ada", "--user", user)).code == 0
    assert [line["owner"] for line in await list_memories(shell, "--user", "alice")] == ["alice"]
    assert "coffee" in (await do(shell, "search", "coffee", "-a", "ada")).out
    assert (
        "No memory of `ada` of the user `bob` matches."
        in (await do(shell, "search", "coffee", "-a", "ada", "--user", "bob")).err
    )
    assert (await do(shell, "export", "--user", "bob")).out.count("\n") == 1
    assert "Assigned 1 memory to `carol`" in (await do(shell, "assign", "carol", "--from-user", "alice")).err
    merged = (await do(shell, "assign", "carol", "-a", "ada", "--json")).out
    assert json.loads(merged) == {"moved": 1, "merged": 1}
    assert {line["owner"] for line in await list_memories(shell)} == {"carol"}
    nothing = await do(shell, "assign", "carol")
    assert (nothing.code, "No memories are selected" in nothing.err) == (2, True)
    wrong = await do(shell, "assign", "LOCAL", "-a", "ada")
    assert (wrong.code, "could be mistaken for the local user" in wrong.err) == (2, True)
