"""Translates name patterns (`src/**/*.py`) into regular expressions."""

_SPECIAL = frozenset("\\.+*?()|[]{}^$")


def translate_glob(pattern: str) -> str:
    """Return the expression for a glob. `*` and `?` stay in one folder, `**` does not, `[a-z]` and `{a,b}` work as
    in a shell."""
    return _GlobTranslator(pattern).translate()


class _GlobTranslator:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._braces = pattern.count("{") == pattern.count("}")
        self._open = 0
        self._at = 0

    def translate(self) -> str:
        pieces: list[str] = []
        while self._at < len(self._pattern):
            pieces.append(self._piece())
        return f"(?s){''.join(pieces)}" + ")" * self._open

    def _piece(self) -> str:
        rest = self._pattern[self._at : self._at + 3]
        character = rest[0]
        before = self._pattern[self._at - 1] if self._at else "/"
        self._at += 1
        if rest.startswith("**") and before == "/":
            return self._any_depth(rest)
        match character:
            case "*":
                whole_name = before == "/" and rest[1:2] in ("", "/")
                return "[^/]+" if whole_name else "[^/]*"
            case "?":
                return "[^/]"
            case "[":
                return self._class()
            case "\\" if self._at < len(self._pattern):
                self._at += 1
                return _escape(rest[1])
            case "{" | "}" | "," if self._braces:
                return self._brace(character)
            case _:
                return _escape(character)

    def _any_depth(self, rest: str) -> str:
        if rest == "**/":
            self._at += 2
            return "(?:.*/)?"
        self._at += 1
        return ".+" if rest == "**" else ".*"

    def _class(self) -> str:
        """Translate `[abc]` and `[!abc]`. A bracket that is never closed is a plain character."""
        end = self._pattern.find(
            "]", self._at + 2 if self._pattern[self._at : self._at + 1] in "!^" else self._at + 1
        )
        if end < 0:
            return "\\["
        inside = self._pattern[self._at : end]
        self._at = end + 1
        negated = inside[:1] in ("!", "^")
        members = inside[1:] if negated else inside
        escaped = "".join(f"\\{member}" if member in "\\[]^&~" else member for member in members)
        return f"[^/{escaped}]" if negated else f"[{escaped}]"

    def _brace(self, character: str) -> str:
        if character == "{":
            self._open += 1
            return "(?:"
        if not self._open:
            return _escape(character)
        if character == "}":
            self._open -= 1
            return ")"
        return "|"


def _escape(character: str) -> str:
    return f"\\{character}" if character in _SPECIAL else character
