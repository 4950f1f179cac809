"""Recognition of tool calls that a model writes into its text, in the dialect it was trained on, because its
server does not parse them. Control tokens without a call are recognised too."""

import json
import re
from collections.abc import Container
from typing import Any, Final, cast

from treadle.domain.control_tokens import BAR, CONTROL_TOKEN, is_only_tokens

_CODE = re.compile(r"^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
"""Code in a text, where anything may be quoted."""
_INDENTED = re.compile(r"\n[ \t]*\n(?:(?: {4}|\t)[^\n]*\n(?:[ \t]*\n)*)+(?=\S)")
"""An indented block with text around it, which is code too."""
_SPECIAL = (
    r"<\|(?:python_tag|tool_calls?_section_(?:begin|end)|tool_calls?_(?:begin|end)|tool_call_argument_begin"
    r"|tool_call|tool_response|im_start|start_header_id|channel|constrain|open)\|>"
)
"""Control tokens of Kimi, Llama, Qwen and others that belong to calls, or begin a turn."""
_DEEPSEEK = rf"<{BAR}\s?tool[▁_ ](?:calls?|sep|outputs?)(?:[▁_ ](?:begin|end))?\s?{BAR}>?"
_AFTER_TOKEN = r"\s*(?:[{<\[]|functions?\b|[\w.-]+(?:\s*[{(]|<[|\uff5c])|tools?|```|\Z)"
"""What follows a token of a call, but not a token that a sentence mentions."""
_TAGS = r"(?:(?:[A-Za-z][\w-]{0,20}[_:])?(?:tool_calls?|function_calls?)|functioncall|TOOLCALL)"
"""The names of tags around calls, with or without the name of a model in front: `longcat_tool_call`."""
_WRITTEN: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"<tool_call>\s*(?:\{|\[|<function=|[\w.-]+\s*(?:\n|<arg_key>)|\Z)",  # Qwen, Hermes, GLM
        r"<function=[\w.-]+>",  # Qwen Coder, Llama
        rf"<(?:tools|{_TAGS})>\s*[\[{{]",
        r"<(?:[\w-]+:)?(?:invoke name=|function_calls>\s*<|tool_call>\s*<invoke)",  # MiniMax and others
        rf"(?:\A|[\n}}\]>])[ \t]*</(?:[\w-]+:)?(?:{_TAGS}|invoke)>\s*\Z",  # the start was removed
        rf"^[ \t]*(?:{_SPECIAL}|{_DEEPSEEK})",
        rf"(?:{_SPECIAL}|{_DEEPSEEK}){_AFTER_TOKEN}",
        rf"<{BAR}DSML{BAR}",
        rf"{CONTROL_TOKEN}\s*\[?\{{\s*[\"'](?:name|type|function)[\"']",  # Llama 4 and others
        rf"\A{CONTROL_TOKEN}\s*(?:{CONTROL_TOKEN}|assistant|[{{\[])",
        r"\[TOOL_CALLS\](?:\s*(?:[\[{]|[\w.-]+\s*(?:\[(?:ARGS|CALL_ID)|\{)|\Z)|\w[\w.-]*(?:\[|\s*\Z))",  # Mistral
    )
)
_NAMED: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"(?:^|[\s|>])to=(?:functions?\.)?([\w.-]+)",  # gpt-oss
        r"^[ \t]*functions?\.([\w.-]+?)(?::\d+)?\s*(?:[{(\[<]|\Z)",  # Kimi
        r"^[ \t]*([\w.-]+?):\d+\s*(?:<\||\{)",
        r"(?:^|[\s\]])([\w.-]+)\[(?:ARGS|CALL_ID)\]",  # Mistral
        r"\[TOOL_CALLS\]\s*([\w.-]+)\s*\Z",
        r"<function[(:\s](?:name=)?[\"']?([\w.-]+)[\"']?\)?>",  # Llama
        r"<start_function_call>\s*call:([\w.-]+)",  # Gemma
        r"(?:\A|\n)[ \t]*functools\[\s*\{\s*\"name\"\s*:\s*\"([\w.-]+)\"",  # Phi
        r"^[ \t]*<tool name=[\"']([\w.-]+)[\"']>",
        r"<\|?tool_call\|?>\s*call:([\w.-]+)\s*[{(]",  # Gemma 4
        r"^[ \t]*Action:[ \t]*([\w.-]+)\s*\n\s*Action Input:",  # ReAct
        r"^>>>([\w.-]+)[ \t]*\n\s*\{",  # Functionary
        r"<(?:tool_use|tool_call|function_call|invoke)>\s*<(?:tool_)?name>\s*([\w.-]+)\s*</",
    )
)
"""Forms that are calls if they name one of the tools."""
_LAST_TAG = re.compile(r"</([\w.-]+)>\s*\Z")
_SIGNS = ("<", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "to=", "function", ":", ">>>")
_FENCED = re.compile(r"\s*`{3,}(?:json|tool_code|tool_call|python)?\s*\n(.*?)\n?\s*`{3,}\s*", re.DOTALL)
_CALL_FENCE = re.compile(
    r"^[ \t]*`{3,}(?:tool_code|tool_calls?|function_call)[ \t]*\n(.*?)\n?[ \t]*`{3,}\s*\Z", re.MULTILINE | re.DOTALL
)
_PYTHONIC = re.compile(r"(?:print\()?\[?\s*([A-Za-z_][\w.]*)\((?:\s*|\s*\w+\s*=.*)\)\s*\]?", re.DOTALL)
_JSON_START = re.compile(
    r"^[ \t]*(?:\[\s*)?(?=\{\s*[\"'](?:name|type|function|function_call|tool|tool_name|tool_calls|action)[\"'])",
    re.MULTILINE,
)
_CUT_CALL = re.compile(
    r"\[?\s*\{\s*[\"'](?:type[\"']\s*:\s*[\"']function[\"']\s*,\s*[\"'])?(?:function[\"']\s*:\s*\{\s*[\"'])?"
    r"(?:name|tool|tool_name)[\"']\s*:\s*[\"']([\w.-]+)[\"']\s*,\s*"
    r"[\"'](?:arguments|parameters|args|input|kwargs)[\"']\s*:"
)
_ENDINGS = re.compile(rf"(?:\s|[;,]|{CONTROL_TOKEN}|</{_TAGS}>)+", re.IGNORECASE)
"""What may stand between calls in JSON, and after the last one."""
_NAMES = ("name", "tool", "tool_name", "function", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "kwargs")
_OTHER_FIELDS = ("id", "type", "call_id", "index")
_MAX_JSON_CHARACTERS = 100_000
_MAX_SHOWN_CHARACTERS = 120
_decode_prefix = json.JSONDecoder().raw_decode


def find_written_call(text: str, tools: Container[str]) -> str | None:
    """Return the call that is written into a text, or its beginning, or the control tokens that are all of it; None
    if there is none. Code counts as a quotation, unless it is the whole text or marked as a call."""
    words = text.strip()
    if not words:
        return None
    if is_only_tokens(words) or _is_call(words, tools):
        return _shorten(words)
    places = [found.start() for found in _CALL_FENCE.finditer(words) if _is_call(found[1].strip(), tools)]
    outside = _CODE.sub(_blank, words) if "`" in words or "~~~" in words else words
    outside = _INDENTED.sub(_blank, outside) if "\n    " in outside or "\n\t" in outside else outside
    places += _find_json(outside, tools)
    if any(sign in outside for sign in _SIGNS):
        places += [found.start() for pattern in _WRITTEN if (found := pattern.search(outside))]
        places += [found.start() for pattern in _NAMED for found in pattern.finditer(outside) if found[1] in tools]
        places += _find_element(outside, tools)
    return _shorten(words[min(places) :].strip()) if places else None


def _blank(code: re.Match[str]) -> str:
    return " " * len(code[0])


def _find_element(words: str, tools: Container[str]) -> list[int]:
    """Return where a line starts an element that is named like a tool and ends the text:
    `<read_file><path>a</path></read_file>`."""
    last = _LAST_TAG.search(words, max(0, len(words) - _MAX_SHOWN_CHARACTERS))
    if last is None or last[1] not in tools:
        return []
    found = re.search(rf"^[ \t]*<{re.escape(last[1])}>", words, re.MULTILINE)
    return [] if found is None else [found.start()]


def _find_json(words: str, tools: Container[str]) -> list[int]:
    """Return where lines start that hold calls in JSON up to the end of the text; the last one may be cut."""
    for found in _JSON_START.finditer(words):
        rest = words[found.start() : found.start() + _MAX_JSON_CHARACTERS].strip()
        if _are_calls(rest, tools):
            return [found.start()]
    return []


def _is_call(words: str, tools: Container[str]) -> bool:
    """Return whether a text is nothing but calls of the tools, as JSON or as a line of Python."""
    fenced = _FENCED.fullmatch(words)
    body = (fenced[1].strip() if fenced else words)[:_MAX_JSON_CHARACTERS]
    if body[:1] in ("{", "[") and _are_calls(body, tools):
        return True
    found = _PYTHONIC.fullmatch(body) if body[-1:] in (")", "]") else None
    if found is None or found[1].removeprefix("functions.").removeprefix("default_api.") not in tools:
        return False
    return "\n" not in body or _has_one_statement(body)


def _has_one_statement(code: str) -> bool:
    """Return whether some lines of Python are a single statement. Lines that are not Python count as one."""
    import ast

    try:
        return len(ast.parse(code).body) == 1
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True


def _are_calls(text: str, tools: Container[str]) -> bool:
    """Return whether a text is a series of calls in JSON, with tokens or tags after them. A call that is cut, or is
    not quite JSON, counts if it names a tool and its arguments."""
    place = 0
    while place < len(text):
        try:
            value, end = _decode_prefix(text, place)
        except (ValueError, RecursionError):
            found = _CUT_CALL.match(text, place)
            return found is not None and found[1] in tools
        calls = cast("list[Any]", value) if isinstance(value, list) else [value]
        if not calls or not all(_is_call_object(each, tools) for each in calls):
            return False
        gap = _ENDINGS.match(text, end)
        place = gap.end() if gap else end
    return True


def _is_call_object(value: Any, tools: Container[str]) -> bool:
    if not isinstance(value, dict):
        return False
    fields = cast("dict[str, Any]", value)
    inner = fields.get("function") or fields.get("function_call")
    if isinstance(inner, dict):
        fields = cast("dict[str, Any]", inner)
    if isinstance(fields.get("tool_calls"), list):
        return all(_is_call_object(each, tools) for each in fields["tool_calls"])
    name = next((fields[key] for key in _NAMES if isinstance(fields.get(key), str)), "")
    known = all(key in (*_NAMES, *_ARGUMENTS, *_OTHER_FIELDS) for key in fields)
    return known and name.removeprefix("functions.") in tools and any(key in fields for key in _ARGUMENTS)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN_CHARACTERS else f"{line[: _MAX_SHOWN_CHARACTERS - 1]}…"
