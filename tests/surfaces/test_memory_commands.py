"""`treadle memory` as a user meets it: what goes in comes out, what is wrong changes nothing, what goes is gone."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.shell import Done, Shell
from treadle.memory.local import is_installed
from treadle.stores.sqlite.lock import DatabaseLock

FACT = "The children go to bed at eight."


def do(shell: Shell, *arguments: str, stdin: str = "") -> Done:
    return asyncio.run(shell("memory", *arguments, stdin=stdin.encode()))


def listed(shell: Shell, *arguments: str) -> list[Any]:
    return do(shell, "list", "--json", *arguments).json


def with_agents(shell: Shell, *names: str, embedder: str = "none") -> Shell:
    for name in names:
        settings = f"name: {name}\nmodel: fake/m\nmemory: {{embedder: {embedder}}}\n"
        shell.write(f"agents/{name}/config.yaml", settings)
    return shell


def test_add_list_and_forget(shell: Shell) -> None:
    added = do(shell, "add", FACT)
    assert (added.code, added.out) == (0, "")
    assert "`default` remembers it as mem_" in added.err
    assert "remembers this already" in do(shell, "add", FACT.upper()).err
    assert do(shell, "add", "-", "--kind", "journal", "--pinned", stdin="a note\n").code == 0
    table = do(shell, "list").out.splitlines()
    assert table[0].split() == ["MEMORY", "AGENT", "KIND", "DATE", "PINNED", "TEXT"]
    assert "journal" in table[1]
    assert table[2].endswith(FACT)
    note, fact = listed(shell)
    assert (note["text"], note["kind"], note["pinned"], note["agent"]) == ("a note", "journal", True, "default")
    assert fact["source"] == "person"
    gone = do(shell, "forget", fact["memory_id"])
    assert "1 memory deleted for good" in gone.err
    assert [item["text"] for item in listed(shell)] == ["a note"]
    assert all(b"bed at eight" not in file.read_bytes() for file in shell.home.glob("treadle.db*"))


def test_nothing_yet(shell: Shell) -> None:
    assert "no agent remembers anything yet" in do(shell, "list").err
    assert "`default` remembers nothing yet" in do(shell, "list", "--agent", "default").err
    assert "nothing that `default` remembers fits" in do(shell, "search", "bedtime").err
    assert do(shell, "export").out == ""
    assert not (shell.home / "treadle.db").exists(), "looking makes nothing"


@pytest.mark.parametrize(
    "arguments",
    [("list", "-a"), ("search", "x", "-a"), ("add", "x", "-a"), ("export", "-a"), ("import", "-", "-a")],
)
def test_a_wrong_name_of_an_agent(shell: Shell, arguments: tuple[str, ...]) -> None:
    with_agents(shell, "gardener")
    done = do(shell, *arguments, "gardner")
    assert done.code == 2
    assert done.complaint == "No agent is called `gardner`. Did you mean `gardener`?"


@pytest.mark.skipif(not is_installed(), reason="the extra `local` is not installed")
def test_search_by_meaning_says_how_it_was_found(shell: Shell) -> None:
    for text in (FACT, "Steel is sold by the ton.", "E4711 means that the disk is full."):
        do(shell, "add", text)
    by_meaning = do(shell, "search", "when do the kids sleep?").out.splitlines()
    assert by_meaning[0].split() == ["SCORE", "BY", "MEMORY", "DATE", "TEXT"]
    assert by_meaning[1].split()[1] == "vectors"
    assert by_meaning[1].endswith(FACT)
    first, *_ = do(shell, "search", "what is E4711?", "--json").json
    assert (first["text"], first["by"]) == ("E4711 means that the disk is full.", "both")
    assert 0 < first["score"] <= 1


def test_search_by_words_and_an_embedder_that_cannot_be_asked(shell: Shell) -> None:
    with_agents(shell, "words")
    with_agents(shell, "broken", embedder="nobody/m")
    for agent in ("words", "broken"):
        do(shell, "add", FACT, "-a", agent)
        (found,) = do(shell, "search", "children bed", "-a", agent, "--json").json
        assert (found["text"], found["by"], found["agent"]) == (FACT, "text", agent)
    assert "only words were compared" in do(shell, "search", "children bed", "-a", "broken").err
    assert "no provider is called `nobody`" in do(shell, "search", "children bed", "-a", "broken").err
    assert len(listed(shell)) == 2
    assert len(listed(shell, "--agent", "words")) == 1


def test_export_and_import(shell: Shell, tmp_path: Path) -> None:
    with_agents(shell, "one", "two")
    do(shell, "add", FACT, "-a", "one", "--pinned")
    do(shell, "add", "zwei: Grüße", "-a", "two", "--kind", "journal")
    exported = do(shell, "export")
    assert [item["agent"] for item in exported.json] == ["one", "two"]
    other = with_agents(Shell(tmp_path / "other"), "one", "two")
    assert "2 memories imported, 0 there already" in do(other, "import", "-", stdin=exported.out).err
    assert do(other, "export").out == exported.out
    assert do(other, "import", "-", "--json", stdin=exported.out).json == [{"new": 0, "known": 2}]
    moved = other.write("memories.jsonl", exported.out + "\n\n")
    assert do(other, "import", str(moved), "-a", "two", "--json").json == [{"new": 0, "known": 2}], "by their ids"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "line 2 is no memory: JSON is malformed"),
        ('{"agent": "default"}', "line 2 is no memory: Object missing required field `text`; each line is a JSON"),
        ('{"text": "x", "kind": "dream"}', "line 2 is no memory: Invalid enum value 'dream'"),
        ('{"text": "x", "txet": "y"}', "line 2 is no memory: Object contains unknown field `txet`"),
        ('{"text": "x"}', 'line 2 does not say whose memory it is: add "agent"'),
        ('{"text": " ", "agent": "default"}', "line 2: the text is empty"),
        (json.dumps({"text": "x" * 8001, "agent": "default"}), "line 2: the text has 8001 characters"),
    ],
)
def test_one_wrong_line_and_nothing_is_imported(shell: Shell, line: str, words: str) -> None:
    done = do(shell, "import", "-", stdin=f'{{"text": "fine", "agent": "default"}}\n{line}\n')
    assert done.code == 2
    assert words in done.complaint
    assert listed(shell) == []


def test_an_unreadable_file(shell: Shell) -> None:
    done = do(shell, "import", str(shell.home / "nowhere"))
    assert done.code == 2
    assert "cannot be read: No such file" in done.complaint


def test_pin_and_unpin(shell: Shell) -> None:
    do(shell, "add", FACT)
    (item,) = listed(shell)
    assert "1 memory pinned" in do(shell, "pin", item["memory_id"]).err
    assert listed(shell)[0]["pinned"] is True
    assert do(shell, "unpin", item["memory_id"], "--json").json == [
        {"memories": [item["memory_id"]], "pinned": False}
    ]
    assert "pinned" not in listed(shell)[0]


def test_an_unknown_memory_and_nothing_is_forgotten(shell: Shell) -> None:
    do(shell, "add", FACT)
    (item,) = listed(shell)
    for command in ("forget", "pin"):
        done = do(shell, command, item["memory_id"], "mem_nope")
        assert done.code == 2
        assert done.complaint == "There is no memory mem_nope. `treadle memory list` shows those there are."
    assert listed(shell) == [item]


def test_secrets_are_taken_out_before_anything_is_kept(shell: Shell) -> None:
    canary = "canary-4f1d0e-in-a-coal-mine"
    asyncio.run(shell("vault", "set", "TOKEN", stdin=canary.encode()))
    do(shell, "add", f"the token is {canary}")
    do(shell, "import", "-", stdin=json.dumps({"text": f"use {canary} there", "agent": "default"}))
    assert len(listed(shell)) == 2
    assert canary not in do(shell, "export").out
    assert all(canary.encode() not in file.read_bytes() for file in shell.home.glob("treadle.db*"))


def test_a_database_that_is_owned_can_be_looked_at_and_not_changed(shell: Shell) -> None:
    do(shell, "add", FACT)
    lock = DatabaseLock(str(shell.home / "treadle.db"))
    try:
        assert [item["text"] for item in listed(shell)] == [FACT]
        done = do(shell, "add", "another")
        assert done.code == 1
        assert "is owned by process" in done.complaint
    finally:
        lock.release()
