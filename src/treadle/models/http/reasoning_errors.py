"""Recognises refused requests whose reasoning must not be there, or is missing."""

import re

import msgspec

from treadle.domain.messages import Thinking, ToolUse
from treadle.ports.model import Failed, ModelRequest

_STATUSES = (400, 422, None)
_REASONING = re.compile(r"reasoning|thinking|thoughts?(?![a-z])|chain[- ]of[- ]thought|思考|推理", re.IGNORECASE)
_MISSING = re.compile(
    r"\bmust (?:be (?:passed|provided|included|present|sent|returned|preserved|kept|non-?empty)|start|begin|contain"
    r"|include|have|carry|provide|pass|send|return)|\b(?:pass|send|sent|passed|return(?:ed)?)(?: \w+)? back\b"
    r"|\bmissing\b|\brequire[sd]?\b|\bneeds?\b|\babsent\b|\black(?:s|ing)?\b|\bomitted\b|\bexpected\b"
    r"|\b(?:cannot|can't|must not|may not|should not) be (?:empty|null|none|blank|omitted|missing)\b"
    r"|\bnot (?:provided|found|present|returned|passed|included|sent|given)\b|缺少|缺失|必须|不能为空|回传",
    re.IGNORECASE,
)
_UNWANTED = re.compile(
    r"unsupported|\bnot (?:supported|permitted|allowed|accepted|recogni[sz]ed)\b|\bunexpected\b"
    r"|\bextra\b|\bunknown\b|\bunrecogni[sz]ed\b|\bremove\b|不支持"
    r"|\b(?:must|should|may|can)(?: ?not|n't) be (?:passed|provided|included|present|sent|returned)",
    re.IGNORECASE,
)
"""The provider does not accept reasoning at all."""


def add_reasoning_repair(failed: Failed, request: ModelRequest) -> Failed:
    """Return the failure with the repair to try next: the conversation with a placeholder for missing reasoning;
    or the conversation without reasoning, if it carries some and the provider names no other cause."""
    if failed.status not in _STATUSES or failed.kind != "invalid_request":
        return failed
    if is_reasoning_missing(remove_model(failed.message, request.model)):
        return msgspec.structs.replace(failed, repair=True, wants_reasoning=not request.filled)
    if failed.repair or request.plain or not _carries_reasoning(request):
        return failed
    return msgspec.structs.replace(failed, repair=True)


def is_reasoning_missing(message: str) -> bool:
    """Return whether a provider says that a conversation lacks the reasoning that led to a reply or call."""
    if _UNWANTED.search(message):
        return False
    return _REASONING.search(message) is not None and _MISSING.search(message) is not None


def remove_model(message: str, model: str) -> str:
    """Return a message without the id of the model, which may contain a word such as `thinking`."""
    return re.sub(rf"(?<![\w-]){re.escape(model)}(?![\w-])", "", message)


def _carries_reasoning(request: ModelRequest) -> bool:
    """Return whether anything other than text and calls is sent back to the model."""
    if request.filled:
        return True
    provider, model = request.provider, request.model
    for message in request.conversation.messages:
        for part in message.parts:
            if isinstance(part, Thinking) and (
                part.is_from(provider, model)
                or part.belongs_to(provider, model)
                or part.is_block_from(provider, model)
            ):
                return True
            if isinstance(part, ToolUse) and part.extra is not None and part.extra.is_from(provider, model):
                return True
    return False
