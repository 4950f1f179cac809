"""One command from its start to its end, with and without a sandbox."""

import asyncio
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS
from tests.sandbox.hostile import POLICIES, processes_called, tree
from tests.sandbox.survivors import WAYS, a_mark, survivors
from treadle.domain.permissions import SandboxMode, SandboxPolicy
from treadle.ports.sandbox import Command, CommandError, Finished, SandboxMissing
from treadle.sandbox.broker_client import BROKER_MODULE
from treadle.sandbox.commands import ShellCommands
from treadle.sandbox.limits import CommandLimits

OFF = SandboxPolicy("off")


def one(
    text: str,
    workspace: Path,
    mode: SandboxMode,
    limits: CommandLimits | None = None,
    show: Callable[[str], None] = lambda text: None,
    timeout: float = HANG_SECONDS,
) -> Finished:
    commands = ShellCommands(limits=limits or CommandLimits(grace=0.2))

    async def run() -> Finished:
        return await commands.run(Command(text, workspace, POLICIES[mode], {"GIVEN": "yes"}, timeout), show)

    try:
        return asyncio.run(run())
    finally:
        commands.close()


def test_output_and_exit_code_are_returned(workspace: Path, mode: SandboxMode) -> None:
    finished = one("echo out; echo err >&2; echo again; pwd; exit 3", workspace, mode)
    assert finished.exit_code == 3
    assert finished.output == f"out\nerr\nagain\n{workspace}\n"
    assert finished.output_length == len(finished.output)
    assert finished.ended_by is None


def test_a_signal_gives_the_exit_code_of_a_shell(workspace: Path, mode: SandboxMode) -> None:
    assert one("kill -9 $$", workspace, mode).exit_code == 137


def test_a_command_has_no_input_and_no_inherited_descriptors(workspace: Path, mode: SandboxMode) -> None:
    finished = one("cat; readlink /proc/self/fd/0; ls /proc/self/fd | wc -l; tty", workspace, mode)
    assert finished.output.splitlines() == ["/dev/null", "4", "not a tty"]


def test_output_is_shown_as_it_is_written(workspace: Path, mode: SandboxMode) -> None:
    shown: list[str] = []

    def show(text: str) -> None:
        shown.append(text)
        (workspace / "shown").touch()

    command = r"printf 'a\xe2\x82'; until [ -e shown ]; do sleep 0.01; done; printf '\xacb\xff'"
    finished = one(command, workspace, mode, show=show)
    assert shown == ["a", "€b\ufffd"]
    assert finished.output == "a€b\ufffd"


def test_a_command_has_a_clean_environment(
    workspace: Path, mode: SandboxMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "sing")
    (workspace / ".bash_profile").write_text("echo hostile\n")
    lines = one("env; echo $HOME; ls -A ~", workspace, mode).output.splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert "CANARY" not in names
    assert "hostile" not in lines
    assert {"GIVEN=yes", "TERM=dumb", "PAGER=cat", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C.UTF-8"} <= set(lines)
    assert not (workspace / "home").exists()


@pytest.mark.parametrize("way", WAYS)
async def test_no_process_outlives_its_command(way: str, workspace: Path, mode: SandboxMode) -> None:
    assert await survivors(way, mode, 4, workspace) == []


def test_background_processes_end_with_their_command(workspace: Path, mode: SandboxMode) -> None:
    mark = a_mark()
    text = f"({tree(mark)}) >/dev/null 2>&1 & sleep 0.2; echo done"
    assert one(text, workspace, mode).output == "done\n"
    assert processes_called(mark) == []


def test_a_process_gets_a_chance_to_end_before_it_is_killed(workspace: Path, mode: SandboxMode) -> None:
    command = "trap 'echo bye; exit' TERM; echo on; sleep 1000 & wait"
    for timeout in (0.3, 3, 30):  # the first that is long enough for this machine to start the command
        finished = one(command, workspace, mode, CommandLimits(grace=HANG_SECONDS), timeout=timeout)
        assert finished.ended_by == "timeout"
        if finished.output.startswith("on\n"):
            break
    assert finished.output == "on\nbye\n"
    assert finished.killed_processes >= 2


async def test_a_command_can_be_cancelled_while_it_starts(workspace: Path, mode: SandboxMode) -> None:
    async def cancelled() -> Finished:
        commands = ShellCommands(limits=CommandLimits(grace=0.2))
        await commands.confinement()
        running = asyncio.create_task(commands.run(Command("sleep 60", workspace, POLICIES[mode]), print))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        try:
            return await running
        finally:
            commands.close()

    assert (await cancelled()).ended_by == "cancelled"


async def test_a_second_cancel_ends_a_command_at_once(workspace: Path, mode: SandboxMode) -> None:
    async def cancelled() -> Finished:
        commands = ShellCommands(limits=CommandLimits(grace=60))
        shown = asyncio.Event()
        command = Command("trap '' TERM; echo on; while :; do sleep 1; done", workspace, POLICIES[mode])
        running = asyncio.create_task(commands.run(command, lambda text: shown.set()))
        await shown.wait()
        running.cancel()
        await asyncio.sleep(0.05)
        running.cancel()
        try:
            return await asyncio.wait_for(running, HANG_SECONDS)
        finally:
            commands.close()

    assert (await cancelled()).ended_by == "cancelled"


def find_brokers() -> list[int]:
    return [pid for pid in processes_called(BROKER_MODULE) if _parent(pid) == os.getpid()]


async def test_loss_of_the_helper_changes_neither_the_sandbox_nor_what_is_asked(workspace: Path) -> None:
    """The process that starts commands is killed again and again, also while the sandbox is probed. A command that
    was not started is handed over again; one that was is not repeated."""
    policy, ran = SandboxPolicy("auto"), workspace / "ran"

    async def kill_brokers() -> None:
        for number in range(12):  # less and less often: a busy machine needs time for a command
            for broker in find_brokers():
                os.kill(broker, signal.SIGKILL)
            await asyncio.sleep(0.03 * 1.4**number)

    expected = (await ShellCommands().confinement()).sandbox
    commands = ShellCommands()
    killing = asyncio.create_task(kill_brokers())
    results = list[Finished | BaseException]()
    for _ in range(5):
        batch = [commands.run(Command(f"echo {number} >> ran", workspace, policy), print) for number in range(4)]
        results += await asyncio.gather(*batch, return_exceptions=True)
    killing.cancel()
    assert (await commands.confinement()).sandbox == expected
    assert (await commands.run(Command("echo end", workspace, policy), print)).output == "end\n"
    commands.close()
    finished = [each for each in results if isinstance(each, Finished)]
    assert finished
    assert all(isinstance(each, Finished | CommandError) for each in results)
    assert not any(isinstance(each, SandboxMissing) for each in results)
    assert len(finished) <= len(ran.read_text().splitlines()) <= len(results)


async def test_a_killed_broker_is_replaced_and_leaves_no_process(workspace: Path) -> None:
    mark = a_mark()

    async def killed() -> Finished:
        commands = ShellCommands()
        text = f"setsid bash -c 'exec -a {mark} sleep 1000' & sleep 0.1; kill -9 $PPID; sleep 60"
        with pytest.raises(CommandError, match="killed"):
            await commands.run(Command(text, workspace, OFF), print)
        for stray in processes_called(mark):
            await asyncio.to_thread(wait_until_gone, stray, mark)
        (nursery,) = find_brokers()
        os.kill(nursery, signal.SIGKILL)
        await asyncio.to_thread(wait_until_gone, nursery, BROKER_MODULE)
        finished = await commands.run(Command("echo again", workspace, OFF), print)
        commands.close()
        return finished

    before = homes()
    assert (await killed()).output == "again\n"
    assert processes_called(mark) == []
    assert homes() <= before


def homes() -> set[Path]:
    """The private homes of commands whose supervisor is gone."""
    found = Path(tempfile.gettempdir()).glob("treadle-[0-9]*-*")
    return {path for path in found if not Path("/proc", path.name.split("-")[1]).exists()}


def wait_until_gone(pid: int, mark: str) -> None:
    until = time.monotonic() + HANG_SECONDS
    while pid in processes_called(mark) and time.monotonic() < until:
        time.sleep(0.01)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_missing_bubblewrap_is_reported_once(workspace: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        commands = ShellCommands(bubblewrap="/nowhere/bwrap")
        found = await commands.confinement()
        assert (found.sandbox, found.reason) == (False, "bubblewrap is not installed: apt-get install bubblewrap")
        for _ in range(2):
            assert (await commands.run(Command("echo 1", workspace), print)).output == "1\n"
        with pytest.raises(SandboxMissing, match="not installed"):
            await commands.run(Command("echo 1", workspace, SandboxPolicy("required")), print)
        commands.close()

    with caplog.at_level(logging.WARNING, "treadle.sandbox"):
        await run()
    assert [record.name for record in caplog.records] == ["treadle.sandbox"]


async def test_a_bubblewrap_that_does_not_work_is_not_used(workspace: Path, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)

    async def reason() -> str:
        commands = ShellCommands(bubblewrap=str(broken))
        found = await commands.confinement()
        commands.close()
        return "" if found.sandbox else found.reason

    assert "user namespaces" in await reason()


async def test_an_invalid_variable_name_is_refused(workspace: Path) -> None:
    commands = ShellCommands()
    with pytest.raises(CommandError, match="my-key"):
        await commands.run(Command("true", workspace, OFF, {"my-key": "x"}), print)
    commands.close()
