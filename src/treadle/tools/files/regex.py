"""Regular expressions that take time proportional to the text, whatever the pattern (RE2).

A model or a workspace may supply any pattern. With Python's own engine, one pattern can take years and block every
other run of the process."""

from collections.abc import Callable
from typing import Any, cast


class BadExpression(ValueError):
    """The pattern is invalid; the message says why."""


class Expression:
    """A compiled pattern."""

    def __init__(self, pattern: str, ignore_case: bool = False, never_newline: bool = False) -> None:
        """`never_newline`: no match crosses the end of a line, so a search reads little beyond its match."""
        import re2  # pyright: ignore[reportMissingTypeStubs] -- it has none; everything used is below

        library = cast("Any", re2)
        options = library.Options()
        options.never_capture = True
        options.never_nl = never_newline
        options.log_errors = False
        options.case_sensitive = not ignore_case
        try:
            compiled = library.compile(pattern, options)
        except UnicodeEncodeError:
            raise BadExpression("it is not valid text") from None
        except library.error as error:
            reason = error.args[0]
            raise BadExpression(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
        self._search = cast("Callable[[bytes, int], Any]", compiled.search)
        self._fullmatch = cast("Callable[[bytes], Any]", compiled.fullmatch)
        self.size: int = compiled.programsize
        """Instructions of the compiled pattern: the most steps that a search takes for each byte."""

    def find(self, data: bytes, start: int = 0) -> tuple[int, int] | None:
        """Return where the first match from `start` on starts and ends."""
        found = self._search(data, start)
        return None if found is None else found.span()

    def matches(self, name: str) -> bool:
        """Return whether it matches the whole name. Bytes of a name that are not UTF-8 count as one character
        each."""
        return self._fullmatch(name.encode("utf-8", "replace")) is not None
