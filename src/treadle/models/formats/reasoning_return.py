"""Decides which messages of a request carry the reasoning that led to them."""

from treadle.domain.messages import Message
from treadle.ports.model import ModelRequest

REASONING_PLACEHOLDER = " "
"""Replaces missing reasoning. DeepSeek and Kimi refuse an empty text as if it were missing."""


class ReasoningReturn:
    """The rule for one request. Ask it about every new message, in order: the answer depends on the message
    before."""

    def __init__(self, request: ModelRequest) -> None:
        self._messages = request.conversation.messages
        self.is_filled = request.filled
        """Missing reasoning is replaced by a placeholder."""
        self.when = "always" if request.filled else "never" if request.plain else request.profile.reasoning_back
        self.provider = "" if request.plain else request.provider
        self.model = "" if request.plain else request.model
        self._previous: Message | None = None
        self._begun = False

    @property
    def key(self) -> str:
        """Return everything apart from the message that its encoding depends on."""
        return f"{'filled' if self.is_filled else self.when}:{self.provider}/{self.model}"

    def applies_to(self, message: Message) -> bool:
        """Return whether the next message is sent with its reasoning."""
        previous, self._previous = self._find_previous(message), message
        if message.role != "assistant" or self.when == "never":
            return False
        is_in_loop = bool(message.calls) or (previous is not None and previous.role == "tool")
        return self.when == "always" or is_in_loop

    def _find_previous(self, message: Message) -> Message | None:
        """Return the message before this one. The messages before the first of this request were encoded
        earlier."""
        if self._begun:
            return self._previous
        self._begun = True
        places = range(len(self._messages) - 1, -1, -1)
        place = next((place for place in places if self._messages[place] is message), 0)
        return self._messages[place - 1] if place else None
