"""Excerpts: parts of a text, given by their position. An event that renders a fact within a sentence stores where
the fact is, so that no reader has to parse the sentence."""

Excerpt = tuple[int, int]
"""The position of the first character, and of the one after the last."""


def take_excerpt(text: str, excerpt: Excerpt | None) -> str:
    """Return the part of the text, or all of it if there is no excerpt."""
    return text if excerpt is None else text[excerpt[0] : excerpt[1]]


def place_excerpt(before: str, text: str) -> Excerpt:
    """Return the position of a text that follows another one."""
    return len(before), len(before) + len(text)
