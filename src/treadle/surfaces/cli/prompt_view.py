"""The request that a model received at a step, as `treadle runs prompt` prints it."""

import sys

import msgspec

from treadle.domain.messages import Image, Message, Text, Thinking, ToolResult, ToolUse
from treadle.operations.run_inspection import StepPrompt
from treadle.surfaces.terminal.output import print_json_line
from treadle.surfaces.terminal.text import inert


def print_prompt(prompt: StepPrompt, *, json: bool) -> None:
    """Print the request of a step: its bytes as JSON, or its parts for people."""
    if json:
        print_json_line(bytes(prompt.body))
    else:
        text = "\n".join(_lines(prompt))
        print(inert(text) if sys.stdout.isatty() else text)


def _lines(prompt: StepPrompt) -> list[str]:
    attempt = f", attempt {prompt.attempt}" if prompt.attempt > 1 else ""
    model = f"{prompt.provider}/{prompt.model}"
    lines = [f"── step {prompt.step}{attempt}: {model}, about {prompt.input_estimate} tokens ──"]
    if prompt.system:
        lines += ["", "[system]", prompt.system]
    if prompt.tools:
        offered = "" if prompt.tools_offered else " (must not be called in this request)"
        lines += ["", f"[tools]{offered}"]
        lines += [f"{tool.name}: {msgspec.json.encode(tool.schema).decode()}" for tool in prompt.tools]
    for message in prompt.messages:
        mark = f", {message.mark}" if message.mark else ""
        lines += ["", f"[{message.role}{mark}]", *_parts(message)]
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
