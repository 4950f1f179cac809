"""The options of `treadle run`, and the short names of runs and sessions."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.shell import COMMAND, Shell
from tests.surfaces.terminal import CTRL_D, Terminal, wants
from tests.surfaces.test_cli import against

FUNCTIONS = '''
from datetime import date

def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

def _hidden() -> None:
    """Not a tool."""
'''


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


def test_system_prompt_attachment_and_tools_are_sent(shell: Shell, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("the text of the file")

    @against(shell, says("Fine."))
    async def _(server: FakeEndpoint) -> None:
        done = await shell("run", "-s", "Answer in French.", "-f", str(note), "--tools", "glob, grep", "Go.")
        assert (done.code, done.out) == (0, "Fine.\n")
        request = server.requests[0].json
        assert request["messages"][0]["content"].startswith("Answer in French.")
        assert "the text of the file" in str(request["messages"][-1]["content"])
        assert {tool["function"]["name"] for tool in request["tools"]} == {"glob", "grep"}
        missing = await shell("run", "-f", str(tmp_path / "none"), "Go.")
        assert (missing.code, "none cannot be read" in missing.complaint) == (2, True)
        os.mkfifo(tmp_path / "pipe")
        pipe = await shell("run", "-f", str(tmp_path / "pipe"), "Go.")
        assert (pipe.code, "pipe is not a regular file" in pipe.complaint) == (2, True)


def test_functions_of_a_file_are_tools(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "sums.py"
    path.write_text(FUNCTIONS)

    @against(shell, wants("add", a=2, b=3), says("Five."))
    async def _(server: FakeEndpoint) -> None:
        done = await shell("run", "--yes", "--tools", "", "--functions", str(path), "Add 2 and 3.")
        assert (done.code, done.out) == (0, "Five.\n")
        assert [tool["function"]["name"] for tool in server.requests[0].json["tools"]] == ["add"]
        assert "5" in server.requests[1].json["messages"][-1]["content"]
        faults = (
            ("x = 1", "defines no public functions"),
            ("1/0", "ZeroDivisionError"),
            ("import sys; sys.exit(3)", "SystemExit"),
            ("def bad(x): return x", "has no annotation"),
        )
        for text, words in faults:
            path.write_text(text)
            wrong = await shell("run", "--functions", str(path), "Go.")
            assert (wrong.code, words in wrong.complaint) == (2, True)
        absent = await shell("run", "--functions", str(tmp_path / "none.py"), "Go.")
        assert "There is no file" in absent.complaint


def test_plain_prints_the_answer_alone(shell: Shell) -> None:
    @against(shell, wants("glob", pattern="*"), says("Nothing."), wants("glob", pattern="*"), says("Nothing."))
    async def _(server: FakeEndpoint) -> None:
        assert "glob" in (await shell("run", "--tools", "glob", "Look.")).err
        assert await shell("run", "--tools", "glob", "--plain", "Look.") == (0, "Nothing.\n", "")
        both = await shell("run", "--plain", "--json", "Look.")
        assert (both.code, "exclude each other" in both.complaint) == (2, True)


def test_continue_finds_the_latest_session_of_the_folder(shell: Shell, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()

    @against(shell, *[says("Yes.")] * 3)
    async def _(server: FakeEndpoint) -> None:
        for folder, words in ((here, ("first",)), (there, ("second",)), (here, ("-c", "third"))):
            async with Terminal(shell, "run", *words, folder=folder) as terminal:
                assert await terminal.ends() == 0
        said = [message["content"] for message in server.requests[2].json["messages"] if message["role"] == "user"]
        assert ["first" in said[0], "third" in said[1]] == [True, True]
        empty = tmp_path / "empty"
        empty.mkdir()
        async with Terminal(shell, "run", "-c", "fourth", folder=empty) as terminal:
            await terminal.shows("No session has used the folder")
            assert await terminal.ends() == 2
        two = await shell("run", "-c", "--session", "x", "Go.")
        assert (two.code, "name two sessions" in two.complaint) == (2, True)


def test_an_interactive_run_stays_in_one_session(shell: Shell, tmp_path: Path) -> None:
    @against(shell, says("One."), says("Two."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "-i", folder=tmp_path) as terminal:
            await terminal.shows(">")
            terminal.types("first\n")
            await terminal.shows("One.")
            await terminal.shows(">")
            terminal.types("/rest\n")
            await terminal.shows("There is no command /rest. Did you mean /reset?")
            await terminal.shows(">")
            terminal.types("second\n")
            await terminal.shows("Two.")
            await terminal.shows(">")
            terminal.types(CTRL_D)
            assert await terminal.ends() == 0
        assert len((await shell("sessions", "list", "--all", "--json")).json) == 1
        assert len(server.requests[1].json["messages"]) > len(server.requests[0].json["messages"])
        piped = await shell("run", "-i")
        assert (piped.code, "needs a terminal" in piped.complaint) == (2, True)


def test_an_unknown_command_is_refused_and_a_path_is_a_message(shell: Shell) -> None:
    @against(shell, says("Yes."))
    async def _(server: FakeEndpoint) -> None:
        wrong = await shell("run", "/compcat")
        assert (wrong.code, wrong.complaint) == (
            2,
            "There is no command /compcat. Did you mean /compact? "
            "Commands: /compact, /memory, /pin, /reset, /undo, /usage.",
        )
        assert (await shell("run", "/etc/hosts: what is it?")).out == "Yes.\n"


def test_commands_accept_the_start_of_an_id_last_or_a_title(shell: Shell) -> None:
    @against(shell, says("Yes."), says("No."))
    async def _(server: FakeEndpoint) -> None:
        first = (await shell("run", "--json", "The first question")).json[0]
        second = (await shell("run", "--json", "The second question")).json[0]
        run_id, session_id = first["run_id"], first["session_id"]

        async def shown(*words: str) -> str:
            return str((await shell(*words, "--json")).json[0].get(f"{words[0][:-1]}_id"))

        assert await shown("runs", "show", run_id[:16]) == run_id
        assert await shown("runs", "show", run_id[4:16]) == run_id
        assert await shown("runs", "show", "last") == second["run_id"]
        assert await shown("sessions", "show", session_id[:16]) == session_id
        assert await shown("sessions", "show", "last") == second["session_id"]
        assert await shown("sessions", "show", "the first question") == session_id
        assert await shown("sessions", "show", "The sec") == second["session_id"]
        both, none = await asyncio.gather(shell("runs", "show", run_id[:8]), shell("runs", "show", "run_ffffffff"))
        assert (both.code, "matches several runs: " in both.complaint) == (2, True)
        assert (none.code, none.complaint) == (
            2,
            "No run has an id that begins or ends with ffffffff. `treadle runs list` shows the runs.",
        )
        listed = await shell("runs", "list", "--state", "completed", "--since", "1h", "--json")
        assert [run["run_id"] for run in listed.json] == [second["run_id"], run_id]
        for words in (
            ("--status", "failed"),
            ("--since", "2999-01-01"),
            ("--state", "waiting", "--agent", "default"),
        ):
            assert (await shell("runs", "list", *words)).err == "No runs match.\n"
        for words in (("--state", "done"), ("--since", "soon")):
            assert "; accepted: " in (await shell("runs", "list", *words)).complaint
        for words in (("runs", "show"), ("sessions", "show"), ("approvals", "show")):
            assert "is empty" in (await shell(*words, "")).complaint
        ambiguous = await shell("sessions", "show", "the")
        assert (ambiguous.code, "matches several sessions: " in ambiguous.complaint) == (2, True)


def test_a_session_is_continued_by_its_whole_title_only(shell: Shell) -> None:
    @against(shell, *[says("Yes.")] * 4)
    async def _(server: FakeEndpoint) -> None:
        none = await shell("run", "--session", "last", "Hello there")
        assert (none.code, none.complaint) == (2, "There are no sessions yet.")
        await shell("run", "Hello there")
        assert "Starting the new session Hello." in (await shell("run", "--session", "Hello", "A name.")).err
        assert "Continuing the session ses_" in (await shell("run", "--session", "hello there", "A title.")).err
        assert "Continuing the session ses_" in (await shell("run", "--session", "last", "The latest.")).err
        assert len((await shell("sessions", "list", "--json")).json) == 2


def test_help_ends_quietly_when_its_reader_is_gone() -> None:
    script = f"'{COMMAND}' --help | true; '{COMMAND}' run --help | true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert done.stderr == b""
