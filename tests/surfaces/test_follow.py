"""A decision prints everything up to the next question, however fast the run reaches it."""

import asyncio
from pathlib import Path

import pytest

from tests.fake_endpoint import DONE, Answer, FakeEndpoint, delta, fragment, says
from tests.patience import HANG_SECONDS
from tests.surfaces.shell import Shell
from tests.surfaces.terminal import wants
from treadle.operations import approvals
from treadle.operations.approval_service import Answer as Decision
from treadle.operations.approvals import ApprovalView
from treadle.operations.operation import Caller
from treadle.operations.run_tree import find_root
from treadle.surfaces.cli.follow import FollowOptions
from treadle.surfaces.terminal.process import NEEDS_AN_ANSWER, Stop

AGENT = "{name: default, model: fake/m, tools: [bash], approvals: {default: ask, via: api}, retry: {attempts: 0}}"
TALKS_AND_ASKS = Answer(
    [
        delta(content="Then I look first."),
        delta(tool_calls=[fragment(0, "c2", "bash", '{"command": "ls"}')]),
        delta(finish="tool_calls"),
        DONE,
    ]
)


async def wait_for_another_approval(caller: Caller, known: ApprovalView) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            pending = (await caller.call(approvals.LIST, approvals.ListApprovals())).items
            if pending and pending[0].approval_id != known.approval_id:
                return
            await asyncio.sleep(0.01)


async def test_a_run_that_is_faster_than_the_command_is_printed_up_to_its_question(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(shell.home))
    monkeypatch.chdir(folder)

    async def scenario() -> int:
        async with FakeEndpoint(wants("bash", command="rm -r notes"), TALKS_AND_ASKS) as server:
            shell.url, shell.cwd = server.url, folder
            shell.configure().write("agents/default/config.yaml", AGENT)
            assert (await shell("run", "Clean up.")).code == NEEDS_AN_ANSWER
            options = FollowOptions()
            with Stop() as stop:
                async with options.open() as access:
                    client = access.client
                    [asked] = (await client.call(approvals.LIST, approvals.ListApprovals())).items
                    root = await find_root(client, asked.run_id)
                    describe_denial = approvals.decision_of(
                        asked.approval_id, Decision("deny", None, "Keep them.", "test")
                    )
                    since = (await client.call(approvals.DECIDE, describe_denial)).sequence
                    await wait_for_another_approval(client, asked)
                    follower = options.follow(access, stop, "your decision")
                    return await follower.follow_root(root, asked.run_id, since)

    assert await scenario() == NEEDS_AN_ANSWER
    printed = capsys.readouterr()
    assert printed.out == "Then I look first.\n"
    denied, waits = printed.err.splitlines()
    assert denied == "  bash denied (rm -r notes): Denied. Keep them."
    assert "waits for an approval of `bash` (ls)" in waits


async def test_deny_prints_the_answer_and_the_next_question(shell: Shell, folder: Path) -> None:
    async with FakeEndpoint(wants("bash", command="rm -r notes"), TALKS_AND_ASKS, says("Done.")) as server:
        shell.url, shell.cwd = server.url, folder
        shell.configure().write("agents/default/config.yaml", AGENT)
        await shell("run", "Clean up.")
        first = await shell("approvals", "deny", "last", "--note", "Keep them.")
        assert (first.code, first.out) == (NEEDS_AN_ANSWER, "Then I look first.\n")
        assert "Keep them." in first.err
        second = await shell("approvals", "approve", "last")
        assert (second.code, second.out) == (0, "Done.\n")
