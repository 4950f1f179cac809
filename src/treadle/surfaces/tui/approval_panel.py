"""The panel for what waits for the user: approvals of calls, and questions of agents."""

from dataclasses import dataclass

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from treadle.domain.permissions import describe_destruction
from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.terminal.call_view import MARGIN, Row, quote_lines, show_change
from treadle.surfaces.terminal.text import one_line, reveal_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.approval_choices import ApprovalChoice, list_choices
from treadle.surfaces.tui.chat_state import Pending, PendingApproval, PendingQuestion
from treadle.surfaces.tui.keys import KeyMap

HEIGHT_SHARE = 0.75
"""The largest share of the screen for the panel, as in its style."""
GUARD_SECONDS = 0.4
"""The choices appear after this time: keys that were meant for something else decide nothing."""


class ApprovalPanel(Vertical, can_focus=True):
    """Shows one pending item, and how many more there are."""

    DEFAULT_CSS = """
    ApprovalPanel {
        height: auto; max-height: 75%; display: none; border: round $warning; padding: 0 1; background: $surface;
        margin: 0 0;
    }
    ApprovalPanel:focus { border: round $warning; }
    ApprovalPanel VerticalScroll {
        height: auto; max-height: 100%; background: $surface; scrollbar-size-vertical: 1;
    }
    ApprovalPanel Static { height: auto; }
    ApprovalPanel #choices { dock: bottom; background: $surface; }
    """

    @dataclass
    class Chosen(Message):
        """The user has pressed a key that decides: 1 to 4, or the number of an option."""

        pending: Pending
        choice: int

    class Later(Message):
        """The user leaves it for later."""

    class HelpKey(Message):
        """The user asks for the help."""

    class ModeKey(Message):
        """The user changes the mode."""

    @dataclass
    class Typed(Message):
        """The user types a message instead."""

        character: str

    @dataclass
    class Hint(Message):
        """The panel has something to say about a key."""

        text: str

    def __init__(self, palette: Palette, key_map: KeyMap) -> None:
        super().__init__()
        self.palette = palette
        self._key_map = key_map
        self.pending: Pending | None = None
        self._is_ready = False
        self._guard: Timer | None = None
        self._choices = Text()
        self._was_read = False
        self._was_chosen = False
        """The user has pressed a key that decides, and it is being carried out."""

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with VerticalScroll(can_focus=False):
            yield Static(id="call")
        yield Static(id="choices")

    @property
    def body(self) -> VerticalScroll:
        return self.query_one(VerticalScroll)

    def show(self, pending: Pending | None, count: int) -> None:
        """Show an item; None hides the panel."""
        is_new = pending is not None and (self.pending is None or self.pending.key != pending.key)
        self.pending = pending
        self.display = pending is not None
        if pending is None:
            return
        if is_new:
            self._was_read = False
            self.accept_keys()
            self.wait_for_reader()
            self.body.scroll_home(animate=False)
        width = max(20, self.screen.size.width - 8)
        position = f"   {texts.COUNT.format(index=1, count=count)}" if count > 1 else ""
        if isinstance(pending, PendingApproval):
            title, body, choices = self._approval(pending, width)
        else:
            title, body, choices = self._question(pending, width)
        title.append(position, self.palette.dim)
        self.query_one("#title", Static).update(title)
        self.query_one("#call", Static).update(body)
        rows = body.plain.count("\n") + 1
        if isinstance(pending, PendingApproval) and rows > self._room(choices):
            choices = self._short_choices(pending)
        self._choices = choices
        self._draw_choices()
        self.body.styles.height = min(rows, self._room(choices))

    def _room(self, choices: Text) -> int:
        """Return how many rows are left for the call: without border, title and choices."""
        return max(3, int(self.screen.size.height * HEIGHT_SHARE) - 3 - (choices.plain.count("\n") + 1))

    def _draw_choices(self) -> None:
        hidden = Text("\n" * self._choices.plain.count("\n"))
        self.query_one("#choices", Static).update(self._choices if self._is_ready else hidden)

    def wait_for_reader(self) -> None:
        """Let no key decide for a moment."""
        self._is_ready = False
        self._draw_choices()
        if self._guard is not None:
            self._guard.stop()
        self._guard = self.set_timer(GUARD_SECONDS, self._get_ready)

    def _get_ready(self) -> None:
        """Show the choices and accept their keys."""
        self._is_ready = True
        self._draw_choices()

    def _approval(self, pending: PendingApproval, width: int) -> tuple[Text, Text, Text]:
        view, palette = pending.view, self.palette
        heading = texts.PLAN_TITLE if view.is_plan else texts.APPROVAL_TITLE
        title = Text(heading.format(agent=one_line(pending.agent), tool=one_line(view.tool)), palette.warning)
        title.stylize(palette.strong)
        shown = show_change(view.tool, view.arguments, pending.folder, width)
        body = Text("\n").join([self._draw_row(row, width) for row in shown.rows])
        if view.destructive is not None:
            body.append(
                f"\n  {reveal_line(describe_destruction(view.destructive))}", palette.warning + palette.strong
            )
        if view.reason:
            body.append(f"\n  ({reveal_line(view.reason)})", palette.dim)
        choices = Text()
        for index, choice in enumerate(list_choices(view)):
            choices.append("\n" if index else "")
            choices.append(f" {self._name_key(choice)} ", palette.accent + palette.strong)
            choices.append(choice.name, palette.text)
            choices.append(f"  {choice.help}", palette.dim)
        return title, body, choices

    def _draw_row(self, row: Row, width: int) -> Text:
        """Return a line of a call. A line of a diff is coloured from the bar to the edge of the panel."""
        palette = self.palette
        drawn = Text(row.text, palette.text)
        style = {"added": palette.added, "removed": palette.removed, "place": palette.changed}.get(row.kind)
        if style is not None:
            if palette.fills:
                drawn.pad_right(max(0, width - drawn.cell_len))
            drawn.stylize(style, len(MARGIN))
        return drawn

    def _short_choices(self, pending: PendingApproval) -> Text:
        """Return the choices on one line, for a call that needs the room."""
        choices, listed = Text(), list_choices(pending.view)
        for choice in listed:
            choices.append(f" {self._name_key(choice)} ", self.palette.accent + self.palette.strong)
            choices.append(f"{choice.name}  ", self.palette.text)
        if len(listed) > 3:
            choices.append(f"\n   {texts.LAST_CHOICE.format(key=self._name_key(listed[3]), help=listed[3].help)}")
        return choices

    def _name_key(self, choice: ApprovalChoice) -> str:
        return self._key_map[f"approval.choose_{choice.key}"]

    def _question(self, pending: PendingQuestion, width: int) -> tuple[Text, Text, Text]:
        palette, question = self.palette, pending.question
        title = Text(texts.QUESTION_TITLE.format(agent=one_line(pending.agent)), palette.warning + palette.strong)
        body = Text("\n".join(quote_lines(question.question, width)), palette.text)
        choices = Text()
        for number, option in enumerate(question.options, start=1):
            choices.append(f" {number} ", palette.accent + palette.strong)
            choices.append(reveal_line(option, width - 4) + "\n", palette.text)
        choices.append(texts.PLACEHOLDER_ANSWER.format(keys=self._key_map), palette.dim)
        return title, body, choices

    # ── Keys ──

    def take_focus(self) -> None:
        """Take the keys at once: a focus that came later would take keys that were meant for the prompt."""
        if self.screen.focused is not self:
            self.accept_keys()
            self.screen.set_focus(self)

    def on_focus(self) -> None:
        self.border_subtitle = ""

    def on_blur(self) -> None:
        self.border_subtitle = texts.ANSWER_KEY.format(keys=self._key_map)

    def accept_keys(self) -> None:
        """Let the keys decide again."""
        self._was_chosen = False

    def on_key(self, event: events.Key) -> None:
        pending = self.pending
        if pending is None:
            return
        if self._was_chosen:
            event.stop()
            return
        action = self._key_map.find_action("approval", event.key)
        if isinstance(pending, PendingQuestion) and event.character and event.character.isdecimal():
            action = f"choose_{event.character}"
        match action:
            case None:
                if event.is_printable and event.character:
                    event.stop()
                    self.post_message(self.Typed(event.character))
            case "later":
                event.stop()
                self.post_message(self.Later())
            case "help":
                event.stop()
                self.post_message(self.HelpKey())
            case "next_mode":
                event.stop()
                self.post_message(self.ModeKey())
            case "scroll_on":
                event.stop()
                self.body.scroll_to(
                    y=self.body.scroll_offset.y + self._page(event.key), animate=False, immediate=True
                )
                self._note_read()
            case "scroll_back":
                event.stop()
                self.body.scroll_to(
                    y=self.body.scroll_offset.y - self._page(event.key), animate=False, immediate=True
                )
            case _:
                event.stop()
                self._choose(pending, int(action.removeprefix("choose_")))

    def _page(self, key: str) -> int:
        return 1 if key in ("up", "down") else max(1, self.body.size.height - 1)

    def _note_read(self) -> None:
        self._was_read = self._was_read or self.body.scroll_target_y >= self.body.max_scroll_y

    def _choose(self, pending: Pending, choice: int) -> None:
        if not self._is_ready:
            return
        if isinstance(pending, PendingQuestion):
            if 0 < choice <= len(pending.question.options):
                self._send_choice(pending, choice)
            else:
                self.post_message(self.Typed(str(choice)))
            return
        chosen = next((each for each in list_choices(pending.view) if each.key == str(choice)), None)
        if chosen is None:
            self.post_message(self.Hint(texts.NO_RULE))
            return
        self._note_read()
        if chosen.must_read and self.body.max_scroll_y > 0 and not self._was_read:
            self.post_message(self.Hint(texts.VIEW_FIRST.format(keys=self._key_map)))
            return
        self._send_choice(pending, choice)

    def _send_choice(self, pending: Pending, choice: int) -> None:
        self._was_chosen = True
        self.post_message(self.Chosen(pending, choice))
