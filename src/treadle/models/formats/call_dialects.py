"""Parses tool calls from the text of a reply, for models whose server leaves them there (`call_dialect` in the
profile).

A text is parsed completely or not at all. If a call is incomplete or names a tool that was not offered, everything
stays text."""

import json
import re
from collections.abc import Container, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from treadle.domain.control_tokens import END_TOKEN
from treadle.domain.json_text import is_too_deep
from treadle.domain.limits import DEFAULT_MAX_CALLS, MAX_WRITTEN_CALLS_CHARACTERS
from treadle.domain.messages import ToolUse
from treadle.domain.models import CallDialect
from treadle.models.http.wire import encode

CALL_MARKS: Final[dict[CallDialect, tuple[str, ...]]] = {
    "hermes": ("<tool_call>", "<function="),
    "deepseek": ("<\uff5ctool\u2581call", "<\uff5cDSML\uff5c"),
    "kimi": ("<|tool_call",),
    "llama": ("<|python_tag|>", "<function=", '{"name"', '{"type"'),
    "mistral": ("[TOOL_CALLS]",),
}
"""How the part of a text that contains the calls starts."""
_BAR, _LOW = "\uff5c", "\u2581"
_HERMES = re.compile(r"<tool_call>(.*?)</tool_call>\s*", re.DOTALL)
_XML = re.compile(r"<function=([\w.-]+)>(.*?)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_DEEPSEEK = re.compile(
    rf"<{_BAR}tool{_LOW}call{_LOW}begin{_BAR}>(?:function<{_BAR}tool{_LOW}sep{_BAR}>)?([\w.-]+)"
    rf"(?:<{_BAR}tool{_LOW}sep{_BAR}>)?\s*(?:```json\s*)?(\{{.*?\}})\s*(?:```\s*)?<{_BAR}tool{_LOW}call{_LOW}end{_BAR}>\s*",
    re.DOTALL,
)
_DEEPSEEK_AROUND = re.compile(rf"<{_BAR}tool{_LOW}calls{_LOW}(?:begin|end){_BAR}>\s*")
_KIMI = re.compile(
    r"<\|tool_call_begin\|>\s*(?:functions\.)?([\w.-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*(\{.*?\})\s*"
    r"<\|tool_call_end\|>\s*",
    re.DOTALL,
)
_KIMI_AROUND = re.compile(r"<\|tool_calls_section_(?:begin|end)\|>\s*")
_MISTRAL = re.compile(r"\s*(?:\[TOOL_CALLS\]\s*)?([\w.-]+)\s*(?:\[CALL_ID\]\w*\s*)?(?:\[ARGS\])?\s*")
_DSML = re.compile(rf'<{_BAR}DSML{_BAR}invoke name="([\w.-]+)">(.*?)</{_BAR}DSML{_BAR}invoke>\s*', re.DOTALL)
_DSML_PARAMETER = re.compile(
    rf'<{_BAR}DSML{_BAR}parameter name="([\w.-]+)"(?: string="(true|false)")?>(.*?)</{_BAR}DSML{_BAR}parameter>\s*',
    re.DOTALL,
)
_DSML_AROUND = re.compile(rf"</?{_BAR}DSML{_BAR}(?:function|tool)_calls>\s*")
_LAST_TOKENS = re.compile(rf"(?:{END_TOKEN}\s*)+\Z", re.IGNORECASE)
_LLAMA_BETWEEN = re.compile(r"[; \n\t]*")
_BLANKS = re.compile(r"\s*")
_decode_prefix = json.JSONDecoder().raw_decode


class _NotCalls(ValueError):
    """The text from its first mark to its end is not a list of calls in this dialect."""


class WrittenCalls(NamedTuple):
    """The calls in a text."""

    before: str
    """The text before them."""
    calls: list[ToolUse]
    excess: int
    """Number of calls beyond the limit, which are not parsed."""


def read_calls(
    text: str, dialect: CallDialect, offered: Container[str], max_calls: int = DEFAULT_MAX_CALLS
) -> WrittenCalls | None:
    """Return the calls in a text, or None if it contains no complete calls."""
    places = [place for mark in CALL_MARKS[dialect] if (place := text.find(mark)) >= 0]
    if not places or len(text) - min(places) > MAX_WRITTEN_CALLS_CHARACTERS:
        return None
    before, rest = text[: min(places)], text[min(places) :].strip()
    rest = _LAST_TOKENS.sub("", rest).rstrip()
    found = _READERS[dialect](rest)
    try:
        calls = [_make_call(name, arguments, offered) for name, arguments in islice(found, max_calls)]
        has_more = len(calls) == max_calls and next(found, None) is not None
    except (ValueError, RecursionError):  # also raised for JSON that is incomplete or nested too deeply
        return None
    excess = _count_excess(rest, dialect, max_calls) if has_more else 0
    return WrittenCalls(before.strip(), calls, excess) if calls else None


def _count_excess(text: str, dialect: CallDialect, max_calls: int) -> int:
    """Return about how many calls follow the first ones. They are counted by their marks and not parsed."""
    return max(1, *(text.count(mark) - max_calls for mark in CALL_MARKS[dialect]))


def find_calls_start(text: str, dialect: CallDialect) -> int:
    """Return where the calls of a text start, or may start if more text follows, else the length of the text."""
    places = [len(text)]
    for mark in CALL_MARKS[dialect]:
        found = text.find(mark)
        if found >= 0:
            places.append(found)
        tail = text[1 - len(mark) :]
        places += [len(text) - len(tail) + at for at in range(len(tail)) if mark.startswith(tail[at:])]
    return min(places)


def starts_with_calls(text: str, dialect: CallDialect) -> bool:
    """Return whether a text starts with calls, whatever follows."""
    return text.startswith(CALL_MARKS[dialect])


def _make_call(name: Any, arguments: Any, offered: Container[str]) -> ToolUse:
    if isinstance(arguments, str):
        if is_too_deep(arguments):
            raise _NotCalls
        arguments = json.loads(arguments or "{}")
    arguments = {} if arguments is None else arguments
    if not isinstance(name, str) or name not in offered or not isinstance(arguments, dict):
        raise _NotCalls
    return ToolUse("", name, encode(arguments).decode())


def _match_all(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield matches that cover the whole text. Raise _NotCalls if they do not."""
    place = 0
    while place < len(text):
        found = pattern.match(text, place)
        if found is None:
            raise _NotCalls
        yield found
        place = found.end()


def _read_json_call(value: Any) -> tuple[Any, Any]:
    """Return the name and the arguments of a call written as JSON."""
    if not isinstance(value, dict):
        raise _NotCalls
    fields = cast("dict[str, Any]", value)
    inner = fields.get("function")
    fields = cast("dict[str, Any]", inner) if isinstance(inner, dict) else fields
    return fields.get("name"), fields.get("arguments", fields.get("parameters"))


def _read_xml(text: str) -> Iterator[tuple[Any, Any]]:
    """Yield the calls of Qwen Coder, whose arguments are text or JSON, or of Llama, with one JSON object."""
    for found in _match_all(_XML, text):
        inner = found[2].strip()
        if inner.startswith("{"):
            yield found[1], inner
        else:
            yield found[1], {each[1]: _parse_value(each[2]) for each in _match_all(_PARAMETER, inner)}


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read_hermes(text: str) -> Iterator[tuple[Any, Any]]:
    if text.startswith("<function="):
        yield from _read_xml(text)
        return
    for found in _match_all(_HERMES, text):
        inner = found[1].strip()
        if inner.startswith("<function="):
            yield from _read_xml(inner)
        else:
            yield _read_json_call(json.loads(inner))


def _read_deepseek(text: str) -> Iterator[tuple[Any, Any]]:
    if text.startswith(f"<{_BAR}DSML"):
        yield from _read_dsml(text)
        return
    for found in _match_all(_DEEPSEEK, _DEEPSEEK_AROUND.sub("", text)):
        yield found[1], found[2]


def _read_dsml(text: str) -> Iterator[tuple[Any, Any]]:
    """Yield the calls of DeepSeek V3.2 and later. A parameter says whether it is text or JSON."""
    for found in _match_all(_DSML, _DSML_AROUND.sub("", text)):
        values = _match_all(_DSML_PARAMETER, found[2].strip())
        yield found[1], {each[1]: each[3] if each[2] == "true" else _parse_value(each[3]) for each in values}


def _read_kimi(text: str) -> Iterator[tuple[Any, Any]]:
    for found in _match_all(_KIMI, _KIMI_AROUND.sub("", text)):
        yield found[1], found[2]


def _read_llama(text: str) -> Iterator[tuple[Any, Any]]:
    if text.startswith("<function="):
        yield from _read_xml(text)
        return
    rest = text.removeprefix("<|python_tag|>").strip()
    place = 0
    while place < len(rest):
        value, end = _decode_prefix(rest, place)
        yield _read_json_call(value)
        place = _skip(_LLAMA_BETWEEN, rest, end)


def _read_mistral(text: str) -> Iterator[tuple[Any, Any]]:
    rest = text.removeprefix("[TOOL_CALLS]").strip()
    if rest.startswith("["):
        value, end = _decode_prefix(rest)
        if rest[end:].strip():
            raise _NotCalls
        yield from map(_read_json_call, value)
        return
    place = 0
    while place < len(rest):
        named = _MISTRAL.match(rest, place)
        if named is None:
            raise _NotCalls
        value, end = _decode_prefix(rest, named.end())
        yield named[1], value
        place = _skip(_BLANKS, rest, end)


def _skip(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Return the position after what the pattern matches there."""
    found = pattern.match(text, place)
    return found.end() if found else place


_READERS: Final = {
    "hermes": _read_hermes,
    "deepseek": _read_deepseek,
    "kimi": _read_kimi,
    "llama": _read_llama,
    "mistral": _read_mistral,
}
