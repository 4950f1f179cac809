"""What a client of responses sends, as turns of a conversation."""

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


def read_turns(given: str | Sequence[InputItem], instructions: str | None) -> list[Turn]:
    told = [Turn("instructions", make_text_parts(instructions))] if instructions else []
    if isinstance(given, str):
        return [*told, Turn("user", make_text_parts(given))]
    turns = [_read_turn(item, f"input[{index}]") for index, item in enumerate(given)]
    return [*told, *(turn for turn in turns if turn is not None)]


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
            return None  # of another model
        case "item_reference":
            raise InvalidParameterValue(
                where, "Items are not kept one by one; send the item itself, or previous_response_id."
            )
        case kind:
            raise InvalidParameterValue(
                where, f"An agent takes messages, and what came of function calls; `{kind}` is neither."
            )


def _read_message(item: InputItem, where: str) -> Turn:
    if item.role is None:
        raise InvalidParameterValue(f"{where}.role", "A message has a role: user, assistant, system or developer.")
    speaker: Speaker = "instructions" if item.role in ("system", "developer") else item.role  # pyright: ignore[reportAssignmentType] -- the others are done with
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
                where, "A message has text and pictures that come with it; files and audio are not taken."
            )
