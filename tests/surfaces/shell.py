"""The real `treadle` command, run in its own process with a home of its own. Python is started for a command the
first time that a suite runs it; after that it is forked from a process that has imported Treadle."""

import asyncio
import fcntl
import json
import os
import re
import sys
import termios
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, NamedTuple

from tests.patience import HANG_SECONDS
from tests.surfaces import forked
from treadle.config.home import Home
from treadle.surfaces.cli.command_table import GROUPS, find_command

Process = Popen[bytes] | forked.Forked

COMMAND = Path(sys.executable).with_name("treadle")

READ_AS_PYTHON_STARTS = re.compile(r"LANG|LC_|PYTHON(?!PATH$)")
"""The variables that come too late for a process that is forked."""

READY_AT_ONCE = "retry: {attempts: 0}"


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """What it said went wrong: one line, and nothing else."""
        assert self.out == ""
        assert self.err.startswith("treadle: "), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("treadle: ").rstrip()

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Commands:
    """Which commands Python has been started for in this suite; all workers of pytest share a folder of theirs."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    def is_new(self, command: str) -> bool:
        if self.folder is None:
            return True
        self.folder.mkdir(exist_ok=True)
        try:
            (self.folder / command).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


commands = Commands()


def command_of(arguments: tuple[str, ...]) -> str:
    """Return the words that name the command: `treadle runs list`, or `treadle` if there is none."""
    if find_command(arguments) is None:
        return "treadle"
    return " ".join(("treadle", *arguments[: 2 if arguments[0] in GROUPS else 1]))


class Shell:
    """`await shell("run", "hello")` runs a command to its end; `start` leaves it running."""

    def __init__(self, home: Path, url: str = "http://127.0.0.1:9/v1") -> None:
        self.home = home
        self.url = url
        self.cwd: Path | None = None
        """Where the commands are started; None: where the tests are."""
        self.environment: dict[str, str] = {
            "PATH": os.environ["PATH"], "TREADLE_HOME": str(home), "HOME": str(home.parent),
        }  # fmt: skip

    def configure(self) -> "Shell":
        """Configure the provider `fake`, and a default agent without retries."""
        self.write(
            "config.yaml", f"{{providers: {{fake: {{base_url: '{self.url}'}}}}, defaults: {{model: fake/m}}}}"
        )
        self.write("agents/default/config.yaml", f"name: default\nmodel: fake/m\n{READY_AT_ONCE}\n")
        return self

    def configure_careful(self) -> "Shell":
        """Configure the provider `fake`, and the default agent with Treadle's own tools and approvals."""
        self.configure()
        made = self.home / "agents" / "default" / "config.yaml"
        made.unlink()
        Home(self.home).agent("default")
        made.write_text(f"{made.read_text()}\n{READY_AT_ONCE}\n")
        return self

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *arguments: str | bytes) -> Process:
        words = [str(COMMAND), *map(os.fsdecode, arguments)]
        if self.is_new(*words[1:]):
            return Popen(words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self.environment, cwd=self.cwd)
        return forked.start(words, self.environment, str(self.cwd or Path.cwd()))

    def start_at(self, terminal: int, folder: Path, *arguments: str) -> Process:
        """Start a command at a terminal, which becomes the one that Ctrl-C is typed at."""
        words = [str(COMMAND), *arguments]
        if not self.is_new(*arguments):
            return forked.start_at(terminal, words, self.environment, str(folder))
        return Popen(
            words,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=self.environment,
            cwd=folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def is_new(self, *arguments: str) -> bool:
        """Return whether Python must be started: no test has run this command yet, or it cannot be forked."""
        if sys.platform != "linux" or any(map(READ_AS_PYTHON_STARTS.match, self.environment)):
            return True
        return commands.is_new(command_of(arguments))

    def start_pipe(self, arguments: str, reader: str) -> Process:
        """Start the command with a reader for its standard output."""
        line = f"set -o pipefail; {COMMAND} {arguments} | {reader}"
        return Popen(["bash", "-c", line], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self.environment)

    async def __call__(self, *arguments: str | bytes, stdin: bytes = b"") -> Done:
        return await finish(self.start(*arguments), stdin)


async def finish(process: Process, stdin: bytes = b"") -> Done:
    """Wait for the end of a command, while the endpoint it speaks to goes on in this thread."""
    out, err = await asyncio.to_thread(process.communicate, stdin, HANG_SECONDS)
    assert b"Traceback" not in err, err.decode()
    return Done(process.wait(), out.decode(), err.decode())


async def until_token(process: Process) -> Any:
    """Read a `run --json` up to the first word of the model, and return that event."""
    assert process.stdout is not None
    async with asyncio.timeout(HANG_SECONDS):
        while line := await asyncio.to_thread(process.stdout.readline):
            event = json.loads(line)
            if event["type"] == "token":
                return event
    raise AssertionError("the command ended without a word of the model")
