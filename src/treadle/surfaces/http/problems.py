"""Errors as problem details (RFC 9457): what happened, to what, and what to do next."""

import logging
import math
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from msgspec import Struct

from treadle.domain import errors as e
from treadle.operations.refusal import Problem, Refusal
from treadle.operations.request_checks import TEXT_TOO_LONG, explain_length
from treadle.surfaces.http.openai import errors

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:treadle:problem:"
RETRY_AFTER_SECONDS = 3
"""When to retry after the database could not be reached."""


class _InvalidField(Struct, frozen=True):
    message: str
    key: str = "the body"
    source: str = ""


class ProblemResponse(Struct, frozen=True):
    """The response to a failed request."""

    status: int
    media_type: str
    body: bytes
    headers: dict[str, str]


STATUS_OF_ERROR: tuple[tuple[type[e.TreadleError], int], ...] = (
    (e.Unknown, 404),
    (e.InvalidState, 409),
    (e.SizeLimitExceeded, 413),
    (e.QuotaExceeded, 429),
    (e.InsufficientCredits, 402),
    (e.UsageError, 400),
    (e.StoreError, 503),
)
"""The first matching entry applies."""


def make_problem(error: Exception) -> Problem:
    """Return the problem that the client receives. Unexpected errors are logged, not returned to the client."""
    if isinstance(error, Refusal):
        return _new_problem(error.status, error.kind, str(error))
    if isinstance(error, e.TreadleError):
        status = next((status for kind, status in STATUS_OF_ERROR if isinstance(error, kind)), 500)
        problem = _new_problem(status, type(error).__name__, str(error))
        resets_at = getattr(error, "resets_at", None)
        return msgspec.structs.replace(problem, resets_at=resets_at) if resets_at is not None else problem
    if isinstance(error, HTTPException):
        if (too_long := _describe_size_limit(error)) is not None:
            return _new_problem(413, e.SizeLimitExceeded.__name__, too_long)
        return _new_problem(
            error.status_code,
            HTTPStatus(error.status_code).phrase.replace(" ", ""),
            _describe_invalid_fields(error),
        )
    if isinstance(error, RecursionError):
        return _new_problem(400, "TooDeep", "The body is nested too deeply.")
    if isinstance(error, UnicodeDecodeError) and _is_raised_by_litestar(error):
        return _new_problem(400, "InvalidText", "The body is not valid UTF-8. Encode it as UTF-8.")
    logger.exception("unexpected error while handling a request", exc_info=error)
    return _new_problem(500, "Internal", "Unexpected error. See the log of the server.")


def _is_raised_by_litestar(error: Exception) -> bool:
    """Return whether Litestar raised the error while decoding a body. Errors in our own code must not be
    hidden."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and str(frame.tb_frame.f_globals.get("__name__", "")).startswith("litestar.")


def make_headers(problem: Problem, now: float) -> dict[str, str]:
    if problem.status == 401:
        return {"WWW-Authenticate": 'Bearer realm="treadle"'}
    if problem.status == 503:
        return {"Retry-After": str(RETRY_AFTER_SECONDS)}
    if problem.resets_at is not None:
        return {"Retry-After": str(max(1, math.ceil(problem.resets_at - now)))}
    return {}


def handle_exception(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the response to a failed request, for Litestar."""
    response = make_problem_response(error, request.url.path, request.app.state.now())
    headers = dict(getattr(error, "headers", None) or {}) | response.headers
    return Response(response.body, media_type=response.media_type, status_code=response.status, headers=headers)


def make_problem_response(error: Exception, path: str, now: float) -> ProblemResponse:
    """Return the response for a path: a problem, or an error in OpenAI's format."""
    problem = make_problem(error)
    headers = make_headers(problem, now)
    if not errors.is_openai_path(path):
        return ProblemResponse(problem.status, MEDIA_TYPE, msgspec.json.encode(problem), headers)
    response = errors.make_error_response(problem.status, problem.type.removeprefix(PREFIX), problem.detail, error)
    return ProblemResponse(response.status, errors.MEDIA_TYPE, response.body, headers | response.headers)


def _new_problem(status: int, kind: str, detail: str) -> Problem:
    return Problem(f"{PREFIX}{kind}", HTTPStatus(status).phrase, status, detail)


def _describe_invalid_fields(error: HTTPException) -> str:
    """Return what Litestar says is wrong, and where."""
    fields = _invalid_fields(error)
    return "; ".join(f"{field.key}: {field.message}" for field in fields) if fields else error.detail


def _describe_size_limit(error: HTTPException) -> str | None:
    """Return a message about a request that is too large, or None if something else is wrong."""
    if error.status_code == 413:
        return f"{error.detail.rstrip('.')}. Send less at once, or put the text into a file that a tool can read."
    for field in _invalid_fields(error):
        if field.source == "body" and (found := TEXT_TOO_LONG.search(field.message)) is not None:
            return explain_length(field.key, found[1])
    return None


def _invalid_fields(error: HTTPException) -> list[_InvalidField]:
    try:
        return msgspec.convert(error.extra, list[_InvalidField])
    except msgspec.ValidationError:
        return []
