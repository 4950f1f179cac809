"""Commands that the user's files, the project and the skills add to those of the terminal UI, and `!command`."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from treadle.domain.attachments import format_attached_file
from treadle.domain.errors import TreadleError
from treadle.domain.messages import Text
from treadle.operations import skills
from treadle.operations.operation import NoParameters
from treadle.operations.user_commands import RUN, CommandOutput, RunUserCommand, UserCommand
from treadle.skills.command_files import CommandFile, list_command_files
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.attachments import Chip
from treadle.surfaces.tui.controlled_app import ControlledApp
from treadle.surfaces.tui.item_view import format_size
from treadle.surfaces.tui.suggestions import Suggestion

VALID_SECONDS = 10.0


class OwnMessage(NamedTuple):
    """What a command becomes."""

    text: str
    is_trusted: bool
    """It may be sent at once. What a project brings is shown to the user first."""
    source: str = ""


class OwnCommands:
    """The commands of files and skills."""

    def __init__(self, app: ControlledApp) -> None:
        self._app = app
        self._files: Sequence[CommandFile] = ()
        self._skills: Sequence[skills.SkillView] = ()
        self._read_at = -VALID_SECONDS
        self._reading: asyncio.Task[None] | None = None

    def suggest(self) -> list[Suggestion]:
        """Return the commands that are known, and look for changed ones in the background."""
        loop = asyncio.get_running_loop()
        if self._reading is None and loop.time() - self._read_at > VALID_SECONDS:
            self._reading = loop.create_task(self._read())
        found = {f"/{file.name}": one_line(file.description) for file in self._files}
        for skill in self._skills:
            found.setdefault(f"/{skill.name}", one_line(skill.description))
        return [Suggestion(name, help_) for name, help_ in found.items()]

    async def find(self, text: str) -> OwnMessage | None:
        """Return the message that a command becomes; None if there is no such command."""
        head, _, arguments = text.strip().partition(" ")
        if not head.startswith("/"):
            return None
        await self._read()
        name = head[1:]
        for file in self._files:
            if file.name == name:
                return OwnMessage(file.expand(arguments.strip()), file.is_own, file.path)
        if any(skill.name == name for skill in self._skills):
            task = f" {arguments.strip()}" if arguments.strip() else ""
            return OwnMessage(texts.USE_SKILL.format(name=name, task=task), is_trusted=True)
        return None

    async def _read(self) -> None:
        app = self._app
        self._files = await asyncio.to_thread(list_command_files, app.folder, app.link.home.path)
        try:
            listed = (await app.link.call(skills.LIST, NoParameters())).items
            self._skills = [skill for skill in listed if skill.state == "approved"]
        except TreadleError:  # the home is just being handed over
            pass
        self._read_at, self._reading = asyncio.get_running_loop().time(), None

    async def run_shell(self, command: str) -> None:
        """Run a command in the workspace, show its output, and attach it to the next message."""
        app = self._app
        app.flash(texts.SHELL_RUNNING.format(command=one_line(command)))
        wanted = RunUserCommand(UserCommand(app.chat.spec(), command))
        done = await app.link.call(RUN, wanted)
        app.flash("")
        shown = _describe(done)
        fence = "`" * (1 + max((len(run) for run in _find_fences(command + shown)), default=2))
        app.chat.transcript.report(f"{fence}console\n$ {command}\n{shown}\n{fence}")
        app.view.follow_end()
        text = format_attached_file(texts.SHELL_NAME.format(command=command), f"$ {command}\n{shown}\n")
        label = texts.SHELL_CHIP.format(command=one_line(command)[:40], size=format_size(len(shown)))
        app.extras.chips = [*app.extras.chips, Chip(label, Text(text))]
        app.extras.show()


def _describe(done: CommandOutput) -> str:
    """Return the output with what is to be said about its end."""
    output = done.output.rstrip("\n")
    if done.ended_by is not None:
        return f"{output}\n{texts.SHELL_STOPPED.format(why=done.ended_by)}".lstrip("\n")
    if done.exit_code:
        return f"{output}\n{texts.SHELL_FAILED.format(code=done.exit_code)}".lstrip("\n")
    return output or texts.SHELL_SILENT


def _find_fences(text: str) -> list[str]:
    import re

    return re.findall(r"`{3,}", text)
