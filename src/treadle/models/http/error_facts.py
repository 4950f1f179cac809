"""Extracts facts from an error body, however it is wrapped: codes, messages, blamed parameters, numbers and waits.

Providers, gateways and proxies wrap each other's errors as nested objects, arrays, JSON inside a string, or text
around JSON. Only fields that carry an error are read: some bodies repeat the request, and a conversation about
errors must not be taken for an error."""

import re
from itertools import islice
from typing import Any, NamedTuple, cast

import msgspec

MAX_DEPTH = 8
MAX_NODES = 400
MAX_MESSAGE_CHARACTERS = 16_000
"""How much of one message is read."""
MAX_TOTAL_CHARACTERS = 4 * MAX_MESSAGE_CHARACTERS
MAX_NUMBERS = 32

_MESSAGE_FIELDS = frozenset(
    {
        "error", "errors", "message", "msg", "detail", "details", "description", "title", "reason", "cause", "raw",
        "statusmsg", "errormsg", "errormessage", "errordescription", "metadata", "baseresp", "violations",
        "innererror", "upstreamerror", "originalerror", "exception", "fault", "faultstring", "response", "result",
        "errordata", "content", "body", "text", "header", "originalmessage", "upstreammessage", "providermessage",
    }
)  # fmt: skip
_CODE_FIELDS = frozenset(
    {
        "code", "type", "status", "reason", "errorcode", "errortype", "statuscode", "httpcode", "httpstatus",
        "httpstatuscode", "statusname", "quotaid", "quotametric", "name", "errorname", "innercode",
        "originalstatuscode", "upstreamstatus", "upstreamstatuscode", "providerstatus", "providerstatuscode",
    }
)  # fmt: skip
_PARAMETER_FIELDS = frozenset({"param", "params", "parameter", "field", "path", "loc", "pointer"})
_ONLY_IF_ERROR = frozenset({"content", "body", "text", "result", "response", "header"})
"""Fields that contain an error only if they contain JSON."""
_WAIT_FIELD = re.compile(
    r"(?:quota|limit|ratelimit|next|suggested)?(?:retry|resets?|wait|backoff)"
    r"(?:delay|after|in|time|timestamp|at|on|date|period)?(?:ms|millis|milliseconds|s|secs?|seconds?|mins?|minutes?)?"
    r"|(?:secs?|seconds|ms|millis|milliseconds|minutes)(?:to|till|until|before)(?:the)?(?:next)?(?:retry|reset)"
    r"|estimated(?:time|wait)(?:s|secs?|seconds?)?"
)
_HTML = re.compile(r"\s*<(?:!doctype|html|head|body)", re.IGNORECASE)
_DIGITS = r"(?:\d{1,3}(?:[,_\u00a0\u202f]\d{3})+|\d+(?:\.\d+)?[kK]?)"
_NUMBER = re.compile(rf"(?<![A-Za-z0-9_.-])-?{_DIGITS}(?:(?=[ -]?tokens?)|(?![A-Za-z0-9_-]))")
_ADDRESS = re.compile(r"https?://\S+|\b[\w-]{1,80}\.(?:com|ai|io|cn|dev|net|org)\b\S*", re.IGNORECASE)
_COUNTED = re.compile(r"\b(input|prompt|total|message)_")
_REPLY_BOUND = re.compile(r"\bmax(?:[A-Z][a-z]{1,12}){0,2}Tokens?(?:Count)?\b")
"""Parameters such as `maxOutputTokens`, which are converted to snake case."""
_CJK = r"[\u3000-\u9fff\uac00-\ud7af\uff00-\uffef]"
_BESIDE_CJK = re.compile(rf"(?<={_CJK})(?=[a-z0-9_])|(?<=[a-z0-9_])(?={_CJK})")
"""Where Chinese, Japanese or Korean text meets a word or a number without a space."""
_IDENTIFIER = re.compile(
    r"\b(?:req|org|run|msg|call|chatcmpl|resp)[-_][\w-]{6,}|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-\w+"
)

_CODE_IN_FRONT = re.compile(r"^\s*\[\d{3,6}\](?=\S)", re.MULTILINE)
"""A code as Zhipu writes it: `[1210]…`."""


class ErrorFacts(NamedTuple):
    """The facts in an error body."""

    text: str = ""
    """All messages, one per line."""
    codes: frozenset[str] = frozenset()
    """Codes, types and status names in lower case. Those of MiniMax start with `base_resp:`."""
    parameters: tuple[str, ...] = ()
    """The parameters that the provider blames, in lower case."""
    waits: tuple[tuple[str, str], ...] = ()
    """The fields that name a wait, with their values."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of another provider that a gateway passes on in the body."""

    @property
    def words(self) -> str:
        """Return the messages in lower case, without addresses and ids, with spaces around words in CJK text."""
        text = _COUNTED.sub(r"\1 ", _IDENTIFIER.sub(" ", _ADDRESS.sub(" ", self.text)))
        text = _REPLY_BOUND.sub(lambda found: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[0]), text)
        text = re.sub(r"[`'\"*]", "", re.sub(r"([a-z])([A-Z])", r"\1 \2", text)).lower()
        return text if text.isascii() else _BESIDE_CJK.sub(" ", text)

    @property
    def numbers(self) -> list[float]:
        """Return the first numbers in the messages, in order. A code in front of a message is not one of them."""
        found = _NUMBER.finditer(_CODE_IN_FRONT.sub(" ", _IDENTIFIER.sub(" ", _ADDRESS.sub(" ", self.text))))
        return [_parse_number(number[0]) for number in islice(found, MAX_NUMBERS)]

    def has_code(self, *codes: str) -> bool:
        return not self.codes.isdisjoint(codes)


def read_error(body: str) -> ErrorFacts:
    """Return the facts in an error body. An HTML page contains none."""
    if _HTML.match(body):
        return ErrorFacts()
    reader = _ErrorReader()
    reader.read(_decode(body), 0, is_message=True)
    return ErrorFacts(
        "\n".join(dict.fromkeys(reader.texts))[:MAX_TOTAL_CHARACTERS],
        frozenset(reader.codes),
        tuple(dict.fromkeys(reader.parameters)),
        tuple(reader.waits),
        tuple(reader.headers),
    )


class _ErrorReader:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.codes: set[str] = set()
        self.parameters: list[str] = []
        self.waits: list[tuple[str, str]] = []
        self.headers: list[tuple[str, str]] = []
        self._nodes = 0

    def read(self, value: Any, depth: int, *, is_message: bool) -> None:
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            return
        if isinstance(value, str):
            self._read_text(value, depth, is_message)
        elif isinstance(value, dict):
            for name, inner in cast("dict[str, Any]", value).items():
                self._read_field(re.sub(r"[_\-@. ]", "", name).lower(), name, inner, depth)
        elif isinstance(value, list):
            for inner in cast("list[Any]", value):
                self.read(inner, depth + 1, is_message=is_message)

    def _read_text(self, text: str, depth: int, is_message: bool) -> None:
        text = text[:MAX_TOTAL_CHARACTERS]
        start, end = _find_json(text)
        inner = _decode(text[start:end]) if end > start else None
        if isinstance(inner, dict | list) and inner:
            around = f"{text[:start]} {text[end:]}".strip()
            if is_message and around:
                self.texts.append(around[:MAX_MESSAGE_CHARACTERS])
            if isinstance(inner, dict) or any(isinstance(each, dict) for each in cast("list[Any]", inner)):
                self.read(inner, depth + 1, is_message=is_message)
            elif is_message:
                self.texts.append(text[:MAX_MESSAGE_CHARACTERS])
        elif is_message and text.strip():
            self.texts.append(text.strip()[:MAX_MESSAGE_CHARACTERS])

    def _read_field(self, name: str, spelled: str, value: Any, depth: int) -> None:
        if name == "baseresp" and isinstance(value, dict):
            code = cast("dict[str, Any]", value).get("status_code")
            if code not in (None, 0, "0"):
                self.codes.add(f"base_resp:{code}")
                self.read(value, depth + 1, is_message=True)
            return
        if name in _CODE_FIELDS and isinstance(value, str | int) and value is not True:
            self._add_code(str(value))
        if name in _PARAMETER_FIELDS:
            self._add_parameter(value)
        elif _WAIT_FIELD.fullmatch(name) and (wait := _read_wait(value)) is not None:
            self.waits.append((spelled.lower(), wait))
        elif name == "headers" and isinstance(value, dict):
            found = cast("dict[str, Any]", value).items()
            self.headers += [(key.lower(), str(each)) for key, each in found if isinstance(each, str | int | float)]
        elif name in _MESSAGE_FIELDS:
            self.read(value, depth + 1, is_message=name not in _ONLY_IF_ERROR)
        elif isinstance(value, dict | list) and depth < 2 and name in ("data", "upstream", "provider"):
            self.read(value, depth + 1, is_message=True)

    def _add_code(self, code: str) -> None:
        if 0 < len(code) <= 80 and " " not in code.strip():
            self.codes.add(code.strip().rpartition("#")[2].lower())

    def _add_parameter(self, value: Any) -> None:
        if isinstance(value, list):
            value = ".".join(str(part) for part in cast("list[Any]", value))
        if isinstance(value, str) and value.strip():
            if len(value.split()) > 3:  # a sentence in the wrong field
                self.texts.append(value[:MAX_MESSAGE_CHARACTERS])
            else:
                self.parameters.append(value.strip().lower())


def _read_wait(value: Any) -> str | None:
    """Return a wait as it is written: a number, a duration, a time, or `{"seconds": 34, "nanos": 0}`."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if not fields or not fields.keys() <= {"seconds", "nanos"}:
            return None
        try:
            return f"{float(fields.get('seconds') or 0) + float(fields.get('nanos') or 0) / 1e9:f}s"
        except (TypeError, ValueError, OverflowError):
            return None
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _find_json(text: str) -> tuple[int, int]:
    """Return where JSON may be in a text: from the first opening bracket to the last closing one."""
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    return min(starts, default=len(text)), max(text.rfind("}"), text.rfind("]")) + 1


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def _parse_number(number: str) -> float:
    thousands = number[-1] in "kK"
    digits = re.sub(r"[^\d.-]", "", number)
    value = float(digits) * (1000 if thousands else 1)
    return value if abs(value) < 1e15 else 0.0
