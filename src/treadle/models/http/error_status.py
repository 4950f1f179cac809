"""Determines the effective status of an error: the status of the response, or the one that its body names.

An error inside a stream has no status of its own, and a gateway may replace the provider's status with its own."""

import re

from treadle.models.http.error_facts import ErrorFacts
from treadle.models.http.filter_errors import FILTERED, has_filter_code
from treadle.models.http.patterns import any_of
from treadle.models.http.quota_errors import is_throttled

_CODES: dict[int, str] = {
    400: "invalid_request_error invalid_prompt bio_policy misalignment_policy_violation data_residency_mismatch "
    "badrequesterror bad_request_error bad_request invalid_argument failed_precondition validationexception "
    "validation validation_error invalidparameter invalid_parameter_error invalid_value invalid_image "
    "invalid_image_format invalid_base64_image invalid_image_url invalid_image_mode image_too_large "
    "image_too_small image_parse_error image_content_policy_violation image_file_too_large "
    "unsupported_image_media_type empty_image_file failed_to_download_image image_file_not_found base_resp:2013 "
    "base_resp:1026 base_resp:1027",
    401: "authentication_error unauthenticated invalid_api_key base_resp:1004 base_resp:2049 authentication "
    "authentication_failed authenticationerror unauthorized unauthorizederror invalid_token "
    "invalid_authentication_error",
    402: "billing_error payment_required",
    403: "permission_error permission_denied permissiondeniederror accessdeniedexception forbidden",
    404: "not_found_error not_found notfounderror resourcenotfoundexception 1211",
    413: "request_too_large",
    499: "cancelled",
    500: "api_error server_error internal internalservererror internal_server_error internalserverexception "
    "modelstreamerrorexception base_resp:1000 base_resp:1024 base_resp:1033 1234",
    503: "unavailable service_unavailable serviceunavailableexception modelnotreadyexception "
    "engine_overloaded_error server_overloaded server_is_overloaded serveroverloaded provider_overloaded "
    "provider_unavailable",
    504: "timeout_error timeout deadline_exceeded modeltimeoutexception base_resp:1001",
    529: "overloaded_error overloaded",
}
"""The types, codes and status names of errors, by the status that they correspond to."""
_STATUS_OF_CODE = {code: status for status, codes in _CODES.items() for code in codes.split()}
_BAD_REQUEST_CODES = frozenset(
    {"badrequesterror", "bad_request_error", "invalid_argument", "validationexception", "400", "422"}
)
"""Codes of a bad request that count whatever status a gateway sends."""
_BAD_REQUEST = any_of(
    r"""
    unsupported (?:parameter|value|model|field)  invalid (?:value|parameter|argument|type|schema|request|role)
    \bis not supported\b  \bis required\b  must be (?:a|an|one|greater|less)\b  does not support  field required
    """
)
"""Words of a bad request, used if no code says what went wrong."""
_KEY_CODES = ("invalid_api_key", "api_key_invalid")
_KEY = r"(?:api[ _-]?(?:key|token)|(?:access|auth\w*|bearer|security) (?:key|token))"
_KEY_REFUSED = any_of(
    rf"""
    {_KEY} (?:\w+ ){{0,2}}(?:not valid|invalid|expired|incorrect|revoked)
    (?:invalid|incorrect|expired|revoked) {_KEY}
    \bauthentication (?:error|fail\w*)\b  \bno auth(?:entication)? credentials\b  \bunauthori[sz]ed\b
    """
)
"""A key that is refused with the status of a bad request, as Google does, or inside a stream."""
_INTERNAL_STATUSES = (500, 502)
_GATEWAY_STATUSES = frozenset({424, 520, 530})
"""Statuses of a gateway whose provider failed. The body may name the provider's own status."""


def find_effective_status(status: int | None, facts: ErrorFacts) -> int | None:
    """Return the status that an error corresponds to, or None if unknown."""
    if status is None or status < 300:
        return _read_status_from_body(facts)
    if status in (*_INTERNAL_STATUSES, 400, 403, *_GATEWAY_STATUSES) and is_throttled(facts):
        return 429
    if status == 400 and (facts.has_code(*_KEY_CODES) or _KEY_REFUSED.search(facts.words)):
        return 401
    if status in _GATEWAY_STATUSES:
        return _read_status_from_body(facts, ignored=status) or status
    if status not in _INTERNAL_STATUSES:
        return status
    is_bad_request = not facts.codes.isdisjoint(_BAD_REQUEST_CODES) or facts.has_code("invalid_request_error")
    return 400 if is_bad_request or has_filter_code(facts) else status


def _read_status_from_body(facts: ErrorFacts, ignored: int | None = None) -> int | None:
    """Return the status that an error names, except `ignored`. A code word is more reliable than a number, which
    may be the gateway's own."""
    if is_throttled(facts):
        return 429
    if has_filter_code(facts):
        return 400
    found = [_STATUS_OF_CODE[code] for code in facts.codes if code in _STATUS_OF_CODE]
    found += [int(code) for code in facts.codes if re.fullmatch(r"[45]\d\d", code) and int(code) != ignored]
    return min(found) if found else _read_status_from_words(facts.words)


def _read_status_from_words(words: str) -> int | None:
    """Return the status that the words of an error correspond to, or None if unknown."""
    if _KEY_REFUSED.search(words):
        return 401
    return 400 if _BAD_REQUEST.search(words) or FILTERED.search(words) else None
