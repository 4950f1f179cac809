"""The application: what its parts show, and what keys do. `command_runner` performs the slash commands."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from textual import events, on
from textual.app import App, ComposeResult
from textual.screen import Screen
from textual.widgets import Static, TextArea

from treadle.domain.errors import TreadleError
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.markdown.themes import PLAIN_NAME
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.approval_panel import ApprovalPanel
from treadle.surfaces.tui.chat import Chat
from treadle.surfaces.tui.child_runs import ChildRuns
from treadle.surfaces.tui.command_runner import CommandRunner
from treadle.surfaces.tui.departure import Departure
from treadle.surfaces.tui.display_state import NEEDS_USER, DisplayState
from treadle.surfaces.tui.enter_keys import recognize_alt_enter
from treadle.surfaces.tui.key_queue import KeyQueue
from treadle.surfaces.tui.keys import bind_keys
from treadle.surfaces.tui.leaving import Leaving
from treadle.surfaces.tui.message_history import MessageHistory
from treadle.surfaces.tui.notification import RESTORE_TITLE, SAVE_TITLE, make_notification
from treadle.surfaces.tui.opening import Opening
from treadle.surfaces.tui.outbox import Outbox
from treadle.surfaces.tui.own_themes import Themes
from treadle.surfaces.tui.plan_panel import PlanPanel
from treadle.surfaces.tui.preferences import Preferences, describe_problems, write_preferences
from treadle.surfaces.tui.preload import preload
from treadle.surfaces.tui.prompt_controller import PromptController
from treadle.surfaces.tui.prompt_view import MessageEditor, PromptExtras
from treadle.surfaces.tui.review import Review
from treadle.surfaces.tui.status_line import StatusLine
from treadle.surfaces.tui.terminal_loan import lend_terminal
from treadle.surfaces.tui.terminal_loss import CHECK_SECONDS, TerminalLoss
from treadle.surfaces.tui.transcript_search import choose_found
from treadle.surfaces.tui.transcript_view import TranscriptView
from treadle.surfaces.tui.widget_themes import choose_theme, make_textual_themes

Result = TypeVar("Result")
NEW_SESSION = Opening()


class TreadleApp(App[Leaving], inherit_bindings=False):
    """The terminal UI."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; background: $background; }
    #child { display: none; height: 1; padding: 0 2; background: $panel; color: $accent; }
    #banner { display: none; height: auto; padding: 0 2; background: $panel; color: $warning; }
    #notice { display: none; height: auto; max-height: 8; padding: 0 2; background: $panel; }
    """

    def __init__(
        self,
        link: HomeLink,
        agent: str,
        preferences: Preferences,
        opening: Opening = NEW_SESSION,
        background: str | None = None,
        problems: Sequence[str] = (),
    ) -> None:
        """`problems` are those of the settings, which the user is told."""
        self.themes = Themes(preferences.themes)
        theme = choose_theme(self.themes, preferences.theme, background)  # before Textual reads NO_COLOR
        self.palette = self.themes.find_palette(theme)
        self.key_map, _ = bind_keys(preferences.keys)
        recognize_alt_enter()
        os.environ.pop("NO_COLOR", None)  # the plain theme has no colours; Textual would add greys
        super().__init__(ansi_color=self.palette.name == PLAIN_NAME)
        for each in make_textual_themes(self.themes):
            self.register_theme(each)
        for key in self.key_map.keys:
            if key.place == "anywhere" and key.keys:
                self.bind(",".join(key.keys), key.action, show=False)
        self.theme = f"treadle-{self.palette.name}"
        self.preferences = preferences
        self.link = link
        self.display_state = DisplayState(self)
        self.chat = Chat(link, agent, self.display_state, opening.model)
        self.child_runs = ChildRuns(self)
        self._opening = opening
        self._problems = problems
        self.view = TranscriptView(lambda: self.child_runs.transcript, self.palette, self.key_map)
        self.view.thinking, self.view.details = preferences.thinking, preferences.details
        self.prompt = MessageEditor(self.key_map)
        self.extras = PromptExtras(self.palette, self.key_map)
        self.panel = ApprovalPanel(self.palette, self.key_map)
        self.plan = PlanPanel(self.palette)
        self.status = StatusLine(self.palette)
        self.child_bar = Static(id="child", markup=False)
        self.banner = Static(id="banner")
        self.notice = Static(id="notice")
        self.history = MessageHistory(link.home.path)
        self.input = PromptController(self)
        self.review = Review(self)
        self.departure = Departure(self)
        self.runner = CommandRunner(self)
        self.outbox = Outbox(self)
        self.key_queue = KeyQueue(self, super().on_event)
        self.view.is_key_pending = lambda: self.key_queue.is_busy
        self.view.on_news = self.display_state.show_state
        self._interrupted: tuple[str, int] | None = None
        """The run that was last interrupted, and its last event then."""
        self._leave_asked_at = 0.0
        self.animation_level = "none"

    # ── Opening ──

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return {"dim": "#808080"}

    def compose(self) -> ComposeResult:
        yield self.child_bar
        yield self.view
        yield self.banner
        yield self.notice
        yield self.plan
        yield self.panel
        yield self.extras
        yield self.prompt
        yield self.status

    def on_mount(self) -> None:
        self.prompt.take_focus()
        self.display_state.start()
        terminal = TerminalLoss(lambda: self.exit(Leaving("abandoned")))
        if terminal.is_watched:
            self.set_interval(CHECK_SECONDS, terminal.check)
        self.write_terminal(SAVE_TITLE)
        self.perform(self._open())

    async def _open(self) -> None:
        if not self._has_model():
            from treadle.home.model_setup import apply_saved
            from treadle.surfaces.tui.setup_screen import SetupScreen

            said = await self.ask(SetupScreen(self.link, self.palette))
            if said is None:
                self.exit(Leaving())
                return
            engine = self.link.engine
            apply_saved(None if engine is None else engine.models, self.link.home)
            self.flash(said.line)
        try:
            await self._opening.begin(self.chat)
        except TreadleError as error:  # the session is open; the message is not sent to another model
            self.flash(str(error))
            self.prompt.put(self._opening.message)
        else:
            await self._send_first()
        self.welcome()
        self.input.show_mode()
        self.display_state.show_state()
        if self._problems:
            self.call_after_refresh(self.flash, describe_problems(self._problems))  # the size is known then
        await asyncio.to_thread(preload, self.link, self.chat)

    async def _send_first(self) -> None:
        if self._opening.chooses:
            self.prompt.put(self._opening.message)
            self.action_sessions()
        elif self._opening.message:
            await self.outbox.send(self._opening.message)

    async def ask(self, screen: Screen[Result]) -> Result | None:
        """Show a screen and return its result."""
        done: asyncio.Future[Result | None] = asyncio.get_running_loop().create_future()

        def finish(result: Result | None) -> None:
            if not done.done():
                done.set_result(result)

        self.push_screen(screen, finish)
        return await done

    def _has_model(self) -> bool:
        try:
            return bool(self.chat.spec().model)
        except TreadleError:
            return False

    def welcome(self) -> None:
        """Show how to begin, in an empty session."""
        if not self.chat.transcript.items:
            folder = one_line(str(self.folder))
            agent = one_line(self.chat.agent_name)
            text = texts.WELCOME.format(agent=agent, folder=folder, keys=self.key_map)
            self.chat.transcript.report(text)

    @property
    def folder(self) -> Path:
        """Return the folder that the agent works in."""
        try:
            return Path(self.chat.spec().workspace or Path.cwd())
        except TreadleError:
            return Path.cwd()

    def perform(self, work: Awaitable[object]) -> None:
        """Do something in the background, and show its error."""

        async def guarded() -> None:
            try:
                await work
            except TreadleError as error:
                self.flash(str(error))

        self.run_worker(guarded(), exit_on_error=True)

    # ── What is shown ──

    def flash(self, text: str) -> None:
        """Show a message of the UI itself."""
        self.display_state.flash(text)

    def ring(self, text: str) -> None:
        """Ring, and show a notification of the terminal."""
        self.write_terminal(make_notification(text, os.environ))

    def write_terminal(self, sequence: str) -> None:
        """Send the terminal a control sequence that draws nothing."""
        driver = self._driver
        if driver is not None and self.is_running:
            driver.write(sequence)
            driver.flush()

    def on_app_blur(self) -> None:
        self.display_state.set_focused(focused=False)

    def on_app_focus(self) -> None:
        self.display_state.set_focused(focused=True)

    def save_preferences(self, **changes: object) -> None:
        """Change the settings and store them."""
        self.preferences = msgspec.structs.replace(self.preferences, **changes)
        write_preferences(self.link.home.path, changes)

    def use_theme(self, name: str) -> None:
        """Change the theme."""
        self.palette = self.themes.find_palette(name)
        for part in (self.view, self.extras, self.panel, self.plan, self.status):
            part.palette = self.palette
        self.ansi_color = name == PLAIN_NAME
        self.theme = f"treadle-{name}"
        self.call_after_refresh(self.view.redraw)
        self.extras.show()
        self.review.show()
        self.display_state.show_state()

    # ── The message ──

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            self.display_state.note_key()
            self.key_queue.add(event)
        else:
            await super().on_event(event)

    @on(MessageEditor.Action)
    async def _on_action(self, action: MessageEditor.Action) -> None:
        name = action.name
        handler: Callable[[], object] | None = getattr(self.input, f"do_{name}", None) or getattr(
            self, f"action_{name}", None
        )
        if handler is not None:
            result = handler()
            if asyncio.iscoroutine(result):
                self.perform(result)

    @on(TextArea.Changed)
    def _on_text(self) -> None:
        self.input.show_suggestions()

    @on(MessageEditor.Pasted)
    def _on_pasted(self, event: MessageEditor.Pasted) -> None:
        self.outbox.add_pasted(event.text)

    @on(MessageEditor.EmptyKey)
    def _on_question(self, event: MessageEditor.EmptyKey) -> None:
        if event.key == "backspace":
            self.outbox.remove_last()
        else:
            self.action_help()

    async def stop_run(self) -> None:
        """Interrupt the run; cancel it if it is interrupted already."""
        run = self.chat.run
        if run is None or run.ended:
            return
        was_asked = self._interrupted == (run.run_id, run.sequence)  # and its journal does not say so yet
        if run.waits_for == "interrupted" or run.totals.is_interrupted or was_asked:
            self.flash(texts.CANCELLING)
            await self.chat.cancel()
        else:
            self._interrupted = (run.run_id, run.sequence)
            self.flash(texts.INTERRUPTING.format(keys=self.key_map))
            await self.chat.interrupt()

    async def lend_terminal(self, work: Callable[[], Result]) -> Result:
        """Do work that needs the terminal, such as the user's editor, and return its result."""
        return await lend_terminal(self, self.key_queue, work)

    # ── Actions of the key map ──

    def action_help(self) -> None:
        from treadle.surfaces.tui.help_screen import HelpScreen

        self.push_screen(HelpScreen(self.palette, self.key_map, "approval" if self.panel.has_focus else "message"))

    def action_sessions(self) -> None:
        self.perform(self.runner.sessions.choose(""))

    def action_models(self) -> None:
        self.perform(self.runner.choose_model(""))

    def action_next_mode(self) -> None:
        self.perform(self.runner.choose_mode(""))

    def action_agents(self) -> None:
        self.perform(self.runner.choose_agent(""))

    def action_answer(self) -> None:
        self.review.focus()

    def action_show_output(self) -> None:
        self.runner.show_output()

    def action_open_child(self) -> None:
        self.perform(self.child_runs.choose())

    def action_new_session(self) -> None:
        self.perform(self.runner.start_session())

    def action_toggle_details(self) -> None:
        self.view.details = not self.view.details
        self.save_preferences(details=self.view.details)
        self.view.redraw()
        self.flash(texts.DETAILS_SHOWN if self.view.details else texts.DETAILS_HIDDEN)

    def action_toggle_thinking(self) -> None:
        self.view.thinking = not self.view.thinking
        self.save_preferences(thinking=self.view.thinking)
        self.view.redraw()
        self.flash(texts.THINKING_SHOWN if self.view.thinking else texts.THINKING_HIDDEN)

    def action_copy_answer(self) -> None:
        self.runner.copy("")

    def action_page_up(self) -> None:
        self.view.scroll_page(-1)

    def action_page_down(self) -> None:
        self.view.scroll_page(1)

    def action_scroll_top(self) -> None:
        self.view.scroll_home(animate=False)
        self.view.show_earlier()

    def action_scroll_end(self) -> None:
        self.view.follow_end()

    def action_previous_message(self) -> None:
        if not self.view.show_neighbour(-1):
            self.action_scroll_top()

    def action_next_message(self) -> None:
        if not self.view.show_neighbour(1):
            self.view.follow_end()

    def action_find(self) -> None:
        self.perform(choose_found(self))

    async def action_leave(self) -> None:
        """Copy the selection, clear the message, interrupt the run, or quit at the second press."""
        if self.departure.is_moving:
            self.exit(Leaving("abandoned"))
            return
        if selected := self.screen.get_selected_text():
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
            self.flash(texts.COPIED.format(what="the selection"))
        elif self.prompt.text or self.extras.chips or self.prompt.mode != "message":
            self.input.clear()
        elif time.monotonic() - self._leave_asked_at < 3:
            self.departure.ask()
        else:
            self._leave_asked_at = time.monotonic()
            if self.chat.is_busy and self.chat.waits_for not in NEEDS_USER:
                await self.stop_run()
            self.flash(texts.QUIT_AGAIN.format(keys=self.key_map))

    def action_quit_if_empty(self) -> None:
        if not self.prompt.text:
            self.departure.ask()

    # ── Other parts ──

    @on(TranscriptView.ReachedTop)
    def _on_top(self) -> None:
        if self.chat.has_earlier and not self.child_runs.is_open:
            self.perform(self._load_earlier())
        else:
            self.view.asked_top = False

    @on(TranscriptView.ChildClicked)
    def _on_child_clicked(self, event: TranscriptView.ChildClicked) -> None:
        self.child_runs.open(event.shown, event.child)

    async def _load_earlier(self) -> None:
        await self.chat.load_earlier()
        self.view.keep_place()

    @on(ApprovalPanel.Chosen)
    def _on_chosen(self, event: ApprovalPanel.Chosen) -> None:
        self.review.choose(event.pending, event.choice)

    @on(ApprovalPanel.Later)
    def _on_later(self) -> None:
        if self.child_runs.is_open:
            self.child_runs.go_back()
        else:
            self.review.leave()

    @on(ApprovalPanel.HelpKey)
    def _on_help_key(self) -> None:
        self.action_help()

    @on(ApprovalPanel.ModeKey)
    def _on_mode_key(self) -> None:
        self.action_next_mode()

    @on(ApprovalPanel.Typed)
    def _on_typed(self, event: ApprovalPanel.Typed) -> None:
        self.review.type(event.character)

    @on(ApprovalPanel.Hint)
    def _on_hint(self, event: ApprovalPanel.Hint) -> None:
        self.flash(event.text)

    def on_text_selected(self) -> None:
        if self.preferences.copy_on_select and (selected := self.screen.get_selected_text()):
            self.copy_to_clipboard(selected)
            self.flash(texts.COPIED.format(what="the selection"))

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.review.show)
        self.display_state.show_state()

    async def on_unmount(self) -> None:
        self.write_terminal(RESTORE_TITLE)
        self.child_runs.stop()
        await self.chat.close()
