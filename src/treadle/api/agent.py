"""The public types of the library: agents, results and callbacks."""

import os
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NotRequired,
    Protocol,
    TypeAlias,
    TypedDict,
    Unpack,
    cast,
    overload,
)

import msgspec
from msgspec import Struct
from typing_extensions import TypeVar

from treadle.api.mcp_servers import McpServerLike, split_servers
from treadle.api.option_hints import AGENT_HINTS, refuse_unknown_options
from treadle.api.result import Output, Result
from treadle.api.run_labels import read_metadata, read_tags
from treadle.domain.agents import (
    AgentSpec,
    Compaction,
    Errors,
    Limits,
    Loop,
    MemorySettings,
    ModelSettings,
    Quality,
    Retry,
    Routing,
    SmallModels,
)
from treadle.domain.attachments import check_attached_parts, check_attachment, format_attached_file
from treadle.domain.commands import parse_command
from treadle.domain.envelope import Event
from treadle.domain.errors import ConfigError, UsageError
from treadle.domain.events import (
    Decision,
    LlmResponse,
    ThinkingDelta,
    Token,
)
from treadle.domain.hooks import CommandHook
from treadle.domain.ids import RunId, SessionId
from treadle.domain.limits import DEFAULT_MAX_ATTACHMENT_BYTES
from treadle.domain.mcp_servers import SEPARATOR
from treadle.domain.messages import Image, Text, Thinking, user
from treadle.domain.modes import ApprovalMode
from treadle.domain.permissions import ApprovalRules, Asker, SandboxMode, SandboxPolicy
from treadle.domain.quotas import Quotas
from treadle.domain.schedules import Heartbeat
from treadle.domain.tools import ClientTool, ClientToolMode
from treadle.domain.users import LOCAL_USER
from treadle.engine.program import WriteInstructions
from treadle.operations.operation import find_trace_parent
from treadle.operations.overrides import apply_overrides, list_limits, make_agent
from treadle.operations.requested_run import Overrides, RequestedRun
from treadle.ports.run_context import Deps
from treadle.ports.tool import Tool
from treadle.tools.answer_types import make_answer_schema
from treadle.tools.foreign import ForeignTool, is_foreign_tool, make_foreign_tool
from treadle.tools.function import tool as as_tool
from treadle.tools.toolset import Toolset

BroughtTool = ClientTool | Tool | ForeignTool | Callable[..., Any]
"""A declaration, whose results the program delivers, or a tool or function, whose calls run by themselves."""
ToolLike: TypeAlias = "Tool | Toolset | Callable[..., Any] | ForeignTool | str | Agent[Any, Any]"
"""A tool, a set of tools, a typed function, a tool of LangChain or pydantic-ai, the name (or glob) of tools that
the engine knows, or an agent to delegate work to."""
DELEGATES = "invoke_agent"
"""The tool by which an agent delegates work."""


OutputLike = Any
"""A type that msgspec can decode, a dataclass, a pydantic model, a JSON Schema as a mapping, or None."""

IMAGE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}


NO_MEMORY = MemorySettings(recall=0, remember=False)
"""The memory of an agent of a program that does not turn it on: a program may serve several people."""


class AgentOptions(TypedDict, total=False):
    """The fields of an agent file, besides `name` and `output`: docs/reference/settings.md."""

    model: str
    instructions: str | WriteInstructions
    """Another name of `persona`, or a function that returns it for a `RunContext`. It is called once per run."""
    provider: str | None
    model_settings: ModelSettings | Mapping[str, Any] | None
    persona: str
    fallbacks: Sequence[str]
    routing: Routing | Mapping[str, Any] | None
    agents: Sequence[str]
    tools: Sequence[ToolLike]
    """Names or globs of tools, functions, tools, toolsets, and agents to delegate work to."""
    client_tools: ClientToolMode
    small_models: SmallModels | Mapping[str, Any] | None
    skills: Sequence[str]
    limits: Limits | Mapping[str, Any] | None
    budget: Literal["own", "shared"]
    budget_hints: bool
    retry: Retry | Mapping[str, Any] | None
    loop: Loop | Mapping[str, Any] | None
    quotas: Quotas | Mapping[str, Any] | None
    approvals: ApprovalRules | Mapping[str, Any] | None
    sandbox: SandboxPolicy | Mapping[str, Any] | SandboxMode
    workspace: str | Path | None
    memory: MemorySettings | Mapping[str, Any] | None
    """Off by default. `{}` turns it on, for calls that name their `user`."""
    compaction: Compaction | Mapping[str, Any] | None
    quality: Quality | Mapping[str, Any] | None
    errors: Errors | Mapping[str, Any] | None
    concurrency: int | None
    tags: Sequence[str]
    heartbeat: Heartbeat | Mapping[str, Any] | None
    mcp_servers: Mapping[str, McpServerLike] | None
    """MCP servers of this agent alone. All of their tools are offered, unless `tools` names some of them."""
    hooks: Sequence[CommandHook | Mapping[str, Any]]


DEFAULT_NAME = "agent"
_Answer = TypeVar("_Answer")
_Provided = TypeVar("_Provided")
_Typed = TypeVar("_Typed", default=Any)
_Asked = TypeVar("_Asked", default=_Typed)
"""As `Answer`: the type of the answer of a run, by default that of its agent."""


class Agent(Generic[Deps, Output]):
    """An agent: its model, its instructions, its tools and its limits.

        agent = treadle.Agent(
            name="reviewer", model="provider/model-id", persona="You review code.", tools=["read_file", "grep"]
        )

    The parameters are the fields of an agent file (docs/reference/settings.md). In addition, `tools` may contain
    functions, and `output` may be a type that the answer must match: `Agent(output=Article)` is an
    `Agent[Any, Article]`, and the `output` of its results is an `Article`. Without it, that is the text.
    `deps_type` is the type of the `deps` of its runs: `Agent(deps_type=Shop, output=Article)` is an
    `Agent[Shop, Article]`. `instructions` is another name of `persona`, and may be a function of a `RunContext`
    that returns the text."""

    @overload
    def __init__(
        self, name: str = ..., *, output: type[Output], deps_type: type[Deps], **options: Unpack[AgentOptions]
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[Any, _Answer]",
        name: str = ...,
        *,
        output: type[_Answer],
        deps_type: None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[_Provided, str]",
        name: str = ...,
        *,
        output: None = None,
        deps_type: type[_Provided],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[Any, str]",
        name: str = ...,
        *,
        output: None = None,
        deps_type: None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[_Provided, Any]",
        name: str = ...,
        *,
        output: OutputLike,
        deps_type: type[_Provided],
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[Any, Any]",
        name: str = ...,
        *,
        output: OutputLike,
        deps_type: None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...

    def __init__(
        self,
        name: str = DEFAULT_NAME,
        *,
        output: Any = None,
        deps_type: Any = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        refuse_unknown_options(options, AgentOptions, "an agent", AGENT_HINTS)
        self.deps_type: Any = deps_type
        self.write_instructions: WriteInstructions | None = None
        if "/" in name or ":" in name:
            raise ConfigError(f"The first argument of an agent is its name. Write Agent(model={name!r}).")
        if (instructions := options.pop("instructions", None)) is not None:
            if options.get("persona"):
                raise ConfigError(f"agent `{name}`: `instructions` is another name of `persona`. Set one of them.")
            if isinstance(instructions, str):
                options["persona"] = instructions
            else:
                self.write_instructions = instructions
        tools = options.get("tools", ())
        if isinstance(tools, str) or not isinstance(tools, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] -- programs are not checked
            raise ConfigError(f"agent `{name}`: tools={tools!r} is not a list. Write tools=[…].")
        self.tools = collect_tools(tools)
        self.agents = collect_agents(tools)
        self.output_type: Any = choose_output_type(output)
        fields: dict[str, Any] = {field: value for field, value in options.items() if value is not None}
        fields |= {"name": name, "tools": list_tool_names(tools), "output": make_output_schema(output)}
        if (workspace := options.get("workspace")) is not None:
            fields["workspace"] = str(workspace)
        fields["mcp_servers"], self.trust = split_servers(options.get("mcp_servers") or {})
        fields["tools"] += list_server_globs(fields["tools"], fields["mcp_servers"])
        fields.setdefault("memory", NO_MEMORY)
        if self.agents:
            fields["agents"] = list_agent_names(tools, options.get("agents", ()))
        self.spec = make_agent(fields)

    def run_sync(
        self: "Agent[Deps, _Typed]", message: str, **options: Unpack["RunOptions[Deps, _Asked]"]
    ) -> Result[_Asked]:
        """Run the agent on the database of the home and return the result, for scripts and notebooks. The call
        blocks until then. A program that runs several agents opens one `Engine`."""
        engine = import_module("treadle.api.engine").Engine()  # by its name: an engine knows what an agent is
        return engine.run_sync(self, message, **options)

    if not TYPE_CHECKING:  # type checkers know what is there

        def __getattr__(self, name):
            from treadle.api.attribute_hints import refuse_name

            refuse_name(self, name, f"Write agent.spec.{name}" if name in AgentSpec.__struct_fields__ else "")


def collect_tools(tools: Sequence[ToolLike]) -> tuple[Tool, ...]:
    """Return the tools among these that come with their code. A plain function becomes a tool that declares
    nothing."""
    found: list[Tool] = []
    for item in tools:
        if isinstance(item, Toolset):
            found += item
        elif not isinstance(item, str | Agent):
            found.append(_make_tool(item))
    named: dict[str, Tool] = {}
    for tool in found:
        if not is_same_tool(named.setdefault(tool.spec.name, tool), tool):
            raise ConfigError(
                f"Two tools are called `{tool.spec.name}`. Give one of them another name: @tool(name=…)."
            )
    return tuple(named.values())


def collect_agents(tools: Sequence[ToolLike]) -> list["Agent[Any, Any]"]:
    """Return the agents among these, and those that work is delegated to further down."""
    found: list[Agent[Any, Any]] = []
    waiting: list[Agent[Any, Any]] = [item for item in tools if isinstance(item, Agent)]  # pyright: ignore[reportUnknownVariableType] -- of any output
    while waiting:
        agent = waiting.pop(0)
        if agent not in found:
            found.append(agent)
            waiting += agent.agents
    return found


def list_agent_names(tools: Sequence[ToolLike], named: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the agents that an agent may give tasks to."""
    return tuple(dict.fromkeys((*named, *[item.spec.name for item in tools if isinstance(item, Agent)])))


def _make_tool(item: Tool | Callable[..., Any] | ForeignTool) -> Tool:
    if is_foreign_tool(item):
        return make_foreign_tool(item)
    if hasattr(item, "spec"):
        return item  # pyright: ignore[reportReturnType] -- it declares itself a Tool; a Protocol cannot be checked
    # -- any function: the decorator checks its signature
    return as_tool(item)  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownVariableType] -- above


def is_same_tool(known: Tool | None, tool: Tool) -> bool:
    """Return whether two tools are the same object, or made from the same function."""
    function = getattr(tool, "__wrapped__", None)
    return known is tool or (function is not None and getattr(known, "__wrapped__", None) is function)


def list_tool_names(tools: Sequence[ToolLike]) -> tuple[str, ...]:
    names: list[str] = []
    for item in tools:
        if isinstance(item, Toolset):
            names += item.names
        elif isinstance(item, str):
            if not item or any(map(str.isspace, item)):
                raise ConfigError(
                    f"tools: {item!r} is not the name of a tool. Pass a function itself, without calling it."
                )
            names.append(item)
        elif isinstance(item, Agent):
            names.append(DELEGATES)
        else:
            names.append(_make_tool(item).spec.name)
    return tuple(dict.fromkeys(names))


def list_server_globs(tools: Sequence[str], servers: Iterable[str]) -> tuple[str, ...]:
    """Return globs for all tools of those servers of which an agent names no tool itself."""
    named = [name.partition(SEPARATOR)[0] for name in tools]
    unnamed = [server for server in servers if not any(fnmatchcase(server, glob) for glob in named)]
    return tuple([f"{server}{SEPARATOR}*" for server in unnamed])


def make_output_schema(output: OutputLike) -> dict[str, Any] | None:
    """Return the JSON Schema of an output type. Raise ConfigError for a type that has none."""
    if output is None or isinstance(output, Mapping):
        return None if output is None else dict(cast("Mapping[str, Any]", output))
    try:
        return make_answer_schema(output)
    except TypeError as error:
        raise ConfigError(f"output={output!r} has no JSON Schema: {error}") from None


def choose_output_type(output: OutputLike) -> Any:
    """Return the type to decode an answer as: the given type, or plain values for a schema."""
    return Any if output is None or isinstance(output, Mapping) else output


_Form = TypeVar("_Form", covariant=True)


class _Union(Protocol[_Form]):
    """A union of types. Type checkers know no type of its values, so that `_Form` is Any."""

    @property
    def __args__(self) -> tuple[_Form, ...]: ...


class _Schema(Protocol[_Form]):
    """A JSON Schema as a mapping. As above, `_Form` is Any."""

    def keys(self) -> Iterable[str]: ...

    def __reduce__(self) -> str | tuple[_Form, ...]: ...


class RunOptions(TypedDict, Generic[Deps, Output]):
    """What one run may change of its agent."""

    session: NotRequired[str | None]
    """Continue this session; by default a new one begins."""
    model: NotRequired[str | None]
    limits: NotRequired[Limits | Mapping[str, Any] | None]
    """These limits replace those of the agent, one by one."""
    deadline: NotRequired[float | str | None]
    cost: NotRequired[float | None]
    """Maximum cost of the run in dollars."""
    tools: NotRequired[Sequence[ToolLike] | None]
    output: NotRequired[type[Output] | _Union[Output] | _Schema[Output] | None]
    """The type of the answer, or its JSON Schema."""
    attachments: NotRequired[Sequence[Image | Path]]
    """Images, and files with an image or text."""
    asker: NotRequired[Asker | None]
    """Where the sender can be asked; by default in the program."""
    workspace: NotRequired[str | Path | None]
    key: NotRequired[str | None]
    """An idempotency key: the same key returns the same run."""
    after_current: NotRequired[bool]
    """Start a run of its own, after those of the session, even if one of them waits and would get the message."""
    mode: NotRequired[ApprovalMode | None]
    """The mode of the session from this message on: `plan`, `ask`, `accept_edits` or `auto`. None: as it is."""
    resumed_from: NotRequired[str | None]
    """The ended run that this one continues, in the session of that run."""
    deps: NotRequired[Deps]
    """What tools, hooks and functions of instructions find as `context.deps`, in this run and its child runs. It is
    not stored: see `Engine(make_deps=…)`."""
    tags: NotRequired[Sequence[str]]
    """Tags of the run and its child runs, for lists and usage: up to 16."""
    client_tools: NotRequired[Sequence[BroughtTool]]
    """Tools that the program runs itself. A call of a function runs while the program waits for the run; the calls
    of a `ClientTool` are in the result, and `Engine.deliver_result` continues the run."""
    metadata: NotRequired[Mapping[str, str]]
    """What the program notes about the run and its child runs, by name: up to 16 texts."""
    user: NotRequired[str | None]
    """The user whom the run is for. The user owns a new session, and recalls only their own memories. Sessions of
    other users are not visible. Without it the local user, or the owner of the session, and nothing is remembered
    or recalled."""


class ForkOptions(TypedDict):
    """What a fork may change of the original run."""

    step: NotRequired[int | None]
    """Fork just before this step; by default before the last one."""
    model: NotRequired[str | None]
    message: NotRequired[str | None]
    """At the first step it replaces the original message; later it follows the results."""
    agent: NotRequired[Agent[Any, Any] | AgentSpec | None]
    """Its instructions replace those of the original run, even if a function writes them."""
    deps: NotRequired[Any]
    """What tools, hooks and functions of instructions find as `context.deps`. A fork does not have those of the
    original run, which are not stored."""
    key: NotRequired[str | None]
    asker: NotRequired[Asker | None]


def make_attachment(attachment: Image | Path, max_bytes: int = DEFAULT_MAX_ATTACHMENT_BYTES) -> Image | Text:
    """Return the message part for an attachment. Raise UsageError for a file that is neither an image nor text, and
    SizeLimitExceeded before a file that is too large is read."""
    if isinstance(attachment, Image):
        check_attached_parts((attachment,), max_bytes)
        return attachment
    if not isinstance(attachment, Path):  # pyright: ignore[reportUnnecessaryIsInstance] -- programs are not checked
        hint = f" Write Path({attachment!r})." if isinstance(attachment, str) else ""
        raise TypeError(f"An attachment is a Path or a treadle.Image, not {type(attachment).__name__}.{hint}")
    if attachment.exists() and not attachment.is_file():
        raise UsageError(f"The attachment {attachment} is not a regular file.")
    name = f"The attachment {attachment}"
    try:
        with attachment.open("rb") as file:
            check_attachment(name, os.fstat(file.fileno()).st_size, max_bytes)
            content = file.read(max_bytes + 1)
        check_attachment(name, len(content), max_bytes)  # it may have grown
        if (media_type := IMAGE_TYPES.get(attachment.suffix.lower())) is not None:
            return Image(media_type, b64encode(content).decode())
        return Text(format_attached_file(attachment.name, content.decode()))
    except OSError as error:
        raise UsageError(f"The attachment {attachment} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        kinds = ", ".join(IMAGE_TYPES)
        raise UsageError(f"The attachment {attachment} is neither UTF-8 text nor an image ({kinds}).") from None


def apply_options(spec: AgentSpec, options: RunOptions[Any]) -> AgentSpec:
    """Return the agent for one run, with the caller's options applied."""
    limits, tools = options.get("limits"), options.get("tools")
    overrides = Overrides(
        model=options.get("model"),
        limits=list_limits(limits) if isinstance(limits, Limits) else dict(limits or {}),
        deadline=options.get("deadline"),
        cost=options.get("cost"),
        tools=None if tools is None else list_tool_names(tools),
        output=make_output_schema(options.get("output")),
    )
    if (workspace := options.get("workspace")) is not None:
        spec = msgspec.structs.replace(spec, workspace=str(workspace))
    if tools is not None:
        spec = msgspec.structs.replace(spec, agents=list_agent_names(tools, spec.agents))
    return apply_overrides(spec, overrides)


class Callbacks(Struct, frozen=True):
    """Callbacks for the events of a run, as an alternative to the event stream.

    For example:

        agent = treadle.Agent(name="helper", model="provider/model-id")
        callbacks = treadle.Callbacks(on_stream_delta=lambda text: print(text, end="", flush=True))
        treadle.Engine("sqlite:///helper.db").run_sync(agent, "Hello.", callbacks=callbacks)
    """

    on_stream_delta: Callable[[str], None] | None = None
    on_thinking: Callable[[str], None] | None = None
    on_reasoning: Callable[[str], None] | None = None
    on_tool_gen: Callable[[Event], None] | None = None
    on_tool_progress: Callable[[Event], None] | None = None
    on_step: Callable[[Event], None] | None = None
    on_status: Callable[[Event], None] | None = None
    on_clarify: Callable[[Event], str | Awaitable[str]] | None = None
    """Its return value answers the question."""
    on_approval: Callable[[Event], Decision | Awaitable[Decision]] | None = None
    """Its return value decides the approval. Without it, a run that waits for an approval continues after
    `Engine.decide`."""

    @property
    def can_answer(self) -> bool:
        return self.on_clarify is not None or self.on_approval is not None

    def __call__(self, event: Event) -> None:
        """Pass an event to the callback for its type."""
        match event.data:
            case Token(text=text):
                _call(self.on_stream_delta, text)
            case ThinkingDelta(text=text):
                _call(self.on_thinking, text)
            case LlmResponse(parts=parts):
                reasoning = "".join(part.text for part in parts if isinstance(part, Thinking))
                if reasoning:
                    _call(self.on_reasoning, reasoning)
            case _:
                _call(self._by_type(event.type), event)

    def _by_type(self, type_: str) -> Callable[[Event], None] | None:
        match type_:
            case "tool_call_delta":
                return self.on_tool_gen
            case "tool_call_start" | "tool_call_progress" | "tool_call_end" | "tool_call_error":
                return self.on_tool_progress
            case "step_end":
                return self.on_step
            case (
                "run_queued"
                | "run_start"
                | "run_waiting"
                | "run_end"
                | "llm_retry"
                | "llm_fallback"
                | "context_compacted"
            ):
                return self.on_status
            case _:
                return None


def _call(callback: Callable[[Any], None] | None, value: Any) -> None:
    if callback is not None:
        callback(value)


def request_run(
    spec: AgentSpec,
    message: str,
    options: RunOptions[Any],
    client_tools: tuple[ClientTool, ...] = (),
    version: int | None = None,
) -> RequestedRun:
    """Return a message for an agent with the options of its run, which `apply_options` has applied to the agent."""
    session, user_id, ended = options.get("session"), options.get("user"), options.get("resumed_from")
    max_bytes = spec.limits.max_attachment_bytes
    if not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- programs are not checked
        raise TypeError(f"The message is text, not {type(message).__name__}. Files go into attachments=[…].")
    return RequestedRun(
        agent=spec,
        message=user(message, *(make_attachment(each, max_bytes) for each in options.get("attachments", ()))),
        session_id=None if session is None else SessionId(session),
        resumed_from=None if ended is None else RunId(ended),
        asker=options.get("asker"),
        user=user_id or LOCAL_USER,
        anonymous=user_id is None,
        only_own=user_id is not None,
        own_deps=options.get("deps") is not None,
        tags=read_tags(options.get("tags", ())),
        metadata=read_metadata(options.get("metadata", {})),
        has_own_model=options.get("model") is not None,
        after_current=options.get("after_current", False),
        trace_parent=find_trace_parent(),
        client_tools=client_tools,
        version=version,
        mode=options.get("mode"),
    )


def find_output_type(agent: Agent[Any, Any] | AgentSpec, options: RunOptions[Any]) -> Any:
    """Return the type to decode the answer as, or None for plain text."""
    if (output := options.get("output")) is not None:
        return choose_output_type(output)
    if isinstance(agent, Agent):
        return None if agent.spec.output is None else agent.output_type
    return None if agent.output is None else Any


def find_answer_type(agent: Agent[Any, Any] | AgentSpec, message: str, options: RunOptions[Any]) -> Any:
    """Return the type to decode the answer to a message as; None for plain text, and for a session command."""
    return None if parse_command(message) is not None else find_output_type(agent, options)
