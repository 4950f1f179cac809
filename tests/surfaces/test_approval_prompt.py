"""Approvals and questions in a real terminal: the prompt, the accepted keys, and the effect on the run."""

import json
import re
from pathlib import Path

import pytest

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.shell import Shell
from tests.surfaces.terminal import CTRL_C, CTRL_D, Terminal, against, files, wants

NOTE = {"path": "note.txt", "content": "hello"}


def test_yes_runs_the_call_once(shell: Shell, folder: Path) -> None:
    @against(shell, wants("write_file", **NOTE), says("Written."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Write a note.", folder=folder) as terminal:
            await terminal.shows("Run it?")
            assert "note.txt" in terminal.screen
            assert files(folder) == {}
            terminal.types("what?\n")
            await terminal.shows("y: run it once")
            await terminal.shows("Run it?")
            terminal.types("y\n")
            assert await terminal.ends() == 0
        assert files(folder) == {"note.txt": "hello"}


def test_no_denies_the_call_with_the_reason(shell: Shell, folder: Path) -> None:
    @against(shell, wants("write_file", **NOTE), says("I left it."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Write a note.", folder=folder) as terminal:
            await terminal.shows("Run it?")
            terminal.types("n not in this folder\n")
            assert await terminal.ends() == 0
        assert files(folder) == {}
        assert "not in this folder" in server.requests[1].json["messages"][-1]["content"]


@pytest.mark.parametrize("way", ["later\n", CTRL_D, CTRL_C], ids=["later", "Ctrl-D", "Ctrl-C"])
def test_later_leaves_the_approval_pending(shell: Shell, folder: Path, way: str) -> None:
    @against(shell, wants("write_file", **NOTE), says("Written."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Write a note.", folder=folder) as terminal:
            await terminal.shows("Run it?")
            terminal.types(way)
            assert await terminal.ends() == 4
            found = re.search(r"treadle approvals approve (apr_\S+)", terminal.screen)
        assert found is not None
        listed = await shell("approvals", "list", "--json")
        assert json.loads(listed.out)["approval_id"] == found[1]
        shown = await shell("approvals", "show", found[1])
        assert "note.txt" in shown.out
        done = await shell("approvals", "approve", found[1])
        assert (done.code, done.out) == (0, "Written.\n")
        assert files(folder) == {"note.txt": "hello"}
        again = await shell("approvals", "deny", found[1])
        assert again.code == 2
        assert "approved already" in again.err
        assert (await shell("approvals", "list")).err == "No approvals are pending.\n"


def test_a_call_runs_with_the_edited_arguments(shell: Shell, folder: Path) -> None:
    @against(shell, wants("write_file", **NOTE), says("Written."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Write a note.", folder=folder) as terminal:
            await terminal.shows("Run it?")
            terminal.types('e {"path": 1}\n')
            await terminal.shows("do not fit")
            await terminal.shows("Run it?")
            terminal.types('e {"path": "other.txt", "content": "bye"}\n')
            assert await terminal.ends() == 0
        assert files(folder) == {"other.txt": "bye"}


def test_a_call_allowed_for_a_session_or_permanently_is_not_asked_again(shell: Shell, folder: Path) -> None:
    script = (
        wants("bash", command="touch one.txt"),
        wants("bash", "c2", command="touch two.txt"),
        says("Both."),
        wants("bash", command="touch three.txt"),
        says("And the third."),
    )

    @against(shell, *script)
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Write notes.", folder=folder) as terminal:
            await terminal.shows("Run it?")
            terminal.types("always\n")
            await terminal.shows("Allow from now on")
            terminal.types("2\n")
            assert await terminal.ends() == 0
            assert terminal.screen.count("Run it?") == 1
        assert "touch *" in files(shell.home / "agents" / "default")["allowed.yaml"]
        shell.cwd = folder
        done = await shell("run", "Another.")
        assert (done.code, done.out) == (0, "And the third.\n"), "in a pipe, without a reviewer"
        assert len(files(folder)) == 3


def test_a_line_without_a_matching_glob_is_allowed_as_it_is(shell: Shell, folder: Path) -> None:
    line = "echo [x] | tee -a one.txt"
    script = (
        wants("bash", command=line),
        wants("bash", "c2", command=line),
        says("Twice."),
        wants("bash", command=f"{line} "),
        wants("bash", "c2", command=f"{line} two.txt"),
        says("Once more."),
    )

    @against(shell, *script)
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Write notes.", folder=folder, columns=200) as terminal:
            await terminal.shows("Run it? [y]es [s]ession [a]lways")
            terminal.types("?\n")
            await terminal.shows("s: run it, and approve exactly this command for this session")
            await terminal.shows("Run it?")
            terminal.types("a\n")
            await terminal.shows("Allowed in this workspace from now on: exactly this command.")
            assert await terminal.ends() == 0
            assert terminal.screen.count("Run it?") == 2, "only the first call asked"
        assert f"match: 'exactly: {line}'" in files(shell.home / "agents" / "default")["allowed.yaml"]
        shell.cwd = folder
        done = await shell("run", "Another.")
        assert (done.code, done.out) == (0, "Once more.\n")
        assert files(folder) == {"one.txt": "[x]\n" * 3}, "the longer line is denied in a pipe"
        assert (await shell("agents", "show", "default")).code == 0


def test_a_question_is_answered_by_its_number(shell: Shell, folder: Path) -> None:
    @against(shell, wants("clarify", question="Which key?", options=["iron", "brass"]), says("Brass it is."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Open it.", folder=folder) as terminal:
            await terminal.shows("your answer:")
            assert "2. brass" in terminal.screen
            terminal.types("2\n")
            assert await terminal.ends() == 0
        assert server.requests[1].json["messages"][-1]["content"] == "brass"


def test_a_command_cannot_hide_what_it_runs(shell: Shell, folder: Path) -> None:
    """Escapes, directions and line breaks in a command are shown, and not obeyed."""
    command = "echo safe\x1b[2K\x1b[1A\u202e; \nrm -rf x"

    @against(shell, wants("bash", command=command), says("Fine."))
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "Do it.", folder=folder) as terminal:
            await terminal.shows("Run it?")
            terminal.types("n\n")
            assert await terminal.ends() == 0
        assert "rm -rf x" in terminal.screen
        assert "\x1b[2K" not in terminal.screen
        assert "\u202e" not in terminal.screen


@pytest.mark.parametrize(("option", "runs"), [("--yes", True), ("--no", False), (None, False)])
def test_a_pipe_needs_an_option_to_approve_calls(
    shell: Shell, folder: Path, option: str | None, runs: bool
) -> None:
    @against(shell, wants("write_file", **NOTE), says("So."))
    async def _(server: FakeEndpoint) -> None:
        shell.cwd = folder
        done = await shell("run", *([option] if option else []), "Write a note.")
        assert (done.code, done.out) == (0, "So.\n")
        assert ("note.txt" in files(folder)) is runs


def test_an_agent_that_is_answered_over_the_api_waits_with_exit_code_4(shell: Shell, folder: Path) -> None:
    @against(shell, wants("write_file", **NOTE))
    async def _(server: FakeEndpoint) -> None:
        approvals = "approvals: {default: ask, via: api}"
        shell.write(
            "agents/remote/config.yaml", f"{{name: remote, model: fake/m, tools: [write_file], {approvals}}}"
        )
        done = await shell("run", "-a", "remote", "Write a note.")
        assert done.code == 4
        assert "treadle approvals approve apr_" in done.err


def test_a_rule_is_offered_only_where_it_would_decide(shell: Shell, folder: Path) -> None:
    """An `ask` rule of the agent is stricter than what a reviewer allows permanently."""
    careful = shell.home / "agents" / "careful" / "config.yaml"
    careful.parent.mkdir(parents=True)
    careful.write_text(
        "name: careful\nmodel: fake/model\ntools: [bash]\n"
        "approvals: {default: ask, rules: [{tool: bash, match: 'touch *', do: ask}]}\n"
    )
    script = (
        wants("bash", command="touch one.txt"),
        wants("bash", "c2", command="touch two.txt"),
        wants("bash", "c3", command="ls -a"),
        says("Done."),
    )

    @against(shell, *script)
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "-a", "careful", "Go.", folder=folder, columns=200) as terminal:
            await terminal.shows("Run it? [y]es [s]ession [n]o")
            terminal.types("?\n")
            await terminal.shows("a: a rule would not change it: the rule for `touch *` of `bash` says ask")
            await terminal.shows("Run it?")
            terminal.types("a\n")
            await terminal.shows(
                "a rule would not change it: the rule for `touch *` of `bash` says ask; s approves it"
            )
            await terminal.shows("Run it?")
            terminal.types("s\n")
            await terminal.shows("Run it? [y]es [s]ession [a]lways")
            terminal.types("a\n")
            await terminal.shows("Allow from now on, 1 to 2")
            terminal.types("1\n")
            await terminal.shows("Allowed in this workspace from the next run on: exactly this command.")
            assert await terminal.ends() == 0
        assert "touch" not in files(careful.parent)["allowed.yaml"]
        assert files(folder).keys() == {"one.txt", "two.txt"}
