"""Removes the tokens that mark the end of a reply, if a server leaves them in its text."""

import re

import msgspec

from treadle.domain.control_tokens import END_TOKEN, is_only_tokens, strip_end_tokens
from treadle.domain.messages import Part, Text
from treadle.ports.model import Completed, Delta, ModelRequest, Show, TextDelta

_HELD = rf"(?:{END_TOKEN}\s*)*(?:<[^<>\s]{{0,44}}|\[/?[A-Z]{{0,4}})?\Z"
"""Compiled when a text needs it, like all patterns of control tokens: at each start it would cost milliseconds."""


class EndTokenFilter:
    """Passes the pieces of a reply on. An end token, or what may become one, waits for what follows."""

    def __init__(self, show: Show, request: ModelRequest) -> None:
        self._show = show
        self._has_tools = bool(request.preamble.tools)
        self._held = ""

    def show(self, delta: Delta) -> None:
        if not isinstance(delta, TextDelta):
            self._show(delta)
            return
        text = delta.text
        if not self._held and "<" not in text and "[" not in text:  # nearly always
            self._show(delta)
            return
        text = self._held + text
        found = re.search(_HELD, text, re.IGNORECASE)
        place = found.start() if found else len(text)
        self._held = text[place:]
        if place:
            self._show(TextDelta(text[:place]))

    def finish(self, whole: Completed) -> Completed:
        """Return the complete reply without end tokens, and pass on what was held back of the rest."""
        parts = self._clean(whole.parts)
        if self._held and parts == whole.parts:
            self._show(TextDelta(self._held))
        self._held = ""
        return whole if parts == whole.parts else msgspec.structs.replace(whole, parts=parts)

    def _clean(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return the parts without the end tokens of the last text. If nothing but control tokens came, the agent's
        guard asks for a call; without tools, the reply is empty."""
        for place in range(len(parts) - 1, -1, -1):
            part = parts[place]
            if isinstance(part, Text):
                text = strip_end_tokens(part.text)
                if not self._has_tools and is_only_tokens(text):
                    return (*parts[:place], *parts[place + 1 :])
                return parts if text == part.text else (*parts[:place], Text(text), *parts[place + 1 :])
        return parts
