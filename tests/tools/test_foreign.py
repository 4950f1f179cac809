"""Tools of LangChain and of pydantic-ai as tools of agents."""

import asyncio
import threading
from typing import Annotated, Any

import pydantic_ai
import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolArg, InjectedToolCallId, StructuredTool, ToolException
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel, Field

import treadle
from treadle.domain.errors import ConfigError
from treadle.testing.models import ScriptedModel, ask, call, say
from treadle.tools.foreign import make_foreign_tool

ADVICE = "Do not make up a result: say that it failed, or try another way."


class Order(BaseModel):
    product: str = Field(min_length=2)
    count: int = 1


@langchain_tool
def multiply(a: int, b: int = 2) -> int:
    """Multiply two numbers."""
    return a * b


@langchain_tool
async def wait(seconds: float) -> dict[str, float]:
    """Wait, and return how long."""
    await asyncio.sleep(0)
    return {"waited": seconds}


@langchain_tool(args_schema=Order)
def order(product: str, count: int = 1) -> str:
    """Order a product."""
    return f"{count} x {product}"


@langchain_tool
def refuse() -> str:
    """Refuse."""
    raise ToolException("Try another tool.")


@langchain_tool
def crash() -> str:
    """Fail."""
    raise ZeroDivisionError("nothing to divide")


@langchain_tool
def identify(
    prefix: str,
    config: RunnableConfig,
    call_id: Annotated[str, InjectedToolCallId],
    context: Annotated[treadle.ToolContext, InjectedToolArg],
) -> str:
    """Tell who calls."""
    known: dict[str, Any] = config.get("configurable", {})
    return f"{prefix} {call_id} {context.deps} {known['deps']} {known['thread_id'] == context.session_id}"


@langchain_tool(response_format="content_and_artifact")
def draw() -> tuple[list[str | dict[str, Any]], bytes]:
    """Draw."""
    return ["first", {"type": "text", "text": "second"}], b"\x00"


def subtract(a: int, b: int = 1) -> int:
    """Subtract.

    Args:
        a: from this
        b: this
    """
    return a - b


async def look(context: pydantic_ai.RunContext[str], order: Order) -> Order:
    """Look an order up."""
    assert (context.tool_name, context.run_id is not None) == ("look", True)
    return Order(product=f"{order.product} of {context.deps} {context.tool_call_id}", count=order.count)


def again(count: int) -> str:
    """Ask for another attempt."""
    raise pydantic_ai.ModelRetry(f"{count} is too many.")


async def use(tool: Any, **arguments: Any) -> str:
    """Call a tool in a run, and return what the model is told."""
    agent = treadle.Agent("helper", model="scripted/any", tools=[tool])
    name = agent.tools[0].spec.name
    async with treadle.Engine("sqlite:///:memory:", deps="our deps") as engine:
        engine.add_model("scripted", ScriptedModel(ask(call(name, "c1", **arguments)), say("Done.")))
        result = await engine.run(agent, "Go.")
        events = [event async for event in engine.events(result.run_id)]
    ends = (treadle.ToolCallEnd, treadle.ToolCallError)
    [content] = [event.data.content for event in events if isinstance(event.data, ends)]
    return content


async def test_tools_of_langchain_run() -> None:
    assert await use(multiply, a=3) == "6"
    assert await use(wait, seconds=0.5) == '{"waited": 0.5}'
    assert await use(order, product="loom", count=2) == "2 x loom"
    assert await use(StructuredTool.from_function(subtract), a=3) == "2"
    assert await use(draw) == "first\nsecond"


async def test_a_tool_of_langchain_gets_the_context_of_the_call() -> None:
    assert await use(identify, prefix="I am") == "I am c1 our deps our deps True"
    [tool] = treadle.Agent(model="scripted/any", tools=[identify]).tools
    assert list(tool.spec.schema["properties"]) == ["prefix"]


async def test_errors_of_langchain_reach_the_model() -> None:
    assert await use(refuse) == f"`refuse` failed: Try another tool. {ADVICE}"
    assert "ZeroDivisionError: nothing to divide" in await use(crash)
    assert "`product`: String should have at least 2 characters" in await use(order, product="x")
    assert "`a`: Input should be a valid integer" in await use(multiply, a=[1])


async def test_an_error_that_langchain_handles_is_an_error_of_the_call() -> None:
    def fail() -> str:
        raise ToolException("There is none.")

    handled = StructuredTool.from_function(fail, description="Fail.", handle_tool_error=True)
    assert await use(handled) == f"There is none. {ADVICE}"


async def test_tools_of_pydantic_ai_run() -> None:
    assert await use(pydantic_ai.Tool(subtract), a=3) == "2"
    found = await use(pydantic_ai.Tool(look), product="loom", count=3)
    assert found == '{"product":"loom of our deps c1","count":3}'


async def test_errors_of_pydantic_ai_reach_the_model() -> None:
    assert await use(pydantic_ai.Tool(again), count=3) == f"`again` failed: 3 is too many. {ADVICE}"
    assert "`a`: Input should be a valid integer" in await use(pydantic_ai.Tool(subtract), a="x")
    assert "`c`: Extra inputs are not permitted" in await use(pydantic_ai.Tool(subtract), a=1, c=2)


def test_a_tool_keeps_its_name_its_description_and_its_schema() -> None:
    of_langchain = make_foreign_tool(multiply).spec
    assert (of_langchain.name, of_langchain.description, of_langchain.effect) == (
        "multiply",
        "Multiply two numbers.",
        "external",
    )
    assert of_langchain.schema == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
    }
    tool = pydantic_ai.Tool(subtract, requires_approval=True, sequential=True)
    of_pydantic_ai = make_foreign_tool(tool).spec
    assert of_pydantic_ai.schema["properties"]["a"] == {"type": "integer", "description": "from this"}
    assert (of_pydantic_ai.needs_approval, of_pydantic_ai.parallel) == (True, False)


def test_what_a_library_does_not_say_is_declared() -> None:
    tool = treadle.tool(multiply, effect="read", repeatable=True, name="times", description="Times.")
    assert (tool.spec.name, tool.spec.description) == ("times", "Times.")
    assert (tool.spec.effect, tool.spec.repeatable) == ("read", True)
    agent = treadle.Agent(model="scripted/any", tools=[tool])
    assert agent.spec.tools == ("times",)


def test_a_tool_that_only_its_library_can_run_is_refused() -> None:
    @langchain_tool
    def needy(state: Annotated[dict[str, Any], InjectedToolArg]) -> str:
        """Need the state of a graph."""
        return str(state)

    with pytest.raises(ConfigError, match="nothing supplies its injected argument `state`"):
        treadle.Agent(model="scripted/any", tools=[needy])

    async def prepare(context: Any, definition: Any) -> Any:
        return definition

    with pytest.raises(ConfigError, match="`prepare` changes a tool at each step"):
        treadle.Agent(model="scripted/any", tools=[pydantic_ai.Tool(subtract, prepare=prepare)])
    with pytest.raises(ConfigError, match="not a valid tool name"):
        treadle.Agent(model="scripted/any", tools=[StructuredTool.from_function(subtract, name="a b")])


async def test_a_synchronous_tool_does_not_stop_other_runs() -> None:
    threads: list[int] = []

    @langchain_tool
    def block() -> str:
        """Return the thread."""
        threads.append(threading.get_ident())
        return "ok"

    assert await use(block) == "ok"
    assert threads != [threading.get_ident()]


def test_the_texts_of_arguments_are_subject_to_approval_rules() -> None:
    plain = make_foreign_tool(order)
    assert plain.subjects(plain.parse('{"product": "loom"}')).texts == ("loom",)
    model = make_foreign_tool(pydantic_ai.Tool(look))
    assert model.subjects(model.parse('{"product": "loom"}')).texts == ("product", "loom", "count")
