"""Recognises refused requests that carried an output schema which the server does not accept."""

import re

import msgspec

from treadle.models.http.reasoning_errors import remove_model
from treadle.ports.model import Failed, ModelRequest

_STATUSES = (400, 404, 422, 500, 501, None)
"""OpenRouter answers 404 if no provider accepts the parameters, llama.cpp 500 if it cannot make a grammar."""
_FIELD = re.compile(
    r"response[_ ]?(?:format|mime[_ ]?type|schema)|json[_ ]schema|output[_ ](?:config|format)(?!\.effort)"
    r"|text\.format|(?:parameter|field|argument|property)s?:? ?[`'\"]?text\b|structured[_ -]?outputs?|guided[_ ]"
    r"|\): extra (?:inputs|fields) (?:are )?not permitted|json mode|\bgrammar\b"
    r"|\bschema (?:is|was|has|contains|cannot|must|too)\b|handle the requested parameters",
    re.IGNORECASE,
)
"""The field of the schema as formats and servers call it, the schema itself, or a field that is not named."""


def add_schema_repair(failed: Failed, request: ModelRequest) -> Failed:
    """Return the failure with the repair to try next: the request without the output schema. It is tried if the
    provider names the schema, or names no reason at all."""
    if not request.constrained or failed.status not in _STATUSES or failed.once or failed.repair or failed.compact:
        return failed
    if failed.kind not in ("invalid_request", "not_found", "server"):
        return failed
    if failed.unclear or _FIELD.search(remove_model(failed.message, request.model)) is not None:
        return msgspec.structs.replace(failed, refuses_schema=True)
    return failed
