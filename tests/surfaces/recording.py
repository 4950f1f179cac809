"""Runs a list of commands on a terminal of a fixed width and returns what each of them shows.

Every command runs at a fixed time of day, one step after the command before. Ids, paths and ports are replaced by
stable ones of the same length, so that tables keep their layout."""

import re
import shlex
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, Request
from tests.surfaces.fork_server import FIXED_TIME
from tests.surfaces.shell import Shell
from tests.surfaces.terminal import Terminal

FIRST_COMMAND_AT = 1_800_000_000.0
STEP_SECONDS = 420.0
LINES = 40
FOLDER_LENGTH = 150
"""Characters of the path that everything happens below: prompts hold it, and lines are broken after it."""
ID = re.compile(r"\b([a-z]{3})_([0-9a-f]{32}|[0-9a-f]{12})(?![0-9a-f])")
PORT = re.compile(r"(127\.0\.0\.1:)(\d{5})\b")
JSON = {"Content-Type": "application/json"}
SECRET = re.compile(r"\b(trd_|whsec_|#code=)([-\w+/=]{40,})")


class Invocation(NamedTuple):
    """A command line, what the model replies to it, and what the user types when words are shown."""

    line: str
    """Written without `treadle`. `{run:2}` stands for the second run id that was shown, `{folder}` for the
    folder of the recording."""
    replies: tuple[Behaviour, ...] = ()
    dialog: tuple[tuple[str, str], ...] = ()
    prepare: Callable[[Path], None] | None = None
    """Changes files of the home first."""
    hide: tuple[tuple[str, str], ...] = ()
    """What else differs between machines: patterns, and what is recorded instead."""

    has_real_time: bool = False
    """It measures time."""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line)


class StableNames:
    """Replaces ids, paths and ports by names that are the same in each recording."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._broken_folder = re.compile(r"(?:\n +)?".join(map(re.escape, self._folder)))
        """The path, which a narrow cell of a table has on several lines."""
        self._ids: dict[str, list[str]] = {}

    def resolve(self, text: str) -> str:
        """Return a command line with its references to ids replaced."""
        text = text.replace("{folder}", self._folder)
        return re.sub(r"\{([a-z]{3}):(\d+)\}", lambda found: self._ids[found[1]][int(found[2]) - 1], text)

    def replace(self, text: str) -> str:
        text = self._broken_folder.sub("/folder", text)
        text = PORT.sub(r"\g<1>40000", text)
        text = SECRET.sub(lambda found: f"{found[1]}{'x' * len(found[2])}", text)
        return ID.sub(lambda found: self._stable_id(found[0]), text)

    def _stable_id(self, shown: str) -> str:
        kind, _, digits = shown.partition("_")
        known = self._ids.setdefault(kind, [])
        for number, full in enumerate(known):
            if full.startswith(shown) or shown.startswith(full):
                known[number] = max(full, shown, key=len)
                break
        else:
            known.append(shown)
            number = len(known) - 1
        return f"{kind}_{number + 1:012d}{'0' * (len(digits) - 12)}"


class Recorder:
    """Runs invocations one after another in a home of its own."""

    def __init__(self, folder: Path, columns: int) -> None:
        self._columns = columns
        folder = folder / ("x" * (FOLDER_LENGTH - len(str(folder)) - 1))
        self._project = folder / "project"
        self._project.mkdir(parents=True)
        self._shell = _ForkedShell(folder / "home")
        self._names = StableNames(folder)
        self._replies: deque[Behaviour] = deque()

    async def record(self, invocations: tuple[Invocation, ...], configure: Callable[[Shell], None]) -> list[str]:
        """Return what the user sees for each invocation: the command line, the output and the exit code."""
        async with FakeEndpoint(policy=self._reply) as endpoint:
            self._shell.url = endpoint.url
            configure(self._shell)
            return [await self._perform(number, each) for number, each in enumerate(invocations)]

    async def _perform(self, number: int, invocation: Invocation) -> str:
        if invocation.prepare is not None:
            invocation.prepare(self._shell.home)
        self._shell.environment[FIXED_TIME] = str(FIRST_COMMAND_AT + number * STEP_SECONDS)
        if invocation.has_real_time:
            del self._shell.environment[FIXED_TIME]
        self._replies.extend(invocation.replies)
        line = self._names.resolve(invocation.line)
        terminal = Terminal(
            self._shell, *shlex.split(line), folder=self._project, columns=self._columns, lines=LINES
        )
        async with terminal:
            for words, typed in invocation.dialog:
                await terminal.shows(words)
                terminal.types(typed)
            code = await terminal.ends()
        assert not self._replies, f"{line}: {len(self._replies)} replies were not used: {terminal.screen}"
        shown = self._names.replace(terminal.screen)
        for pattern, instead in invocation.hide:
            shown = re.sub(pattern, instead, shown)
        ended = "" if code == 0 else f"[exit code {code}]\n"
        return f"$ treadle {self._names.replace(line)}\n{shown.rstrip()}\n{ended}"

    def _reply(self, request: Request) -> Behaviour:
        if request.method == "GET":
            return Answer([b'{"data": [{"id": "m"}, {"id": "other"}]}'], headers=JSON)
        return self._replies.popleft() if self._replies else Answer([b"no reply is left"], 599)


class _ForkedShell(Shell):
    """Starts no Python: the time of day is fixed in forked processes only."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.environment |= {"TERM": "dumb", "TZ": "UTC", "EDITOR": "true", "OLLAMA_HOST": "127.0.0.1:9"}

    def is_new(self, *arguments: str) -> bool:
        return False


def split_by_group(invocations: tuple[Invocation, ...], texts: list[str]) -> Iterator[tuple[str, str]]:
    """Yield a file name and its text for each group of commands."""
    groups: dict[str, list[str]] = {}
    for invocation, text in zip(invocations, texts, strict=True):
        groups.setdefault(invocation.words[0] if invocation.words else "treadle", []).append(text)
    for name, parts in groups.items():
        yield f"{name}.txt", "\n".join(parts)
