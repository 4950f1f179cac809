"""What a session shows: items in order, as values that know nothing about a terminal."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from treadle.domain.ids import RunId

MAX_LIVE_CHARACTERS = 400_000
"""How much of the live output of a call is kept: its end. The result has the rest."""

UserKind = Literal["message", "steered", "command"]
CallState = Literal["writing", "pending", "approval", "question", "running", "done", "failed", "denied", "blocked"]
AnswerSource = Literal["model", "report", "command"]
"""Who wrote an answer: the model, or Treadle as Markdown (`report`) or as plain lines (`command`)."""
NoteLevel = Literal["info", "warning", "error", "success"]


@dataclass(eq=False, slots=True)
class Item:
    """Something that the transcript shows."""

    run_id: RunId | None = None
    version: int = 0
    """Counts changes."""
    expanded: bool | None = None
    """Whether the user opened or closed it; None: as the display decides."""

    @property
    def is_final(self) -> bool:
        """Return whether it will not change without the user."""
        return True


@dataclass(eq=False, slots=True)
class UserItem(Item):
    """What the user sent."""

    text: str = ""
    kind: UserKind = "message"
    images: int = 0
    sequence: int = 0


@dataclass(eq=False, slots=True)
class ShownThinking(Item):
    """The reasoning of the model."""

    text: str = ""
    done: bool = False
    started_at: float = 0.0
    seconds: float | None = None

    @property
    def is_final(self) -> bool:
        return self.done


@dataclass(eq=False, slots=True)
class ShownAnswer(Item):
    """Text of the model, as Markdown; or an answer of Treadle itself."""

    text: str = ""
    done: bool = False
    source: AnswerSource = "model"

    @property
    def is_final(self) -> bool:
        return self.done


@dataclass(eq=False, slots=True)
class ChildLine:
    """A child run, as a line under the call that started it."""

    run_id: RunId
    agent: str
    depth: int = 0
    state: str = "running"
    doing: str = ""
    """What it does now, or why it ended."""
    steps: int = 0
    ended: bool = False


@dataclass(eq=False, slots=True)
class ShownCall(Item):
    """A tool call."""

    call_id: str = ""
    name: str = ""
    arguments: str = ""
    state: CallState = "pending"
    output: str = ""
    """What it has printed so far, or the end of it."""
    dropped: int = 0
    """How many characters it has printed before that."""
    result: str = ""
    truncated: bool = False
    """Whether the middle of the result is left out."""
    started_at: float | None = None
    """Seconds since the epoch."""
    duration_ms: int | None = None
    exit_code: int | None = None
    note: str = ""
    """What a reviewer or a guard said."""
    children: list[ChildLine] = field(default_factory=list[ChildLine])

    def add_output(self, offset: int, text: str) -> None:
        """Add what it has printed, from a place in its whole output. A part that is known already is left out."""
        self.output += text[max(0, self.dropped + len(self.output) - offset) :]
        if len(self.output) > 2 * MAX_LIVE_CHARACTERS:
            self.dropped += len(self.output) - MAX_LIVE_CHARACTERS
            self.output = self.output[-MAX_LIVE_CHARACTERS:]

    @property
    def is_final(self) -> bool:
        return self.state in ("done", "failed", "denied", "blocked")


@dataclass(eq=False, slots=True)
class ShownNote(Item):
    """A line of Treadle itself."""

    text: str = ""
    level: NoteLevel = "info"
    details: str = ""
    """Lines under it when it is open."""


class SessionTranscript:
    """The items of a session. `changed` is called for every change, with the item or None for all of them."""

    def __init__(self, changed: Callable[[Item | None], None] = lambda item: None) -> None:
        self.items: list[Item] = []
        self._changed = changed

    def add(self, item: Item) -> None:
        self.items.append(item)
        self._changed(item)

    def change(self, item: Item) -> None:
        """Report that an item has changed."""
        item.version += 1
        self._changed(item)

    def remove(self, items: Iterable[Item]) -> None:
        gone = set(map(id, items))
        if gone:
            self.items = [item for item in self.items if id(item) not in gone]
            self._changed(None)

    def prepend(self, items: list[Item]) -> None:
        """Add older items."""
        self.items[:0] = items
        self._changed(None)

    def clear(self) -> None:
        self.items = []
        self._changed(None)

    @property
    def last_answer(self) -> str | None:
        """Return the text of the latest answer of the model."""
        answers = (item for item in reversed(self.items) if isinstance(item, ShownAnswer))
        return next((item.text for item in answers if item.text and item.source == "model"), None)

    @property
    def calls(self) -> list[ShownCall]:
        return [item for item in self.items if isinstance(item, ShownCall)]
