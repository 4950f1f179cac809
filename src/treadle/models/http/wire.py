"""Helpers of all wire formats: JSON and ids that every provider accepts, and token estimates."""

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeVar, cast

import msgspec

from treadle.domain.json_text import ObjectProgress, is_too_deep
from treadle.domain.limits import MAX_REPLY_PARTS, MAX_REPORTED_TOKENS
from treadle.models.finish import Ending
from treadle.models.http import surrogates

CHARACTERS_PER_TOKEN = 4
"""Used for estimates if the provider does not report usage."""

NO_ARGUMENTS = ("", "null", '""')
"""What models write for a tool without arguments. All of them mean an empty object."""
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_Kind = TypeVar("_Kind")
_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_MAX_ID_CHARACTERS = 64
_is_legal = re.compile(rf"[a-zA-Z0-9_-]{{1,{_MAX_ID_CHARACTERS}}}").fullmatch
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")


class UnusableReply(ValueError):
    """The reply violates the wire format; the message says how."""


class ReplyEndedInError(UnusableReply):
    """The provider ended its reply with a finish word that means failure, and gave no other reason."""

    def __init__(self, word: str) -> None:
        super().__init__(f"it ended with `{word}`")
        self.word = word


def check_end(ending: Ending, has_calls: bool) -> None:
    """Raise UnusableReply if a reply with this end cannot be used: it failed, it contains a malformed call, or it
    contains calls and its end is unknown."""
    match ending.end:
        case "failed":
            raise ReplyEndedInError(ending.word or "error")
        case "malformed":
            raise UnusableReply(f"it ended with `{ending.word}`, so the call in it cannot be read")
        case "unknown" if has_calls:
            raise UnusableReply(
                f"it ended with `{ending.word}`, which is not a known end, so its calls are not run"
            )
        case _:
            pass


def check_parts(count: int) -> None:
    """Raise UnusableReply if a reply that has this many parts gets another one."""
    if count >= MAX_REPLY_PARTS:
        raise UnusableReply(f"it has more than {MAX_REPLY_PARTS} parts")


def read_count(value: Any) -> int | None:
    """Return a token count, which some servers send as text or as a float, or None if it is not a count."""
    if type(value) is int and 0 <= value <= MAX_REPORTED_TOKENS:  # nearly always
        return value
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MAX_REPORTED_TOKENS else None


def as_fields(value: Any) -> dict[str, Any]:
    """Return a JSON object, or {} for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def encode(value: Any) -> bytes:
    """Return JSON that any server accepts, also for text with lone surrogates."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return surrogates.encode_json(value)


def make_reader(kind: type[_Kind]) -> Callable[[bytes], _Kind]:
    """Return a decoder of events that also accepts lone surrogates and numbers that JSON does not have, such as
    NaN, as null. It raises UnusableReply."""
    decode = msgspec.json.Decoder(kind).decode

    def read(payload: bytes) -> _Kind:
        try:
            return decode(payload)
        except UNREADABLE:
            pass
        try:
            return decode(surrogates.encode_json(surrogates.decode_json(payload, lambda _: None)))
        except ValueError as error:  # msgspec's errors are ValueErrors too
            raise UnusableReply(f"an event of it cannot be read ({error})") from error

    return read


def normalize_object(text: str) -> str | None:
    """Return the text of a JSON object without lone surrogates, or None if it is not an object. An object that is
    nested too deeply is returned as it is: its call fails, and the model is told why."""
    if is_too_deep(text):
        return text if _is_whole(text) else None
    try:
        _decode_object(text)
        return text
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    try:
        value = surrogates.decode_json(text)
    except ValueError:
        return None
    return surrogates.encode_json(value).decode() if isinstance(value, dict) else None


def have_other_arguments(streamed: str, final: str) -> bool:
    """Return whether the arguments of a call that were streamed and those of its final form are both complete and
    differ. Then it is unknown which of them the model meant. An empty object is sent as a placeholder."""
    placeholders = (*NO_ARGUMENTS, "{}")
    if streamed == final or streamed.strip() in placeholders or final.strip() in placeholders:
        return False
    try:
        return _decode_object(streamed) != _decode_object(final)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def check_arguments(name: str, streamed: str, final: str) -> None:
    """Raise UnusableReply if a call came with two different arguments."""
    if have_other_arguments(streamed, final):
        raise UnusableReply(f"the call of {name or 'a tool'} came with two different arguments, so neither is run")


def _is_whole(text: str) -> bool:
    progress = ObjectProgress()
    progress.add(text)
    return progress.has_ended


def as_arguments(arguments: str) -> msgspec.Raw:
    """Return the arguments of a call as a JSON value, for formats that require an object and not its text."""
    found = None if is_too_deep(arguments) else normalize_object(arguments or "{}")
    return msgspec.Raw(found.encode() if found is not None else encode({"arguments": arguments}))


def sanitize_id(call_id: str) -> str:
    """Return the id of a call in the form that every provider accepts. Different ids stay different."""
    if _is_legal(call_id):
        return call_id
    legal = _ILLEGAL.sub("_", call_id)
    digest = blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{legal[: _MAX_ID_CHARACTERS - len(digest) - 1]}_{digest}"


def estimate_tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)
