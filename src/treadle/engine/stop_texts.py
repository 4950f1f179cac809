"""Ends a reply at the first of some texts. A model that was sent them ends there too; with others, this is what
ends the reply."""

from collections.abc import Sequence

from msgspec import structs

from treadle.domain.messages import Part, Text
from treadle.ports.model import Completed


class StopTextFound(Exception):
    """The reply has reached one of the texts."""


class StopTextFilter:
    """Passes the text of a reply on, up to the first stop text. The beginning of one is held back until more has
    arrived."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._held = ""
        self._passed: list[str] = []
        self.is_found = False

    def add(self, text: str) -> str:
        """Return what can be shown now."""
        if self.is_found:
            return ""
        text = self._held + text
        if (place := find_stop_text(text, self._texts)) is not None:
            self.is_found = True
            self._held = ""
        else:
            place = len(text) - max(_measure_beginning(text, stop) for stop in self._texts)
            self._held = text[place:]
        self._passed.append(text[:place])
        return text[:place]

    def flush(self) -> str:
        """Return what was held back of a reply that has ended."""
        rest, self._held = self._held, ""
        self._passed.append(rest)
        return rest

    @property
    def text(self) -> str:
        """The text that was passed on."""
        return "".join(self._passed)


def find_stop_text(text: str, stops: Sequence[str]) -> int | None:
    """Return where the first stop text begins, or None."""
    return min((place for stop in stops if (place := text.find(stop)) >= 0), default=None)


def cut_reply(reply: Completed, stops: Sequence[str]) -> Completed:
    """Return the reply up to the first stop text: what follows it, calls included, is left out."""
    kept: list[Part] = []
    for part in reply.parts:
        if isinstance(part, Text) and (place := find_stop_text(part.text, stops)) is not None:
            kept += [Text(part.text[:place])] if place else []
            return structs.replace(reply, parts=tuple(kept), stop="end_turn")
        kept.append(part)
    return reply


def _measure_beginning(text: str, stop: str) -> int:
    """Return how many characters at the end of the text are the beginning of a stop text."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
