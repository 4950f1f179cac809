"""The reply that a model is writing now: live items that are replaced when the reply is stored."""

from treadle.domain import events as e
from treadle.domain.ids import Instant, RunId
from treadle.domain.silence import may_be_silence
from treadle.domain.transcript import AnswerItem, CallItem, Change, Item, ItemAdded, TextAppended, ThinkingItem

THINKING_PART, ANSWER_PART, FIRST_CALL_PART = 0, 1, 2


def make_key(sequence: int, part: int = 0) -> str:
    """Return the key of the item that begins with an event."""
    return f"{sequence}.{part}"


class WrittenText:
    """One text of the reply: the reasoning, the answer or the arguments of a call."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        """The tool, for arguments."""
        self.is_shown = False
        self.length = 0
        self._pieces: list[str] = []

    def append(self, offset: int, text: str) -> str:
        """Add text at an offset and return what is new. A piece whose beginning is missing is left out: the reader
        gets the whole text again."""
        if offset > self.length:
            return ""
        news = text[self.length - offset :]
        if news:
            self._pieces.append(news)
            self.length += len(news)
        return news

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


class ReplyInProgress:
    """The reply to one request."""

    def __init__(self, run_id: RunId, request: int, at: Instant, step: int, model: str) -> None:
        self.run_id = run_id
        self.request = request
        self.at = at
        self.step = step
        self.model = model
        self._texts: dict[int, WrittenText] = {}

    @property
    def items(self) -> list[Item]:
        """What is shown of the reply."""
        return [self._make_item(part, text) for part, text in sorted(self._texts.items()) if text.is_shown]

    @property
    def has_items(self) -> bool:
        return any(text.is_shown for text in self._texts.values())

    def find_call_name(self, index: int) -> str:
        text = self._texts.get(FIRST_CALL_PART + index)
        return "" if text is None else text.name

    def clear(self) -> None:
        """Discard what the attempt has written."""
        self._texts.clear()

    def append(self, data: e.Token | e.ThinkingDelta | e.ToolCallDelta) -> list[Change]:
        """Add what the model has written, and return the change."""
        part = _find_part(data)
        written = self._texts.get(part)
        if written is None:
            written = self._texts[part] = WrittenText(data.name if isinstance(data, e.ToolCallDelta) else "")
        before = written.length
        news = written.append(data.offset, data.arguments if isinstance(data, e.ToolCallDelta) else data.text)
        if not written.is_shown:
            if part == ANSWER_PART and (not written.text or may_be_silence(written.text)):
                return []  # the end of the reply decides whether it is shown
            if not news and part != FIRST_CALL_PART and not isinstance(data, e.ToolCallDelta):
                return []
            written.is_shown = True
            return [ItemAdded(self._make_item(part, written))]
        if not news:
            return []
        field = "arguments" if part >= FIRST_CALL_PART else "text"
        return [TextAppended(make_key(self.request, part), field, before, news)]

    def _make_item(self, part: int, written: WrittenText) -> Item:
        key = make_key(self.request, part)
        match part:
            case 0:
                return ThinkingItem(
                    key=key,
                    run_id=self.run_id,
                    sequence=self.request,
                    part=part,
                    at=self.at,
                    text=written.text,
                    state="writing",
                    step=self.step,
                )
            case 1:
                return AnswerItem(
                    key=key,
                    run_id=self.run_id,
                    sequence=self.request,
                    part=part,
                    at=self.at,
                    text=written.text,
                    state="writing",
                    step=self.step,
                    model=self.model,
                )
            case _:
                return CallItem(
                    key=key,
                    run_id=self.run_id,
                    sequence=self.request,
                    part=part,
                    at=self.at,
                    call_id="",
                    name=written.name,
                    arguments=written.text,
                    state="writing",
                    step=self.step,
                )


def _find_part(data: e.Token | e.ThinkingDelta | e.ToolCallDelta) -> int:
    match data:
        case e.ThinkingDelta():
            return THINKING_PART
        case e.Token():
            return ANSWER_PART
        case e.ToolCallDelta(index=index):
            return FIRST_CALL_PART + index
