"""Decides what a `sed` script does: only scripts that print need no approval. A script can also run commands (`e`)
and write files (`w`), in places that a simple pattern would not find."""

import re

_ADDRESS = re.compile(r"[0-9]+(?:~[0-9]+)?|\$|[+~][0-9]+")
_PATTERN_ADDRESS = re.compile(r"(/)|\\([^\n\\])")
_COMMA = re.compile(r",\s*")
_MODIFIERS = re.compile("[IM]*")
_SPACE = re.compile(r"\s*")
_NOT = re.compile(r"[!\s]*")
_PLAIN = frozenset("pPdDgGhHxnNlFz=")
_FLAGS = re.compile(r"[gpiImM0-9]*")
_LABEL = re.compile(r"[ \t]*[A-Za-z0-9_.-]*[ \t]*")
_NUMBER = re.compile(r"[ \t]*[0-9]*")
_LINE = re.compile(r"(?:\\.|[^\n\\])*", re.DOTALL)
_BLANK = re.compile(r"[\s;}]*")
_END = re.compile(r"[ \t]*(?:[;\n}#]|$)")
_SHORT = frozenset("nErsuzb")
_LONG = frozenset(
    {"--quiet", "--silent", "--regexp-extended", "--separate", "--unbuffered", "--null-data", "--posix", "--debug",
     "--help", "--version", "--sandbox"}
)  # fmt: skip


def only_prints(arguments: tuple[str, ...]) -> bool:
    """Return whether a call of `sed` writes only to its output, and runs nothing."""
    scripts: list[str] = []
    operands: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            operands += rest
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
        elif word.startswith("--expression="):
            scripts.append(word.partition("=")[2])
        elif word.startswith("--"):
            if word not in _LONG:
                return False
        elif not _parse_short_options(word[1:], rest, scripts):
            return False
    scripts = scripts or operands[:1]
    return all(_is_harmless(script) for script in scripts)


def _parse_short_options(letters: str, rest: list[str], scripts: list[str]) -> bool:
    for index, letter in enumerate(letters):
        if letter == "e":
            after = letters[index + 1 :]
            scripts.append(after or (rest.pop(0) if rest else ""))
            return True
        if letter not in _SHORT:
            return False
    return True


def _is_harmless(script: str) -> bool:
    at = 0
    while (at := _skip(_BLANK, script, at)) < len(script):
        command = _skip_command(script, at)
        if command is None:
            return False
        at = command
    return True


def _skip(pattern: re.Pattern[str], script: str, at: int) -> int:
    found = pattern.match(script, at)
    return found.end() if found else at


def _skip_command(script: str, at: int) -> int | None:
    """Return where the command that starts here ends, or None if it does more than print."""
    start = _skip_addresses(script, at)
    if start is None or start >= len(script):
        return None
    letter, at = script[start], start + 1
    if letter in "#rRaic":
        return _skip(_LINE, script, at)
    if letter == "{":
        return at
    if letter in ":btT":
        return _check_end(script, _skip(_LABEL, script, at))
    if letter in "qQlL":
        return _check_end(script, _skip(_NUMBER, script, at))
    if letter in "sy":
        end = _skip_two_parts(script, at)
        if end is None:
            return None
        return _check_end(script, _skip(_FLAGS, script, end) if letter == "s" else end)
    return _check_end(script, at) if letter in _PLAIN else None


def _check_end(script: str, at: int) -> int | None:
    return at if _END.match(script, at) else None


def _skip_addresses(script: str, at: int) -> int | None:
    """Return where the addresses before a command end."""
    for index in range(2):
        if index and not script.startswith(",", at):
            break
        at = _skip(_COMMA, script, at)
        if pattern := _PATTERN_ADDRESS.match(script, at):
            end = _skip_part(script, pattern.end(), pattern[1] or pattern[2])
            if end is None:
                return None
            at = _skip(_MODIFIERS, script, end)
        else:
            at = _skip(_ADDRESS, script, at)
        at = _skip(_SPACE, script, at)
    return _skip(_NOT, script, at)


def _skip_two_parts(script: str, at: int) -> int | None:
    """Return where `/this/that/` ends."""
    if at >= len(script) or script[at] in "\n\\":
        return None
    middle = _skip_part(script, at + 1, script[at])
    return None if middle is None else _skip_part(script, middle, script[at])


def _skip_part(script: str, at: int, mark: str) -> int | None:
    """Return the position after the next delimiter, or None. A delimiter inside brackets is ambiguous and gives
    None."""
    while at < len(script):
        if script[at] == "\\":
            at += 2
        elif script[at] == mark:
            return at + 1
        elif script[at] == "[" and mark in script[at : script.find("]", at + 2) + 1]:
            return None
        else:
            at += 1
    return None
