"""Text that grows while a model writes it, in blocks that all readers share."""

from treadle.domain.events import Token

BLOCK_CHARACTERS = 16 * 1024


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


def make_tokens(request: int, attempt: int, text: TextBlocks) -> list[Token]:
    """Return the text so far as tokens, which readers receive in this order."""
    tokens, offset = list[Token](), 0
    for block in text.list_blocks():
        tokens.append(Token(request, attempt, offset, block))
        offset += len(block)
    return tokens
