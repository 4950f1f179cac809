"""Typed functions as tools."""

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from treadle.domain.ids import RunId, SessionId
from treadle.ports.tool import InvalidArguments, Observation, Tool, ToolContext
from treadle.tools import loop_blocking
from treadle.tools.function import tool

CONTEXT = ToolContext(RunId("run_1"), SessionId("ses_1"), "c1", "run_1:c1", lambda text: None)


class Point(Struct):
    x: int
    y: int = 0


@tool(effect="read", repeatable=True)
async def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Whole ones.

    Args:
        a: The first number.
        b (int): The second,
            which may be left out.

    Returns:
        The sum.
    """
    return a + b


async def run(made: Tool, arguments: str = "{}") -> str | Observation:
    return await made.run(made.parse(arguments), CONTEXT)


def invalid(made: Tool, arguments: str) -> str:
    with pytest.raises(InvalidArguments) as raised:
        made.parse(arguments)
    return str(raised.value)


def test_a_function_declares_its_schema_and_description() -> None:
    spec = add.spec
    assert (spec.name, spec.effect, spec.repeatable, spec.concurrent) == ("add", "read", True, True)
    assert spec.description == "Add two numbers.\n\nWhole ones.\n\nReturns:\n    The sum."
    assert spec.schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first number."},
            "b": {"type": "integer", "description": "The second, which may be left out.", "default": 2},
        },
        "required": ["a"],
    }


def test_undeclared_properties_default_to_the_most_restrictive() -> None:
    @tool
    def plain() -> None: ...

    assert (plain.spec.effect, plain.spec.repeatable, plain.spec.concurrent) == ("external", False, False)
    assert (plain.spec.name, plain.spec.description) == ("plain", "")


def test_every_property_of_a_tool_can_be_set() -> None:
    made = tool(parallel=True, interactive=True, poller=True, timeout=3, name="other-name", description="Does it.")(
        lambda: "x"
    )
    spec = made.spec
    assert (spec.parallel, spec.interactive, spec.poller, spec.timeout) == (True, True, True, 3)
    assert (spec.name, spec.description) == ("other-name", "Does it.")


async def test_a_tool_is_still_callable_as_a_function() -> None:
    assert await add(1, b=5) == 6
    assert inspect.signature(add).parameters["b"].default == 2


async def test_a_function_tool_runs() -> None:
    assert await run(add, '{"a": 1}') == "3"
    assert await run(add, '{"a": 1, "b": 1}') == "2"


async def test_a_sync_function_runs_in_a_thread_with_its_context() -> None:
    colour = ContextVar("colour", default="none")

    @tool
    def where() -> str:
        return f"{colour.get()} {threading.current_thread() is threading.main_thread()}"

    async def call() -> str | Observation:
        colour.set("green")
        return await where.run(where.parse(""), CONTEXT)

    assert await call() == "green False"


async def test_the_context_is_supplied_and_not_in_the_schema() -> None:
    @tool
    async def whoami(context: ToolContext, greeting: str = "I am") -> str:
        return f"{greeting} {context.call_id}"

    assert list(whoami.spec.schema["properties"]) == ["greeting"]
    assert await run(whoami) == "I am c1"


@pytest.mark.parametrize(
    ("result", "text"),
    [("plain", "plain"), (None, ""), (1.5, "1.5"), ([1, "ü"], '[1,"ü"]'), (Point(1), '{"x":1,"y":0}')],
)
async def test_return_values_become_text(result: Any, text: str) -> None:
    @tool
    async def give() -> Any:
        return result

    assert await run(give) == text


async def test_a_result_that_is_not_json_is_refused() -> None:
    @tool
    async def give() -> object:
        return object()

    with pytest.raises(TypeError, match="tool `give` returned what is not text and not JSON"):
        await run(give)


async def test_rich_types_and_defaults_are_described_and_decoded() -> None:
    fallback = [1, 2]

    @tool
    def draw(
        points: list[Point],
        mode: Literal["fast", "fine"] = "fast",
        width: Annotated[int, Meta(ge=1, description="In pixels.")] = 1,
        tags: list[int] = fallback,
        marker: Any = threading,
    ) -> list[Any]:
        """Draw.

        Args:
            width: Not used: the annotation says it already.
        """
        return [points, mode, width, tags is fallback, marker is threading]

    assert await run(draw, '{"points": [{"x": 1}]}') == '[[{"x":1,"y":0}],"fast",1,true,true]'
    schema = draw.spec.schema
    assert schema["properties"]["mode"] == {"enum": ["fast", "fine"], "default": "fast"}
    assert schema["properties"]["width"]["description"] == "In pixels."
    assert schema["properties"]["tags"]["default"] == [1, 2]
    assert "default" not in schema["properties"]["marker"]
    point = {"properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}}, "required": ["x"]}
    assert schema["properties"]["points"] == {"type": "array", "items": {"type": "object", **point}}
    assert "$defs" not in schema, "a definition that is used once is in its place"
    assert invalid(draw, '{"points": [{"x": 1}, {"x": "1"}]}').startswith("`points[1].x` must be int, got str. ")
    assert invalid(draw, '{"points": [{}]}').startswith("missing parameter `x` in `points[0]`. ")
    assert invalid(draw, '{"points": [], "width": 0}').startswith("`width` must be int >= 1. ")
    assert invalid(draw, '{"points": [], "mode": "x"}') == (
        "`mode`: invalid enum value 'x'. draw takes: points (array of object, required), "
        'mode ("fast" or "fine"), width (int), tags (array of int), marker (any).'
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"a": "1"}', "`a` must be int, got str. add takes: a (int, required), b (int)."),
        ('{"a": 1, "c": 2}', "unknown parameter `c`. add takes: a (int, required), b (int)."),
        ("{}", "missing parameter `a`. add takes: a (int, required), b (int)."),
        ("", "missing parameter `a`. "),
        ("[1]", "the arguments must be object, got array. "),
        ('{"a": 1', "the arguments are not JSON (Input data was truncated). "),
        ('{"a": 1} x', "the arguments are not JSON (JSON is malformed: trailing characters (byte 10)). "),
        ("{a: 1}", "the arguments are not JSON ("),
        ('{"a": "\ud800"}', "the arguments are not JSON ("),
    ],
)
def test_invalid_arguments_are_explained(arguments: str, words: str) -> None:
    assert invalid(add, arguments).startswith(words)


def test_deeply_nested_arguments_are_refused() -> None:
    @tool
    def anything(value: Any) -> None: ...

    assert invalid(anything, '{"value": ' + "[" * 100_000).startswith(
        "the arguments are not JSON (maximum recursion"
    )


def test_a_tool_without_parameters_is_described() -> None:
    @tool
    def now() -> str:
        return "now"

    assert invalid(now, '{"zone": "utc"}') == "unknown parameter `zone`. now takes no parameters: send {}."


def positional_only(a: int, /) -> None: ...
def any_positional(*a: int) -> None: ...
def any_keyword(**a: int) -> None: ...
def unreadable(a: threading.Thread) -> None: ...


def define_function(source: str) -> Callable[..., Any]:
    """Return a function `odd` that a type checker would reject."""
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return namespace["odd"]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (positional_only, "tool `positional_only`: parameter `a` is positional-only"),
        (any_positional, "tool `any_positional`: parameter `a` takes any number of positional values"),
        (any_keyword, "tool `any_keyword`: parameter `a` takes any keyword"),
        (define_function("def odd(a): ..."), "tool `odd`: parameter `a` has no annotation"),
        (unreadable, "type cannot be read from JSON: type <class 'threading.Thread'>"),
        (define_function("def odd(a: 'Nowhere'): ..."), "tool `odd`: an annotation cannot be resolved"),
        (lambda: None, "`<lambda>` is not a valid tool name"),
    ],
)
def test_invalid_signatures_are_refused(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(TypeError) as raised:
        tool(function)
    assert words in str(raised.value)


async def test_a_coroutine_that_blocks_the_event_loop_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that awaits for as long is not, and exceptions and results pass through."""
    monkeypatch.setattr(loop_blocking, "BLOCKED_SECONDS", 0.05)

    @tool
    async def wait() -> str:
        await asyncio.sleep(0.1)
        return "done"

    @tool
    async def block() -> str:
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251 -- the mistake
        raise ValueError("too late")

    @tool
    async def block_and_yield() -> AsyncIterator[str]:
        time.sleep(0.1)  # noqa: ASYNC251 -- the mistake
        yield "done"

    context = ToolContext(RunId("run_1"), SessionId("s"), "c", "k", lambda _: None)
    assert await wait.run(wait.parse("{}"), context) == "done"
    assert caplog.messages == []
    with pytest.raises(ValueError, match="too late"):
        await block.run(block.parse("{}"), context)
    assert await block_and_yield.run(block_and_yield.parse("{}"), context) == "done"
    assert [message.split(" blocked")[0] for message in caplog.messages] == [
        "The tool `block` of run_1",
        "The tool `block_and_yield` of run_1",
    ]


async def test_a_coroutine_that_is_cancelled_may_clean_up() -> None:
    cleaned: list[str] = []

    @tool
    async def hang() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")
        return "never"

    context = ToolContext(RunId("run_1"), SessionId("s"), "c", "k", lambda _: None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await hang.run(hang.parse("{}"), context)
    assert cleaned == ["up"]
