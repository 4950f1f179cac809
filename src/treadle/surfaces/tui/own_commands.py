"""Commands that the user's files, the project and the skills add to those of the terminal UI, and `!command`."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from treadle.domain.attachments import format_attached_file
from treadle.domain.errors import TreadleError, UsageError
from treadle.domain.mcp_servers import McpPrompt
from treadle.domain.messages import Text
from treadle.operations import skills
from treadle.operations.mcp_prompts import LIST, READ, ChosenPrompt, ListMcpPrompts, PromptsOfAgent, ReadMcpPrompt
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
_NAME = re.compile(r"[^\s/]+")
PROMPTS_VALID_SECONDS = 60.0


class OwnMessage(NamedTuple):
    """What a command becomes."""

    text: str
    is_trusted: bool
    """It may be sent at once. What a project brings is shown to the user first."""
    source: str = ""


class OwnCommands:
    """The commands of files, skills and MCP prompts."""

    def __init__(self, app: ControlledApp) -> None:
        self._app = app
        self._files: Sequence[CommandFile] = ()
        self._skills: Sequence[skills.SkillView] = ()
        self._read_at = -VALID_SECONDS
        self._reading: asyncio.Task[None] | None = None
        self._prompts: Sequence[McpPrompt] = ()
        self._prompts_at = -PROMPTS_VALID_SECONDS
        self._listing: asyncio.Task[None] | None = None

    def suggest(self) -> list[Suggestion]:
        """Return the commands that are known, and look for changed ones in the background."""
        loop = asyncio.get_running_loop()
        if self._reading is None and loop.time() - self._read_at > VALID_SECONDS:
            self._reading = loop.create_task(self._read())
        found = {f"/{file.name}": one_line(file.description) for file in self._files}
        for prompt in self._prompts:
            found.setdefault(name_prompt(prompt), f"{describe_arguments(prompt)}{one_line(prompt.description)}")
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
        if ":" in name and self._listing is not None:  # the servers are being asked
            await self._listing
        prompt = next((each for each in self._prompts if name_prompt(each) == head), None)
        if prompt is not None:
            return await self._read_prompt(prompt, arguments.strip())
        if any(skill.name == name for skill in self._skills):
            task = f" {arguments.strip()}" if arguments.strip() else ""
            return OwnMessage(texts.USE_SKILL.format(name=name, task=task), is_trusted=True)
        return None

    async def _read_prompt(self, prompt: McpPrompt, arguments: str) -> OwnMessage:
        wanted = ChosenPrompt(self._app.chat.spec(), prompt.server, prompt.name, assign_words(prompt, arguments))
        read = await self._app.link.call(READ, ReadMcpPrompt(wanted))
        for number, image in enumerate(read.images, 1):
            self._app.outbox.attach_image(image, texts.PROMPT_IMAGE.format(name=prompt.name, number=number))
        return OwnMessage(read.text, is_trusted=False, source=texts.PROMPT_SOURCE.format(server=prompt.server))

    async def _read_prompts(self) -> None:
        """Read the prompts of MCP servers, which are started for it."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._prompts_at > PROMPTS_VALID_SECONDS:
            self._prompts_at = loop.time()
            with suppress(TreadleError):
                wanted = ListMcpPrompts(PromptsOfAgent(self._app.chat.spec()))
                found = (await self._app.link.call(LIST, wanted)).items
                self._prompts = [prompt for prompt in found if _NAME.fullmatch(prompt.name)]
                self._app.input.show_suggestions()

    async def _read(self) -> None:
        app = self._app
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(self._read_prompts())
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


def name_prompt(prompt: McpPrompt) -> str:
    return f"/{prompt.server}:{prompt.name}"


def describe_arguments(prompt: McpPrompt) -> str:
    """Return the arguments of a prompt as its command takes them, with a space after them."""
    names = (each.name.upper() if each.required else f"[{each.name.upper()}]" for each in prompt.arguments)
    return "".join(f"{one_line(name)} " for name in names)


def assign_words(prompt: McpPrompt, typed: str) -> dict[str, str]:
    """Return the arguments of a prompt from the words after its name: one each, the last one has the rest. Raise
    UsageError if one is missing."""
    names, values = [each.name for each in prompt.arguments], dict[str, str]()
    rest = typed
    for index, name in enumerate(names):
        if not rest:
            break
        word, rest = (rest, "") if index == len(names) - 1 else _take_word(rest)
        values[name] = word
    missing = [each.name.upper() for each in prompt.arguments if each.required and not values.get(each.name)]
    if missing:
        usage = f"{name_prompt(prompt)} {describe_arguments(prompt)}".rstrip()
        raise UsageError(texts.PROMPT_MISSING.format(missing=", ".join(missing), usage=usage))
    return values


def _take_word(text: str) -> tuple[str, str]:
    """Return the first word, which may be in quotes, and what follows."""
    quote = text[0] if text[0] in "'\"" and text[0] in text[1:] else ""
    word, _, rest = text[1:].partition(quote) if quote else text.partition(" ")
    return word, rest.strip()


def _describe(done: CommandOutput) -> str:
    """Return the output with what is to be said about its end."""
    output = done.output.rstrip("\n")
    if done.ended_by is not None:
        return f"{output}\n{texts.SHELL_STOPPED.format(why=done.ended_by)}".lstrip("\n")
    if done.exit_code:
        return f"{output}\n{texts.SHELL_FAILED.format(code=done.exit_code)}".lstrip("\n")
    return output or texts.SHELL_SILENT


def _find_fences(text: str) -> list[str]:
    return re.findall(r"`{3,}", text)
