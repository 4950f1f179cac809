"""What the keys of the message do, in each mode of the prompt."""

import asyncio

from textual.app import SuspendNotSupported

from treadle.domain.errors import UsageError
from treadle.surfaces.terminal.editor import open_editor, write_copy
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.chat_state import ForkSource
from treadle.surfaces.tui.commands import suggest_commands
from treadle.surfaces.tui.controlled_app import ControlledApp
from treadle.surfaces.tui.ignore_files import list_files
from treadle.surfaces.tui.prompt_view import Mode
from treadle.surfaces.tui.suggestions import MAX_SHOWN, Suggestion, find_mention, quote_mention, rank

FILES_VALID_SECONDS = 10.0


class PromptController:
    """Performs the actions of the prompt."""

    def __init__(self, app: ControlledApp) -> None:
        self._app = app
        self._draft = ""
        """The message that another mode has put aside."""
        self._files: list[str] = []
        self._files_at = -FILES_VALID_SECONDS
        self._listing: asyncio.Task[None] | None = None
        self._closed_for: str | None = None
        """The text for which the user has closed the suggestions."""
        self.fork_source: ForkSource | None = None

    # ── Modes ──

    def enter(self, mode: Mode, text: str = "") -> None:
        """Use the prompt for something else than a message, and put the message aside."""
        prompt = self._app.prompt
        if prompt.mode == "message":
            self._draft = prompt.text
        prompt.take_focus()
        prompt.mode = mode
        prompt.put(text)
        self.show_mode()

    def leave(self) -> None:
        """Return to the message."""
        prompt = self._app.prompt
        if prompt.mode != "message":
            prompt.mode = "message"
            prompt.put(self._draft)
            self._draft = ""
        self.show_mode()

    def show_mode(self) -> None:
        """Draw what the prompt is for."""
        app, prompt = self._app, self._app.prompt
        waits = app.chat.waits_for
        placeholder, title = {
            "note": (texts.PLACEHOLDER_NOTE, texts.TITLE_NOTE),
            "edit": (texts.PLACEHOLDER_EDIT, texts.TITLE_EDIT),
            "answer": (texts.PLACEHOLDER_ANSWER, texts.TITLE_ANSWER),
            "search": (texts.PLACEHOLDER_SEARCH, texts.TITLE_SEARCH),
            "fork": (texts.PLACEHOLDER_FORK, texts.TITLE_FORK),
            "message": (
                texts.PLACEHOLDER_CHILD
                if app.child_runs.is_open
                else texts.PLACEHOLDER_WAITING
                if waits == "interrupted"
                else texts.PLACEHOLDER_ANSWER
                if app.review.asks_question
                else texts.PLACEHOLDER_BUSY
                if app.chat.is_busy
                else texts.PLACEHOLDER,
                "",
            ),
        }[prompt.mode]
        placeholder = placeholder.format(agent=app.chat.agent_name, keys=app.key_map)
        if prompt.placeholder != placeholder:
            prompt.placeholder = placeholder
        if (prompt.border_title or "") != title:
            prompt.border_title = title
        prompt.set_class(prompt.mode != "message", "-asking")

    def clear(self) -> None:
        """Discard what was typed."""
        self._app.extras.chips = []
        self._app.extras.set_suggestions([])
        self._app.extras.show()
        if self._app.prompt.mode == "message":
            self._app.prompt.put("")
        else:
            self.leave()
        self._app.review.go_back()

    # ── Suggestions ──

    def show_suggestions(self) -> None:
        """Show what completes the text at the cursor."""
        app, prompt = self._app, self._app.prompt
        if prompt.mode == "search":
            found = [Suggestion(text) for text in app.history.search(prompt.text, MAX_SHOWN)]
            app.extras.set_suggestions(found, "" if found else texts.NO_MATCH)
            prompt.has_suggestions = bool(found)
            return
        found = self._find() if prompt.mode == "message" and prompt.text != self._closed_for else []
        app.extras.set_suggestions(found)
        prompt.has_suggestions = bool(found)

    def _find(self) -> list[Suggestion]:
        prompt = self._app.prompt
        before = prompt.before_cursor
        if (
            before.startswith("/")
            and prompt.cursor_location[0] == 0
            and " " not in before
            and "/" not in before[1:]
        ):
            return suggest_commands(before, self._app.outbox.own.suggest())
        mention = find_mention(before)
        if mention is None:
            return []
        self._refresh_files()
        return [Suggestion(name) for name in rank(mention, self._files)]

    def _refresh_files(self) -> None:
        loop = asyncio.get_running_loop()
        if self._listing is None and loop.time() - self._files_at > FILES_VALID_SECONDS:
            self._listing = loop.create_task(self._list_files())

    async def _list_files(self) -> None:
        self._files = await asyncio.to_thread(list_files, self._app.folder)
        self._files_at, self._listing = asyncio.get_running_loop().time(), None
        self.show_suggestions()

    def _complete(self) -> bool:
        """Insert the selected suggestion; return whether there was one."""
        app, prompt = self._app, self._app.prompt
        if not app.extras.suggestions or prompt.mode != "message":
            return False
        chosen = app.extras.suggestions[app.extras.selected].text
        mention = find_mention(prompt.before_cursor)
        typed = prompt.before_cursor if mention is None else mention
        prompt.replace_before_cursor(len(typed), f"{chosen if mention is None else quote_mention(chosen)} ")
        app.extras.set_suggestions([])
        return True

    # ── Keys ──

    async def do_send(self) -> None:
        app, prompt = self._app, self._app.prompt
        app.display_state.clear_messages()
        text = prompt.text
        match prompt.mode:
            case "search":
                suggestions = app.extras.suggestions
                chosen = suggestions[app.extras.selected].text if suggestions else ""
                self.leave()
                if chosen:
                    app.outbox.recall(chosen)
                else:
                    prompt.put(text)
                self.show_suggestions()
            case "note" | "edit" | "answer":
                await app.review.submit(prompt.mode, text)
            case "fork":
                if self.fork_source is not None:
                    await app.chat.fork(self.fork_source, text)
                    self._draft = ""
                    self.leave()
                    app.flash(texts.FORKED_TO)
            case "message":
                await self._send_message(text)

    async def _send_message(self, text: str) -> None:
        app = self._app
        suggestions = app.extras.suggestions
        if suggestions and text.startswith("/") and text != suggestions[app.extras.selected].text:
            if self._complete() and not app.prompt.text.strip().startswith("/"):
                return
            text = app.prompt.text
        elif suggestions and find_mention(app.prompt.before_cursor) not in (
            None,
            "",
            suggestions[app.extras.selected].text,
        ):
            self._complete()
            return
        if text.strip() or app.extras.chips:
            await app.outbox.send(text.strip("\n"))
        elif app.chat.waits_for == "interrupted":
            await app.chat.resume()

    async def do_queue(self) -> None:
        """Complete what is typed, or queue it. Without a run there is no queue: only Enter sends."""
        app = self._app
        if self._complete() or app.prompt.mode != "message":
            return
        text = app.prompt.text.strip("\n")
        if not text.strip() and not app.extras.chips:
            return
        app.display_state.clear_messages()
        if app.chat.is_busy:
            await app.outbox.send(text, after_run=True)
        else:
            is_mention = find_mention(app.prompt.before_cursor) is not None
            said = texts.NO_SUCH_FILE if is_mention else texts.NOTHING_TO_QUEUE_AFTER
            app.flash(said.format(keys=app.key_map))

    async def do_stop(self) -> None:
        app = self._app
        if app.extras.suggestions and app.prompt.mode == "message":
            self._closed_for = app.prompt.text
            app.extras.set_suggestions([])
            app.prompt.has_suggestions = False
        elif app.prompt.mode != "message":
            self.leave()
            app.extras.set_suggestions([])
            app.review.show()
        elif app.child_runs.is_open:
            app.child_runs.go_back()
        else:
            await app.stop_run()

    def do_previous(self) -> None:
        app = self._app
        if app.extras.suggestions:
            app.extras.choose(-1)
        elif (text := app.history.previous(app.prompt.text, app.extras.chips)) is not None:
            app.outbox.recall(text)
            self._close_suggestions()

    def do_next(self) -> None:
        app = self._app
        if app.extras.suggestions:
            app.extras.choose(1)
        elif (text := app.history.next()) is not None:
            app.outbox.recall(text)
            self._close_suggestions()

    def _close_suggestions(self) -> None:
        self._closed_for = self._app.prompt.text
        self.show_suggestions()

    async def do_paste(self) -> None:
        await self._app.outbox.paste_clipboard()

    def do_search_history(self) -> None:
        if self._app.prompt.mode == "search":
            self._app.extras.choose(1)
        elif self._app.prompt.mode == "message":
            self.enter("search")
            self.show_suggestions()

    async def do_edit_queued(self) -> None:
        """Take the last queued message back into the prompt."""
        app = self._app
        if not app.chat.queued:
            return
        message = app.chat.queued[-1]
        await app.chat.unqueue(message)
        app.prompt.put(message.text if not app.prompt.text else f"{message.text}\n{app.prompt.text}")

    async def do_open_editor(self) -> None:
        """Edit the message in the user's editor. If the editor fails, the message stays as it was."""
        app = self._app
        try:
            path = write_copy(app.prompt.text.encode(), "message-", ".md")
            await app.lend_terminal(lambda: open_editor(path))
            app.prompt.put(path.read_text(encoding="utf-8", errors="replace").removesuffix("\n"))
            path.unlink()
        except SuspendNotSupported:
            app.flash(texts.NO_EDITOR)
        except OSError as error:
            raise UsageError(f"The edited message cannot be read: {error}. Nothing was changed.") from None
