"""Text that grows while a model or a tool writes it, in blocks that all readers share, and the live events that
bring a late reader up to date."""

from treadle.domain.envelope import Origin
from treadle.domain.events import ThinkingDelta, Token, ToolCallDelta, ToolCallProgress

BLOCK_CHARACTERS = 16 * 1024
MAX_OUTPUT_CHARACTERS = 64_000
"""The end of the output of a call that a late reader gets."""

ReplyDelta = Token | ThinkingDelta | ToolCallDelta
LiveDelta = ReplyDelta | ToolCallProgress
TextKey = tuple[object, ...]


def text_key(data: LiveDelta) -> TextKey:
    """Return which text a live event is a piece of."""
    match data:
        case Token(request=request, attempt=attempt):
            return ("text", request, attempt)
        case ThinkingDelta(request=request, attempt=attempt):
            return ("thinking", request, attempt)
        case ToolCallDelta(request=request, attempt=attempt, index=index):
            return ("call", request, attempt, index)
        case ToolCallProgress(start=start, call_id=call_id):
            return ("output", start, call_id)


def measure_text(data: LiveDelta) -> int:
    """Return the number of characters of the piece."""
    return len(data.arguments if isinstance(data, ToolCallDelta) else data.text)


def text_end(data: LiveDelta) -> int:
    """Return the offset after the piece."""
    return data.offset + measure_text(data)


class TextBlocks:
    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._latest: list[str] = []
        """Pieces that do not fill a block yet."""
        self._latest_length = 0
        self.length = 0
        """Characters."""

    def append(self, text: str) -> None:
        self._latest.append(text)
        self._latest_length += len(text)
        self.length += len(text)
        if self._latest_length >= BLOCK_CHARACTERS:
            self._blocks.append("".join(self._latest))
            self._latest, self._latest_length = [], 0

    def list_blocks(self) -> list[str]:
        """Return the text so far in one or more blocks, or in none if there is no text."""
        if not self._latest_length:
            return list(self._blocks)
        latest = "".join(self._latest)
        self._latest = [latest]
        return [*self._blocks, latest]

    def join(self) -> str:
        return "".join([*self._blocks, *self._latest])


class WrittenReply:
    """The reply to one attempt, as far as it is written."""

    def __init__(self, request: int = 0, attempt: int = 0) -> None:
        self.request = request
        self.attempt = attempt
        self.text = TextBlocks()
        self.thinking = TextBlocks()
        self.calls: dict[int, tuple[str, TextBlocks]] = {}
        """The name and the arguments of each call, by its index."""

    @property
    def length(self) -> int:
        """Characters of all texts."""
        return self.text.length + self.thinking.length + sum(text.length for _, text in self.calls.values())

    def begin_call(self, index: int, name: str) -> TextBlocks:
        """Return the arguments of a call, which may have begun before."""
        known = self.calls.get(index)
        if known is None:
            known = self.calls[index] = (name, TextBlocks())
        return known[1]

    def find_text(self, data: ReplyDelta) -> TextBlocks:
        """Return the text that a live event adds to."""
        match data:
            case Token():
                return self.text
            case ThinkingDelta():
                return self.thinking
            case ToolCallDelta(index=index, name=name):
                return self.begin_call(index, name)

    def make_live_events(self) -> list[LiveDelta]:
        """Return the reply so far as live events, which readers receive in this order."""
        events: list[LiveDelta] = [
            ThinkingDelta(self.request, self.attempt, offset, block) for offset, block in _place(self.thinking)
        ]
        events += [Token(self.request, self.attempt, offset, block) for offset, block in _place(self.text)]
        for index, (name, text) in self.calls.items():
            events += [
                ToolCallDelta(
                    request=self.request,
                    attempt=self.attempt,
                    index=index,
                    offset=offset,
                    name=name,
                    arguments=block,
                )
                for offset, block in _place(text) or [(0, "")]
            ]
        return events


class LiveOutput:
    """The end of what a call in progress has printed."""

    def __init__(self, origin: Origin, start: int, call_id: str) -> None:
        self.origin = origin
        self.start = start
        self.call_id = call_id
        self.length = 0
        """Characters that were printed."""
        self._pieces: list[str] = []
        self._kept = 0

    def append(self, text: str) -> None:
        self._pieces.append(text)
        self.length += len(text)
        self._kept += len(text)
        if self._kept > 2 * MAX_OUTPUT_CHARACTERS:
            self._pieces = ["".join(self._pieces)[-MAX_OUTPUT_CHARACTERS:]]
            self._kept = MAX_OUTPUT_CHARACTERS

    def make_live_events(self) -> list[LiveDelta]:
        """Return the output as live events."""
        text = "".join(self._pieces)
        return [ToolCallProgress(self.start, self.call_id, self.length - len(text), text)] if text else []


def _place(text: TextBlocks) -> list[tuple[int, str]]:
    """Return the blocks of a text with their offsets."""
    placed, offset = list[tuple[int, str]](), 0
    for block in text.list_blocks():
        placed.append((offset, block))
        offset += len(block)
    return placed
