"""The chat line by line: for screen readers, for terminals without a cursor, and for those who keep everything in
the scrollback. It prints each part once, when it is finished, and never moves the cursor."""

import asyncio
import json
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from treadle.domain.errors import TreadleError, UsageError
from treadle.domain.permissions import describe_destruction
from treadle.domain.transcript import AnswerItem, MessageItem, NoteItem
from treadle.operations.approval_service import Answer as Decided
from treadle.surfaces.home_access.background_process import start_background_process
from treadle.surfaces.home_access.home_link import HomeLink, LinkState
from treadle.surfaces.markdown.line_output import find_colours, format_lines
from treadle.surfaces.markdown.stream import MarkdownStream
from treadle.surfaces.markdown.themes import PLAIN_NAME, find_palette, make_terminal_palette
from treadle.surfaces.terminal.call_view import quote_lines, readable_json, show_change
from treadle.surfaces.terminal.output import short_id
from treadle.surfaces.terminal.text import inert, one_line, reveal_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.approval_choices import list_choices
from treadle.surfaces.tui.chat import BY, Chat
from treadle.surfaces.tui.chat_run import ChatRun
from treadle.surfaces.tui.chat_state import ChatListener, Pending, PendingApproval
from treadle.surfaces.tui.commands import find_command, list_commands, looks_like_command
from treadle.surfaces.tui.departure import (
    LeavingKind,
    find_question,
    wait_until_stopped,
    waits_for_user,
)
from treadle.surfaces.tui.item_view import MARGIN, MAX_WIDTH, render_item
from treadle.surfaces.tui.keys import DEFAULT_KEYS
from treadle.surfaces.tui.line_reader import LineReader
from treadle.surfaces.tui.opening import Opening
from treadle.surfaces.tui.run_commands import change_run, choose_mode, give_feedback
from treadle.surfaces.tui.transcript import ShownItem

SUPPORTED = ("/help", "/new", "/model", "/mode", "/queue", "/unqueue", "/resume", "/cancel", "/feedback", "/quit")
"""The commands of the UI that this mode has; session commands go to the session."""


class InlineChat(ChatListener):
    """Holds a conversation on standard input and output."""

    def __init__(self, link: HomeLink, agent: str, opening: Opening) -> None:
        self._chat = Chat(link, agent, self, opening.model)
        self._opening = opening
        colours = find_colours(sys.stdout)
        self._colours = colours
        self._palette = find_palette(PLAIN_NAME) if colours is None else make_terminal_palette()
        self._printed: set[int] = set()
        self._kept: list[ShownItem] = []
        """Printed items, so that their identities are not used again."""
        self._live: tuple[ShownItem, MarkdownStream, int, int] | None = None
        """The answer that is being printed, how much of it was read, and how many of its lines were printed."""
        self._stopping: asyncio.Future[None] | None = None
        self._input = LineReader(lambda: self._say(texts.INLINE_CUT))
        self._expects: Callable[[str], object] | None = None
        """What the next line is for, if it is not a message."""
        self._shown_pending: str | None = None

    async def hold(self) -> int:
        """Talk until the user leaves."""
        loop = asyncio.get_running_loop()
        self._input.start()
        loop.add_signal_handler(signal.SIGINT, self._stop)
        try:
            if not self._chat.has_model() and not await self._set_up():
                return 0
            await self._opening.begin(self._chat)
            self._print_items()
            self._say(texts.INLINE_HINT)
            if self._opening.message:
                await self._perform(self._opening.message)
            self._prompt()
            while True:
                line = await self._input.read()
                if (line is None or not await self._perform(line)) and await self._leave():
                    return 0
                self._prompt()
        finally:
            self._input.stop()
            loop.remove_signal_handler(signal.SIGINT)
            await self._chat.close()

    # ── Input ──

    async def _perform(self, line: str) -> bool:
        """Do what a line says, and print why it cannot be done. Return False to leave."""
        try:
            return await self._handle(line)
        except TreadleError as error:
            self._say(str(error))
            return True

    async def _set_up(self) -> bool:
        """Let the user choose a model, test it and save it. Return False if the user leaves."""
        from treadle.home.model_setup import apply_saved
        from treadle.surfaces.terminal.download_bar import DownloadBar
        from treadle.surfaces.terminal.line_input import hidden_typing
        from treadle.surfaces.terminal.setup_conversation import SetupFunctions, hold_setup

        async def ask_hidden(question: str) -> str | None:
            with hidden_typing():
                return await self._ask(f"{question} ")

        async def ask(question: str) -> str | None:
            return await self._ask(f"{question} ")

        surface = SetupFunctions(self._say, ask, ask_hidden, DownloadBar(texts.EMBEDDED))
        applied = await hold_setup(self._chat.link.home, surface)
        if applied is not None:
            engine = self._chat.link.engine
            apply_saved(None if engine is None else engine.models, self._chat.link.home)
            self._say(applied.line)
        return applied is not None

    async def _ask(self, question: str) -> str | None:
        """Return the answer to a question; None if the user leaves."""
        self._write(question)
        return await self._input.read()

    def _stop(self) -> None:
        """Ctrl-C: interrupt the run; cancel it the second time; without a run, leave."""
        if not self._chat.is_busy:
            self._input.end()
        elif self._chat.waits_for == "interrupted":
            self._spawn(self._chat.cancel())
        else:
            self._spawn(self._chat.interrupt())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._stopping = asyncio.ensure_future(work)

    async def _handle(self, line: str) -> bool:
        """Do what a line says. Return False to leave."""
        if self._expects is not None:
            expects, self._expects = self._expects, None
            result = expects(line)
            if asyncio.iscoroutine(result):
                await result
            return True
        text = line.strip()
        if self._chat.pending and await self._review(self._chat.pending[0], text):
            return True
        if not text:
            if self._chat.waits_for == "interrupted":
                await self._chat.resume()
            return True
        found = find_command(text)
        if found is not None and not found[0].is_session:
            return await self._command(found[0].name, found[1])
        if found is None and looks_like_command(text):
            raise UsageError(texts.UNKNOWN_COMMAND.format(name=text.split()[0]))
        await self._chat.send(line)
        return True

    async def _command(self, name: str, argument: str) -> bool:
        match name:
            case "/help":
                for each, help_ in list_commands():
                    if each.split()[0] in SUPPORTED or ((found := find_command(each)) and found[0].is_session):
                        self._say(f"{each}: {help_}")
            case "/new":
                await self._chat.open_session(None)
            case "/model" if argument:
                await self._chat.set_model(argument)
                self._say(texts.MODEL_SET.format(model=argument))
            case "/mode" if argument:
                self._say(await choose_mode(self._chat, argument))
            case "/queue" | "/unqueue" | "/resume" | "/cancel":
                self._say(await change_run(self._chat, name, argument))
            case "/feedback":
                self._say(await give_feedback(self._chat, argument))
            case "/quit":
                return False
            case _:
                self._say(f"{name} is a command of the full screen. Open it with: treadle chat")
        return True

    # ── Approvals and questions ──

    async def _review(self, pending: Pending, text: str) -> bool:
        """Answer what waits; return whether the line was an answer."""
        head, _, rest = text.partition(" ")
        if not isinstance(pending, PendingApproval):
            options = pending.question.options
            if not text:
                return True
            chosen = int(text) if text.isdecimal() else 0
            await self._chat.answer(pending, options[chosen - 1] if 0 < chosen <= len(options) else text)
            return True
        chosen = next((each for each in list_choices(pending.view) if each.key == head), None)
        match head if chosen is None else chosen.types:
            case "" if not rest and chosen is not None and chosen.answer is not None and not chosen.is_rule:
                await self._chat.decide(pending, chosen.answer)
            case "edit":
                self._say(readable_json(pending.view.arguments))
                self._expect_arguments(pending)
            case "note" if rest:
                await self._chat.decide(pending, Decided("deny", note=rest, by=BY))
            case "note":
                self._write(texts.INLINE_NOTE)
                self._expects = lambda line: self._chat.decide(pending, Decided("deny", note=line.strip(), by=BY))
            case _:
                return False
        return True

    def _expect_arguments(self, pending: PendingApproval, *begun: str) -> None:
        """Use the next line as edited arguments, or as their continuation. No line of them is ever a message."""
        if not begun:
            self._write(texts.INLINE_EDIT)
        self._expects = lambda line: self._edit(pending, *begun, line)

    async def _edit(self, pending: PendingApproval, *lines: str) -> None:
        text = "\n".join(lines)
        if not lines[-1].strip():
            self._shown_pending = None
            self.show_pending()
            return
        try:
            json.loads(text)
            await self._chat.decide(pending, Decided("approve", text, by=BY))
        except json.JSONDecodeError as error:
            if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
                self._expect_arguments(pending, *lines)
                return
            self._input.discard()
            self._say(texts.INLINE_BAD_JSON.format(error=error))
            self._expect_arguments(pending)
        except UsageError as error:
            self._input.discard()
            self._say(str(error))
            self._expect_arguments(pending)

    def show_pending(self) -> None:
        """Print the first thing that waits for the user."""
        pending = self._chat.pending[0] if self._chat.pending else None
        if pending is None or pending.key == self._shown_pending:
            self._shown_pending = None if pending is None else pending.key
            return
        self._shown_pending = pending.key
        width = self._width
        if isinstance(pending, PendingApproval):
            view = pending.view
            self._say(texts.APPROVAL_TITLE.format(agent=one_line(pending.agent), tool=one_line(view.tool)))
            for row in show_change(view.tool, view.arguments, pending.folder, width).lines:
                self._say(row)
            if view.destructive is not None:
                self._say(f"  {reveal_line(describe_destruction(view.destructive))}")
            self._say(f"  ({reveal_line(view.reason)})")
            self._say("  ".join(f"{each.key} {each.name}" for each in list_choices(view)[:3]))
            for choice in [each for each in list_choices(view)[3:] if not each.is_rule]:
                self._say(f"{choice.key} {choice.help}")
        else:
            self._say(texts.QUESTION_TITLE.format(agent=one_line(pending.agent)))
            for row in quote_lines(pending.question.question, width):
                self._say(row)
            for number, option in enumerate(pending.question.options, start=1):
                self._say(f"  {number}. {reveal_line(option)}")
            self._say(texts.PLACEHOLDER_ANSWER.format(keys=DEFAULT_KEYS))
        self._ring()
        self._prompt()

    # ── Output ──

    @property
    def _width(self) -> int:
        return shutil.get_terminal_size().columns

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _say(self, text: str) -> None:
        self._write(inert(text) + "\n")

    def _prompt(self) -> None:
        if self._expects is None and (not self._chat.is_busy or self._chat.pending):
            self._write(texts.INLINE_PROMPT)

    def _ring(self) -> None:
        if sys.stdout.isatty():
            self._write("\a")

    def show_change(self, item: ShownItem | None) -> None:
        self._print_items()

    def _print_items(self) -> None:
        """Print what is finished, in order."""
        for shown in self._chat.transcript.items:
            if id(shown) in self._printed:
                continue
            if isinstance(shown.item, AnswerItem) and not shown.is_final:
                self._print_stream(shown, shown.item)
                return
            if not shown.is_final:
                return
            self._print_item(shown)
            self._printed.add(id(shown))
            self._kept.append(shown)

    def _print_item(self, shown: ShownItem) -> None:
        item = shown.item
        if self._live is not None and self._live[0] is shown and isinstance(item, AnswerItem):
            self._print_stream(shown, item)
            self._live = None
            return
        if isinstance(item, MessageItem) and item.delivery == "message" and self._is_own(item):
            return  # the terminal has shown what was typed
        lines = render_item(shown, self._width, self._palette, details=False, thinking=False)
        self._write(format_lines(lines, self._colours))
        if isinstance(item, NoteItem) and item.details:
            self._say(texts.INLINE_RECALLED.format(run=short_id(item.run_id)))

    def _is_own(self, item: MessageItem) -> bool:
        run = self._chat.run
        return run is not None and run.run_id == item.run_id and not run.ended

    def _print_stream(self, shown: ShownItem, item: AnswerItem) -> None:
        """Print the paragraphs of an answer that are finished."""
        if self._live is None or self._live[0] is not shown:
            stream = MarkdownStream(min(self._width - len(MARGIN) - 1, MAX_WIDTH), self._palette)
            self._live = (shown, stream, 0, 0)
            self._write("\n")
        _, stream, consumed, printed = self._live
        stream.append(item.text[consumed:])
        if shown.is_final:
            stream.finish()
        else:
            stream.update()
        lines = stream.finished_lines[printed:]
        if lines:
            self._write(format_lines(lines, self._colours))
        self._live = (shown, stream, len(item.text), len(stream.finished_lines))

    def show_end(self, run: ChatRun) -> None:
        self._print_items()
        self._prompt()

    def show_link(self, state: LinkState, detail: str) -> None:
        if state == "leaving":
            self._say(texts.TAKEN_OVER)
        elif state == "lost":
            self._say(texts.SERVER_GONE)

    def show_error(self, text: str) -> None:
        self._say(text)

    # ── Leaving ──

    async def _leave(self) -> bool:
        """Leave, and say how to come back; ask first what becomes of the run. Return False to stay."""
        chat, kind = self._chat, await self._choose_leaving()
        if kind is None:
            return False
        self._say("")
        names = {"run_id": chat.run.run_id if chat.run is not None else "", "session_id": chat.session_id}
        match kind:
            case "background":
                if chat.link.engine is not None:
                    start_background_process([] if chat.run is None else [chat.run.run_id])
                self._say(texts.LEFT_BACKGROUND.format(**names))
            case "parked":
                self._say(texts.LEFT_PARKED.format(**names))
            case _ if chat.session_id is not None:
                self._say(texts.RESUME_HINT.format(**names))
            case _:
                pass
        return True

    async def _choose_leaving(self) -> LeavingKind | None:
        """Return how the user leaves; None to stay. A second Ctrl-D leaves the run in the background."""
        question = find_question(self._chat)
        if question is None:
            return "done"
        title, choices = question
        self._say(f"\n{title}")
        for key, _, help_ in choices[:-1]:
            self._say(f"  {key}  {help_}")
        line = await self._ask(texts.INLINE_QUIT)
        match "1" if line is None else line.strip():
            case "1":
                return "waiting" if waits_for_user(self._chat) else "background"
            case "2":
                await self._chat.interrupt()
                await wait_until_stopped(self._chat)
                return "parked"
            case "3":
                await self._chat.cancel()
                await wait_until_stopped(self._chat)
                return "cancelled"
            case _:
                return None
