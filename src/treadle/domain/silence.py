"""The texts with which an agent says that it has nothing to say."""

SILENT_TEXTS = ("NO_REPLY", "[SILENT]")
SILENT_STORED = "[no reply needed]"
"""What the conversation keeps instead."""


def is_silence(text: str) -> bool:
    """Return whether the text is the marker of an agent that has nothing to say."""
    return text.strip() in SILENT_TEXTS


def may_be_silence(text: str) -> bool:
    """Return whether the text may still become that marker."""
    said = text.strip()
    return any(mark.startswith(said) for mark in SILENT_TEXTS)
