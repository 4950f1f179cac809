"""The table of rules that classify provider errors. The first rule that matches a response applies. Each has
examples."""

from collections.abc import Mapping

from treadle.models.http.advice import SLOW_DOWN, USUALLY_PASSES
from treadle.models.http.error_facts import MAX_MESSAGE_CHARACTERS, read_error
from treadle.models.http.error_rule import (
    Decision,
    ErrorReport,
    ErrorRule,
    Example,
    blames_conversation,
    blames_reply,
    has_structure_error,
    has_template_error,
    is_daily_quota,
    is_filtered,
    is_out_of_credit,
    is_unreadable_call,
)
from treadle.models.http.error_status import find_effective_status
from treadle.models.http.overflow import NO_OVERFLOW, Blame, exceeds_rate_alone, judge_overflow
from treadle.models.http.patterns import match_any
from treadle.models.http.request_size import RequestSize
from treadle.models.http.retry_after import find_requested_wait
from treadle.models.http.stream_error_rules import RULES_OF_STREAMS

_PAY = "Add credit or raise the spending limit in your account there; trying again will not help."
_SHORTEN = (
    "Send /compact to summarise the conversation or /reset to start an empty one, or use a model with a larger "
    "context window."
)
_SHORTER_REPLY = "Lower max_tokens in the model_settings of the agent."
_REPAIR = "Send /reset to start an empty conversation if it persists."

RULES = (
    ErrorRule(
        "invalid_request",
        "The model wrote a call that its provider could not read; use another model if it persists.",
        (
            Example(
                400,
                '{"error":{"message":"Failed to call a function. Please adjust your prompt.","type":'
                '"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=x>"}}',
            ),
            Example(None, '{"error":{"message":"Failed to call a function.","code":"tool_use_failed"}}'),
            Example(400, '{"error":{"message":"Parsing failed.","code":"output_parse_failed"}}'),
        ),
        (400, 422, None),
        accepts=is_unreadable_call,
        retry=True,
        once=True,
        next_model=True,
    ),
    ErrorRule(
        "invalid_request",
        "A content filter there rejects the conversation.",
        (
            Example(400, '{"error":{"innererror":{"code":"ResponsibleAIPolicyViolation"}}}'),
            Example(400, '{"error":{"message":"Invalid prompt: it was flagged as violating our usage policy."}}'),
            Example(400, '{"error":{"code":"1301","message":"系统检测到输入或生成内容可能包含不安全或敏感内容"}}'),
            Example(403, '{"error":{"message":"Your input was flagged","metadata":{"reasons":["violence"]}}}'),
            Example(None, '{"error":{"code":"data_inspection_failed","message":"inappropriate content"}}'),
            Example(None, '{"base_resp":{"status_code":1026,"status_msg":"input new_sensitive"}}'),
        ),
        accepts=is_filtered,
        filtered=True,
    ),
    ErrorRule(
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
            Example(
                500, '{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'
            ),
            Example(400, '[{"error":{"code":400,"message":"The input token count (9) exceeds the maximum"}}]'),
            Example(
                429,
                '{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested '
                '45000.","type":"tokens","code":"rate_limit_exceeded"}}',
            ),
            Example(400, '{"error":{"code":"1261","message":"Prompt 超长"}}'),
            Example(413, '{"type":"error","error":{"type":"request_too_large"}}'),
            Example(424, '{"originalStatusCode":400,"originalMessage":"Input is too long for requested model."}'),
            Example(502, '{"error":{"message":"Upstream: maximum context length is 8192 tokens, got 9000"}}'),
        ),
        accepts=blames_conversation,
        compact=True,
    ),
    ErrorRule(
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
            Example(429, '{"error":{"message":"suspended","type":"exceeded_current_quota_error"}}'),
            Example(429, '{"error":{"code":"1113","message":"您的账户已欠费"}}'),
            Example(None, '{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}'),
            Example(None, '{"error":{"message":"quota exceeded"}}'),
            Example(400, '{"error":{"message":"The request exceeds your organization quota."}}'),
        ),
        accepts=is_out_of_credit,
        next_key=True,
        next_model=True,
    ),
    ErrorRule(
        "invalid_request",
        _SHORTER_REPLY,
        (
            Example(
                400, '{"error":{"message":"max_tokens is too large: 20480. This model supports at most 16384"}}'
            ),
            Example(400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
        ),
        accepts=blames_reply,
        next_model=True,
    ),
    ErrorRule(
        "invalid_request",
        "A picture or a file in the conversation is too large; send /reset to start an empty conversation.",
        (Example(413, '{"error":{"message":"image exceeds 5 MB maximum"}}'),),
        (413,),
        match_any(r"\b(?:images?|pictures?|files?|pdfs?|audio|videos?|attachments?)\b"),
        next_model=True,
    ),
    ErrorRule(
        "overflow",
        _SHORTEN,
        (Example(413, ""), Example(413, "<html><title>413 Request Entity Too Large</title></html>")),
        (413,),
        compact=True,
    ),
    ErrorRule(
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
            Example(400, '{"message":"Unexpected role","type":"invalid_request_message_order","code":"3230"}'),
            Example(400, "Not the same number of function calls and responses"),
            Example(400, "The text field in the ContentBlock object at messages.1.content.0 is blank."),
        ),
        (400, 404, 422, None),
        accepts=has_structure_error,
        repair=True,
        next_model=True,
    ),
    ErrorRule(  # some servers return a 500 for an error in a chat template
        "invalid_request",
        _REPAIR,
        (
            Example(500, "Conversation roles must alternate user/assistant/user/assistant/..."),
            Example(500, "After the optional system message, conversation roles must alternate user and assistant"),
            Example(500, '{"error":{"code":500,"message":"Only user and assistant roles are supported!"}}'),
        ),
        (400, 422, 500, None),
        accepts=has_template_error,
        repair=True,
        next_model=True,
    ),
    ErrorRule(
        "server",
        USUALLY_PASSES,
        (
            Example(400, '{"error":"The model has crashed without additional information. (Exit code: null)"}'),
            Example(400, '{"error":"Model unloaded."}'),
            Example(404, '{"error":{"message":"Model is unloaded"}}'),
        ),
        (400, 404, 409, 422),
        match_any(
            r"\bmodel (?:\S+ )?(?:has |was |is |got )?(?:been )?(?:crashed|unloaded|unloading|evicted)\b",
            r"\b(?:runner|engine|worker|server|process) (?:process )?(?:has )?(?:crashed|terminated|died|exited)\b",
        ),
        retry=True,
        next_model=True,
    ),
    ErrorRule(
        "not_found",
        "Check the model id `{model}` and that your account there may use it.",
        (
            Example(400, '{"error":{"message":"No such model","code":"model_not_found"}}'),
            Example(403, '{"error":{"message":"No access to model x","code":"model_not_found"}}'),
            Example(None, '{"error":{"code":"model_not_found"}}'),
        ),
        (400, 403, None),
        match_any("model_not_found"),
        next_model=True,
    ),
    ErrorRule(
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
    ErrorRule(
        "billing",
        _PAY,
        (Example(402, '{"type":"error","error":{"type":"billing_error"}}'),),
        (402,),
        next_key=True,
        next_model=True,
    ),
    ErrorRule(
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
    ErrorRule(
        "not_found",
        "Set the base_url of provider {provider} to where it moved.",
        (Example(301, ""), Example(307, "")),
        range(300, 400),
        next_model=True,
    ),
    ErrorRule(
        "invalid_request",
        "Check the base_url of provider {provider} and that it offers what the model `{model}` needs.",
        (Example(501, "Not Implemented"),),
        (501,),
        next_model=True,
    ),
    ErrorRule(
        "timeout",
        USUALLY_PASSES,
        (
            Example(504, '{"type":"error","error":{"type":"timeout_error"}}'),
            Example(408, ""),
            Example(524, "<html><title>524: A timeout occurred</title></html>"),
        ),
        (408, 504, 522, 524),
        retry=True,
        next_model=True,
    ),
    ErrorRule(
        "rate_limited",
        "The quota of a day is used up there: wait, raise it, or use another model.",
        (
            Example(429, '{"error":{"message":"Rate limit reached on requests per day (RPD): Limit 9, Used 9."}}'),
            Example(429, '{"error":{"details":[{"quotaId":"GenerateRequestsPerDayPerProject"}]}}'),
        ),
        (429,),
        accepts=is_daily_quota,
        next_key=True,
        next_model=True,
    ),
    ErrorRule(
        "rate_limited",
        SLOW_DOWN,
        (
            Example(429, '{"error":{"message":"Please try again in 7m12s","code":"rate_limit_exceeded"}}'),
            Example(429, '{"type":"error","error":{"type":"rate_limit_error"}}'),
            Example(
                429,
                '{"error":{"message":"Rate limit reached on tokens per min (TPM): Limit 30000, Used 25000, '
                'Requested 10000. Please try again in 10s."}}',
            ),
            Example(500, '{"error":{"code":"Throttling.RateQuota","message":"Requests rate limit exceeded"}}'),
        ),
        (429,),
        retry=True,
        next_key=True,
        next_model=True,
    ),
    ErrorRule(
        "overloaded",
        USUALLY_PASSES,
        (
            Example(529, '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
            Example(503, '{"error":"server busy, please try again.  maximum pending requests exceeded"}'),
            Example(498, '{"error":{"message":"flex tier capacity exceeded","code":"capacity_exceeded"}}'),
        ),
        (498, 503, 529),
        retry=True,
        next_model=True,
    ),
    ErrorRule(
        "server",
        USUALLY_PASSES,
        (
            Example(500, '{"type":"error","error":{"type":"api_error"}}'),
            Example(502, "<html><head><title>502 Bad Gateway</title></head></html>"),
            Example(409, ""),
            Example(424, '{"message":"The model has encountered an unexpected error"}'),
            Example(425, ""),
            Example(499, '{"error":{"message":"The operation was cancelled.","status":"CANCELLED"}}'),
        ),
        (409, 424, 425, 444, 460, 499, *range(500, 600)),
        retry=True,
        next_model=True,
    ),
    ErrorRule(
        "invalid_request",
        "Check that the model `{model}` takes what was sent.",
        (
            Example(400, '{"error":{"message":"Unsupported parameter: temperature","param":"temperature"}}'),
            Example(422, '{"detail":[{"msg":"field required"}]}'),
        ),
        range(400, 500),
        next_model=True,
    ),
    *RULES_OF_STREAMS,
)

_OVERFLOW_STATUSES = frozenset({None, 400, 403, 406, 409, 412, 413, 422, 424, 429, 500, 502, 503, 520, 529})
"""Statuses of requests that are too large: Together sends 403, llama.cpp 500, rate limits 429, Bedrock 424, and
the others come from gateways."""


def classify_error(
    status: int | None, body: str, size: RequestSize | None = None, headers: Mapping[str, str] | None = None
) -> Decision:
    """Return the first rule that matches a response to a request of this size."""
    facts = read_error(body)
    effective = find_effective_status(status, facts)
    verdict = (
        judge_overflow(effective, facts, size or RequestSize()) if effective in _OVERFLOW_STATUSES else NO_OVERFLOW
    )
    if effective == 429 and verdict.blame is not Blame.NOTHING and not exceeds_rate_alone(facts):
        verdict = NO_OVERFLOW
    words = "\n".join((facts.text, *facts.codes)) or body[:MAX_MESSAGE_CHARACTERS]
    report = ErrorReport(effective, facts, verdict, words, find_requested_wait(headers or {}, facts))
    return Decision(next(rule for rule in RULES if rule.matches(report)), report)
