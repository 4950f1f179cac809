"""Separates thinking that arrives inside the text of a reply, between tags such as `<think>` and `</think>`.

A block counts where models write one: at the very start, or at the start of a line outside code. All text before a
lone closing tag counts too, if the tag is at the edge of a line, after the end of a sentence or attached to a
word: there the chat template opened the block. A tag in a code block or in the middle of a sentence is text."""

import re
from typing import Final, Literal

_CLOSING: Final = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<seed:think>": "</seed:think>",
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
}
_CHANNELS: Final = {
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|channel>thought": "<channel|>",
    "<|start_thinking|>": "<|end_thinking|>",
}
"""Thoughts between control tokens, of gpt-oss, Gemma and Cohere. They count at the start only, and are never sent
back: chat templates refuse them in a text."""
_ANSWER_OPENINGS: Final = (
    "<|start|>assistant<|channel|>final<|message|>",
    "<|channel|>final<|message|>",
    "<|start_response|>",
)
"""Control tokens between a thought and the answer."""
_OPENINGS: Final = (*_CLOSING, *_CHANNELS)
_FIRST_CHARACTERS: Final = frozenset([tag[0] for tag in (*_OPENINGS, *_ANSWER_OPENINGS)])
_LONGEST_OPENING: Final = max(map(len, (*_OPENINGS, *_ANSWER_OPENINGS)))
_LONE_CLOSING: Final = "</think>"
"""The only closing tag that appears without its opening tag, because chat templates open that block."""
_TAGS_IN_TEXT: Final = (*(tag for tag in _CLOSING if tag.startswith("<")), _LONE_CLOSING)
_OPENING: Final = re.compile("<think>", re.IGNORECASE)
_FENCED = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?…。\uff01\uff1f][)\]\"'”\u2019]*[ \t]*$")
_MENTIONED_AFTER = " \t\"'`“\u2018«([{<>/,;:|=-"
"""Characters before a tag that a sentence mentions."""
_MAX_UNDECIDED_CHARACTERS = 4096
"""How much text after a tag in the middle of a reply is held back to wait for its closing tag."""
_MAX_TAGS = 64
"""Tags that are examined in one reply. A reply with more is a text about tags."""


def find_closing_tag(opening: str) -> str:
    return _CLOSING.get(opening) or _CHANNELS.get(opening, _LONE_CLOSING)


class ThoughtTags:
    """Separates the thoughts of one reply from its text, regardless of how the network splits it, and appends both
    to the given lists. While `flows` is true, a piece without `<` is text and need not be fed."""

    __slots__ = ("_held", "_inside", "_looks", "_state", "_text", "_thoughts", "flows", "retracted", "tag")

    def __init__(self, text: list[str], thoughts: list[str]) -> None:
        self._text = text
        self._thoughts = thoughts
        self._state: Literal["start", "text", "thought", "doubt"] = "start"
        """start: only whitespace so far. doubt: after a tag that may open a thought."""
        self._held = ""
        """Text that cannot be classified yet."""
        self._inside = ""
        """The opening tag of the current block."""
        self._looks = 0
        self.flows = False
        self.tag: str | None = None
        """The opening tag of the first thought."""
        self.retracted = False
        """Text that was already shown turned out to be a thought."""

    @property
    def returned_tag(self) -> str | None:
        """Return the opening tag with which the thoughts can be sent back, or None."""
        return self.tag if self.tag in _CLOSING else None

    def feed(self, piece: str) -> None:
        """Classify one more piece."""
        rest, self._held = self._held + piece, ""
        while rest:
            match self._state:
                case "start":
                    rest = self._begin(rest)
                case "text":
                    rest = self._pass_text(rest)
                case "thought":
                    rest = self._read_thought(rest)
                case "doubt":
                    rest = self._resolve_uncertain_tag(rest)
        self.flows = self._state == "text" and not self._held

    def end(self) -> None:
        """Classify what was held back. No more text is expected."""
        held, self._held = self._held, ""
        if self._state == "doubt":
            self._text.append(self._inside + held)
            self._state = "text"
        elif not held:
            return
        elif self._state == "thought":
            self._thoughts.append(held)
        elif held.lower() == _LONE_CLOSING and self._ends_a_block("", "\n"):
            self._retract()
        elif not (self._state == "start" and self.tag is not None):  # whitespace after a thought belongs to it
            self._text.append(held)

    # ── States ─────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, rest: str) -> str:
        words = rest.lstrip()
        if words and words[0] not in _FIRST_CHARACTERS:  # nearly always
            self._state = "text"
            return words if self.tag is not None else rest
        start = words[:_LONGEST_OPENING].lower()
        opening = next((tag for tag in _OPENINGS if start.startswith(tag)), None)
        if opening is not None:
            self._open(opening)
            return words[len(opening) :]
        answer = next((tag for tag in _ANSWER_OPENINGS if start.startswith(tag)), None)
        if answer is not None:
            self._state, self.tag = "text", self.tag or answer
            return words[len(answer) :]
        if any(tag.startswith(start) for tag in (*_OPENINGS, *_ANSWER_OPENINGS)):  # also if only whitespace
            self._held = rest
            return ""
        self._state = "text"
        return words if self.tag is not None else rest

    def _open(self, tag: str) -> None:
        self._state, self._inside, self.tag = "thought", tag, self.tag or tag

    def _read_thought(self, rest: str) -> str:
        closing = find_closing_tag(self._inside)
        end = rest.lower().find(closing)
        if end >= 0:
            self._thoughts.append(rest[:end])
            self._state = "start"
            return rest[end + len(closing) :]
        keep = _partial_tag_length(rest, closing)
        self._thoughts.append(rest[: len(rest) - keep])
        self._held = rest[len(rest) - keep :]
        return ""

    def _pass_text(self, rest: str) -> str:
        """Pass text through up to a tag that counts."""
        place = rest.find("<") if self._looks < _MAX_TAGS else -1
        while place >= 0:
            tail = rest[place : place + 16].lower()
            tag = next((tag for tag in _TAGS_IN_TEXT if tail.startswith(tag)), None)
            if tag == _LONE_CLOSING:
                after = rest[place + len(tag) :]
                if not after and self.tag is None:
                    break  # the next characters decide
                if self._ends_a_block(rest[:place], after):
                    self._text.append(rest[:place])
                    self._retract()
                    return after
            elif tag is not None and self._begins_a_line(rest[:place]):
                self._text.append(rest[:place])
                self._state, self._inside = "doubt", tag
                return rest[place + len(tag) :]
            elif tag is None and any(each.startswith(rest[place:].lower()) for each in _TAGS_IN_TEXT):
                break  # the rest of the tag may still arrive
            place = rest.find("<", place + 1)
        self._text.append(rest if place < 0 else rest[:place])
        self._held = "" if place < 0 else rest[place:]
        return ""

    def _resolve_uncertain_tag(self, rest: str) -> str:
        """Decide about a tag at the start of a line. It opens a thought if a line break follows it, or if it is
        closed soon."""
        closing = find_closing_tag(self._inside)
        if rest.lstrip(" \t")[:1] in ("\n", "\r") or closing in rest.lower():
            self._open(self._inside)
            return rest
        if len(rest) < _MAX_UNDECIDED_CHARACTERS:
            self._held = rest
            return ""
        self._text.append(self._inside)
        self._state = "text"
        return rest

    # ── The position of a tag ──────────────────────────────────────────────────────────────────────

    def _retract(self) -> None:
        """Turn all text so far into a thought."""
        self._thoughts += self._text
        self._text.clear()
        self._state, self.tag, self.retracted = "start", "<think>", True

    def _find_line_before(self, before: str) -> str | None:
        """Return the line of a tag up to the tag, or None if the tag is in a code block."""
        self._looks += 1
        text = "".join((*self._text, before))
        return None if len(_FENCED.findall(text)) % 2 else text.rpartition("\n")[2]

    def _begins_a_line(self, before: str) -> bool:
        line = self._find_line_before(before)
        return line is not None and not line.strip()

    def _ends_a_block(self, before: str, after: str) -> bool:
        """Return whether a closing tag ends a block that the chat template opened."""
        if self.tag is not None:
            return False
        line = self._find_line_before(before)
        if line is None or line.count("`") % 2:
            return False
        if not line.strip() or after[:1] in ("\n", "\r"):
            return True
        if any(_OPENING.search(text) for text in (*self._text, before)):
            return False  # a sentence that mentions both tags
        return line[-1] not in _MENTIONED_AFTER or _SENTENCE_END.search(line) is not None


def _partial_tag_length(text: str, tag: str) -> int:
    """Return how many characters at the end of a text may start the tag."""
    tail = text[1 - len(tag) :].lower()
    return next((len(tail) - place for place in range(len(tail)) if tag.startswith(tail[place:])), 0)
