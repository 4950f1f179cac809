"""Calls of the client's own tools: their results come as messages of the next request."""

from collections.abc import Sequence
from typing import Any

from treadle.domain.errors import InvalidState
from treadle.domain.transcript import CallItem
from treadle.operations import client_calls
from treadle.operations.attachments import Attachment
from treadle.operations.context import Context
from treadle.operations.operation import LocalCaller
from treadle.operations.transcripts import load_transcript
from treadle.ports.journal import RunRecord
from treadle.surfaces.http.ag_ui.messages import make_id
from treadle.surfaces.http.ag_ui.requests import PartImage, PartText, SourceData, ThreadMessage


def find_results(messages: Sequence[ThreadMessage]) -> list[ThreadMessage]:
    """Return the results since the last message of the assistant."""
    found: list[ThreadMessage] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        if message.role == "tool" and message.tool_call_id:
            found.insert(0, message)
    return found


async def deliver_results(context: Context, run: RunRecord, messages: Sequence[ThreadMessage]) -> bool:
    """Deliver the results for which a run waits. Return whether there was one."""
    results = {message.tool_call_id: message for message in find_results(messages)}
    run_id = run.origin.run_id
    if run.outcome is not None or not any(str(each).startswith(f"{run_id}:") for each in results):
        return False
    transcript = await load_transcript(run_id, context.service.read_stored(run_id))
    waiting = [item for item in transcript.items if isinstance(item, CallItem) and item.state == "client"]
    asked = [(item, results[make_id(item)]) for item in waiting if make_id(item) in results]
    for item, message in asked:
        await _deliver(context, run, item.call_id, message)
    return bool(asked)


async def _deliver(context: Context, run: RunRecord, call_id: str, message: ThreadMessage) -> None:
    content, attachments = _read_content(message)
    request = client_calls.DeliverResult(
        run_id=run.origin.run_id,
        call_id=call_id,
        content=content or message.error or "",
        is_error=bool(message.error),
        attachments=attachments,
    )
    try:
        await LocalCaller(context).call(client_calls.DELIVER, request)
    except InvalidState:
        if (await context.service.run(run.origin.run_id)).outcome is None:
            raise  # it has another result


def _read_content(message: ThreadMessage) -> tuple[str, tuple[Attachment, ...]]:
    parts: Sequence[Any] = message.content if isinstance(message.content, tuple) else ()
    text = "".join([part.text for part in parts if isinstance(part, PartText)])
    images = [
        Attachment(part.source.mime_type, part.source.value)
        for part in parts
        if isinstance(part, PartImage) and isinstance(part.source, SourceData)
    ]
    return message.content if isinstance(message.content, str) else text, tuple(images)
