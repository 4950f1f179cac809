"""What a finished run did, read from its journal."""

from collections.abc import Iterable

import msgspec

from treadle.domain.envelope import Event
from treadle.domain.events import RunEnd, ToolCallEnd, ToolCallError, ToolCallStart, UserMessage
from treadle.evaluation.grading import Observed, ObservedCall
from treadle.operations.recorded_cases import decode_arguments

TRANSCRIPT_CHARACTERS = 20_000
RESULT_CHARACTERS = 2_000


def observe(run_id: str, events: Iterable[Event], workspace: str = "") -> Observed | None:
    """Return what a run did, or None if it has not ended."""
    started: dict[str, ToolCallStart] = {}
    calls: list[ObservedCall] = []
    lines: list[str] = []
    unrecorded = 0
    for event in events:
        match event.data:
            case UserMessage(message=message):
                lines.append(f"user: {message.text}")
            case ToolCallStart() as start:
                started[start.call_id] = start
            case ToolCallEnd() | ToolCallError() as ended:
                is_error = isinstance(ended, ToolCallError)
                unrecorded += isinstance(ended, ToolCallError) and ended.cause == "not_recorded"
                start = started.get(ended.call_id)
                arguments = decode_arguments("" if start is None else start.arguments)
                calls.append(ObservedCall(ended.name, arguments, ended.content, is_error))
                result = ended.content[:RESULT_CHARACTERS]
                lines.append(f"call: {ended.name} {msgspec.json.encode(arguments).decode()}\nresult: {result}")
            case RunEnd() as end:
                lines.append(f"answer: {end.text}")
                return Observed(
                    run_id=run_id,
                    outcome=end.outcome,
                    answer=end.text,
                    calls=tuple(calls),
                    cost=end.metrics.cost,
                    steps=end.metrics.steps,
                    duration_ms=end.metrics.duration_ms,
                    reason=end.reason,
                    unrecorded=unrecorded,
                    workspace=workspace,
                    transcript="\n".join(lines)[-TRANSCRIPT_CHARACTERS:],
                )
            case _:
                pass
    return None
