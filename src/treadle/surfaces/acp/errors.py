"""Errors of Treadle as errors of JSON-RPC, with messages that a person can act on."""

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from acp import RequestError

from treadle.domain.errors import (
    InvalidState,
    MissingKey,
    TreadleError,
    UnknownModel,
    UnknownSession,
    UsageError,
)

P = ParamSpec("P")
T = TypeVar("T")
AUTH_REQUIRED, NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS, FAILED = -32000, -32002, -32600, -32602, -32603
log = logging.getLogger(__name__)


def make_request_error(error: TreadleError) -> RequestError:
    """Return the error to answer a request with."""
    match error:
        case MissingKey() | UnknownModel():
            code = AUTH_REQUIRED
        case UnknownSession():
            code = NOT_FOUND
        case InvalidState():
            code = INVALID_REQUEST
        case UsageError():
            code = INVALID_PARAMS
        case _:
            code = FAILED
    return RequestError(code, str(error), {"type": type(error).__name__})


def report_errors(handle: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Answer errors of Treadle with their messages. Unexpected errors are logged, and named without details."""

    @functools.wraps(handle)
    async def reporting(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await handle(*args, **kwargs)
        except RequestError:
            raise
        except TreadleError as error:
            raise make_request_error(error) from error
        except Exception as error:
            log.exception("%s failed", handle.__name__)
            raise RequestError(
                FAILED, f"Unexpected error: {type(error).__name__}. The log of `treadle acp` has the details."
            ) from error

    return reporting
