"""The tool `bash`: lines that it refuses, its notes about a line, and its results."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.patience import HANG_SECONDS, until
from treadle.domain.events import EventData
from treadle.domain.events.tool_calls import ProcessKilled, SandboxDenied
from treadle.domain.ids import RunId, SessionId
from treadle.domain.permissions import SandboxPolicy
from treadle.ports.sandbox import Command, Confinement, Finished, SandboxMissing
from treadle.ports.tool import InvalidArguments, Observation, ToolContext, ToolError
from treadle.sandbox.commands import ShellCommands
from treadle.sandbox.limits import CommandLimits
from treadle.tools.bash import MAX_TIMEOUT_SECONDS, PROGRESS_INTERVAL_SECONDS, Bash

OFF = SandboxPolicy("off")


@pytest.fixture
def commands() -> Iterator[ShellCommands]:
    opened = ShellCommands(limits=CommandLimits(grace=0.1, output=2_000_000))
    yield opened
    opened.close()


class CallContext:
    """The context of a tool call, and its side effects."""

    def __init__(self, workspace: Path, policy: SandboxPolicy = OFF) -> None:
        self.shown: list[str] = []
        self.events: list[EventData] = []
        self.context = ToolContext(
            RunId("run_1"),
            SessionId("ses_1"),
            "call_1",
            "run_1/call_1",
            self.shown.append,
            workspace=workspace,
            sandbox=policy,
            secrets={"TOKEN": "s3cret-value"},
            report=self.events.append,
        )


async def call(bash: Bash, around: CallContext, command: str, timeout: float = HANG_SECONDS) -> Observation:
    arguments = bash.parse(msgspec.json.encode({"command": command, "timeout": timeout}).decode())
    return await bash.run(arguments, around.context)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{}", "command"),
        ('{"command": "  \\n"}', "empty"),
        ('{"command": "ls", "timeout": 601}', "600"),
        ('{"command": "ls", "timeout": 0}', "> 0"),
        ('{"command": "ls", "cwd": "/"}', "cwd"),
        ('{"command": "a\\u0000b"}', "NUL"),
        ('{"command": "vim x"}', "edit_file"),
        ('{"command": "cd x && git commit"}', "-m"),
        ('{"command": "%s"}' % ("x" * 100_001), "write_file"),
    ],
)
def test_a_refusal_says_what_to_do(arguments: str, told: str, commands: ShellCommands) -> None:
    with pytest.raises(InvalidArguments, match=told):
        Bash(commands).parse(arguments)


PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-say('it')\n+say(\"$(it)`\n*** End Patch"


@pytest.mark.parametrize(
    "line",
    [
        f"apply_patch <<'EOF'\n{PATCH}\nEOF",
        f"apply_patch <<EOF\n{PATCH}\nEOF\n",
        f'apply_patch << "EOF"\n{PATCH}\nEOF',
        f"apply_patch <<'EOF'\n{PATCH}",
        f"applypatch <<'PATCH'\n{PATCH}\nPATCH",
        f"cd x && apply_patch <<'EOF'\n{PATCH}\nEOF",
        f"cd x; apply_patch <<EOF\n{PATCH}\nEOF",
        f"set -e\ncd x\napply_patch <<'EOF'\n{PATCH}\nEOF\necho ok",
        f"cat <<'EOF' | apply_patch\n{PATCH}\nEOF",
        f"cat << EOF | apply_patch\n{PATCH}\nEOF",
        f"apply_patch '{PATCH}'",
        f'apply_patch "{PATCH}"',
        f"apply_patch \"$(cat <<'EOF'\n{PATCH}\nEOF\n)\"",
        f"apply_patch $'{PATCH}'",
        "apply_patch <<< '*** Begin Patch\n*** Delete File: a\n*** End Patch'",
        "bash -lc \"apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF\"",
        "bash -c 'cd x && apply_patch < a.patch'",
        "apply_patch < a.patch",
        "apply_patch a.patch",
        "sudo apply_patch a.patch",
        "FOO=1 timeout 9 apply_patch a.patch",
        "if true; then apply_patch a.patch; fi",
        "printf x | apply_patch --verbose",
        f"apply_patch <<'EOF'\n{PATCH}\n{'(' * 2000}\nEOF",
    ],
)
def test_a_patch_as_a_command_gets_the_name_of_the_tool(line: str, commands: ShellCommands) -> None:
    with pytest.raises(InvalidArguments) as refused:
        Bash(commands).parse(msgspec.json.encode({"command": line}).decode())
    assert str(refused.value).startswith("`apply_patch` is a tool, not a command. Call the tool `apply_patch` with")


@pytest.mark.parametrize(
    "line",
    [
        "grep -rn apply_patch src",
        "echo apply_patch",
        "python apply_patch.py",
        "./apply_patch a.patch",
        "git apply a.patch",
        "patch -p1 < a.patch",
        f"cat > notes.md <<'EOF'\nUse this:\napply_patch <<X\n{PATCH}\nX\nEOF",
    ],
)
def test_a_line_that_mentions_a_patch_is_a_command(line: str, commands: ShellCommands) -> None:
    assert Bash(commands).parse(msgspec.json.encode({"command": line}).decode()).command == line


def test_bash_declares_its_effect_and_parameters(commands: ShellCommands) -> None:
    spec = Bash(commands).spec
    assert spec.names == ("bash", "run_command")
    assert (spec.effect, spec.repeatable, spec.concurrent) == ("external", False, False)
    assert spec.needs == ("workspace", "secrets")
    assert spec.timeout is not None
    assert spec.timeout > MAX_TIMEOUT_SECONDS
    assert list(spec.schema["properties"]) == ["command", "timeout"]


def test_rules_see_every_command_of_the_line(commands: ShellCommands) -> None:
    bash = Bash(commands)

    def subjects(command: str) -> tuple[tuple[str, ...], bool, bool, str | None]:
        found = bash.subjects(bash.parse(msgspec.json.encode({"command": command}).decode()))
        return found.texts, found.opaque is not None, found.caution is not None, found.pattern

    assert subjects("git status -s") == (("git status -s",), False, False, "git status *")
    line = "cd x && rm -rf y"
    assert subjects(line) == (("cd x", "rm -rf y"), False, False, None), "a destructive command is approved once"
    line = "cd x && rm y"
    assert subjects(line) == (("cd x", "rm y"), False, False, f"exactly: {line}")
    assert subjects("rm -rf /") == (("rm -rf /",), False, True, None)
    assert subjects("curl x | sh") == (("curl x", "sh"), True, True, None)


async def test_a_result_has_the_output_and_exit_status_with_secrets_in_the_environment(
    commands: ShellCommands, tmp_path: Path
) -> None:
    observed = await call(Bash(commands), CallContext(tmp_path), "echo $TOKEN; pwd; exit 3")
    ending = "[The command failed with exit status 3.]"
    assert observed == Observation(f"s3cret-value\n{tmp_path}\n{ending}", 3, is_error=True)


async def test_a_failing_command_is_an_error_and_a_negative_answer_is_not(
    commands: ShellCommands, tmp_path: Path
) -> None:
    (tmp_path / "notes").write_text("one\n")
    for line in (
        "grep two notes",
        "test -f missing",
        "echo two | diff - notes > /dev/null",
        "cd . && grep -c x notes",
    ):
        observed = await call(Bash(commands), CallContext(tmp_path), line)
        assert (observed.exit_code, observed.is_error) == (1, False), line
    for line, status in (
        ("false", 1),
        ("no-such-program", 127),
        ("grep", 2),
        ("kill -9 $$", 137),
        ("sh -c 'exit 7'", 7),
    ):
        observed = await call(Bash(commands), CallContext(tmp_path), line)
        assert (observed.exit_code, observed.is_error) == (status, True), line
        assert observed.content.endswith(f"[The command failed with exit status {status}.]")


async def test_progress_is_reported_in_few_pieces(commands: ShellCommands, tmp_path: Path) -> None:
    around = CallContext(tmp_path)
    began = time.monotonic()
    observed = await call(Bash(commands), around, "for i in $(seq 60); do echo $i; sleep 0.005; done")
    assert "".join(around.shown) == observed.content
    assert 2 <= len(around.shown) <= (time.monotonic() - began) / PROGRESS_INTERVAL_SECONDS + 2


async def test_a_timeout_says_what_to_do(commands: ShellCommands, tmp_path: Path) -> None:
    for seconds in (0.5, 5, 50):  # the first that is long enough for this machine to start the command
        around = CallContext(tmp_path)
        observed = await call(Bash(commands), around, "echo begun; setsid sleep 1000 & sleep 1000", seconds)
        assert observed.is_error
        assert observed.timed_out
        assert observed.exit_code is None
        assert f"[The command was ended. It ran longer than its timeout of {seconds} s." in observed.content
        (killed,) = around.events
        assert isinstance(killed, ProcessKilled)
        assert (killed.call_id, killed.why) == ("call_1", "timeout")
        if killed.processes >= 3:
            break
    assert observed.content.startswith("begun\n[The command was ended.")
    assert killed.processes >= 3


async def test_too_much_output_says_what_to_do(commands: ShellCommands, tmp_path: Path) -> None:
    around = CallContext(tmp_path)
    observed = await call(Bash(commands), around, "yes")
    assert observed.content.endswith("Filter its output, or write it to a file.]")
    assert len(observed.content) < 1_100_000
    assert [event.why for event in around.events if isinstance(event, ProcessKilled)] == ["output"]


async def test_a_cancelled_command_ends_all_processes_and_propagates(
    commands: ShellCommands, tmp_path: Path
) -> None:
    around = CallContext(tmp_path)
    bash = Bash(commands)

    command = '{"command": "echo begun; sleep 1000"}'
    running = asyncio.create_task(bash.run(bash.parse(command), around.context))
    await until(lambda: bool(around.shown))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [event.why for event in around.events if isinstance(event, ProcessKilled)] == ["cancelled"]


async def test_a_limit_of_the_engine_is_a_timeout(commands: ShellCommands, tmp_path: Path) -> None:
    bash = Bash(commands)

    async def limited() -> None:
        async with asyncio.timeout(0.2):
            await bash.run(bash.parse('{"command": "sleep 50"}'), CallContext(tmp_path).context)

    with pytest.raises(TimeoutError):
        await limited()


class NoSandbox:
    async def run(self, command: Command, show: object) -> Finished:
        raise SandboxMissing("bubblewrap is not installed: apt-get install bubblewrap")

    async def confinement(self) -> Confinement:
        return Confinement(sandbox=False)


async def test_a_required_sandbox_that_is_missing_is_reported(tmp_path: Path) -> None:
    around = CallContext(tmp_path, SandboxPolicy("required"))
    with pytest.raises(ToolError, match="not installed"):
        await call(Bash(NoSandbox()), around, "ls")
    assert around.events == [SandboxDenied("call_1", "bubblewrap is not installed: apt-get install bubblewrap")]
