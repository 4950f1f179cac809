"""What a program that embeds Treadle handles: an agent, the result of a run, callbacks over its events."""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

import msgspec
from msgspec import Struct

from treadle.config.settings import InvalidValue, check_struct
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
)
from treadle.domain.envelope import Event
from treadle.domain.errors import ConfigError, UsageError
from treadle.domain.events import Decision, LlmResponse, ThinkingDelta, Token
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Image, Text, Thinking
from treadle.domain.permissions import ApprovalRules, Asker, SandboxMode, SandboxPolicy
from treadle.domain.quotas import Quotas
from treadle.domain.runs import Metrics, OutcomeKind, Status
from treadle.ports.tool import Tool
from treadle.tools.function import tool as as_tool
from treadle.tools.toolset import Toolset

ToolLike = Tool | Toolset | Callable[..., Any] | str
"""A tool, a set of tools, a typed function, or the name (or glob) of tools that the engine knows."""


OutputLike = Any
"""A type, a JSON Schema as a mapping, or None."""

IMAGE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}


class Agent:
    """An agent for `Engine.run`: the fields of the agent file, where `tools` may be functions and `output` a
    type that the answer must fit."""

    def __init__(
        self,
        *,
        name: str,
        model: str = "",
        provider: str | None = None,
        model_settings: ModelSettings | Mapping[str, Any] | None = None,
        persona: str = "",
        fallbacks: Sequence[str] = (),
        routing: Routing | Mapping[str, Any] | None = None,
        tools: Sequence[ToolLike] = (),
        skills: Sequence[str] = (),
        output: OutputLike = None,
        limits: Limits | Mapping[str, Any] | None = None,
        budget: Literal["own", "shared"] = "own",
        budget_hints: bool = False,
        retry: Retry | Mapping[str, Any] | None = None,
        loop: Loop | Mapping[str, Any] | None = None,
        quotas: Quotas | Mapping[str, Any] | None = None,
        approvals: ApprovalRules | Mapping[str, Any] | None = None,
        sandbox: SandboxPolicy | Mapping[str, Any] | SandboxMode = "auto",
        workspace: str | Path | None = None,
        memory: MemorySettings | Mapping[str, Any] | None = None,
        compaction: Compaction | Mapping[str, Any] | None = None,
        quality: Quality | Mapping[str, Any] | None = None,
        errors: Errors | Mapping[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        self.tools = collect_tools(tools)
        self.output_type: Any = choose_output_type(output)
        self.spec = _make_spec(
            {
                "name": name,
                "model": model,
                "provider": provider,
                "model_settings": model_settings or {},
                "persona": persona,
                "fallbacks": tuple(fallbacks),
                "routing": routing,
                "tools": list_tool_names(tools),
                "skills": tuple(skills),
                "output": make_output_schema(output),
                "limits": limits or {},
                "budget": budget,
                "budget_hints": budget_hints,
                "retry": retry or {},
                "loop": loop or {},
                "quotas": quotas or {},
                "approvals": approvals or {},
                "sandbox": sandbox,
                "workspace": None if workspace is None else str(workspace),
                "memory": memory or {},
                "compaction": compaction or {},
                "quality": quality or {},
                "errors": errors or {},
                "concurrency": concurrency,
            }
        )


def collect_tools(tools: Sequence[ToolLike]) -> tuple[Tool, ...]:
    """The tools among these that come with their code; a plain function is made a tool that promises nothing."""
    found: list[Tool] = []
    for item in tools:
        if isinstance(item, Toolset):
            found += item
        elif not isinstance(item, str):
            found.append(_make_tool(item))
    return tuple(found)


def _make_tool(item: Tool | Callable[..., Any]) -> Tool:
    if hasattr(item, "spec"):
        return item  # pyright: ignore[reportReturnType] -- a Tool by its own word; a Protocol cannot be asked
    # -- any function at all: the decorator looks at its signature, and says what is wrong with it
    return as_tool(item)  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownVariableType] -- above


def is_same_tool(known: Tool | None, tool: Tool) -> bool:
    """Whether two tools are one: the same object, or made of the same function."""
    function = getattr(tool, "__wrapped__", None)
    return known is tool or (function is not None and getattr(known, "__wrapped__", None) is function)


def list_tool_names(tools: Sequence[ToolLike]) -> tuple[str, ...]:
    names: list[str] = []
    for item in tools:
        if isinstance(item, Toolset):
            names += item.names
        else:
            names.append(item if isinstance(item, str) else _make_tool(item).spec.name)
    return tuple(names)


def make_output_schema(output: OutputLike) -> dict[str, Any] | None:
    """The JSON Schema of what an answer must be. Raises ConfigError for a type that has none."""
    if output is None or isinstance(output, Mapping):
        return None if output is None else dict(cast("Mapping[str, Any]", output))
    try:
        return msgspec.json.schema(output)
    except TypeError as error:
        raise ConfigError(f"output={output!r} has no JSON Schema: {error}") from None


def choose_output_type(output: OutputLike) -> Any:
    """The type to read an answer as: the one that was asked for, or plain values where it was a schema."""
    return Any if output is None or isinstance(output, Mapping) else output


def _make_spec(fields: dict[str, Any]) -> AgentSpec:
    try:
        said = {name: value for name, value in msgspec.to_builtins(fields).items() if value != {}}
        return check_struct(said, AgentSpec)
    except InvalidValue as wrong:
        raise ConfigError(f"agent `{fields['name']}`: {wrong}") from None


class RunOptions(TypedDict):
    """What one run may have otherwise than its agent says."""

    session: NotRequired[str | None]
    """Go on in this session; without it a new one begins."""
    model: NotRequired[str | None]
    limits: NotRequired[Limits | Mapping[str, Any] | None]
    """Those that are given replace the agent's, one by one."""
    deadline: NotRequired[float | str | None]
    cost: NotRequired[float | None]
    """Dollars that the run may cost."""
    tools: NotRequired[Sequence[ToolLike] | None]
    output: NotRequired[OutputLike]
    attachments: NotRequired[Sequence[Image | Path]]
    """Pictures, and files that hold a picture or text."""
    asker: NotRequired[Asker | None]
    """Whoever sends the message can be asked, and answers with `Engine.decide` and `Engine.answer`."""
    workspace: NotRequired[str | Path | None]
    key: NotRequired[str | None]
    """An idempotency key: the same one again finds the same run."""
    user: NotRequired[str | None]
    """Who the run is for: it owns the session that begins, and is reminded of what it has said itself. Sessions of
    other users do not exist for it. Without it the local user, or whoever owns the session."""


class ForkOptions(TypedDict):
    """What a fork may have otherwise than the run that it goes on from."""

    step: NotRequired[int | None]
    """Just before this step; without it before the last."""
    model: NotRequired[str | None]
    message: NotRequired[str | None]
    """At the first step in the place of what was asked; later it is said after the results."""
    agent: NotRequired[Agent | AgentSpec | None]
    key: NotRequired[str | None]
    asker: NotRequired[Asker | None]


def make_attachment(attachment: Image | Path) -> Image | Text:
    """What an attachment adds to a message. Raises UsageError for a file that is neither a picture nor text."""
    if isinstance(attachment, Image):
        return attachment
    try:
        content = attachment.read_bytes()
        if (media_type := IMAGE_TYPES.get(attachment.suffix.lower())) is not None:
            return Image(media_type, b64encode(content).decode())
        return Text(f"\n\nAttached file {attachment.name}:\n{content.decode()}")
    except OSError as error:
        raise UsageError(f"The attachment {attachment} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        kinds = ", ".join(IMAGE_TYPES)
        raise UsageError(f"The attachment {attachment} is neither UTF-8 text nor a picture ({kinds}).") from None


def _all_limits(limits: Limits) -> dict[str, Any]:
    """Every limit, also those that are as they are by default."""
    return {name: getattr(limits, name) for name in limits.__struct_fields__}


def apply_options(spec: AgentSpec, options: RunOptions) -> AgentSpec:
    """The agent for one run: its file, with what the caller wants otherwise."""
    changes: dict[str, Any] = {}
    wanted = options.get("limits") or {}
    limits = _all_limits(wanted) if isinstance(wanted, Limits) else dict(wanted)
    if (deadline := options.get("deadline")) is not None:
        limits["deadline"] = deadline
    if (cost := options.get("cost")) is not None:
        limits["cost"] = cost
    if limits:
        changes["limits"] = _all_limits(spec.limits) | limits
    if (model := options.get("model")) is not None:
        changes["model"], changes["provider"] = model, None
    if (tools := options.get("tools")) is not None:
        changes["tools"] = list_tool_names(tools)
    if (output := options.get("output")) is not None:
        changes["output"] = make_output_schema(output)
    if (workspace := options.get("workspace")) is not None:
        changes["workspace"] = str(workspace)
    return _make_spec(msgspec.to_builtins(spec) | changes) if changes else spec


class Result(Struct, frozen=True):
    """What came of a run."""

    run_id: RunId
    session_id: SessionId
    status: Status
    outcome: OutcomeKind
    text: str
    metrics: Metrics
    output: Any = None
    """The validated value, where an `output` was asked for."""
    reason: str = ""
    next: str = ""
    stopped: tuple[str, ...] = ()
    unverified_claim: str = ""
    """What the answer claims to have done and no call bears out; empty: nothing."""
    score: float | None = None
    """From 0 to 1, where the agent has a quality checker."""
    score_reasons: str = ""
    diagnosis: str = ""
    """Why it has failed, where the agent has an error analyzer."""

    @property
    def silent(self) -> bool:
        return self.outcome == "silent"


class Callbacks(Struct, frozen=True):
    """An adapter over the event stream, for those who prefer to be called."""

    on_stream_delta: Callable[[str], None] | None = None
    on_thinking: Callable[[str], None] | None = None
    on_reasoning: Callable[[str], None] | None = None
    on_tool_gen: Callable[[Event], None] | None = None
    on_tool_progress: Callable[[Event], None] | None = None
    on_step: Callable[[Event], None] | None = None
    on_status: Callable[[Event], None] | None = None
    on_clarify: Callable[[Event], str | Awaitable[str]] | None = None
    """What it returns answers the question."""
    on_approval: Callable[[Event], Decision | Awaitable[Decision]] | None = None
    """What it returns decides; without it a run that waits for an approval goes on with `Engine.decide`."""

    @property
    def can_answer(self) -> bool:
        return self.on_clarify is not None or self.on_approval is not None

    def __call__(self, event: Event) -> None:
        """Pass an event on to whom it concerns."""
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


def find_output_type(agent: Agent | AgentSpec, options: RunOptions) -> Any:
    """What to read the answer as; None when it is plain text."""
    if (wanted := options.get("output")) is not None:
        return choose_output_type(wanted)
    if isinstance(agent, Agent):
        return None if agent.spec.output is None else agent.output_type
    return None if agent.output is None else Any


def parse_output(text: str, wanted: Any) -> Any:
    """The answer, as a value of that type."""
    if wanted is None:
        return None
    try:
        return msgspec.json.decode(text, type=wanted)
    except msgspec.DecodeError as error:
        raise UsageError(f"The answer cannot be read as {wanted}: {error}") from None
