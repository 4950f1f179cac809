"""`treadle vault`: values can be set and are never printed, and errors are one line."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces.shell import COMMAND, Done, Shell
from treadle.vault.store import VaultStore

CANARY = "canary-4f1d0e-in-a-coal-mine"

TAKE_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


async def do(shell: Shell, *arguments: str, stdin: str = "") -> Done:
    return await shell("vault", *arguments, stdin=stdin.encode())


def values(shell: Shell) -> dict[str, str]:
    return dict(VaultStore(shell.home, {}).read().values)


async def test_a_secret_is_stored_and_never_printed(shell: Shell) -> None:
    done = await do(shell, "set", "TOKEN", "--agent", "dev", "--tool", "bash", stdin=f"{CANARY}\n")
    assert (done.code, done.out) == (0, "")
    assert "Stored TOKEN" in done.err
    assert "granted to dev (bash)" in done.err
    assert values(shell) == {"TOKEN": CANARY}
    listed = await do(shell, "list")
    assert listed.out.splitlines()[0].split() == ["SECRET", "CREATED", "CHANGED", "GRANTED", "TO"]
    assert listed.out.splitlines()[1].endswith("dev (bash)")
    [row] = (await do(shell, "list", "--json")).json
    assert row["grants"] == [{"agent": "dev", "tool": "bash"}]
    assert CANARY not in done.err + listed.out + str(row)


async def test_a_new_secret_is_granted_to_no_agent(shell: Shell) -> None:
    done = await do(shell, "set", "TOKEN", stdin=CANARY)
    assert "granted to no agent" in done.err
    assert "treadle vault grant TOKEN --agent AGENT" in done.err
    assert (await do(shell, "list")).out.splitlines()[1].endswith("no agent")


async def test_a_value_on_the_command_line_is_refused_with_the_reason(shell: Shell) -> None:
    done = await do(shell, "set", "TOKEN", CANARY)
    assert done.code == 2
    assert "not accepted on the command line: other users and the shell history would see it" in done.complaint
    assert CANARY not in done.err
    assert not shell.home.exists()


@pytest.mark.parametrize(
    ("stdin", "kept"),
    [
        ("one line of it\n", "one line of it"),
        ("one line of it\r\n", "one line of it"),
        ("no line end", "no line end"),
        ("a key in\nseveral lines\n", "a key in\nseveral lines\n"),
    ],
)
async def test_a_piped_value_loses_its_final_line_break(shell: Shell, stdin: str, kept: str) -> None:
    assert (await do(shell, "set", "KEY", stdin=stdin)).code == 0
    assert values(shell) == {"KEY": kept}


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (("set", "TOKEN"), b"short", "fewer than 8 characters"),
        (("set", "TOKEN"), b"", "is empty"),
        (("set", "TOKEN"), b"\xff\xfe binary", "not text in UTF-8"),
        (("set", "LD_PRELOAD"), b"", "would change how commands behave"),
        (("set", "a-b"), b"", "cannot be the name"),
        (("set", "TOKEN", "--tool", "bash"), b"", "add --agent NAME"),
        (("remove", "TOKEN"), b"", "there is no vault yet"),
        (("grant", "TOKEN"), b"", "Name the agent that may use TOKEN"),
        (("revoke", "TOKEN"), b"", "Name the grants of TOKEN to revoke"),
        (("rotate",), b"", "There is no vault yet"),
    ],
)
async def test_an_error_is_reported_in_one_line(
    shell: Shell, arguments: tuple[str, ...], stdin: bytes, words: str
) -> None:
    done = await shell("vault", *arguments, stdin=stdin)
    assert done.code == 2
    assert words in done.complaint


async def test_an_empty_vault_is_reported(shell: Shell) -> None:
    done = await do(shell, "list")
    assert (done.code, done.out) == (0, "")
    assert "No secrets yet" in done.err
    assert not shell.home.exists()


async def test_secrets_are_granted_and_revoked(shell: Shell) -> None:
    await do(shell, "set", "TOKEN", stdin=CANARY)
    done = await do(shell, "grant", "TOKEN", "--agent", "a", "--agent", "b", "--tool", "bash", "--json")
    assert done.json[0]["grants"] == [{"agent": "a", "tool": "bash"}, {"agent": "b", "tool": "bash"}]
    typo = await do(shell, "grant", "TOKEN", "--agent", "defualt", "--tool", "read_file")
    assert "This home has no agent `defualt`. Did you mean `default`? Nothing was granted." in typo.complaint
    unknown = await do(shell, "grant", "TOKEN", "--agent", "zoo*", "--tool", "read_fil")
    assert "This home has no agent `zoo*`: the grant takes effect when there is one." in unknown.err
    assert "no tool is called `read_fil`. Did you mean `read_file`?" in unknown.err
    assert (await do(shell, "revoke", "TOKEN", "--agent", "zoo*")).code == 0
    assert "granted to a (bash)" in (await do(shell, "revoke", "TOKEN", "--agent", "b")).err
    assert (
        "no such grant: it is granted to a (bash)" in (await do(shell, "revoke", "TOKEN", "--agent", "b")).complaint
    )
    assert (await do(shell, "remove", "TOKEN")).code == 0
    assert (await do(shell, "list", "--json")).json == []


async def test_rotation_changes_the_key_and_a_wrong_key_is_reported(shell: Shell) -> None:
    await do(shell, "set", "TOKEN", stdin=CANARY)
    assert "Encrypted 1 secret with a new key" in (await do(shell, "rotate")).err
    assert values(shell) == {"TOKEN": CANARY}
    (shell.home / "vault.key").chmod(0o644)
    wide = await do(shell, "rotate")
    assert wide.code == 1
    assert "chmod 600" in wide.complaint
    shell.environment["TREADLE_VAULT_KEY"] = "ab" * 32
    assert "holds another key" in (await do(shell, "rotate")).complaint


async def test_short_values_can_be_forced(shell: Shell) -> None:
    assert (await do(shell, "set", "PIN", "--force", stdin="1234")).code == 0
    assert values(shell) == {"PIN": "1234"}


# ── At a terminal ──


def run_at_terminal(shell: Shell, *typed: str) -> tuple[int, str]:
    """Run `vault set TOKEN` with a terminal, and type a line whenever it asks."""
    master, slave = pty.openpty()
    command = [sys.executable, "-c", TAKE_THE_TERMINAL, COMMAND, "vault", "set", "TOKEN"]
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=shell.environment, start_new_session=True
    ) as process:
        os.close(slave)
        seen = ""
        for line in typed:
            seen += _until(master, ": ")
            assert CANARY not in Path(f"/proc/{process.pid}/cmdline").read_text()
            os.write(master, line.encode())
        seen += _until(master, None)
        process.wait(60)
    os.close(master)
    return process.returncode, seen


def _until(terminal: int, end: str | None) -> str:
    seen = ""
    while end is None or not seen.endswith(end):
        try:
            read = os.read(terminal, 1000)
        except OSError:  # the other side has closed it
            break
        if not read:
            break
        seen += read.decode()
    return seen


def test_a_value_is_typed_twice_and_not_shown(shell: Shell) -> None:
    code, seen = run_at_terminal(shell, f"{CANARY}\n", f"{CANARY}\n")
    assert code == 0, seen
    assert CANARY not in seen
    assert values(shell) == {"TOKEN": CANARY}


def test_two_values_that_differ_change_nothing(shell: Shell) -> None:
    code, seen = run_at_terminal(shell, f"{CANARY}\n", "something else\n")
    assert code == 2
    assert "The two values differ" in seen
    assert not (shell.home / "vault.db").exists()


def test_ctrl_c_ends_the_prompt(shell: Shell) -> None:
    assert run_at_terminal(shell, "\x03")[0] == 130
