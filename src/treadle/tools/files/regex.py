"""Regular expressions that take time in proportion to the text, whatever the pattern (RE2).

A model or a workspace may give any. Python's own can be made to take years by one, and to hold up every other run
of the process meanwhile."""

from collections.abc import Callable
from typing import Any, cast


class BadExpression(ValueError):
    """The pattern is not one; the message says why."""


class Expression:
    """A compiled pattern."""

    def __init__(self, pattern: str, ignore_case: bool = False, never_newline: bool = False) -> None:
        """`never_newline`: no match crosses the end of a line, so a search reads little beyond what it finds."""
        import re2  # pyright: ignore[reportMissingTypeStubs] -- it has none; all that we use is below

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
        self._fits = cast("Callable[[bytes], Any]", compiled.fullmatch)
        self.size: int = compiled.programsize
        """Instructions of the compiled pattern. A search takes at most so many steps for each byte."""

    def find(self, data: bytes, start: int = 0) -> tuple[int, int] | None:
        """Where the first match from there on begins and ends."""
        found = self._search(data, start)
        return None if found is None else found.span()

    def fits(self, name: str) -> bool:
        """Whether it matches all of the name. Bytes of a name that are not UTF-8 count as a character each."""
        return self._fits(name.encode("utf-8", "replace")) is not None
