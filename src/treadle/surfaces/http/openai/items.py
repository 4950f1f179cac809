"""Converts the input items of the responses API into turns of a conversation."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.surfaces.http.openai.conversation import (
    MadeCall,
    Speaker,
    Turn,
    TurnPart,
    make_result,
    make_text_parts,
    read_image,
)
from treadle.surfaces.http.openai.refusals import InvalidParameterValue
from treadle.surfaces.http.openai.response_schemas import (
    EarlierReasoning,
    EarlierRefusal,
    EarlierText,
    InputImage,
    InputItem,
    InputPart,
    InputText,
)

RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
LEFT_OUT = (
    "reasoning", "web_search_call", "file_search_call", "computer_call", "computer_call_output",
    "image_generation_call", "code_interpreter_call", "mcp_list_tools", "mcp_call", "mcp_approval_request",
    "mcp_approval_response", "compaction",
)  # fmt: skip
"""What models of OpenAI did, which means nothing to an agent."""


def read_turns(input_: str | Sequence[InputItem], instructions: str | None) -> list[Turn]:
    instruction_turns = [Turn("instructions", make_text_parts(instructions))] if instructions else []
    if isinstance(input_, str):
        return [*instruction_turns, Turn("user", make_text_parts(input_))]
    turns = [_read_turn(item, f"input[{index}]") for index, item in enumerate(input_)]
    return [*instruction_turns, *(turn for turn in turns if turn is not None)]


def list_left_out(input_: str | Sequence[InputItem]) -> list[str]:
    """Return the types of items that are left out, apart from reasoning, as names of parameters."""
    if isinstance(input_, str):
        return []
    kinds = dict.fromkeys(item.type for item in input_ if item.type in LEFT_OUT and item.type != "reasoning")
    return [f"input.{kind}" for kind in kinds]


def _read_turn(item: InputItem, where: str) -> Turn | None:
    match item.type:
        case "message":
            return _read_message(item, where)
        case "function_call":
            return Turn("assistant", (MadeCall(item.call_id or "", item.name or "", item.arguments or ""),))
        case "custom_tool_call":
            arguments = msgspec.json.encode({"input": item.input or ""}).decode()
            return Turn("assistant", (MadeCall(item.call_id or "", item.name or "", arguments),))
        case "local_shell_call":
            arguments = msgspec.json.encode(item.action).decode()
            return Turn("assistant", (MadeCall(item.call_id or item.id or "", "local_shell", arguments),))
        case kind if kind in RESULTS:
            return Turn("user", (make_result(item.call_id or item.id or "", _read_output(item.output, where)),))
        case kind if kind in LEFT_OUT:
            return None
        case "item_reference":
            raise InvalidParameterValue(
                where, "Items are not stored individually. Send the item itself, or previous_response_id."
            )
        case kind:
            raise InvalidParameterValue(
                where, f"An agent accepts messages, calls and their results; `{kind[:100]}` is none of these."
            )


def _read_output(output: Any, where: str) -> Sequence[TurnPart]:
    """Return the content of a result: a text, or a list of texts and images."""
    if isinstance(output, str):
        return make_text_parts(output)
    try:
        parts = msgspec.convert(output, tuple[InputPart, ...])
    except msgspec.ValidationError:
        return make_text_parts(msgspec.json.encode(output).decode())
    return [said for place, part in enumerate(parts) for said in _read_part(part, f"{where}.output[{place}]")]


def _read_message(item: InputItem, where: str) -> Turn:
    if item.role is None:
        raise InvalidParameterValue(
            f"{where}.role", "A message must have a role: user, assistant, system or developer."
        )
    speaker: Speaker = "instructions" if item.role in ("system", "developer") else item.role  # pyright: ignore[reportAssignmentType] -- the other roles are handled here
    if item.content is None or isinstance(item.content, str):
        return Turn(speaker, make_text_parts(item.content or ""))
    parts = [_read_part(part, f"{where}.content[{place}]") for place, part in enumerate(item.content)]
    return Turn(speaker, tuple(said for part in parts for said in part))


def _read_part(part: InputPart, where: str) -> tuple[TurnPart, ...]:
    match part:
        case InputText(text) | EarlierText(text) | EarlierRefusal(text):
            return make_text_parts(text)
        case EarlierReasoning():
            return ()
        case InputImage(str(url)):
            return (read_image(url, where),)
        case _:
            raise InvalidParameterValue(
                where, "A message may contain text and embedded images. Files and audio are not supported."
            )
