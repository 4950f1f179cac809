"""The line at the bottom: state, agent, model, context, tokens and cost; and messages for a few seconds."""

import time

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from treadle.domain.durations import format_duration
from treadle.domain.graphemes import display_width
from treadle.domain.modes import ApprovalMode, describe_mode
from treadle.domain.money import format_amount
from treadle.domain.transcript import RunTotals
from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.terminal.text import cut, one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.chat import Chat
from treadle.surfaces.tui.chat_state import PendingApproval
from treadle.surfaces.tui.item_view import format_count

FRAMES = "◐◓◑◒"
"""A spinner of fixed width; it turns twice a second at most."""
FLASH_SECONDS = 5.0
_DROPPED_FIRST = ("tokens", "agent", "place", "cost", "context", "model")
"""The facts in the order in which they are left out on a narrow screen."""


class StatusLine(Static):
    """Shows the state of the conversation."""

    DEFAULT_CSS = "StatusLine { height: 1; background: $background; padding: 0 1; }"

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self._flash = ""
        self._flash_until = 0.0
        self._frame = 0

    def flash(self, text: str) -> None:
        """Show a message for a few seconds."""
        self._flash, self._flash_until = one_line(text), time.monotonic() + FLASH_SECONDS

    def clear_flash(self) -> None:
        """Show the facts again."""
        self._flash_until = 0.0

    def has_room_for(self, text: str, chat: Chat) -> bool:
        """Return whether a message fits after the state, and need not be cut."""
        taken = f"{self._state(chat)[0]}  {describe_mode(chat.effective_mode)}"
        room = self._width - display_width(taken) - 2
        return self.size.width == 0 or display_width(one_line(text)) <= room

    @property
    def _width(self) -> int:
        return max(10, self.size.width - 2)

    @property
    def is_flashing(self) -> bool:
        return time.monotonic() < self._flash_until

    def turn(self) -> None:
        """Turn the spinner."""
        self._frame = (self._frame + 1) % len(FRAMES)

    def show(self, chat: Chat, model: str, place: str = "", news: str = "") -> None:
        """Draw the line. News come before the facts."""
        self.update(self._make(chat, model, place, news, self._width))

    def _make(self, chat: Chat, model: str, place: str, news: str, width: int) -> Text:
        palette = self.palette
        state, style = self._state(chat)
        left = Text(no_wrap=True)
        left.append(state, style)
        mode = chat.effective_mode
        left.append(f"  {describe_mode(mode)}", self._mode_style(mode))
        if self.is_flashing:
            left.append("  ")
            left.append(cut(self._flash, max(4, width - left.cell_len)), palette.accent)
            return left
        if news:
            left.append(f"  {news}", palette.accent)
        facts = {name: one_line(text) for name, text in self._facts(chat, model, place).items() if text}
        for name in _DROPPED_FIRST:
            if display_width(" · ".join(facts.values())) <= width - left.cell_len - 2:
                break
            facts.pop(name, None)
        shown = " · ".join(facts.values())
        left.append(" " * max(1, width - left.cell_len - display_width(shown)))
        left.append(shown, palette.dim)
        return left

    def _mode_style(self, mode: ApprovalMode | None) -> Style:
        match mode:
            case "plan":
                return self.palette.accent
            case "auto":
                return self.palette.warning
            case "accept_edits":
                return self.palette.text
            case _:
                return self.palette.dim

    def _facts(self, chat: Chat, model: str, place: str) -> dict[str, str]:
        run, totals = chat.run, chat.totals
        current = run.totals if run is not None and run.run_id not in totals.runs else RunTotals()
        tokens = totals.tokens + current.input_tokens + current.output_tokens
        cost = totals.cost + (current.tree_cost or 0.0)
        shown = {"place": place, "agent": chat.agent_name, "model": model}
        context, window = totals.context, totals.window
        if run is not None and run.totals.context_tokens:
            context, window = run.totals.context_tokens, run.totals.context_window or window
        if context and window:
            share = min(1.0, context / window)
            shown["context"] = texts.CONTEXT.format(share=share, window=format_count(window))
        if tokens:
            shown["tokens"] = f"{format_count(tokens)} tokens"
        unpriced = totals.unpriced or current.tree_unpriced_calls > 0
        if cost or (tokens and not unpriced):
            shown["cost"] = f"${format_amount(cost)}{'+' if chat.has_earlier else ''}"
        return shown

    def _state(self, chat: Chat) -> tuple[str, Style]:
        run, palette = chat.run, self.palette
        if chat.link.access is None:
            return "○ offline", palette.error
        if run is None or run.ended:
            return f"○ {texts.STATES['idle']}", palette.dim
        name = texts.STATES.get(run.state, run.state).format(tool=run.totals.tool)
        queue = f" · {len(chat.queued)} queued" if chat.queued else ""
        if run.waits_for == "child" and chat.pending:
            waits_for = "approval" if isinstance(chat.pending[0], PendingApproval) else "answer"
            return f"● {texts.STATES[f'waiting:{waits_for}']}{queue}", palette.warning
        if run.waits_for in ("approval", "answer", "interrupted", "unavailable"):
            return f"● {name}{queue}", palette.warning
        if run.retry_at is not None:
            left = max(0, round(run.retry_at - time.time()))
            return f"{FRAMES[self._frame]} retrying in {format_duration(left)}{queue}", palette.warning
        elapsed = f" {_short(run.totals.elapsed_ms(time.time()) / 1000)}" if run.totals.started_at else ""
        return f"{FRAMES[self._frame]} {name}{elapsed}{queue}", palette.accent


def _short(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02}"
