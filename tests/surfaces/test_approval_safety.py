"""The approval prompt in a real terminal: only what was shown can be approved, and only by what was typed."""

import json
import re
from pathlib import Path

import pytest

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.shell import Shell
from tests.surfaces.terminal import CTRL_C, CTRL_D, Terminal, against, files, wants, wants_raw
from treadle.surfaces.cli.approval_scopes import list_scopes
from treadle.surfaces.terminal.call_view import show_change

NOTE = {"path": "note.txt", "content": "hello"}
LONG = "\n".join(f"line {number}" for number in range(300))


def test_text_typed_before_a_question_does_not_answer_it(shell: Shell, folder: Path) -> None:
    script = (wants("bash", command="touch a"), wants("bash", "c2", command="touch b; touch c"), says("So."))

    @against(shell, *script)
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Do it.", folder=folder) as terminal:
            terminal.types("y\ny\n")
            await terminal.shows("Run it?")
            terminal.types("y\ny\ny\n")
            await terminal.shows("touch b")
            await terminal.shows("Run it?")
            terminal.types("n\n")
            assert await terminal.ends() == 0
        assert files(folder) == {"a": ""}


def test_a_long_call_is_viewed_before_it_is_approved(shell: Shell, folder: Path) -> None:
    @against(shell, wants("write_file", path="note.txt", content=LONG), says("Written."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Write.", folder=folder) as terminal:
            await terminal.shows("are not shown here; v shows them")
            await terminal.shows("│ +line 299")
            await terminal.shows("Run it? [v]iew [y]es")
            assert "line 150" not in terminal.screen
            for approval in ("y", "s", "a"):
                terminal.types(f"{approval}\n")
                await terminal.shows("the call was not shown completely")
                await terminal.shows("Run it?")
            terminal.types("v\n")
            await terminal.shows("│ +line 150\n")
            await terminal.shows("Run it? [y]es")
            assert files(folder) == {}
            terminal.types("y\n")
            assert await terminal.ends() == 0
        assert files(folder) == {"note.txt": LONG}


def test_a_call_is_shown_as_it_will_run_and_in_its_folder(shell: Shell, folder: Path) -> None:
    arguments = r'{"command": "ls", "command": "touch\u00a0x\u200b   y", "timeout": 5}'

    @against(shell, wants_raw("bash", arguments), says("Fine."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Do it.", folder=folder, columns=300) as terminal:
            await terminal.shows("bash asks to run in")
            await terminal.shows(f"{folder},")
            await terminal.shows("in a sandbox")
            await terminal.shows("with the network off:")
            await terminal.shows("│ command: touch<U+00A0>x<U+200B>   y\n")
            await terminal.shows("the arguments name `command` twice; the last one counts")
            await terminal.shows("it has 2 characters that are invisible")
            await terminal.shows("Run it?")
            terminal.types("n\n")
            assert await terminal.ends() == 0


def test_only_a_plain_yes_approves(shell: Shell, folder: Path) -> None:
    """Enter asks again, text behind a yes is not dropped, and what cannot be remembered is not offered."""

    @against(shell, wants("bash", command="touch a\ntouch b"), says("Fine."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Do it.", folder=folder) as terminal:
            for typed, told in [
                ("\n", "y: run it once"),
                ("y but only a\n", "only n takes a note"),
                ("s\n", "no rule matches only such calls"),
                ("a\n", "no rule matches only such calls"),
            ]:
                await terminal.shows("Run it? [y]es [n]o [e]dit [l]ater:")
                terminal.types(typed)
                await terminal.shows(told)
            await terminal.shows("Run it?")
            terminal.types("n only a\n")
            await terminal.shows("denied: “only a”")
            assert await terminal.ends() == 0
        assert files(folder) == {}


def test_remembered_decisions_are_printed(shell: Shell, folder: Path) -> None:
    @against(shell, wants("bash", command="touch a"), wants("bash", "c2", command="touch b"), says("Fine."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Do it.", folder=folder) as terminal:
            await terminal.shows("Run it?")
            terminal.types("?\n")
            await terminal.shows("s: run it, and approve `bash` with `touch *` for this session")
            await terminal.shows(
                "a: run it, and choose what the agent default may do in this workspace from now on"
            )
            await terminal.shows("Run it?")
            terminal.types("s\n")
            await terminal.shows("Approved for this session: `bash` with `touch *`")
            assert await terminal.ends() == 0
        assert set(files(folder)) == {"a", "b"}


def test_an_edit_is_shown_as_a_diff_and_changed_in_the_editor(shell: Shell, folder: Path, tmp_path: Path) -> None:
    (folder / "note.txt").write_text("one\ntwo\nthree\n")
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/TWO/2/' \"$1\"\n")
    editor.chmod(0o700)
    shell.environment["VISUAL"] = str(editor)

    @against(shell, wants("edit_file", path="note.txt", old="two\n", new="TWO\n"), says("Done."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Do it.", folder=folder) as terminal:
            await terminal.shows("│ -two")
            await terminal.shows("│ +TWO")
            await terminal.shows("Run it?")
            terminal.types("e\n")
            assert await terminal.ends() == 0
        assert (folder / "note.txt").read_text() == "one\n2\nthree\n"


@pytest.mark.parametrize(
    ("tool", "arguments", "shown"),
    [
        ("edit_file", {"path": "a", "old": "7", "new": "x"}, ["@@ -5,7 +5,7 @@", " 6", "-7", "+x", " 8"]),
        ("edit_file", {"path": "a", "old": "not there", "new": "x"}, ["-not there", "+x"]),
        ("write_file", {"path": "new", "content": "one\ntwo\n"}, ["@@ -0,0 +1,2 @@", "+one", "+two"]),
        (
            "write_file",
            {"path": "new", "content": "one"},
            ["@@ -0,0 +1 @@", "+one", "\\ No newline at end of file"],
        ),
        ("write_file", {"path": "a", "content": "0\n"}, ["@@ -1,19 +1 @@", " 0", "-1", "-19"]),
        ("edit_file", {"path": "a", "old": "1", "new": "x"}, ["-1", "+x"]),
        (
            "edit_file",
            {"path": "crlf", "old": "2\n3", "new": "x"},
            ["@@ -1,4 +1,3 @@", " 1", "-2", "-3", "+x", " 4"],
        ),
        ("edit_file", {"path": "a", "old": "7", "new": "7"}, ["path: a", "old: 7", "new: 7"]),
        ("apply_patch", {"patch": "@@ -1 +1 @@\n-1\n+x\n"}, ["@@ -1 +1 @@", "-1", "+x"]),
    ],
)
def test_a_change_is_shown_where_it_is_in_the_file(
    tmp_path: Path, tool: str, arguments: dict[str, str], shown: list[str]
) -> None:
    (tmp_path / "a").write_text("".join(f"{number}\n" for number in range(20)).replace("17\n", ""))
    (tmp_path / "crlf").write_bytes(b"1\r\n2\r\n3\r\n4\r\n")
    change = show_change(tool, json.dumps(arguments), tmp_path, 80)
    lines = [line.partition("│ ")[2] for line in change.lines]
    assert [line for line in lines if line in shown] == shown, lines
    assert "+" not in lines
    kinds = {"+": "added", "-": "removed", "@": "place"}
    assert all(row.kind == kinds.get(line[:1], "") for row, line in zip(change.rows, lines, strict=True))


@pytest.mark.parametrize(
    ("tool", "arguments", "pattern", "expected"),
    [
        ("bash", '{"command": "git log -n 3"}', "git log *", ["exactly: git log -n 3", "git log *"]),
        ("bash", '{"command": " make | tail\\n"}', "exactly: make | tail", ["exactly: make | tail"]),
        ("bash", '{"command": "cat a\\u0085b"}', "cat *", ["cat *"]),
        ("bash", '{"command": "make test"}', "make test", ["make test"]),
        ("bash", '{"command": "rm [a]"}', "rm [[]a]", ["rm [[]a]"]),
        ("write_file", '{"path": "src/../src/a.py"}', "src/a.py", ["src/a.py", "src/*"]),
        ("write_file", '{"path": "../a.py"}', "../a.py", ["../a.py"]),
        ("write_file", '{"path": "/etc/x"}', "/etc/x", ["/etc/x"]),
        ("write_file", '{"path": "/work/src/a.py"}', "/work/src/a.py", ["/work/src/a.py", "/work/src/*"]),
        ("write_file", '{"path": "/works/src/a.py"}', "/works/src/a.py", ["/works/src/a.py"]),
        ("http_fetch", '{"url": "https://a.org/b?c"}', "*", ["https://a.org/b[?]c", "https://a.org/*", "*"]),
        ("deploy", '{"version": "1"}', "*", ["*"]),
    ],
)  # fmt: skip
def test_scopes_are_offered_narrowest_first(tool: str, arguments: str, pattern: str, expected: list[str]) -> None:
    assert [scope.pattern for scope in list_scopes(tool, arguments, pattern, "/work")] == expected


def test_editing_shows_the_arguments_to_copy(shell: Shell, folder: Path) -> None:
    @against(shell, wants("write_file", **NOTE), says("Written."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Write a note.", folder=folder) as terminal:
            await terminal.shows("Run it?")
            terminal.types("e\n")
            await terminal.shows(json.dumps(NOTE))
            await terminal.shows("arguments, as JSON:")
            terminal.types(json.dumps(NOTE | {"content": "bye"}) + "\n")
            assert await terminal.ends() == 0
        assert files(folder) == {"note.txt": "bye"}


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D], ids=["Ctrl-C", "Ctrl-D"])
def test_a_question_can_be_left_for_later(shell: Shell, folder: Path, key: str) -> None:
    @against(shell, wants("clarify", question="Which key?"), says("Brass it is."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Open it.", folder=folder) as terminal:
            await terminal.shows("your answer:")
            terminal.types("\n")
            await terminal.shows("your answer:")
            terminal.types(key)
            assert await terminal.ends() == 4
            assert "interrupt" not in terminal.screen
            found = re.search(r"treadle runs answer (run_\S+) (\S+)", terminal.screen)
        assert found is not None
        shown = await shell("runs", "show", found[1])
        assert "state        waiting: answer\n" in shown.out
        assert f'an answer to “Which key?”: treadle runs answer {found[1]} {found[2]} "…"' in shown.out
        assert (await shell("runs", "answer", found[1], found[2], "brass")).out == "Brass it is.\n"


def test_ctrl_c_at_an_approval_leaves_the_run_as_it_is(shell: Shell, folder: Path) -> None:
    @against(shell, wants("write_file", **NOTE), says("Written."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Write a note.", folder=folder) as terminal:
            await terminal.shows("Run it?")
            terminal.types(CTRL_C)
            assert await terminal.ends() == 4
        [run] = (await shell("runs", "list", "--json")).json
        events = (await shell("runs", "events", run["run_id"], "--json")).json
        assert run["waiting_for"] == "approval"
        assert "run_interrupted" not in {event["type"] for event in events}
        async with Terminal(shell, "runs", "resume", run["run_id"], folder=folder) as terminal:
            await terminal.shows("Run it?")
            terminal.types("y\n")
            assert await terminal.ends() == 0
        assert files(folder) == {"note.txt": "hello"}


def test_a_dumb_terminal_has_no_colours(shell: Shell, folder: Path) -> None:
    @against(shell, wants("write_file", **NOTE), says("Written."))
    async def _(server: FakeEndpoint) -> None:
        shell.environment["TERM"] = "dumb"
        async with Terminal(shell, "run", "Write a note.", folder=folder) as terminal:
            await terminal.shows("Run it?")
            terminal.types("y\n")
            assert await terminal.ends() == 0
        assert "\x1b" not in terminal.screen
