"""Errors in OpenAI's format: `{"error": {message, type, param, code}}`, which its clients map to exceptions."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

OPENAI_PATHS: Final = ("/v1/models", "/v1/chat", "/v1/responses")
"""The paths of routes that use OpenAI's error format, and what is below them."""
ABSENT_PATHS: Final = (
    "/v1/assistants", "/v1/audio", "/v1/batches", "/v1/completions", "/v1/containers", "/v1/conversations",
    "/v1/embeddings", "/v1/engines", "/v1/evals", "/v1/files", "/v1/fine_tuning", "/v1/images", "/v1/moderations",
    "/v1/organization", "/v1/projects", "/v1/realtime", "/v1/threads", "/v1/uploads", "/v1/vector_stores",
    "/v1/videos",
)  # fmt: skip
"""Paths that OpenAI has and Treadle does not."""
MEDIA_TYPE = "application/json"
CODES: Final[Mapping[str, str]] = {
    "Unauthorized": "invalid_api_key",
    "UnknownAgent": "model_not_found",
    "UnknownRun": "not_found",
    "UnknownSession": "not_found",
    "QuotaExceeded": "rate_limit_exceeded",
    "InsufficientCredits": "insufficient_quota",
    "insufficient_credits": "insufficient_quota",
    "quota_exceeded": "rate_limit_exceeded",
    "context_overflow": "context_length_exceeded",
}
"""OpenAI's codes for our error kinds."""
STATUS: Final[Mapping[int, int]] = {402: 429}
"""OpenAI has no payment status: spent credits count as an exhausted quota."""


class ErrorDetail(Struct, frozen=True):
    """The error."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Struct, frozen=True):
    """The body of an error response."""

    error: ErrorDetail


class ErrorResponse(Struct, frozen=True):
    """An error response."""

    status: int
    body: bytes
    headers: dict[str, str]


def is_openai_path(path: str) -> bool:
    """Return whether a path uses OpenAI's error format."""
    return _is_below(path, OPENAI_PATHS) or is_absent(path)


def is_absent(path: str) -> bool:
    """Return whether OpenAI has a path that Treadle does not have."""
    return _is_below(path, ABSENT_PATHS)


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in folders)


def make_error_detail(status: int, kind: str, detail: str, param: str | None = None) -> ErrorDetail:
    code = CODES.get(kind) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
    return ErrorDetail(detail, _error_type(status, code), param, code)


def make_error_response(status: int, kind: str, detail: str, error: Exception) -> ErrorResponse:
    """Return the response that replaces a problem."""
    status = STATUS.get(status, status)
    detail_ = make_error_detail(status, kind, detail, getattr(error, "param", None))
    final = status == 409 or detail_.code == "insufficient_quota" or getattr(error, "final", False)
    headers = {"x-should-retry": "false"} if final else {}  # OpenAI clients would retry it twice
    return ErrorResponse(status, msgspec.json.encode(ErrorBody(detail_)), headers)


def _error_type(status: int, code: str) -> str:
    if status == 429:
        return "insufficient_quota" if code == "insufficient_quota" else "rate_limit_error"
    if status == 403:
        return "permission_error"
    return "server_error" if status >= 500 else "invalid_request_error"
