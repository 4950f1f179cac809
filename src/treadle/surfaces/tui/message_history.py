"""The messages that the user has sent, for the arrow keys and Ctrl-R. They are kept in the home."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from treadle.domain.attachments import strip_attached_files
from treadle.surfaces.tui.attachments import Chip

FILE_NAME = "message-history.jsonl"
MAX_MESSAGES = 500
MAX_CHARACTERS = 4_000
"""A longer message is not kept."""


class MessageHistory:
    """Earlier messages, the latest last."""

    def __init__(self, folder: Path | None) -> None:
        self._attached: dict[str, tuple[Chip, ...]] = {}
        """What was attached to messages of this process. It is not written to the home."""
        self._path = None if folder is None else folder / FILE_NAME
        self._messages = self._read()
        self._unsaved: set[str] = set()
        self._place: int | None = None
        self._draft = ""

    def _read(self) -> list[str]:
        if self._path is None:
            return []
        found: list[str] = []
        with suppress(OSError):
            for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError):
                    message = json.loads(line)
                    if isinstance(message, str):
                        found.append(message)
        return found[-MAX_MESSAGES:]

    def add(self, message: str, chips: Sequence[Chip] = ()) -> None:
        """Remember a message. Its text is written to the home once the journal has it unchanged (`confirm`)."""
        self._place = None
        self._attached[message] = tuple(chips)
        if (
            not message.strip()
            or len(message) > MAX_CHARACTERS
            or (self._messages and self._messages[-1] == message)
        ):
            return
        self._messages.append(message)
        self._unsaved.add(message)

    def confirm(self, stored: str) -> None:
        """Write a message to the home that the journal has as it was typed: without secrets, which it redacts."""
        message = strip_attached_files(stored)
        if self._path is None or message not in self._unsaved:
            return
        self._unsaved.discard(message)
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(json.dumps(message, ensure_ascii=False) + "\n")
            if len(self._messages) > 2 * MAX_MESSAGES:
                self._messages = self._messages[-MAX_MESSAGES:]
                text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in self._messages)
                self._path.write_text(text, encoding="utf-8")

    def find_attachments(self, message: str) -> tuple[Chip, ...]:
        """Return what was attached to a message, as far as this process knows."""
        return self._attached.get(message, ())

    def previous(self, current: str, chips: Sequence[Chip] = ()) -> str | None:
        """Return the message before the one that is shown; None if there is none."""
        if not self._messages or self._place == 0:
            return None
        if self._place is None:
            self._draft, self._place = current, len(self._messages)
            self._attached[current] = tuple(chips)
        self._place -= 1
        return self._messages[self._place]

    def next(self) -> str | None:
        """Return the message after the one that is shown, at last the one that was being written."""
        if self._place is None:
            return None
        self._place += 1
        if self._place < len(self._messages):
            return self._messages[self._place]
        self._place = None
        return self._draft

    def search(self, text: str, limit: int) -> list[str]:
        """Return the messages that contain a text, the latest first, each once."""
        wanted = text.lower()
        return list(dict.fromkeys(m for m in reversed(self._messages) if wanted in m.lower()))[:limit]
