"""Recognises refused requests whose conversation has the wrong structure: roles in the wrong order, results without
their calls, empty messages, or reasoning that must not be there."""

import re

from treadle.models.http.error_facts import ErrorFacts
from treadle.models.http.patterns import any_of

_NAMED = re.compile(
    "|".join(
        (
            "tool_use`? ids",
            "each tool_use must",
            "`?signature`? in `?thinking",
            "redacted_thinking` blocks",
            "content blocks must be non-empty",
            "must have non-empty content",
            "low surrogate",
            "must be followed by tool messages",
            "No tool output found",
            "No tool call found",
            "required following item",
            "expected `?thinking",
            "cannot (?:contain|be) `?thinking",
            "first block must be `?thinking",
            "unexpected `?tool_use_id",
            r"did not find \d+ `?tool_result",
            "must contain non-whitespace text",
            "invalid_encrypted_content",
            "encrypted content is not supported",
            "items are not persisted",
        )
    ),
    re.IGNORECASE,
)
"""Details that no other error mentions."""
_CODES = frozenset({"invalid_request_message_order", "invalid_request_assistant_message"})
_ROLES = any_of(
    r"""
    \b(?:roles?|turns?|messages?|conversation)\b[^.]{0,60}\balternat\w+
    \balternat\w+\b[^.]{0,60}\b(?:roles?|turns?|messages?|user|assistant)\b
    \bunexpected role\b  \bexpected (?:last|first|next) (?:message |turn )?role\b
    \bconsecutive (?:user|assistant|system|tool|messages|roles)\b
    \b(?:last|first|final|system) message must (?:be|have|come)\b
    """
)
"""Roles in the wrong order."""
_RESULT = any_of(
    r"""
    \b(?:tool|function)(?:[ _-]call)?[ _-]?(?:results?|responses?|outputs?|messages?)\b  \btool_call_ids?\b
    \btool_use_ids?\b  \brole:? tool\b  \bcalls and responses\b  \bfunction call turn\b  \btools? id\b
    """
)
_RELATION = any_of(
    r"""
    \bpreced\w+  \bprevious\b  \bfollow\w*\b  \bimmediately\b  \bnumber of\b  \bsame number\b  \bequal to\b
    \bnot found\b  \bcorrespond\w*  \bwithout\b  \borphan\w*  \bexpected tool  \bdoes not (?:match|exist)\b
    \bno matching\b  \bmissing\b  \bunmatched\b  \bbefore\b  \bafter\b  \bunknown\b
    """
)
"""How a result and its call should relate."""
_EMPTY = any_of(
    r"""
    \b(?:messages?|content|assistant|text field)\b(?:[^.]|\.\S){0,60}\b(?:non-?|is|was|are|be) ?(?:empty|blank)\b
    \b(?:empty|blank) (?:\w+ )?(?:messages?|content|assistant)\b
    \bat least one content\b  \bcontent or tool_calls\b  \bcontent and tool_calls\b
    """
)
"""A message without content."""
_TEMPLATE = any_of(
    r"""
    \bat row \d+, column \d+  \bjinja\d?\b  \btemplate ?(?:error|exception)\b
    \broles? (?:is |are )?(?:not )?supported\b
    """
)
"""An exception of a chat template, which some servers return as a 500."""


def has_wrong_structure(facts: ErrorFacts, said: str) -> bool:
    """Return whether an error is about the structure of the conversation. `said` holds its words and codes."""
    if facts.has_code(*_CODES) or _NAMED.search(said) is not None:
        return True
    words = facts.words
    if _ROLES.search(words) is not None or _EMPTY.search(words) is not None:
        return True
    return _RESULT.search(words) is not None and _RELATION.search(words) is not None


def is_template_error(facts: ErrorFacts) -> bool:
    """Return whether a chat template refused the conversation, whatever status the server sends."""
    return _ROLES.search(facts.words) is not None or _TEMPLATE.search(facts.words) is not None
