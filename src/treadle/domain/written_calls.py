"""Recognition of tool calls that a model writes into its text, in the dialect it was trained on, because its
server does not parse them."""

import re
from collections.abc import Container
from typing import Any, Final, cast

import msgspec

_CODE = re.compile(r"^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
"""Code in a text, where anything may be quoted."""
_SPECIAL = (
    r"<\|(?:python_tag|tool_calls?_section_begin|tool_calls?_begin|tool_call_begin|tool_call_argument_begin"
    r"|tool_call|tool_response|im_start|start_header_id|channel|constrain)\|>"
)
"""Control tokens of Kimi, Llama, Qwen and others."""
_BAR = r"[|\uff5c]"
_DEEPSEEK = rf"<{_BAR}\s?(?:tool[▁_ ](?:calls?|sep|outputs?)(?:[▁_ ](?:begin|end))?|DSML)\s?{_BAR}>?"
_WRITTEN: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"<tool_call>\s*(?:\{|\[|<function=|[\w.-]+\s*(?:\n|<arg_key>)|\Z)",  # Qwen, Hermes, GLM
        r"<function=[\w.-]+>",  # Qwen Coder, Llama
        r"<(?:tools|functioncall|function_call)>\s*\{",
        r"<(?:[\w-]+:)?(?:invoke name=|function_calls>\s*<|tool_call>\s*<invoke)",  # MiniMax and others
        _DEEPSEEK,
        rf"^[ \t]*{_SPECIAL}",
        rf"{_SPECIAL}\s*(?:[{{<\[]|functions?\.|\w+\(|\Z)",
        r"\[TOOL_CALLS\](?:\s*(?:[\[{]|[\w.-]+\s*(?:\[(?:ARGS|CALL_ID)|\{)|\Z)|[\w.-]+(?:\[|\s*\Z))",  # Mistral
    )
)
_SIGNS = ("<", "[TOOL_CALLS]")
_FENCED = re.compile(r"\s*`{3,}(?:json|tool_code|tool_call|python)?\s*\n(.*?)\n?\s*`{3,}\s*", re.DOTALL)
_PYTHONIC = re.compile(r"\[?\s*([A-Za-z_][\w.]*)\((?:\s*|\s*\w+\s*=.*)\)\s*\]?", re.DOTALL)
_NAMES = ("name", "tool", "tool_name", "function", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "kwargs")
_OTHER_FIELDS = ("id", "type", "call_id", "index")
_MAX_JSON_CHARACTERS = 100_000
_MAX_SHOWN_CHARACTERS = 120


def find_written_call(text: str, tools: Container[str]) -> str | None:
    """Return the call that is written into a text, or its beginning; None if there is none. Code counts as a
    quotation, unless it is the whole text."""
    words = text.strip()
    if not words:
        return None
    if _is_call(words, tools):
        return _shorten(words)
    if not any(sign in words for sign in _SIGNS):
        return None
    outside = _CODE.sub(lambda code: " " * len(code[0]), words)
    places = [found.start() for pattern in _WRITTEN if (found := pattern.search(outside))]
    return _shorten(words[min(places) :].strip()) if places else None


def _is_call(words: str, tools: Container[str]) -> bool:
    """Return whether a text is nothing but a call of one of the tools, as JSON or as a line of Python."""
    fenced = _FENCED.fullmatch(words)
    body = fenced[1].strip() if fenced else words
    if body[:1] in ("{", "[") and len(body) <= _MAX_JSON_CHARACTERS:
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            value = None
        if value is not None:
            calls = cast("list[Any]", value) if isinstance(value, list) else [value]
            return bool(calls) and all(_is_call_object(each, tools) for each in calls)
    found = _PYTHONIC.fullmatch(body) if len(body) <= _MAX_JSON_CHARACTERS and body[-1:] in (")", "]") else None
    return found is not None and found[1] in tools


def _is_call_object(value: Any, tools: Container[str]) -> bool:
    if not isinstance(value, dict):
        return False
    fields = cast("dict[str, Any]", value)
    inner = fields.get("function")
    if isinstance(inner, dict):
        fields = cast("dict[str, Any]", inner)
    if isinstance(fields.get("tool_calls"), list):
        return all(_is_call_object(each, tools) for each in fields["tool_calls"])
    name = next((fields[key] for key in _NAMES if isinstance(fields.get(key), str)), "")
    known = all(key in (*_NAMES, *_ARGUMENTS, *_OTHER_FIELDS) for key in fields)
    return known and name in tools and any(key in fields for key in _ARGUMENTS)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN_CHARACTERS else f"{line[: _MAX_SHOWN_CHARACTERS - 1]}…"
