"""Tools of other libraries as tools of agents: those of LangChain and of pydantic-ai.

They are recognized by what they offer. Neither library is imported: a program that has its tools has done that."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

import msgspec

from treadle.domain.errors import ConfigError
from treadle.domain.schemas import find_mismatch
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import InvalidArguments, Observation, Subjects, ToolContext, ToolError
from treadle.tools import pydantic
from treadle.tools.loop_blocking import time_steps
from treadle.tools.rendering import collect_texts, render_result
from treadle.tools.signature import is_tool_name


class LangChainTool(Protocol):
    """What a tool of LangChain offers."""

    name: str
    description: str

    @property
    def tool_call_schema(self) -> Any: ...

    async def ainvoke(self, input: Any, config: Any = None) -> Any: ...


class PydanticAITool(Protocol):
    """What a `Tool` of pydantic-ai offers."""

    name: str
    takes_ctx: bool

    @property
    def tool_def(self) -> Any: ...


ForeignTool: TypeAlias = LangChainTool | PydanticAITool


def is_foreign_tool(item: object) -> TypeGuard[ForeignTool]:
    """Return whether something is a tool of another library."""
    return _is_langchain_tool(item) or _is_pydantic_ai_tool(item)


def _is_langchain_tool(item: object) -> TypeGuard[LangChainTool]:
    return hasattr(type(item), "tool_call_schema") and hasattr(item, "ainvoke")


def _is_pydantic_ai_tool(item: object) -> TypeGuard[PydanticAITool]:
    return hasattr(type(item), "tool_def") and hasattr(item, "function_schema")


def make_foreign_tool(item: ForeignTool, declared: Mapping[str, Any] | None = None) -> "AdaptedTool":
    """Return a tool of another library as a tool of an agent. `declared` are fields of its `ToolSpec`. Raise
    ConfigError for one that needs what only its own library can supply."""
    return (_LangChain if _is_langchain_tool(item) else _PydanticAI)(item, declared or {})


class AdaptedTool(ABC):
    """Implements `ports.tool.Tool` for a tool of another library."""

    def __init__(self, item: Any, spec: ToolSpec, declared: Mapping[str, Any]) -> None:
        self.__wrapped__ = item
        self.spec = msgspec.structs.replace(spec, **declared)
        if not is_tool_name(self.spec.name):
            raise ConfigError(
                f"`{self.spec.name}` is not a valid tool name. Choose 1 to 64 letters, digits, dashes and "
                "underscores: treadle.tool(…, name=…)."
            )

    @abstractmethod
    def parse(self, arguments: str) -> Any: ...

    def subjects(self, arguments: Any) -> Subjects:
        """Return every text among the arguments, at any depth."""
        values = msgspec.to_builtins(list(arguments.values()), enc_hook=_make_plain)
        return Subjects(tuple(collect_texts(values)), pattern="*")

    @abstractmethod
    async def run(self, arguments: Any, context: ToolContext) -> str | Observation: ...


class _LangChain(AdaptedTool):
    def __init__(self, item: Any, declared: Mapping[str, Any]) -> None:
        self._model = item.tool_call_schema
        """The model of the arguments that a model supplies, or their JSON Schema."""
        is_model = pydantic.is_model(self._model)
        schema = self._model.model_json_schema() if is_model else dict(self._model)
        super().__init__(item, ToolSpec(item.name, item.description, _strip_titles(schema)), declared)
        self._contexts = _find_contexts(item, set(self.spec.schema.get("properties", ())))

    def parse(self, arguments: str) -> dict[str, Any]:
        values = _decode_object(arguments)
        if pydantic.is_model(self._model):
            try:
                pydantic.decode(self._model, values)
            except ValueError as error:
                raise InvalidArguments(f"the arguments do not match the schema: {error}.") from None
        elif (wrong := find_mismatch(arguments or "{}", self.spec.schema)) is not None:
            raise InvalidArguments(f"the arguments do not match the schema: {wrong}.")
        return values

    async def run(self, arguments: Any, context: ToolContext) -> str | Observation:
        values = arguments | dict.fromkeys(self._contexts, context)
        # As a call of a model: the tool learns its id, and the result says whether the tool failed.
        call = {"type": "tool_call", "id": context.call_id, "name": self.__wrapped__.name, "args": values}
        known = {"thread_id": context.session_id, "user_id": context.user, "deps": context.deps}
        try:
            message = await time_steps(self.__wrapped__.ainvoke(call, {"configurable": known}), self.spec, context)
        except Exception as error:
            raise _explain_failure(error, ("ToolException",)) from error
        content = getattr(message, "content", message)
        text = _join_blocks(cast("list[Any]", content)) if isinstance(content, list) else content
        return Observation(
            render_result(self.spec.name, text), is_error=getattr(message, "status", "success") == "error"
        )


class _PydanticAI(AdaptedTool):
    def __init__(self, item: Any, declared: Mapping[str, Any]) -> None:
        definition, self._function = item.tool_def, item.function_schema
        if item.prepare is not None:
            raise ConfigError(
                f"tool `{item.name}`: `prepare` changes a tool at each step, which Treadle does not do. Pass a "
                "tool without it."
            )
        spec = ToolSpec(
            name=definition.name,
            description=definition.description or "",
            schema=definition.parameters_json_schema,
            needs_approval=item.requires_approval,
            parallel=False if item.sequential else None,
            timeout=item.timeout,
        )
        super().__init__(item, spec, declared)

    def parse(self, arguments: str) -> Any:
        try:
            return pydantic.validate(self._function.validator, arguments or "{}")
        except ValueError as error:
            raise InvalidArguments(f"the arguments do not match the schema: {error}.") from None

    async def run(self, arguments: Any, context: ToolContext) -> str | Observation:
        try:
            called = self._function.call(arguments, self._make_run_context(context))
            result = await time_steps(called, self.spec, context)
        except Exception as error:
            raise _explain_failure(error, ("ModelRetry",)) from error
        is_wrapped = type(result).__name__ == "ToolReturn" and hasattr(result, "return_value")
        return render_result(self.spec.name, result.return_value if is_wrapped else result)

    def _make_run_context(self, context: ToolContext) -> Any:
        """Return the context that the library's own tools expect, with what is known outside of the library."""
        if not self._function.takes_ctx:
            return None
        library = sys.modules["pydantic_ai"]
        return library.RunContext(
            deps=context.deps,
            model=None,
            usage=library.RunUsage(),
            tool_call_id=context.call_id,
            tool_name=self.spec.name,
            run_id=context.run_id,
        )


def _make_plain(value: Any) -> Any:
    """Return an argument as plain values, or as the text that it is shown as."""
    try:
        return pydantic.encode(value)
    except TypeError:
        return str(value)


def _explain_failure(error: Exception, told: tuple[str, ...]) -> Exception:
    """Return the error to raise. One that the library has for telling the model keeps its message."""
    is_told = any(each.__name__ in told for each in type(error).__mro__)
    return ToolError(str(error)) if is_told else error


def _find_contexts(item: Any, shown: set[str]) -> tuple[str, ...]:
    """Return the injected arguments that get the context of the call. Raise ConfigError for one that nothing
    supplies."""
    fields: Mapping[str, Any] = getattr(item.args_schema, "model_fields", {})
    found: list[str] = []
    for name, field in fields.items():
        if field.annotation is ToolContext:
            found.append(name)
        elif name not in shown and field.is_required() and not _is_call_id(field):
            raise ConfigError(
                f"tool `{item.name}`: nothing supplies its injected argument `{name}`. Annotate it with "
                "treadle.ToolContext, or give it a default."
            )
    return tuple(found)


def _is_call_id(field: Any) -> bool:
    """Return whether LangChain itself supplies an argument: the id of the call."""
    return any(getattr(each, "__name__", type(each).__name__) == "InjectedToolCallId" for each in field.metadata)


def _decode_object(arguments: str) -> dict[str, Any]:
    try:
        decoded: Any = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidArguments(f"the arguments are not valid JSON: {error}.") from None
    if not isinstance(decoded, dict):
        raise InvalidArguments("the arguments must be a JSON object.")
    return cast("dict[str, Any]", decoded)


def _strip_titles(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without what repeats the names of the tool and of its parameters."""
    stripped = {key: value for key, value in schema.items() if key not in ("title", "description")}
    properties: Mapping[str, Any] = stripped.get("properties", {})
    stripped["properties"] = {
        name: {key: value for key, value in cast("dict[str, Any]", each).items() if key != "title"}
        if isinstance(each, dict)
        else each
        for name, each in properties.items()
    }
    return stripped


def _join_blocks(blocks: list[Any]) -> str:
    """Return the texts of content blocks."""
    texts: list[str] = []
    for block in blocks:
        values = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        texts.append(str(values["text"]) if "text" in values else render_result("", block))
    return "\n".join(texts)
