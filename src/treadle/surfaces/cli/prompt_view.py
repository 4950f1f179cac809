"""The request that a model received at a step, made again from the journal."""

import sys

import msgspec

from treadle.bootstrap.engine import encode_request
from treadle.bootstrap.offline_service import open_service_readonly
from treadle.domain.ids import RunId
from treadle.domain.messages import Image, Message, Text, Thinking, ToolResult, ToolUse
from treadle.operations.prompts import SentPrompt
from treadle.surfaces.cli.output import print_json_line
from treadle.surfaces.cli.terminal import inert


async def print_prompt(run_id: RunId, step: int | None, json: bool) -> None:
    """Print the request of a step: its bytes as JSON, or its parts for people."""
    async with open_service_readonly() as service:
        seen = await service.prompt(run_id, step)
    if json:
        print_json_line(encode_request(seen.model.api_mode, seen.request))
    else:
        text = "\n".join(_lines(seen))
        print(inert(text) if sys.stdout.isatty() else text)


def _lines(seen: SentPrompt) -> list[str]:
    event, request = seen.event, seen.request
    attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
    lines = [
        f"── step {event.step}{attempt}: {event.provider}/{event.model}, about {event.input_estimate} tokens ──"
    ]
    if request.preamble.system:
        lines += ["", "[system]", request.preamble.system]
    if request.preamble.tools:
        offered = "" if event.tools_offered else " (must not be called in this request)"
        lines += ["", f"[tools]{offered}"]
        lines += [f"{tool.name}: {msgspec.json.encode(tool.schema).decode()}" for tool in request.preamble.tools]
    for message in request.conversation.messages:
        mark = f", {message.mark}" if message.mark else ""
        lines += ["", f"[{message.role}{mark}]", *_parts(message)]
    if request.aside:
        lines += ["", "[after the conversation, in this request only]", request.aside]
    return lines


def _parts(message: Message) -> list[str]:
    lines: list[str] = []
    for part in message.sent:
        match part:
            case Text(text):
                lines.append(text)
            case Thinking(text=text):
                lines.append(f"(reasoning) {text}")
            case ToolUse(call_id, name, arguments):
                lines.append(f"(call {call_id}) {name} {arguments}")
            case ToolResult(call_id, content):
                lines.append(f"(result of {call_id}) {content}")
            case Image(media_type):
                lines.append(f"(an image, {media_type})")
    return lines
