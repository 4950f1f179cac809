"""Commands for waiting runs: what they wait for, and how to answer."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, delta, says
from tests.surfaces.shell import Shell, finish, until_token
from tests.surfaces.terminal import Terminal, against, files, wants

NOTE = {"path": "note.txt", "content": "hello"}
REMOTE = """
name: remote
model: fake/m
tools: [write_file, bash, clarify]
approvals: {default: ask, via: api, rules: [{tool: clarify, do: auto}]}
retry: {attempts: 0}
"""


async def start_waiting_run(shell: Shell, folder: Path, *options: str) -> Any:
    """Start a run that waits for an approval over the API. Return the run as it is listed."""
    shell.cwd = folder
    shell.write("agents/remote/config.yaml", REMOTE)
    done = await shell("run", "-a", "remote", *options, "Do it.")
    assert done.code == 4, done.err
    return (await shell("runs", "list", "--json")).json[0] | {"said": done.err}


def approval_in(text: str) -> str:
    found = re.search(r"treadle approvals approve (apr_\w+)", text)
    assert found is not None, text
    return found[1]


def test_a_run_of_an_endpoint_without_a_name_is_answered_with_its_address(shell: Shell, folder: Path) -> None:
    @against(shell, wants("write_file", **NOTE), wants("clarify", "c2", question="And now?"), says("Fine."))
    async def _(server: FakeEndpoint) -> None:
        run = await start_waiting_run(shell, folder, "--base-url", server.url)
        approval, option = approval_in(run["said"]), f"--base-url {server.url}"
        assert f"treadle approvals approve {approval} {option} (or deny)" in run["said"]
        shown = await shell("runs", "show", run["run_id"])
        assert f"treadle approvals approve {approval} --base-url URL (or deny)" in shown.out
        asked = await shell("approvals", "approve", approval, "--base-url", server.url)
        assert asked.code == 4
        found = re.search(rf"treadle runs answer {run['run_id']} (\S+) \"…\" {option}", asked.err)
        assert found is not None, asked.err
        done = await shell("runs", "answer", run["run_id"], found[1], "Nothing.", "--base-url", server.url)
        assert (done.code, done.out) == (0, "Fine.\n")


def test_a_decision_is_recorded_even_if_the_run_cannot_continue(shell: Shell, folder: Path) -> None:
    @against(shell, wants("write_file", **NOTE), says("Fine."))
    async def _(server: FakeEndpoint) -> None:
        run = await start_waiting_run(shell, folder, "--base-url", server.url)
        done = await shell("approvals", "deny", approval_in(run["said"]), "--note", "no")
        assert done.code == 1
        assert f"your decision is recorded, but {run['run_id']} cannot continue: " in done.err
        shown = (await shell("runs", "show", run["run_id"])).out
        assert re.search(rf"waits for .*\. Resume it: treadle runs resume {run['run_id']} --base-url URL", shown)
        resumed = await shell("runs", "resume", run["run_id"], "--base-url", server.url)
        assert (resumed.code, resumed.out) == (0, "Fine.\n")
        assert files(folder) == {}


def test_show_says_what_a_run_waits_for(shell: Shell, folder: Path) -> None:
    @against(shell, wants("bash", command="touch a\u200b\ntouch b"))
    async def _(server: FakeEndpoint) -> None:
        run = await start_waiting_run(shell, folder)
        approval = approval_in(run["said"])
        shown = await shell("runs", "show", run["run_id"])
        how = f"treadle approvals approve {approval} (or deny)"
        assert f"waits for    an approval of `bash` (touch a<U+200B>⏎touch b): {how}\n" in shown.out
        head, row = (await shell("approvals", "list")).out.splitlines()
        assert head.split() == ["APPROVAL", "TOOL", "ARGUMENTS", "WHY", "REQUESTED", "RUN"]
        assert row.startswith(f"{approval[:16]}  bash  touch a<U+200B>⏎touch b  ")
        assert row.endswith(run["run_id"][:16])
        whole = (await shell("approvals", "show", approval)).out
        assert "  │ touch a<U+200B>\n  │ touch b\n" in whole
        async with Terminal(shell, "approvals", "list", folder=folder, columns=70) as terminal:
            assert await terminal.ends() == 0
            await terminal.shows("APPROVAL")
        head, row = terminal.screen.splitlines()
        assert head.split() == ["APPROVAL", "TOOL", "ARGUMENTS", "WHY", "REQUESTED"], "the least column is left out"
        assert max(len(head), len(row)) <= 70
        assert "touch a<U+200B>" in row


def test_only_calls_that_a_rule_can_match_are_remembered(shell: Shell, folder: Path) -> None:
    script = (
        wants("bash", command="touch a\ntouch b"),
        wants("bash", "c2", command="touch c"),
        wants("bash", "c3", command="touch d"),
        says("Fine."),
    )

    @against(shell, *script)
    async def _(server: FakeEndpoint) -> None:
        approval = approval_in((await start_waiting_run(shell, folder))["said"])
        refused = await shell("approvals", "approve", approval, "--session")
        assert refused.code == 2
        assert refused.complaint.startswith(f"{approval}")
        again = await shell("approvals", "approve", approval)
        assert again.code == 4
        done = await shell("approvals", "approve", approval_in(again.err), "--session")
        assert (done.code, done.out) == (0, "Fine.\n")
        assert "Approved for this session: `bash` with `touch *`.\n" in done.err
        assert set(files(folder)) == {"a", "b", "c", "d"}


def test_a_line_is_remembered_for_the_session_as_it_was_requested(shell: Shell, folder: Path) -> None:
    line = "echo [x] | tee -a a"
    script = (
        wants("bash", command=line),
        wants("bash", "c2", command=line),
        wants("bash", "c3", command=f"{line}; echo y"),
        says("Fine."),
    )

    @against(shell, *script)
    async def _(server: FakeEndpoint) -> None:
        approval = approval_in((await start_waiting_run(shell, folder))["said"])
        shown = await shell("approvals", "show", approval)
        assert re.search(r"rule +exactly the command `echo \[x\] \| tee -a a`\n", shown.out), shown.out
        edited = await shell("approvals", "approve", approval, "--session", "--arguments", '{"command": "touch b"}')
        assert edited.code == 2
        assert "the rule is for exactly the command as it was requested" in edited.err
        again = await shell("approvals", "approve", approval, "--session")
        assert again.code == 4, "the longer line is another one"
        assert f"Approved for this session: exactly the command `{line}`.\n" in again.err
        assert files(folder) == {"a": "[x]\n[x]\n"}
        assert (await shell("approvals", "deny", approval_in(again.err))).code == 0


@pytest.mark.parametrize(("option", "made"), [("--yes", {"a", "b"}), ("--no", {"a"})])
def test_a_decision_can_cover_the_approvals_that_follow(
    shell: Shell, folder: Path, option: str, made: set[str]
) -> None:
    @against(shell, wants("bash", command="touch a"), wants("bash", "c2", command="touch b"), says("Fine."))
    async def _(server: FakeEndpoint) -> None:
        approval = approval_in((await start_waiting_run(shell, folder))["said"])
        done = await shell("approvals", "approve", approval, option)
        assert (done.code, done.out) == (0, "Fine.\n")
        assert set(files(folder)) == made


def test_a_run_is_resumed_with_an_answer_to_every_approval(shell: Shell, folder: Path) -> None:
    @against(shell, wants("write_file", **NOTE), says("Fine."))
    async def _(server: FakeEndpoint) -> None:
        run = await start_waiting_run(shell, folder)
        done = await shell("runs", "resume", run["run_id"], "--yes")
        assert (done.code, done.out) == (0, "Fine.\n")
        assert files(folder) == {"note.txt": "hello"}


def test_a_denial_without_a_reviewer_names_the_call_and_the_remedy(shell: Shell, folder: Path) -> None:
    content = "a line that is long enough to be cut, " * 5

    @against(shell, wants("write_file", path="note.txt", content=content), says("I could not."))
    async def _(server: FakeEndpoint) -> None:
        shell.cwd = folder
        done = await shell("run", "Write a note.")
        assert done.out == "I could not.\n"
        denied, remedy = done.err.splitlines()
        assert denied.startswith(
            f"  write_file denied (path: note.txt, content: {content}): it needs an approval, and"
        )
        assert "…" not in denied
        assert remedy == "  to have such calls run: answer with `treadle run --yes`, or run it at a terminal"


def test_an_interrupted_run_says_why_it_waits(shell: Shell) -> None:
    @against(shell, Answer([delta(content="Two and three make")], ending="hang"))
    async def _(server: FakeEndpoint) -> None:
        process = shell.start("run", "--json", "What is 2+3?")
        run_id = (await until_token(process))["run_id"]
        process.terminate()
        assert (await finish(process)).code == 143
        shown = (await shell("runs", "show", run_id)).out
        assert f"waits for    Interrupted by the user. Resume it: treadle runs resume {run_id}\n" in shown


def test_a_message_with_a_secret_is_listed_without_it(shell: Shell) -> None:
    @against(shell, says("Thank you."))
    async def _(server: FakeEndpoint) -> None:
        assert (await shell("vault", "set", "TOKEN", stdin=b"tk-very-secret-4711")).code == 0
        run_id = (await shell("run", "--json", "It is tk-very-secret-4711.")).json[0]["run_id"]
        assert "It is [redacted:TOKEN]." in (await shell("runs", "list")).out
        assert "message      It is [redacted:TOKEN]." in (await shell("runs", "show", run_id)).out


def test_a_new_session_is_reported(shell: Shell) -> None:
    @against(shell, says("I see."), says("Anna."))
    async def _(server: FakeEndpoint) -> None:
        assert await shell("run", "--session", "anna", "Hi.") == (0, "I see.\n", "Starting the new session anna.\n")
        assert await shell("run", "--session", "anna", "Who am I?") == (0, "Anna.\n", "")


async def test_the_agent_that_treadle_makes_can_be_shown(shell: Shell) -> None:
    shell.configure_careful()
    shown = await shell("agents", "show", "default")
    assert shown.code == 0
    assert "  - tool: read_file\n    do: auto\n" in shown.out


SCRIPT: tuple[Behaviour, ...] = (wants("bash", command="echo " + "x" * 300), says("Fine."))


def test_a_terminal_wraps_the_shown_call(shell: Shell, folder: Path) -> None:
    @against(shell, *SCRIPT)
    async def _(server: FakeEndpoint) -> None:
        async with Terminal(shell, "run", "--yes", "Do it.", folder=folder) as terminal:
            assert await terminal.ends() == 0
            await terminal.shows("Fine.")
        assert "· bash echo" in terminal.screen
        assert "x" * 300 in terminal.screen, "a line that a terminal wraps is not cut"
