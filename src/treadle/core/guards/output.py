"""An answer that was to fit a schema and does not: the model is told what is wrong, so many times."""

from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

from treadle.core.guards.verdict import Stop, Warn
from treadle.core.state import RunState
from treadle.domain.events import OutputRejected
from treadle.domain.identity import Instant
from treadle.domain.runs import Outcome

ATTEMPTS = 3


def judge(state: RunState, now: Instant) -> Warn | Stop | None:
    if state.agent.output is None or state.reply is None or state.reply.stop in ("interrupted", "max_tokens"):
        return None
    error = mismatch(state.answer_so_far, state.agent.output)
    if error is None:
        return None
    count = state.rejected_outputs + 1
    if count >= ATTEMPTS:
        return Stop(
            Outcome(
                "failed",
                state.answer_so_far,
                reason=f"The answer did not fit the output schema in {count} attempts: {error}",
                next="Simplify the schema, say more in the persona, or try another model.",
            )
        )
    note = f"Your answer does not fit the JSON Schema: {error}. Answer again with the JSON value alone."
    return Warn((OutputRejected(count, error, note),))


def mismatch(text: str, schema: dict[str, Any]) -> str | None:
    """What is wrong with an answer, or None when it fits."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return f"it is not JSON ({error})"
    try:
        validator(msgspec.json.encode(schema, order="sorted")).validate(value)
    except jsonschema_rs.ValidationError as error:
        where = "/".join(str(step) for step in error.instance_path)
        return f"at `{where}`: {error.message}" if where else error.message
    return None


def refuse_wrong_schema(schema: dict[str, Any]) -> None:
    """Raise ValueError, with the reason, for what is not a JSON Schema that stands by itself."""
    try:
        validator(msgspec.json.encode(schema, order="sorted"))
    except jsonschema_rs.ValidationError as error:
        where = "/".join(str(step) for step in error.instance_path)
        raise ValueError(f"at `{where}`: {error.message}" if where else error.message) from None
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from None


@lru_cache(maxsize=64)
def validator(schema: bytes) -> Any:
    return jsonschema_rs.validator_for(msgspec.json.decode(schema), retriever=_refuse_reference)


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"a schema must not refer to another document ({uri})")
