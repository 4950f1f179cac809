"""What an error says is too large: the conversation, the reply limit, or something else."""
# ruff: noqa: E501, RUF001

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import cpu_seconds, processor_seconds
from treadle.models.http.error_facts import read_error
from treadle.models.http.error_rules import classify_error
from treadle.models.http.overflow import Blame, judge_overflow
from treadle.models.http.request_size import RequestSize, measure_request
from treadle.models.http.retry_after import find_requested_wait

SMALL = RequestSize(400)
LARGE = RequestSize(560_000)
"""About 140,000 tokens."""

CONVERSATION = """
Requested token count exceeds the model's maximum context length of 131072 tokens.
The total number of tokens in the request exceeds the maximum allowed by the model
input_tokens + max_tokens exceeds model limit: 131000 + 8192 > 131072
message length exceeds maximum context
the prompt is too large for this model
Input too long.
Conversation is too long, please start a new one
输入内容过长
请求的上下文长度超过了模型支持的最大长度
messages 参数长度超出限制: 最大 32768 tokens
tokens 数超过上限 131072
输入的token数量超过限制
输入token数超过上限，最大为131072
请求的tokens超过模型上限
prompt超长，请缩短后重试
Prompt超出长度限制
messages总token数超限
输入内容超出模型最大token限制
输入Token超过上限（估算=40000，上限=32000），请减少输入内容
token超过上限
Total tokens of image and text exceed max message tokens. Request id: 0217
The text and images of this request exceed the maximum number of tokens
プロンプトが長すぎます
요청이 최대 컨텍스트 길이를 초과했습니다
Le contexte dépasse la longueur maximale
El contexto excede el límite máximo de 8192 tokens
Die Eingabe ist zu lang: 9000 Tokens, maximal 8192
Превышена максимальная длина контекста: 32768 токенов
number of input tokens (140000) has exceeded max_prompt_tokens (131072) limit
Your message is too long
Prompt length 40000 is over the limit of 32768
Token limit exceeded
This model supports at most 131072 tokens in total, but received 150000 tokens
max context length is 4096, but the prompt has 5000
You passed 40961 input tokens and 0 output tokens. However, the model's context length is only 40960 tokens
Query length of 32940 tokens exceeds model capacity
Please reduce the number of tokens in your prompt
max_tokens must be at least 1, got -186.
The input (text and image tokens) exceeds the maximum of 8192 tokens
The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens. For image inputs, the number of image tokens depends on the number of images and their aspect ratios as well.
prompt is too long, images count as tokens
Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1050000 instead.
Invalid 'input': string too long. Expected a string with maximum length 10485760, but got a string with length 12000000 instead.
Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2049 instead.
Requested generation length 1 is not possible! The provided prompt is 4309 tokens long, so generating 1 tokens requires a sequence length of 4310, but the maximum supported sequence length is just 4096!
max_input_tokens exceeded: 5000 > 4096
max_total_tokens 9000 exceeds 8192
too many tokens: total_tokens must be at most 8192
Your messages exceed the maximum length. 300000 characters, at most 200000 characters
""".strip().splitlines()

REPLY = {
    "max_tokens is too large: 20480. This model supports at most 16384 completion tokens.": 16384,
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]": 8192,
    "Range of max_tokens should be [1, 8192]": 8192,
    "max_output_tokens must be at most 32000": 32000,
    "Expected maxOutputTokens to be <= 8192 but was 100000": 8192,
    "max_tokens 不能大于 8192": 8192,
    "max_tokens不能大于8192": 8192,
    "max_tokens超过上限8192": 8192,
    "参数max_tokens取值范围为[1,8192]": 8192,
    "该模型最大输出长度为8192": 8192,
    "field MaxTokens invalid, should be in [1, 8192]": 8192,
    "Please set max_tokens to a value of 8192 or less": 8192,
    "the number of completion tokens requested (9000) is more than this model can produce (8192)": 8192,
    "max_tokens (32000) + prompt (1200) > context (32768)": 30912,
    "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of "
    "34768 tokens: 2000 tokens from the input messages and 32768 tokens for the completion.": 30112,
    "maximum context length is 4097 tokens, however you requested 9000 tokens (1000 in your prompt; 8000 for the "
    "completion)": 3015,
    "input length and max_tokens exceed context limit: 90402 + 116650 > 204648": 110153,
    "Requested generation length 4000 is not possible! The provided prompt is 300 tokens long, so "
    "generating 4000 tokens requires a sequence length of 4300, but the maximum supported sequence "
    "length is just 4096!": 3620,
    "maxTokens must be less than or equal to 8192": 8192,
    "Malformed input request: #/max_gen_len: 4096 is not less or equal to 2048, please reformat your "
    "input and try again.": 2048,
    "Malformed input request: #/textGenerationConfig/maxTokenCount: 10000 is not less or equal to 8192, "
    "please reformat your input and try again.": 8192,
    "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range "
    "is from 1 (inclusive) to 65537 (exclusive). Update the value and try again.": 65536,
    "The maximum number of generated tokens is 4096": 4096,
    "maximum number of generated tokens exceeded: 9000 > 4096": 4096,
    "generation length is too large: at most 2048": 2048,
}

REPLY_WITHOUT_A_NUMBER = """
max_tokens参数非法。请检查文档。
[1210]max_tokens参数非法
max token参数非法。请检查文档
默认`max_tokens`参数不合法
参数max_tokens无效，请检查
max_completion_tokens 参数有误
max_tokens 应小于模型允许的值
invalid params, max_tokens
The parameter `max_tokens` specified in the request is not valid
Invalid parameter: max_output_tokens
""".strip().splitlines()

SOMETHING_ELSE = """
The parameter max_tokens specified in the request are not valid: max_tokens and max_completion_tokens cannot be set at the same time.
The parameter `max_tokens` specified in the request are not valid: expected an integer, but got `"1000"` instead.
Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead.
max_tokens参数类型错误
max_tokens参数非法：必须大于0
max_tokens不能为空，参数非法
messages参数非法。请检查文档。
API 调用参数有误，请检查文档。
messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes
A maximum of 100 PDF pages may be provided.
The file is too large: 40MB > 32MB
每分钟token数超过限制
Invalid 'tools': array too long. Expected an array with maximum length 128, but got length 150 instead.
Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got 58.
Invalid 'input[5].call_id': string too long. Expected a string with maximum length 64, but got 70.
function name too long, max 64 characters
stop sequences: too many, at most 4
Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.
`max_tokens` must be greater than `thinking.budget_tokens`.
temperature must be less than or equal to 2
This request would exceed your organization's rate limit of 30,000 input tokens per minute.
Rate limit reached on tokens per min (TPM): Limit 30000, Used 25000, Requested 10000. Please try again in 10s.
You have used your daily token limit
the current token is expired
Rate limit exceeded. Please reduce your request frequency.
Too many requests: rate limit hit, please reduce your requests
The request took too long to process
upstream request timeout: response took too long
Maximum number of queued requests exceeded, request queue size 1000
Request header fields too large
Provider returned error
Image token count 5000 exceeds limit of 4096
too many images in the prompt
At most 1 image(s) may be provided in one prompt.
At most 1 image(s) may be provided in one request.
image token limit exceeded
The prompt contains too many video tokens: 90000 > 65536
messages.3.content.2.image.source.base64.data: At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels
Request contains 25 images, more than the maximum of 20 images per prompt
Audio input of 50000 tokens exceeds the limit
Invalid 'messages[2].tool_call_id': string too long. Expected a string with maximum length 40, but got a string with length 1066 instead.
Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64, but got a string with length 69 instead.
'safety_identifier' must be at most 64 characters
tool_call_id: String should have at most 64 characters
The value of metadata.note exceeds the maximum length of 512 characters
Metadata values must be at most 512 characters, got 1500
image_url.url is too long: maximum 2083 characters
""".strip().splitlines()


def find_blame(message: str, size: RequestSize = SMALL) -> tuple[Blame, int | None]:
    found = judge_overflow(400, read_error(json.dumps({"error": {"message": message}})), size)
    return found.blame, found.longest_reply


@pytest.mark.parametrize("message", CONVERSATION)
def test_a_complaint_about_the_conversation_length_is_recognised(message: str) -> None:
    assert find_blame(message) == (Blame.CONVERSATION, None)


@pytest.mark.parametrize("message", REPLY)
def test_a_reply_limit_that_is_too_large_is_recognised(message: str) -> None:
    assert find_blame(message) == (Blame.REPLY, REPLY[message])


@pytest.mark.parametrize("message", REPLY_WITHOUT_A_NUMBER)
@pytest.mark.parametrize("size", [SMALL, LARGE, RequestSize(400, 20_000)], ids=["small", "large", "bounded"])
def test_a_reply_limit_that_is_refused_without_a_reason_is_too_large(message: str, size: RequestSize) -> None:
    assert find_blame(message, size) == (Blame.REPLY, None)
    decision = classify_error(400, json.dumps({"error": {"message": message}}), size)
    assert decision.rule.kind == "invalid_request"
    assert "max_tokens" in decision.rule.next_step
    assert not decision.is_unclear


def test_a_code_in_front_of_a_message_is_not_a_limit() -> None:
    message = "[1210]max_tokens参数非法：限制数值范围[1,131072]"
    assert find_blame(message, SMALL) == (Blame.REPLY, 131_072)


@pytest.mark.parametrize("message", SOMETHING_ELSE)
def test_other_complaints_are_not_about_length(message: str) -> None:
    assert find_blame(message) == (Blame.NOTHING, None)


def test_numbers_near_the_request_size_identify_an_overflow_in_any_language() -> None:
    unknown = "Đầu vào 141230 vượt quá 131072"
    assert find_blame(unknown, LARGE)[0] is Blame.CONVERSATION
    assert find_blame(unknown, SMALL)[0] is Blame.NOTHING


@pytest.mark.parametrize(
    ("message", "is_alone"),
    [
        ("Requested 45000 tokens, but the limit is 30000 tokens per minute", True),
        ("Your request of 45000 tokens exceeds the per-minute token limit of 30000.", True),
        ("This single request needs 60000 tokens, more than the limit of 50000 tokens per minute", True),
        ("Request token count (140000) exceeds max tokens per minute (100000).", True),
        ("Limit: 30000 TPM. This request: 45000 tokens", True),
        ("The prompt has 45,000 tokens but only 30,000 tokens per minute are allowed", True),
        ("Requested 2000 tokens, but the limit is 30000 tokens per minute and 29000 are used", False),
        ("You have sent 45000 input tokens in the last minute, limit 30000 tokens per minute", False),
        ("Too many tokens requested in the last minute: 45000. The limit is 30000 tokens per minute", False),
        ("Current usage: 45000 tokens, limit 30000 tokens per minute. Retry in 10s", False),
        ("Your account reached TPM rate limit, current: 130000, limit: 128000", False),
        ("This request would exceed the rate limit of your organization of 20,000 input tokens per minute.", False),
        ("Rate limit reached for requests. Limit: 500 requests per minute. Try again in 60 s", False),
    ],
)
def test_a_rate_limit_that_one_request_exceeds_is_an_overflow(message: str, is_alone: bool) -> None:
    kind = classify_error(429, json.dumps({"error": {"message": message}}), LARGE).rule.kind
    assert kind == ("overflow" if is_alone else "rate_limited")


def test_a_rate_limit_that_includes_the_reply_limit_lowers_the_reply_limit() -> None:
    message = "Request too large on tokens per minute (TPM): Limit 8000, Requested 32979"
    assert find_blame(message, RequestSize(4000, 32_000)) == (Blame.REPLY, 6686)
    assert find_blame(message, RequestSize(40_000, 32_000)) == (Blame.CONVERSATION, None)


def test_the_size_of_a_request_is_read_from_its_bytes() -> None:
    body = json.dumps({"model": "m", "messages": ["x" * 9000], "max_completion_tokens": 512}, separators=(",", ":"))
    assert measure_request(body.encode(), 8192) == RequestSize(len(body), 512, 8192)


def test_a_conversation_about_errors_is_not_an_error() -> None:
    echoed = {"detail": [{"loc": ["body", "model"], "msg": "Field required", "input": "prompt is too long: 9 > 8"}]}
    assert classify_error(422, json.dumps(echoed)).rule.kind == "invalid_request"
    failed = {"error": {"message": "no", "code": "tool_use_failed", "failed_generation": "context_length_exceeded"}}
    assert classify_error(400, json.dumps(failed)).rule.once


@pytest.mark.parametrize(
    ("message", "is_unclear"),
    [
        ("", True),
        ("Bad Request", True),
        ("Provider returned error", True),
        ("An unexpected error occurred", True),
        ("Unsupported parameter: x", False),
        ("field required", False),
        ("Content was flagged by our safety filter", False),
    ],
)
def test_refusals_without_a_reason_are_recognised(message: str, is_unclear: bool) -> None:
    assert classify_error(400, json.dumps({"error": {"message": message}})).is_unclear is is_unclear


WORDS = (
    "limit", "requested", "used", "max_tokens", "input", "tokens", "+", ",", ".", "-", ">", "<=", "8192", "0",
    "-5", "9e9", "in", "the completion", "per minute", "retry", "in", "s",
)  # fmt: skip


@given(
    st.one_of(st.text(), st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join)),
    st.sampled_from((None, 200, 400, 413, 422, 429, 500, 503)),
    st.sampled_from((SMALL, LARGE, RequestSize(4000, 8192, 8192))),
)
def test_any_error_can_be_classified(message: str, status: int | None, size: RequestSize) -> None:
    for body in (message, json.dumps(message), json.dumps({"error": {"message": message, "code": message}})):
        report = classify_error(status, body, size).report
        find_requested_wait({"retry-after": message, "x-ratelimit-reset": message}, report.facts)


@pytest.mark.parametrize(
    "body",
    [
        "x" * 64_000,
        '{"error":' * 5000,
        json.dumps({"error": {"message": "retry in " * 7000}}),
        json.dumps({"error": {"message": "input 1 + 2 " * 5000}}),
        json.dumps({"error": {"message": "1 + " + "a " * 8000 + "per minute request " * 400}}),
        json.dumps([{"error": {"message": f"{n} tokens exceed"}} for n in range(2000)]),
        json.dumps({"error": {"message": "max_tokens input tokens " + " ".join(map(str, range(1000, 9000)))}}),
        json.dumps({"error": {"message": f"tpm: limit {'9' * 9000}, requested {'9' * 9000}"}}),
        json.dumps({"error": {"message": "{" * 30_000 + "}" * 30_000}}),
        "try again" + " " * 16_000 + "x",
        "1s" * 8_000,
        "9" * 16_000,
        "req-" * 4_000,
    ],
)
def test_no_body_takes_long_to_classify(body: str) -> None:
    def judge_whole() -> None:
        find_requested_wait({}, classify_error(400, body, LARGE).report.facts)

    limit = 120 * processor_seconds()
    assert any(cpu_seconds(judge_whole, times=1) < limit for _ in range(5))
