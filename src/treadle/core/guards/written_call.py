"""Guard against replies that write a tool call as text instead of making it.

The model is asked once to call properly; then the run ends with what was received. Agents without tools are
exempt."""

from collections.abc import Container

from treadle.core.guards.verdict import StopVerdict, WarnModel
from treadle.core.state import RunState, has_text
from treadle.domain.control_tokens import is_only_tokens, may_hold_call
from treadle.domain.events import CallWritten
from treadle.domain.ids import Instant
from treadle.domain.messages import Message
from treadle.domain.runs import Outcome


def judge(state: RunState, now: Instant) -> WarnModel | StopVerdict | None:
    reply = state.turn.reply
    if reply is None or not state.tools or reply.stop in ("interrupted", "max_tokens", "refusal"):
        return None
    if not has_text(reply):
        return None
    tools = state.tools if state.agent.output is None else ()  # a JSON answer may look like a call
    received = _find_call(Message("assistant", reply.parts).text, tools)
    if received is None:
        return None
    what = "control tokens" if is_only_tokens(received) else "a tool call"
    if state.guards.written_calls:
        return StopVerdict(
            Outcome(
                "model_error",
                reason=f"The model again wrote {what} as text instead of a call or an answer. Received: {received}",
                next="Have the model's server read its tool calls, set call_dialect or tools for this model in "
                "config.yaml, or try another model.",
            )
        )
    note = (
        f"Your last reply holds {what} written as text, which was not run: {received}\n"
        "Make the call in the proper way, or answer without it."
    )
    return WarnModel((CallWritten(state.guards.written_calls + 1, received, note),))


def _find_call(text: str, tools: Container[str]) -> str | None:
    if not may_hold_call(text):
        return None
    from treadle.domain.written_calls import find_written_call

    return find_written_call(text, tools)
