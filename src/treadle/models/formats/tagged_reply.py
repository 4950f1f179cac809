"""Separates thinking inside the text of a reply, for the formats that have blocks or items of their own for it.

Servers of open models offer these formats too, and some leave the tags of the model in its text."""

from typing import Any

import msgspec

from treadle.domain.messages import Part, Text, Thinking
from treadle.domain.runs import Usage
from treadle.models.formats.thought_tags import ThoughtTags
from treadle.models.http.client import PartialReply
from treadle.ports.model import Completed, Delta, ModelRequest, ReasoningDelta, Show, TextDelta

_TAG_STARTS = ("<", "[", "◁")
"""Characters with which a tag starts."""


class TaggedReply:
    """A reply whose text may hold thoughts between tags. Such thoughts are shown, and never sent back."""

    def __init__(self, inner: PartialReply, request: ModelRequest) -> None:
        self._inner = inner
        self._request = request
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._tags: ThoughtTags | None = None
        """None until the text has the first character of a tag."""
        self._text_shown = 0
        self._thoughts_shown = 0
        self.done = False

    def feed(self, payloads: list[bytes]) -> Any:
        """Add events, and return the error that they report."""
        error = self._inner.feed(payloads)
        self.done = self._inner.done
        return error

    def show_new(self, show: Show) -> None:
        """Show what arrived since the last call."""

        def separate(delta: Delta) -> None:
            if isinstance(delta, TextDelta):
                self._add(delta.text)
                self._show_separated(show)
            else:
                show(delta)

        self._inner.show_new(separate)
        if self.done and self._tags is not None:
            self._tags.end()
            self._show_separated(show)

    def _add(self, text: str) -> None:
        if self._tags is None:
            if not any(start in text for start in _TAG_STARTS):
                self._text.append(text)
                return
            before = "".join(self._text)
            self._text.clear()
            self._tags = ThoughtTags(self._text, self._thoughts)
            self._tags.feed(before)
            self._text_shown = len(self._text)
        self._tags.feed(text)

    def _show_separated(self, show: Show) -> None:
        if self._tags is not None and self._tags.retracted:
            self._tags.retracted = False
            self._text_shown, self._thoughts_shown = 0, len(self._thoughts)
        if thoughts := "".join(self._thoughts[self._thoughts_shown :]):
            show(ReasoningDelta(thoughts))
        if text := "".join(self._text[self._text_shown :]):
            show(TextDelta(text))
        self._thoughts_shown, self._text_shown = len(self._thoughts), len(self._text)

    def finish(self, sent_bytes: int) -> Completed:
        """Return the complete reply with its thoughts apart from its text."""
        whole = self._inner.finish(sent_bytes)
        if self._tags is None:
            return whole
        parts = tuple([separated for part in whole.parts for separated in self._separate(part)])
        return whole if parts == whole.parts else msgspec.structs.replace(whole, parts=parts)

    def _separate(self, part: Part) -> list[Part]:
        if not isinstance(part, Text):
            return [part]
        text, thoughts = list[str](), list[str]()
        tags = ThoughtTags(text, thoughts)
        tags.feed(part.text)
        tags.end()
        if tags.tag is None:
            return [part]
        thought, rest = "".join(thoughts).strip(), "".join(text)
        thinking = [Thinking(thought, self._request.provider, self._request.model)] if thought else []
        return [*thinking, *([Text(rest)] if rest else ())]

    def usage(self, sent_bytes: int) -> Usage:
        """Return the usage reported by the provider, or else an estimate."""
        return self._inner.usage(sent_bytes)
