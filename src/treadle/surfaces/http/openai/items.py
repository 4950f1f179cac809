"""Converts the input items of the responses API into turns of a conversation."""

from collections.abc import Sequence

import msgspec

from treadle.surfaces.http.openai.conversation import (
    Speaker,
    Turn,
    TurnPart,
    describe_client_call,
    describe_client_result,
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

CALLS = ("function_call", "custom_tool_call")
RESULTS = ("function_call_output", "custom_tool_call_output")


def read_turns(input_: str | Sequence[InputItem], instructions: str | None) -> list[Turn]:
    instruction_turns = [Turn("instructions", make_text_parts(instructions))] if instructions else []
    if isinstance(input_, str):
        return [*instruction_turns, Turn("user", make_text_parts(input_))]
    turns = [_read_turn(item, f"input[{index}]") for index, item in enumerate(input_)]
    return [*instruction_turns, *(turn for turn in turns if turn is not None)]


def _read_turn(item: InputItem, where: str) -> Turn | None:
    match item.type:
        case "message":
            return _read_message(item, where)
        case kind if kind in CALLS:
            return Turn("assistant", (describe_client_call(item.name or "", item.arguments or ""),))
        case kind if kind in RESULTS:
            result = item.output if isinstance(item.output, str) else msgspec.json.encode(item.output).decode()
            return Turn("user", (describe_client_result(item.call_id or "", result),))
        case "reasoning":
            return None  # reasoning of another model
        case "item_reference":
            raise InvalidParameterValue(
                where, "Items are not stored individually. Send the item itself, or previous_response_id."
            )
        case kind:
            raise InvalidParameterValue(
                where, f"An agent accepts messages and results of function calls; `{kind}` is neither."
            )


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
