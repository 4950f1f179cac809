"""The `@tool` decorator: turns a typed function into a tool whose schema comes from its signature."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, Generic, Literal, NoReturn, ParamSpec, TypeVar, cast, get_args, overload

import msgspec

from treadle.domain.suggestions import find_closest
from treadle.domain.tools import Effect, Need, ToolSpec
from treadle.ports.tool import Observation, Subjects, ToolContext
from treadle.tools import pydantic
from treadle.tools.docstrings import Docstring, parse_docstring
from treadle.tools.foreign import AdaptedTool, ForeignTool, is_foreign_tool, make_foreign_tool
from treadle.tools.generators import make_progress_callback, run_async_generator, run_generator
from treadle.tools.loop_blocking import time_steps
from treadle.tools.rendering import collect_texts, render_result
from treadle.tools.signature import Signature

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Kind = Literal["async", "plain", "async_generator", "generator"]


class FunctionTool(Generic[_P, _R]):
    """A tool made from a function. Calling it calls the function as if it were not decorated.

    A sync function runs in a thread, which cannot be stopped: after a cancel or a timeout it continues, and its
    result is ignored. A generator is stopped at its next yield."""

    def __init__(self, function: Callable[_P, _R], spec: ToolSpec, signature: Signature) -> None:
        update_wrapper(self, function)
        self._function = function
        self._signature = signature
        self.spec = spec
        self._kind: _Kind = _function_kind(function)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._function(*args, **kwargs)

    def parse(self, arguments: str) -> Any:
        return self._signature.decode(arguments)

    def subjects(self, arguments: Any) -> Subjects:
        """Return every text among the arguments, at any depth, including default values."""
        texts: list[str] = []
        for name in arguments.__struct_fields__:
            value = getattr(arguments, name)
            if isinstance(value, str):
                texts.append(value)
            elif value is not None and not isinstance(value, int | float):
                texts += collect_texts(msgspec.to_builtins(value, enc_hook=pydantic.encode))
        return Subjects(tuple(texts), pattern="*")

    async def run(self, arguments: Any, context: ToolContext) -> str | Observation:
        keywords = self._signature.keywords(arguments, context)
        function = cast("Callable[..., Any]", self._function)
        match self._kind:
            case "async":
                result = await time_steps(function(**keywords), self.spec, context)
            case "plain":
                result = await asyncio.to_thread(function, **keywords)
            case "async_generator":
                progress = make_progress_callback(context, self._as_text)
                work = run_async_generator(function(**keywords), progress)
                result = await time_steps(work, self.spec, context)
            case "generator":
                result = await run_generator(function(**keywords), make_progress_callback(context, self._as_text))
        return result if isinstance(result, Observation) else self._as_text(result)

    def _as_text(self, result: Any) -> str:
        return render_result(self.spec.name, result)


@overload
def tool(function: Callable[_P, _R], /) -> FunctionTool[_P, _R]: ...


@overload
def tool(
    *,
    effect: Effect = ...,
    repeatable: bool = ...,
    parallel: bool | None = ...,
    interactive: bool = ...,
    needs_approval: bool = ...,
    poller: bool = ...,
    timeout: float | None = ...,
    paths: Sequence[str] = ...,
    needs: Sequence[Need] = ...,
    name: str | None = ...,
    description: str | None = ...,
) -> Callable[[Callable[_P, _R]], FunctionTool[_P, _R]]: ...


@overload
def tool(
    foreign: ForeignTool,
    /,
    *,
    effect: Effect = ...,
    repeatable: bool = ...,
    needs_approval: bool = ...,
    timeout: float | None = ...,
    name: str | None = ...,
    description: str | None = ...,
) -> AdaptedTool: ...


def tool(
    function: Callable[..., Any] | ForeignTool | None = None,
    /,
    *,
    effect: Effect = "external",
    repeatable: bool = False,
    parallel: bool | None = None,
    interactive: bool = False,
    needs_approval: bool = False,
    poller: bool = False,
    timeout: float | None = None,
    paths: Sequence[str] = (),
    needs: Sequence[Need] = (),
    name: str | None = None,
    description: str | None = None,
    **others: Any,
) -> Any:
    """Turn a typed function into a tool: sync, async, or a generator that yields its progress.

    Declare its effect (`effect`, `repeatable`, ...: see `ToolSpec`); the most restrictive values are the defaults.
    The schema comes from the signature, the description from the docstring, and the descriptions of parameters
    from `Annotated[T, msgspec.Meta(description=...)]` or the docstring's `Args:` section. The engine supplies a
    parameter annotated `ToolContext`, and the model does not see it. Raise TypeError if a JSON object cannot
    supply the parameters.

        @treadle.tool(effect="read", repeatable=True)
        def weather(city: str) -> str:
            '''Return the weather in a city.'''
            return f"It is sunny in {city}."

    A tool of LangChain or pydantic-ai keeps its name and schema: `treadle.tool(search, effect="read")`.
    """

    for other in others:
        _refuse_option(other)
    if effect not in get_args(Effect):
        raise TypeError(f"effect={effect!r}: it is one of {', '.join(get_args(Effect))}")

    def decorate(function: Any) -> Any:
        if is_foreign_tool(function):
            texts = {"name": name, "description": description, "timeout": timeout}
            given = {field: value for field, value in texts.items() if value is not None}
            given |= {"needs_approval": True} if needs_approval else {}
            return make_foreign_tool(function, {"effect": effect, "repeatable": repeatable, **given})
        documented: Docstring = parse_docstring(function)
        tool_name = name or getattr(function, "__name__", type(function).__name__)
        signature = Signature(tool_name, function, documented.parameters)
        spec = ToolSpec(
            name=tool_name,
            description=documented.text if description is None else description,
            schema=signature.schema,
            effect=effect,
            repeatable=repeatable,
            parallel=parallel,
            interactive=interactive,
            needs_approval=needs_approval,
            poller=poller,
            timeout=timeout,
            paths=_check_parameter_names(tool_name, "paths", paths, signature),
            needs=tuple(needs),
        )
        return FunctionTool(function, spec, signature)

    return decorate if function is None else decorate(function)


_OPTION_HINTS = {
    "requires_approval": "Write needs_approval=True",
    "requires_confirmation": "Write needs_approval=True",
    "interrupt": "Write needs_approval=True",
    "args_schema": "Leave it out: the schema comes from the signature",
    "parameters": "Leave it out: the schema comes from the signature",
    "retries": "Leave it out: the model sees a treadle.ToolError, and calls again",
    "return_direct": "Leave it out: the model answers",
    "name_override": "Write name=…",
    "description_override": "Write description=…",
    "strict": "Leave it out: arguments are always validated",
}
"""What to write instead of the options of other libraries."""


def _refuse_option(name: str) -> NoReturn:
    """Raise TypeError for an option that tools do not have."""
    known = [each for each in inspect.signature(tool).parameters if each not in ("function", "others")]
    near = find_closest(name, known)
    hint = _OPTION_HINTS.get(name) or (f"Did you mean `{near}`?" if near else f"Options: {', '.join(known)}")
    raise TypeError(f"`{name}` is not an option of a tool. {hint}{'' if hint.endswith('?') else '.'}")


def _check_parameter_names(
    tool_name: str, setting: str, names: Sequence[str], signature: Signature
) -> tuple[str, ...]:
    for name in names:
        if name not in signature.schema["properties"]:
            raise TypeError(f"tool `{tool_name}`: {setting} names `{name}`, which is not one of its parameters")
    return tuple(names)


def _function_kind(function: Callable[..., Any]) -> _Kind:
    if inspect.isasyncgenfunction(function):
        return "async_generator"
    if inspect.isgeneratorfunction(function):
        return "generator"
    return "async" if inspect.iscoroutinefunction(function) else "plain"
