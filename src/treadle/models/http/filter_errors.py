"""Decides whether an error says that a content filter rejected the conversation. The same conversation is rejected
again."""

from typing import Final

from treadle.models.http.error_facts import ErrorFacts
from treadle.models.http.patterns import any_of

_FILTER_CODES: Final = any_of(
    r"""
    (?:\w+[._])?content_?(?:filter\w*|policy\w*|moderation\w*)  (?:\w+[._])*data_?inspection_?failed  1301
    responsibleaipolicyviolation  (?:\w+_)?moderation\w*  (?:\w+_)?safety(?:_\w+)?  refusal  hooks_failed
    prohibited_content  blocklist  recitation  spii  bio_policy  \w+_policy_violation  base_resp:102[67]
    guardrail\w*
    """
)
FILTERED: Final = any_of(
    r"""
    \binappropriate content\b  \bcontent (?:management|security|usage|safety)? ?(?:policy|policies|warning)\b
    \b(?:flagged|violat\w+|rejected|blocked|filtered)\b[^.]{0,60}\b(?:polic(?:y|ies)|guidelines|moderation|risk)\b
    \bunsafe content\b  \bsensitive (?:content|words?|information)\b  敏感  不安全  违规  不合规
    \bprohibited[_ ]content\b
    """
)
"""What a content filter says."""
_FLAGGED_INPUT: Final = any_of(
    r"""
    \b(?:input|prompt|content|message|request|text)\b[^.]{0,40}\b(?:was|is|were|been) (?:flagged|blocked|filtered)\b
    """
)
_ABOUT_ACCOUNT: Final = any_of(r"""\b(?:account|organi[sz]ation|project|api key|user)\b""")
_STATUSES: Final = (400, 403, 422, 451, None)


def has_filter_code(facts: ErrorFacts) -> bool:
    return any(_FILTER_CODES.fullmatch(code) for code in facts.codes)


def is_filter_error(status: int | None, facts: ErrorFacts) -> bool:
    """Return whether a content filter rejected the conversation. A provider that blocks an account says similar
    words."""
    if status not in _STATUSES:
        return False
    if has_filter_code(facts):
        return True
    if status == 403:
        return _FLAGGED_INPUT.search(facts.words) is not None and _ABOUT_ACCOUNT.search(facts.words) is None
    return FILTERED.search(facts.words) is not None
