"""The settings of an agent: the content of its `config.yaml`. Only `name` is required.

`treadle.domain.settings` rejects unknown keys when it reads a file. These structs accept unknown fields, because a
journal that a later version wrote may hold them. docs/reference/settings.md is generated from the field docstrings.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from treadle.domain.durations import parse_duration
from treadle.domain.hooks import CommandHook
from treadle.domain.labels import make_labels
from treadle.domain.limits import (
    DEFAULT_MAX_ATTACHMENT_BYTES,
    DEFAULT_MAX_CALLS,
    Amount,
    Count,
    PositiveFloat,
    PositiveInt,
    PositiveShare,
    RecallCount,
    Share,
)
from treadle.domain.mcp_servers import McpServerName, McpServerSettings, check_server_names
from treadle.domain.models import Effort
from treadle.domain.permissions import ApprovalRules, SandboxMode, SandboxPolicy, make_sandbox_policy
from treadle.domain.quotas import NO_QUOTAS, Quotas
from treadle.domain.schedules import Heartbeat
from treadle.domain.tools import ClientToolMode

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_Name = Annotated[str, Meta(extra_json_schema={"pattern": f"^{_NAME.pattern}$"})]


def _positive(name: str, value: float | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"{name} must be above 0, found {value}")


class ModelSettings(Struct, frozen=True, omit_defaults=True):
    """Parameters that are sent with every model call."""

    max_tokens: PositiveInt | None = None
    """Maximum tokens of one reply. Null: what the model allows."""
    temperature: float | None = None
    """Sampling temperature. Null: the provider's default."""
    reasoning: Effort | None = None
    """Reasoning effort. Models without `minimal` get `low`, and models without `xhigh` get `high`. Null: the
    provider's default."""
    top_p: PositiveShare | None = None
    """Sample from the likeliest tokens of this total probability, above 0 and at most 1. Null: the provider's
    default."""
    frequency_penalty: float | None = None
    """How much tokens are avoided that the text already has, by their number. Null: the provider's default."""
    presence_penalty: float | None = None
    """How much tokens are avoided that the text already has. Null: the provider's default."""
    seed: int | None = None
    """Seed of the sampling. Null: none."""
    logit_bias: dict[str, float] = {}
    """What is added to the likelihood of tokens, by the number of the token."""
    parallel_tool_calls: bool | None = None
    """Whether a reply may have several tool calls. Models that ignore it still do. Null: the provider's default."""
    stop: tuple[str, ...] = ()
    """Texts at which a reply ends, which are not part of it. They work with every model."""

    def __post_init__(self) -> None:
        _positive("max_tokens", self.max_tokens)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, found {self.top_p}")
        if not all(self.stop):
            raise ValueError("stop must not contain an empty text")


class Limits(Struct, frozen=True, omit_defaults=True):
    """Limits of one run."""

    max_steps: PositiveInt | None = 50
    """Maximum steps. A step is one model call with its tool calls. Null: no limit."""
    max_continuations: Count = 5
    """How often a reply that was cut at its length is continued."""
    deadline: PositiveFloat | str | None = None
    """Maximum time from the start of the run: seconds, or text such as `90s`, `10m` or `7d`. Null: no limit."""
    cost: PositiveFloat | None = None
    """Maximum cost in dollars of the run and all its child runs. Null: no limit."""
    history_messages: PositiveInt | None = None
    """Maximum messages of the conversation that are sent to the model; older ones are left out. Null: no limit."""
    context_window: PositiveInt | None = None
    """Context window in tokens. Null: the window of the model."""
    max_depth: Count = 3
    """Maximum depth of the run tree below this run. 0: the run cannot start child runs."""
    max_children: PositiveInt = 8
    """Maximum child runs in progress at a time. Further ones wait."""
    max_tree: Count = 32
    """Maximum runs below this run in total, at any depth."""
    stuck_steps: Count = 6
    """Steps in a row without progress after which the model is warned. If it continues so, the run ends as `stuck`.
    A new result, text, and a different successful call with an effect are progress. 0: the stuck guard is off."""
    max_calls: PositiveInt = DEFAULT_MAX_CALLS
    """Maximum tool calls in one reply. Further calls are dropped, and the model is told how many."""
    max_attachment_bytes: PositiveInt = DEFAULT_MAX_ATTACHMENT_BYTES
    """Maximum bytes of one attachment of a message, on every surface."""
    client_tool_wait: float | str | None = "1h"
    """How long a call of a client's tool waits for its result: seconds, or text such as `10m`. Then the model is
    told that there is none. Null: without limit."""

    def __post_init__(self) -> None:
        _positive("max_steps", self.max_steps)
        _positive("max_children", self.max_children)
        _positive("max_calls", self.max_calls)
        _positive("max_attachment_bytes", self.max_attachment_bytes)
        if self.max_depth < 0 or self.max_tree < 0:
            raise ValueError("max_depth and max_tree must be 0 or more")
        if self.stuck_steps < 0:
            raise ValueError(f"stuck_steps must be 0 or more, found {self.stuck_steps}")
        _positive("cost", self.cost)
        _positive("history_messages", self.history_messages)
        _positive("context_window", self.context_window)
        if self.max_continuations < 0:
            raise ValueError(f"max_continuations must be 0 or more, found {self.max_continuations}")
        _positive("deadline", self.deadline_seconds)
        _positive("client_tool_wait", self.client_tool_wait_seconds)

    @property
    def deadline_seconds(self) -> float | None:
        return None if self.deadline is None else parse_duration(self.deadline)

    @property
    def client_tool_wait_seconds(self) -> float | None:
        return None if self.client_tool_wait is None else parse_duration(self.client_tool_wait)


class Retry(Struct, frozen=True, omit_defaults=True):
    """How failed model calls are retried."""

    attempts: Count = 3
    """Maximum retries of one model call. 0: no retries."""
    base_ms: Count = 1000
    """First delay of the exponential schedule, in milliseconds."""
    schedule: Literal["exponential", "linear"] = "exponential"
    """How the delay grows."""
    longest_wait: Amount | str = "1h"
    """Longest wait that a provider may request: seconds, or text such as `10m`. If the provider requests a longer
    one, the next fallback answers, or the run ends."""

    def __post_init__(self) -> None:
        if self.attempts < 0 or self.base_ms < 0:
            raise ValueError("attempts and base_ms must be 0 or more")
        if self.longest_wait_seconds < 0:
            raise ValueError("longest_wait must be 0 or more")

    @property
    def longest_wait_seconds(self) -> float:
        return parse_duration(self.longest_wait)


def is_agent_name(text: str) -> bool:
    """Return whether a text can be the name of an agent. None leads out of a folder."""
    return _NAME.fullmatch(text) is not None and text.strip(".") != ""


class Tier(Struct, frozen=True, omit_defaults=True):
    """A model for messages up to a complexity."""

    model: str
    """The model of this tier."""
    upto: float | None = None
    """Highest complexity score of this tier. Only the last tier may omit it."""


class Routing(Struct, frozen=True, omit_defaults=True):
    """Select the model by the complexity of the message: the first tier that fits."""

    tiers: Annotated[tuple[Tier, ...], Meta(extra_json_schema={"minItems": 1})]
    """Tiers in ascending order of `upto`."""

    def __post_init__(self) -> None:
        if not self.tiers:
            raise ValueError("tiers must not be empty")
        limits = [tier.upto for tier in self.tiers[:-1]]
        if None in limits:
            raise ValueError("tiers: only the last one may be without upto")
        if limits != sorted(limits, key=lambda limit: limit or 0):
            raise ValueError("tiers must be in the order of their upto")


class Loop(Struct, frozen=True, omit_defaults=True):
    """How the loop is guarded and how it ends."""

    doom_loop: Literal["normal", "strict"] = "normal"
    """How soon the guard against repeated calls reacts."""
    final_marker: Annotated[str, Meta(extra_json_schema={"pattern": r"\S"})] | None = None
    """A text that ends the run when the model writes it. It is removed from the answer."""

    def __post_init__(self) -> None:
        if self.final_marker is not None and not self.final_marker.strip():
            raise ValueError("final_marker must not be empty")


def _check_recall(recall: int) -> None:
    if not 0 <= recall <= 50:
        raise ValueError(f"recall must be from 0 to 50, found {recall}")


class MemorySettings(Struct, frozen=True, omit_defaults=True):
    """What is recalled before a model call, and whether runs are remembered."""

    recall: RecallCount = 5
    """Maximum memories that are recalled. 0: none."""
    when: Literal["message", "step"] = "message"
    """Recall for every user message, or before every model call."""
    place: Literal["message", "system"] = "message"
    """Where recalled memories go: with the message, which keeps the prompt cache, or in the system prompt."""
    embedder: str = "auto"
    """`auto` (the local embedder, if it is installed), `none`, `local`, or `provider/model-id`."""
    remember: bool = True
    """Save the message and the outcome as a memory when a run ends."""
    shared: bool = False
    """Recall the memories of all users of the agent, not only those of the owner of the run. Each memory keeps its
    owner."""
    scope: Literal["workspace", "agent"] | None = None
    """How far recall reaches: `workspace`, the memories of the workspace of the run, or `agent`, those of all
    workspaces. Null: `workspace` for an agent with tools that work in a folder, otherwise `agent`."""

    def __post_init__(self) -> None:
        _check_recall(self.recall)
        if self.embedder not in ("auto", "none", "local") and "/" not in self.embedder:
            raise ValueError(f"embedder must be auto, none, local or provider/model-id, found {self.embedder}")


class Compaction(Struct, frozen=True, omit_defaults=True):
    """When a long conversation is summarised, and by which model."""

    at: PositiveShare = 0.75
    """Share of the context window at which the conversation is compacted."""
    model: str | None = None
    """The model that writes summaries. Null: the model of the agent."""

    def __post_init__(self) -> None:
        if not 0 < self.at <= 1:
            raise ValueError(f"at must be above 0 and at most 1, found {self.at}")


class SmallModels(Struct, frozen=True, omit_defaults=True):
    """What differs when the model has fewer than one billion parameters."""

    tools: tuple[str, ...] | None = None
    """The tools, instead of those of the agent. `[]`: none, and no skills. Null: those of the agent."""
    persona: str | None = None
    """The persona, instead of that of the agent. Null: that of the agent."""
    recall: RecallCount | None = None
    """Maximum memories that are recalled, instead of `memory.recall`. 0: none. Null: that of the agent."""

    def __post_init__(self) -> None:
        if self.recall is not None:
            _check_recall(self.recall)


class Quality(Struct, frozen=True, omit_defaults=True):
    """An agent that scores each answer."""

    checker: str | None = None
    """The name of the agent, for example `quality-checker`. Null: answers are not scored."""
    minimum: Share | None = None
    """Score from 0 to 1 below which the run is retried with the checker's reasons."""
    retries: Count = 0
    """Maximum retries for a low score."""

    def __post_init__(self) -> None:
        if self.minimum is not None and not 0 <= self.minimum <= 1:
            raise ValueError(f"minimum must be from 0 to 1, found {self.minimum}")
        if self.retries < 0:
            raise ValueError(f"retries must be 0 or more, found {self.retries}")


class Errors(Struct, frozen=True, omit_defaults=True):
    """An agent that diagnoses failed runs."""

    analyzer: str | None = None
    """The name of the agent, for example `error-analyzer`. Null: failed runs are not diagnosed."""


class AgentSpec(Struct, frozen=True, omit_defaults=True):
    """The settings of an agent. A run keeps the settings that it was started with."""

    name: _Name
    """The name: 1 to 64 letters, digits, dots, dashes or underscores. It must match the folder of the file."""
    model: str = ""
    """`provider/model-id` or an alias. Empty: `defaults.model` of `config.yaml`."""
    provider: str | None = None
    """The provider, if `model` does not name it."""
    model_settings: ModelSettings = ModelSettings()
    """Parameters that are sent with every model call."""
    persona: str = ""
    """The first part of the system prompt."""
    fallbacks: tuple[str, ...] = ()
    """Models that take over, in this order, when the previous model cannot answer."""
    routing: Routing | None = None
    """Select the model by the complexity of the message. Null: always `model`."""
    tools: tuple[str, ...] = ()
    """Allowed tools: names, globs, and sets such as `@files`."""
    client_tools: ClientToolMode = "join"
    """Tools that the sender of a message brings and runs itself: `join` adds them to those of the agent, `replace`
    offers only them when there are some, `off` refuses them."""
    agents: tuple[str, ...] = ()
    """Agents that it may give tasks to with `invoke_agent` or `agent_send`, and that keep their own tools. Other
    agents work for it with its own tools only."""
    skills: tuple[str, ...] = ()
    """Approved skills that the agent may load: names or globs."""
    output: dict[str, Any] | None = None
    """A JSON Schema that the answer must match. Null: plain text."""
    limits: Limits = Limits()
    """Limits of one run."""
    budget: Literal["own", "shared"] = "own"
    """Whether `max_steps` counts the steps of the run only (`own`) or of its child runs too (`shared`)."""
    budget_hints: bool = False
    """Tell the model when it has used 70% and 90% of its steps."""
    retry: Retry = Retry()
    """How failed model calls are retried."""
    loop: Loop = Loop()
    """How the loop is guarded and how it ends."""
    quotas: Quotas = NO_QUOTAS
    """What all runs of the agent together may use."""
    approvals: ApprovalRules = ApprovalRules()
    """Which tool calls need the approval of a reviewer."""
    sandbox: SandboxMode | SandboxPolicy = "auto"
    """How commands are confined: a mode, or a mapping with the keys below."""
    workspace: str | None = None
    """The folder that tools work in. Null: the current folder of `treadle run`, or a folder in the home."""
    memory: MemorySettings = MemorySettings()
    """What is recalled, and whether runs are remembered."""
    compaction: Compaction = Compaction()
    """When a long conversation is summarised."""
    heartbeat: Heartbeat = Heartbeat()
    """A message that is sent to the agent at set times."""
    quality: Quality = Quality()
    """An agent that scores each answer."""
    errors: Errors = Errors()
    """An agent that diagnoses failed runs."""
    mcp_servers: dict[McpServerName, McpServerSettings] = {}
    """MCP servers of this agent alone, by name. One with the name of a server of the home replaces it."""
    hooks: tuple[CommandHook, ...] = ()
    """Shell commands that decide about tool calls: before they run, or with their results."""
    small_models: SmallModels = SmallModels()
    """What differs when the model has fewer than one billion parameters."""
    concurrency: PositiveInt | None = None
    """Maximum runs of the agent that execute at a time, over all processes. Runs that wait for a reviewer, a timer
    or child runs do not count. Null: no limit."""
    tags: tuple[str, ...] = ()
    """Tags of all runs of the agent, also of those that schedules, webhooks and channels start."""

    def __post_init__(self) -> None:
        _positive("concurrency", self.concurrency)
        if self.tags:
            make_labels(self.tags, {})
        check_server_names(self.mcp_servers)
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name `{self.name}` must be 1 to 64 letters, digits, dots, dashes or underscores")

    def with_tools(self, tools: tuple[str, ...]) -> "AgentSpec":
        """Return the agent with these tools, which a caller asked for: small models get them, too."""
        small = msgspec.structs.replace(self.small_models, tools=None)
        return msgspec.structs.replace(self, tools=tools, small_models=small)

    @property
    def confinement(self) -> SandboxPolicy:
        """The sandbox of the agent. Programs of hooks that are pinned by their content are read-only in it."""
        policy = make_sandbox_policy(self.sandbox)
        pinned = [script for hook in self.hooks if (script := hook.pinned_script) is not None]
        if not pinned:
            return policy
        return msgspec.structs.replace(policy, read_only=tuple(dict.fromkeys((*policy.read_only, *pinned))))
