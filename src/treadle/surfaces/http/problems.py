"""Errors as problem details (RFC 9457): what happened, to what, and what to do next."""

import logging
import math
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from treadle.domain import errors as e
from treadle.operations.refusal import Problem, Refusal
from treadle.surfaces.http.openai import errors

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:treadle:problem:"
RETRY_AFTER_SECONDS = 3
"""When to retry after the database could not be reached."""


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
    if isinstance(error, RecursionError):
        return _new_problem(400, "TooDeep", "The body is nested too deeply.")
    logger.exception("unexpected error while handling a request", exc_info=error)
    return _new_problem(500, "Internal", "Unexpected error. See the log of the server.")


def make_headers(problem: Problem, now: float) -> dict[str, str]:
    if problem.status == 401:
        return {"WWW-Authenticate": 'Bearer realm="treadle"'}
    if problem.status == 503:
        return {"Retry-After": str(RETRY_AFTER_SECONDS)}
    if problem.resets_at is not None:
        return {"Retry-After": str(max(1, math.ceil(problem.resets_at - now)))}
    return {}


def make_problem_response(error: Exception, path: str, now: float) -> Response:
    """Return the response for a path: a problem, or an error in OpenAI's format."""
    problem = make_problem(error)
    headers = make_headers(problem, now)
    if not errors.is_openai_path(path):
        return Response(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)
    response = errors.make_error_response(problem.status, problem.type.removeprefix(PREFIX), problem.detail, error)
    return Response(response.body, response.status, headers | response.headers, errors.MEDIA_TYPE)


def _new_problem(status: int, kind: str, detail: str) -> Problem:
    return Problem(f"{PREFIX}{kind}", HTTPStatus(status).phrase, status, detail)
