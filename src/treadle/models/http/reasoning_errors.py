"""Recognises refused requests whose reasoning must not be there, or is missing."""

import re

import msgspec

from treadle.domain.messages import Thinking, ToolUse
from treadle.ports.model import Failed, ModelRequest

_STATUSES = (400, 422, None)
_REASONING_FIELD = re.compile(r"reasoning[_ ]?(?:content|details)|thought[_ ]?signature", re.IGNORECASE)
_MISSING = re.compile(
    r"must be (?:passed|provided|included|present|sent|returned)|missing|is required|requires|not provided",
    re.IGNORECASE,
)


def add_reasoning_repair(failed: Failed, request: ModelRequest) -> Failed:
    """Return the failure with the repair to try next: the conversation with a placeholder for missing reasoning;
    or the conversation without reasoning, if it carries some and the provider names no other cause."""
    if failed.status not in _STATUSES or failed.kind != "invalid_request":
        return failed
    if _REASONING_FIELD.search(failed.message) and _MISSING.search(failed.message):
        return msgspec.structs.replace(failed, repair=True, wants_reasoning=not request.filled)
    if failed.repair or request.plain or not _carries_reasoning(request):
        return failed
    return msgspec.structs.replace(failed, repair=True)


def _carries_reasoning(request: ModelRequest) -> bool:
    """Return whether anything other than text and calls is sent back to the model."""
    if request.filled:
        return True
    provider, model = request.provider, request.model
    for message in request.conversation.messages:
        for part in message.parts:
            if isinstance(part, Thinking) and (part.is_from(provider, model) or part.belongs_to(provider, model)):
                return True
            if isinstance(part, ToolUse) and part.extra is not None and part.extra.is_from(provider, model):
                return True
    return False
