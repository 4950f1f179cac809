"""recall."""

import pytest

from treadle.domain.ids import RunId, SessionId
from treadle.ports.tool import InvalidArguments, ToolContext, ToolError
from treadle.tools.recall import recall

TEXT = "0123456789" * 10


async def read_kept(call_id: str) -> str | None:
    return TEXT if call_id == "c7" else None


async def call(arguments: str) -> str:
    context = ToolContext(RunId("run_1"), SessionId("ses_1"), "c9", "run_1/c9", lambda text: None, recall=read_kept)
    return str(await recall.run(recall.parse(arguments), context))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"call_id": "c7"}', f"{TEXT}\n[characters 0-100 of 100; this is the end]"),
        ('{"call_id": "c7", "start": 5, "length": 10}', "5678901234\n[characters 5-15 of 100; start=15 reads on]"),
        ('{"call_id": "c7", "start": -3}', "789\n[characters 97-100 of 100; this is the end]"),
        ('{"call_id": "c7", "start": -500, "length": 1}', "0\n[characters 0-1 of 100; start=1 reads on]"),
    ],
)
async def test_a_part_of_the_text_is_returned(arguments: str, text: str) -> None:
    assert await call(arguments) == text


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ('"5-15"', "5-15"),
        ('"5:15"', "5-15"),
        ('"5..15"', "5-15"),
        ("[5, 15]", "5-15"),
        ('"90-"', "90-100"),
        ('"90"', "90-100"),
        ("90", "90-100"),
        ('"-3"', "97-100"),
        ('"0-1000000"', "0-100"),
    ],
)
async def test_a_range_replaces_start_and_length(given: str, read: str) -> None:
    first, _, end = read.partition("-")
    answer = await call(f'{{"call_id": "c7", "range": {given}}}')
    assert answer.startswith(f"{TEXT[int(first) : int(end)]}\n[characters {read} of 100")


@pytest.mark.parametrize(
    "given", ['"15-5"', '"all"', "null", f'"{"9" * 9000}"', "{}", "[1, 2, 3]", '"5-15", "start": 5']
)
async def test_an_invalid_range_is_refused_with_the_parameters(given: str) -> None:
    with pytest.raises(InvalidArguments, match=r"range.*recall takes: call_id"):
        await call(f'{{"call_id": "c7", "range": {given}}}')


async def test_invalid_ranges_are_refused() -> None:
    with pytest.raises(ToolError, match="no text is stored for the call `c8`"):
        await call('{"call_id": "c8"}')
    with pytest.raises(ToolError, match="100 characters long, so nothing is at 100"):
        await call('{"call_id": "c7", "start": 100}')
    with pytest.raises(InvalidArguments):
        await call('{"call_id": "c7", "length": 0}')


def test_recall_declares_its_effect_and_needs() -> None:
    spec = recall.spec
    assert (spec.effect, spec.repeatable, spec.needs) == ("read", True, ("results",))
