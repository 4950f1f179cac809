"""Decides whether an error says that the conversation is too long for the model, or that the reply limit is too
large.

No provider's sentence is listed here. Evidence is added up instead: error codes, the status, words about the input
together with words about an excess, in any order and several languages, and numbers compared with each other, with
the size of the request and with the context window."""

import re
from enum import Enum
from typing import NamedTuple

from treadle.models.http import overflow_words as said
from treadle.models.http.error_facts import ErrorFacts
from treadle.models.http.request_size import RequestSize

OVERFLOW_POINTS = 3
"""The number of points at which an error counts as overflow."""
NEARLY_FULL_SHARE = 0.75
"""Share of the window above which the input is the problem and not the reply limit."""
MIN_REPLY_TOKENS = 256
"""A reply limit below this is not worth a retry."""
MAX_TOKEN_COUNT = 1e15
"""A larger number is not a count of tokens."""
_MIN_LIMIT = 1000
"""A smaller number is not the limit of a conversation: names, ids and lists have such limits."""


class Blame(Enum):
    """What is too large."""

    NOTHING = "nothing"
    CONVERSATION = "conversation"
    REPLY = "reply"
    """The reply limit in the request."""


class OverflowVerdict(NamedTuple):
    blame: Blame
    longest_reply: int | None = None
    """A reply limit that should be accepted, if the error gives one."""


NO_OVERFLOW = OverflowVerdict(Blame.NOTHING)
_BLAMED = re.compile(r"invalid (?:value for |parameter:? )?[`'\"]?([\w.\[\]]+)[`'\"]?:")
_CHARACTER_LIMIT = re.compile(
    r"(?:at most|up to|max(?:imum)?(?: of| is)?|exceeds?|limit(?:ed)?(?: of| to| is)?|longer than|more than)"
    r" (\d[\d,]{0,12}) (?:characters?|chars?)\b|string with max\w* length (\d[\d,]{0,12})"
)


# ── A single request larger than a rate limit ──────────────────────────────────────────────────────

_LIMIT_AND_REQUESTED = re.compile(
    r"\blimit:? *(\d[\d,]*)(?:[^.]{0,40}\bused:? *\d[\d,]*)?[^.]{0,40}\brequested:? *(\d[\d,]*)"
)
_NOT_THE_REQUEST = r"(?!limit|exceed|max|\bper\b|minute|\blast\b|\bpast\b|\bused?\b|already|so far|every|allow)"
_REQUESTED = re.compile(
    rf"\b(?:request(?:ed|s|ing)?|needs?|requires?|prompt|input|messages?)\b(?:{_NOT_THE_REQUEST}[^\d.;]){{0,40}}(\d[\d,]*)"
)
"""The size of this request: a number after a word for it, with nothing about a limit or the past between them."""
_RATE_LIMIT = re.compile(
    r"\b(?:limit|max(?:imum)?|allowed|allows?|up to|at most)\b[^\d.;]{0,40}(\d[\d,]*)"
    r"|(\d[\d,]*) ?(?:(?:input |prompt )?tokens? ?)?(?:per[ _-]?min|/ ?min|tpm\b|a minute)"
)


def exceeds_rate_alone(facts: ErrorFacts) -> bool:
    """Return whether the error says that this single request exceeds a rate limit, so that waiting cannot help."""
    words = facts.words
    if (found := _find_rate_and_request(words)) is not None:
        limit, requested = found
        return requested > limit
    return said.RATE.search(words) is not None and said.THIS_REQUEST.search(words) is not None


def _find_rate_and_request(words: str) -> tuple[float, float] | None:
    """Return a rate limit and the size of this request, named in any order, or None."""
    if found := _LIMIT_AND_REQUESTED.search(words):
        return _parse_number(found[1]), _parse_number(found[2])
    if said.RATE.search(words) is None:
        return None
    limits = {place: number for place, number in _find_numbers(_RATE_LIMIT, words) if number >= _MIN_LIMIT}
    requests = [number for place, number in _find_numbers(_REQUESTED, words) if place not in limits]
    return (max(limits.values()), max(requests)) if limits and requests else None


def _find_numbers(pattern: re.Pattern[str], words: str) -> list[tuple[int, float]]:
    """Return the places and values of the numbers that a pattern finds."""
    groups = [(found, 1 if found[1] else 2) for found in pattern.finditer(words)]
    return [(found.start(group), _parse_number(found[group])) for found, group in groups]


# ── The verdict ────────────────────────────────────────────────────────────────────────────────────


def judge_overflow(status: int | None, facts: ErrorFacts, size: RequestSize) -> OverflowVerdict:
    """Return what an error says is too large. The status must be one that a bad request may have."""
    words = said.MIXED_INPUT.sub(" input ", facts.words)
    if exceeds_rate_alone(facts):
        left = _find_reply_within_rate(words, size)
        return OverflowVerdict(Blame.CONVERSATION) if left is None else OverflowVerdict(Blame.REPLY, left)
    blamed = " ".join((*facts.parameters, *_BLAMED.findall(words)))
    if (reply := _judge_reply_limit(facts, words, blamed, size)) is not None:
        return reply
    by_code = _has_overflow_code(facts)
    if not by_code and (_is_about_something_else(words, blamed) or said.ELSEWHERE.search(words)):
        return NO_OVERFLOW
    points = OVERFLOW_POINTS if by_code else _count_points(status, facts, words, size)
    if points >= OVERFLOW_POINTS:
        return OverflowVerdict(Blame.CONVERSATION)
    return NO_OVERFLOW


def _has_overflow_code(facts: ErrorFacts) -> bool:
    codes = {re.sub(r"[^a-z0-9_:.]", "_", code) for code in facts.codes}
    if "string_above_max_length" in codes and any(said.SMALL_FIELD.search(each) for each in facts.parameters):
        return False
    return bool(codes & said.CODE_NUMBERS) or any(said.CODES.search(code) for code in codes)


def _is_about_something_else(words: str, blamed: str) -> bool:
    """Return whether a picture, a file, a tool or a small field is too large, and not the conversation."""
    if said.CONTEXT.search(said.MEDIA_TOKENS.sub(" ", words)):
        return False
    if said.MEDIA_BLAMED.search(words) or (blamed and said.SMALL_FIELD.search(re.sub(r"\d", "", blamed))):
        return True
    if said.SMALL_SUBJECT.search(words) or _is_short_string(words):
        return True
    if said.MEDIA.search(words) and not re.search(r"\b(?:prompt|tokens?)\b", words):
        return True
    return said.TOOLS.search(words) is not None and not re.search(r"\btokens?\b|\bprompt\b", words)


def _is_short_string(words: str) -> bool:
    """Return whether the limit is a small number of characters, as for names, ids and keys."""
    found = _CHARACTER_LIMIT.search(words)
    return found is not None and _parse_number(found[1] or found[2]) < _MIN_LIMIT


def _count_points(status: int | None, facts: ErrorFacts, words: str, size: RequestSize) -> int:
    """Return the evidence for a conversation that is too long, in points."""
    numbers = [number for number in facts.numbers if number >= _MIN_LIMIT]
    excess, bound = said.EXCESS.search(words) is not None, said.BOUND.search(words) is not None
    points = 0
    if said.CONTEXT.search(words) and (excess or bound or len(set(numbers)) > 1):
        points = OVERFLOW_POINTS
    elif said.INPUT.search(words) and said.MEASURE.search(words) and (excess or bound):
        points = 3 if excess and (numbers or not _is_vague(words)) else 2
    elif said.MEASURE.search(words) and (excess or (bound and len(set(numbers)) > 1)):
        points = 2
    if status == 413:
        points += 2
    if points and (numbers or _is_range(words)):
        points += 1
    if _has_size_and_limit(numbers, size):
        points += 2 if excess or bound else 3
    return points


def _is_vague(words: str) -> bool:
    """Return whether the excess may be that of a single field: `string too long`, `array too long`."""
    return re.search(r"\b(?:string|array|list|field|value|name)\b", words) is not None


def _is_range(words: str) -> bool:
    return re.search(r"(?:input|prompt)[ _]?length.{0,20}(?:should|must) be", words) is not None


def _has_size_and_limit(numbers: list[float], size: RequestSize) -> bool:
    """Return whether one number may be the size of the request and a smaller one its limit."""
    near = [number for number in numbers if size.is_near(number)]
    return any(limit < number for number in near for limit in numbers)


# ── The reply limit ────────────────────────────────────────────────────────────────────────────────

_BEFORE_LABEL = re.compile(
    r"(\d[\d,]*) (?:tokens )?"
    r"(?:(?:in|for) (?:the|your) (?:completion|output|response|reply)|max_\w*tokens|output tokens)"
)
_AFTER_LABEL = re.compile(r"(?:max_\w*tokens|(?:generation|completion|output) length)\D{0,25}?(\d[\d,]*)")
_BEDROCK_FRAME = re.compile(r"malformed input request|please reformat your input and try again")
"""Text that Bedrock wraps around every error. It has nothing to do with the length of the input."""
_EXCLUSIVE = re.compile(r"(\d[\d,]*) ?\(exclusive\)")
_SUM = re.compile(r"(\d[\d,]*)\)? ?\+ ?(?:[a-z_]{1,20} ){0,4}[(:=]? ?(\d[\d,]*)\D{1,30}(\d[\d,]*)")


def _judge_reply_limit(facts: ErrorFacts, words: str, blamed: str, size: RequestSize) -> OverflowVerdict | None:
    """Return the verdict if the error is about the reply limit, else None."""
    if re.search(r"max_\w*tokens.{0,40}(?:got|value|:) *-\d", words):  # nothing is left of the window
        return OverflowVerdict(Blame.CONVERSATION)
    words = _BEDROCK_FRAME.sub(" ", words)
    names_reply = said.REPLY.search(words) is not None or said.REPLY_PARAMETER.search(blamed) is not None
    if not names_reply or "budget_tokens" in words:
        return None
    if "not supported" in words or "unsupported parameter" in words:
        return NO_OVERFLOW
    rest = re.sub(r"max_(?!(?:input|prompt)_)\w*tokens", " ", words)
    about_input = (
        said.INPUT_SHARE.search(rest) is not None
        and re.search(r"\btokens?\b|\blength\b|\bcontext\b|\d\)? ?\+", rest) is not None
    )
    if about_input:
        return _judge_shared_limit(facts, words, size)
    upper = said.LOWER_BOUND.sub(" ", words)
    if said.TOO_LARGE.search(upper) or re.search(r"less_than|max", " ".join(facts.codes)):
        return OverflowVerdict(Blame.REPLY, _find_largest_accepted(facts, size))
    if _is_refused_without_reason(words, upper):
        return OverflowVerdict(Blame.REPLY)
    return None


def _is_refused_without_reason(words: str, upper: str) -> bool:
    """Return whether the reply limit is refused and nothing says why: it is then too large, since it is a positive
    number."""
    return words == upper and said.INVALID_VALUE.search(words) is not None and not said.NOT_ITS_SIZE.search(words)


def _find_largest_accepted(facts: ErrorFacts, size: RequestSize) -> int | None:
    """Return the largest limit that the error mentions below the one that was sent."""
    beyond = {_parse_number(number): _parse_number(number) - 1 for number in _EXCLUSIVE.findall(facts.words)}
    numbers = sorted({beyond.get(number, number) for number in facts.numbers if number >= MIN_REPLY_TOKENS})
    sent = size.longest_reply
    below = [number for number in numbers if sent is None or number < sent]
    if sent is None and len(below) > 1:
        below.pop()  # the limit that was sent, or the server's own
    return int(below[-1]) if below else None


def _judge_shared_limit(facts: ErrorFacts, words: str, size: RequestSize) -> OverflowVerdict | None:
    """Return the verdict on an input and a reply that do not fit together."""
    if not (said.EXCESS.search(words) or said.BOUND.search(words) or said.CONTEXT.search(words)):
        return None
    left = _find_fitting_reply(facts, words, size)
    return OverflowVerdict(Blame.CONVERSATION) if left is None else OverflowVerdict(Blame.REPLY, left)


def _find_fitting_reply(facts: ErrorFacts, words: str, size: RequestSize) -> int | None:
    """Return the reply limit with which input and reply fit, or None if the input itself is too long."""
    if said.REPLY.search(words) is None:
        return None
    if (added := _SUM.search(words)) is not None:
        return _find_room_left(words, *map(_parse_number, added.groups()))
    numbers = [number for number in facts.numbers if number >= 1]
    replies = [size.longest_reply] if size.longest_reply in numbers else _find_labelled_replies(words)
    for reply in replies:
        if reply is None:
            continue
        for limit in sorted({number for number in numbers if number >= _MIN_LIMIT}):
            for sent in numbers:
                if (
                    sent < NEARLY_FULL_SHARE * limit
                    and sent + reply > limit
                    and sent != reply
                    and _are_related(numbers, sent, reply, limit)
                ):
                    left = int(limit - sent - max(64, 0.02 * limit))
                    return left if left >= MIN_REPLY_TOKENS else None
    return None


def _find_room_left(words: str, first: float, second: float, limit: float) -> int | None:
    """Return what remains of a limit after the input, if the sum of input and reply exceeds the limit. The two
    numbers are in the order in which they are named."""
    shares = said.INPUT_SHARE.search(words), said.REPLY.search(words)
    input_first = shares[0] is None or shares[1] is None or shares[0].start() < shares[1].start()
    sent = first if input_first else second
    left = int(limit - sent - max(64, 0.02 * limit))
    return left if sent < NEARLY_FULL_SHARE * limit and left >= MIN_REPLY_TOKENS else None


def _are_related(numbers: list[float], sent: float, reply: float, limit: float) -> bool:
    """Return whether three numbers are an input, a reply and their limit: their sum is mentioned, or nothing else
    is."""
    others = set(numbers) - {sent, reply, limit}
    return sent + reply in numbers or not {number for number in others if number >= MIN_REPLY_TOKENS}


def _find_labelled_replies(words: str) -> list[float | None]:
    """Return the numbers that the error labels as reply limits."""
    found = _BEFORE_LABEL.findall(words) or _AFTER_LABEL.findall(words)
    return [_parse_number(value) for value in found]


def _parse_number(digits: str) -> float:
    return min(float(digits.replace(",", "")), MAX_TOKEN_COUNT)


def _find_reply_within_rate(words: str, size: RequestSize) -> int | None:
    """Return a reply limit that fits a rate limit which counts input and reply limit together."""
    found = _find_rate_and_request(words)
    if found is None or size.longest_reply is None:
        return None
    limit = found[0]
    left = int(limit - 1.25 * size.tokens - 64)
    return left if size.tokens < limit / 2 and MIN_REPLY_TOKENS <= left < size.longest_reply else None
