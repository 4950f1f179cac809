"""What the errors of providers mean, in one table. The first rule that fits an answer wins; each has examples."""

import re
from collections.abc import Container
from typing import Any, NamedTuple, cast

from treadle.domain.events import ModelErrorKind


class Example(NamedTuple):
    """An answer that a rule is for, as it was seen. A status of None: inside a stream that began well."""

    status: int | None
    body: str


class Rule(NamedTuple):
    """Fits an answer with one of `statuses` (none given: any) whose body matches `words`; says what to do next."""

    kind: ModelErrorKind
    next_step: str
    examples: tuple[Example, ...]
    statuses: Container[int | None] | None = None
    words: re.Pattern[str] | None = None
    retry: bool = False
    compact: bool = False
    repair: bool = False
    next_key: bool = False
    next_model: bool = False

    def fits(self, status: int | None, body: str) -> bool:
        if self.statuses is not None and status not in self.statuses:
            return False
        return self.words is None or self.words.search(body) is not None


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_PAY = "Add credit or raise the spending limit in your account there; trying again will not help."
_SLOW_DOWN = "Treadle waits and tries again; fewer runs at a time, or a higher limit there, avoid it."
PASSES = "It usually passes; Treadle tries again."
_SHORTEN = "Shorten the conversation or the message, or use a model with a larger context window."
_REPAIR = "Treadle sends the conversation once more in its plainest form."

RULES = (
    Rule(
        "billing",
        _PAY,
        (
            Example(429, '{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}'),
            Example(
                429,
                '{"type":"error","error":{"type":"rate_limit_error","message":"Monthly limit reached",'
                '"details":{"error_code":"enforced_spend_limit_reached"}}}',
            ),
            Example(400, '{"error":{"code":"billing_hard_limit_reached"}}'),
            Example(400, '{"error":{"message":"Your credit balance is too low to access the API."}}'),
            Example(400, '{"error":{"message":"You have reached your specified API usage limits."}}'),
        ),
        words=_words(
            "insufficient_quota",
            "billing_hard_limit",
            "enforced_spend_limit_reached",
            "credit balance is too low",
            "reached your specified API usage limits",
        ),
        next_key=True,
        next_model=True,
    ),
    Rule(
        "overflow",
        _SHORTEN,
        (
            Example(400, '{"error":{"message":"prompt is too long: 205351 tokens > 200000 maximum"}}'),
            Example(400, '{"error":{"message":"This model\'s maximum context length is 128000 tokens."}}'),
            Example(400, '{"error":{"message":"Your input exceeds the context window of this model."}}'),
            Example(400, '{"error":{"message":"too long","code":"context_length_exceeded"}}'),
            Example(None, '{"error":{"code":"context_length_exceeded"}}'),
            Example(400, '{"error":{"type":"exceed_context_size_error"}}'),
            Example(400, '{"error":"input length exceeds the context length"}'),
            Example(400, "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"),
        ),
        words=_words(
            "prompt is too long",
            "maximum context length",
            "exceeds? the (?:available )?context",
            "context_length_exceeded",
            "exceed_context_size",
            "exceed context limit",
        ),
        compact=True,
    ),
    Rule(
        "overflow",
        _SHORTEN,
        (Example(413, '{"type":"error","error":{"type":"request_too_large"}}'), Example(413, "")),
        (413,),
        compact=True,
    ),
    Rule(
        "invalid_request",
        _REPAIR,
        (
            Example(
                400, "messages.5: `tool_use` ids were found without `tool_result` blocks immediately after: t1"
            ),
            Example(400, "messages.7: `tool_use` ids must be unique"),
            Example(400, "each tool_use must have a single result. Found multiple `tool_result` blocks"),
            Example(400, "messages.1.content.0: Invalid `signature` in `thinking` block"),
            Example(
                400,
                "messages.3.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message "
                "cannot be modified",
            ),
            Example(400, "messages: text content blocks must be non-empty"),
            Example(400, "all messages must have non-empty content except for the optional final message"),
            Example(400, "The request body is not valid JSON: no low surrogate in string: line 1 column 100"),
            Example(
                400,
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. The following tool_call_ids did not have response messages: call_1",
            ),
            Example(
                400, "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`"
            ),
            Example(400, "messages.3: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1"),
            Example(400, "Did not find 2 `tool_result` block(s) at the beginning of this message"),
            Example(400, "messages: text content blocks must contain non-whitespace text"),
            Example(400, "messages: roles must alternate between user and assistant"),
            Example(400, "No tool output found for function call call_x."),
            Example(400, "No tool call found for function call output with call_id call_x."),
            Example(400, "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
            Example(400, '{"error":{"code":"invalid_encrypted_content"}}'),
            Example(400, "Encrypted content is not supported with this model."),
            Example(404, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
            Example(None, '{"error":{"message":"No tool output found for function call call_x."}}'),
        ),
        (400, 404, 422, None),
        _words(
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
            "roles must alternate",
            "invalid_encrypted_content",
            "encrypted content is not supported",
            "items are not persisted",
        ),
        repair=True,
        next_model=True,
    ),
    Rule(  # what a chat template raises comes as a 500 from some servers
        "invalid_request",
        _REPAIR,
        (
            Example(500, "Conversation roles must alternate user/assistant/user/assistant/..."),
            Example(500, "After the optional system message, conversation roles must alternate user and assistant"),
        ),
        (400, 422, 500, None),
        _words("roles must alternate", "must alternate between"),
        repair=True,
        next_model=True,
    ),
    Rule(
        "not_found",
        "Check the model id `{model}` and that your account there may use it.",
        (
            Example(400, '{"error":{"message":"No such model","code":"model_not_found"}}'),
            Example(403, '{"error":{"message":"No access to model x","code":"model_not_found"}}'),
            Example(None, '{"error":{"code":"model_not_found"}}'),
        ),
        (400, 403, None),
        _words("model_not_found"),
        next_model=True,
    ),
    Rule(
        "auth",
        "Check the key in {key_setting}.",
        (
            Example(401, '{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'),
            Example(401, '{"error":{"message":"Incorrect API key provided: sk-x","code":"invalid_api_key"}}'),
            Example(403, '{"type":"error","error":{"type":"permission_error"}}'),
        ),
        (401, 403),
        next_key=True,
        next_model=True,
    ),
    Rule(
        "billing",
        _PAY,
        (Example(402, '{"type":"error","error":{"type":"billing_error"}}'),),
        (402,),
        next_key=True,
        next_model=True,
    ),
    Rule(
        "not_found",
        "Check the model id `{model}` and the base_url of provider {provider}.",
        (
            Example(404, '{"type":"error","error":{"type":"not_found_error","message":"model: claude-99"}}'),
            Example(404, '{"error":"model \'qwen99\' not found"}'),
            Example(405, "Method Not Allowed"),
        ),
        (404, 405),
        next_model=True,
    ),
    Rule(
        "not_found",
        "Set the base_url of provider {provider} to where it moved.",
        (Example(301, ""), Example(307, "")),
        range(300, 400),
        next_model=True,
    ),
    Rule(
        "timeout",
        PASSES,
        (
            Example(504, '{"type":"error","error":{"type":"timeout_error"}}'),
            Example(408, ""),
            Example(524, "<html><title>524: A timeout occurred</title></html>"),
        ),
        (408, 504, 524),
        retry=True,
        next_model=True,
    ),
    Rule(
        "rate_limited",
        _SLOW_DOWN,
        (
            Example(429, '{"error":{"message":"Please try again in 7m12s","code":"rate_limit_exceeded"}}'),
            Example(429, '{"type":"error","error":{"type":"rate_limit_error"}}'),
        ),
        (429,),
        retry=True,
        next_key=True,
        next_model=True,
    ),
    Rule(
        "overloaded",
        PASSES,
        (
            Example(529, '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
            Example(503, '{"error":"server busy, please try again.  maximum pending requests exceeded"}'),
        ),
        (503, 529),
        retry=True,
        next_model=True,
    ),
    Rule(
        "server",
        PASSES,
        (
            Example(500, '{"type":"error","error":{"type":"api_error"}}'),
            Example(502, "<html><head><title>502 Bad Gateway</title></head></html>"),
            Example(409, ""),
            Example(425, ""),
        ),
        (409, 425, *range(500, 600)),
        retry=True,
        next_model=True,
    ),
    Rule(
        "invalid_request",
        "Check that the model `{model}` takes what was sent.",
        (
            Example(400, '{"error":{"message":"Unsupported parameter: temperature","param":"temperature"}}'),
            Example(422, '{"detail":[{"msg":"field required"}]}'),
        ),
        range(400, 500),
        next_model=True,
    ),
    Rule(
        "rate_limited",
        _SLOW_DOWN,
        (Example(None, '{"error":{"message":"Rate limit reached for the model"}}'),),
        (None,),
        _words("rate.?limit"),
        retry=True,
        next_key=True,
        next_model=True,
    ),
    Rule(
        "overloaded",
        PASSES,
        (
            Example(None, '{"error":{"message":"The engine is currently overloaded"}}'),
            Example(None, '{"error":"server busy, please try again.  maximum pending requests exceeded"}'),
        ),
        (None,),
        _words("overloaded|server busy"),
        retry=True,
        next_model=True,
    ),
    Rule(
        "server",
        PASSES,
        (
            Example(None, '{"error":{"message":"The server had an error while processing your request"}}'),
            Example(None, '{"error":"an unexpected error"}'),
            Example(None, ""),
        ),
        retry=True,
        next_model=True,
    ),
)

_STATUS_OF = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "bio_policy": 400,
    "misalignment_policy_violation": 400,
    "data_residency_mismatch": 400,
    **dict.fromkeys(
        (
            "invalid_image",
            "invalid_image_format",
            "invalid_base64_image",
            "invalid_image_url",
            "invalid_image_mode",
            "image_too_large",
            "image_too_small",
            "image_parse_error",
            "image_content_policy_violation",
            "image_file_too_large",
            "unsupported_image_media_type",
            "empty_image_file",
            "failed_to_download_image",
            "image_file_not_found",
        ),
        400,
    ),
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that an error inside a stream would have had, by the word that it gives for its type or code."""


def rule_for(status: int | None, body: str) -> Rule:
    """The first rule that fits."""
    return next(rule for rule in RULES if rule.fits(status, body))


def status_in(error: Any) -> int | None:
    """The status that an error inside a stream would have had."""
    if not isinstance(error, dict):
        return None
    fields = cast("dict[str, Any]", error)
    for said in (fields.get("code"), fields.get("status"), fields.get("type")):
        if isinstance(said, int) and 400 <= said < 600:
            return said
        if isinstance(said, str) and said in _STATUS_OF:
            return _STATUS_OF[said]
    return None
