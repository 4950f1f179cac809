"""The indentation of a block of lines as a model wrote it and as a file has it, and the rule between the two."""

from collections.abc import Callable, Sequence

IndentRule = Callable[[str], str | None]
"""Returns the indentation that the file would have for one that the model wrote; None if that is unknown."""


def split_indent(line: str) -> tuple[str, str]:
    """Return the blanks at the start of a line, and the rest."""
    rest = line.lstrip()
    return line[: len(line) - len(rest)], rest


def find_indent_rule(pairs: Sequence[tuple[str, str]]) -> IndentRule | None:
    """Return the rule that turns the first indentation of each pair into the second, or None if none does."""
    pairs = list(dict.fromkeys(pairs))
    for find in (_find_scale, _find_deeper, _find_shallower, _find_shifted_scale):
        rule = find(pairs)
        if rule is not None and all(rule(written) == found for written, found in pairs):
            return rule
    return None


def _find_scale(pairs: Sequence[tuple[str, str]]) -> IndentRule | None:
    """Return a rule for another character, such as a tab for four spaces."""
    pair = next(((written, found) for written, found in pairs if written and found), None)
    if pair is None:
        return None
    return _make_scale(*pair) if pair[0][0] != pair[1][0] else None


def _make_scale(written: str, found: str) -> IndentRule | None:
    if len({*written}) != 1 or len({*found}) != 1:
        return None

    def scale(indent: str) -> str | None:
        count, left = divmod(len(indent) * len(found), len(written))
        return found[0] * count if not left and not indent.strip(written[0]) else None

    return scale


def _find_deeper(pairs: Sequence[tuple[str, str]]) -> IndentRule | None:
    written, found = pairs[0]
    added = found.removesuffix(written)
    return lambda indent: added + indent


def _find_shallower(pairs: Sequence[tuple[str, str]]) -> IndentRule | None:
    written, found = pairs[0]
    removed = written.removesuffix(found)
    return lambda indent: indent[len(removed) :] if indent.startswith(removed) else ""


def _find_shifted_scale(pairs: Sequence[tuple[str, str]]) -> IndentRule | None:
    """Return a rule for a block that is deeper or shallower and has another width of indentation as well."""
    base, found_base = min(pairs, key=lambda pair: len(pair[0]))
    deeper = next(
        (
            (written.removeprefix(base), found.removeprefix(found_base))
            for written, found in pairs
            if len(written) > len(base)
        ),
        None,
    )
    scale = None if deeper is None or not all(deeper) else _make_scale(*deeper)
    if scale is None:
        return None

    def shift(indent: str) -> str | None:
        scaled = scale(indent.removeprefix(base)) if indent.startswith(base) else None
        return None if scaled is None else found_base + scaled

    return shift
