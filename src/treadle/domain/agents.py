"""What an agent is: the content of its `config.yaml`. Only `name` and `model` are required.

A field that a file sets and nothing obeys is refused when the file is read: a limit that is written down and not
kept is worse than none. Here unknown fields are let be: the journal of a later version may hold them."""

import re
from typing import Any, Literal

from msgspec import Struct

from treadle.domain.durations import seconds
from treadle.domain.permissions import ApprovalRules, SandboxMode, SandboxPolicy, sandbox_policy
from treadle.domain.quotas import NO_QUOTAS, Quotas
from treadle.domain.schedules import Heartbeat

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _positive(name: str, value: float | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"{name} must be above 0, found {value}")


class ModelSettings(Struct, frozen=True, omit_defaults=True):
    """What is asked of the model beside the conversation."""

    max_tokens: int | None = None
    temperature: float | None = None
    reasoning: Literal["low", "medium", "high"] | None = None

    def __post_init__(self) -> None:
        _positive("max_tokens", self.max_tokens)


class Limits(Struct, frozen=True, omit_defaults=True):
    """Where a run stops by itself."""

    max_steps: int | None = 50
    max_continuations: int = 5
    deadline: float | str | None = None
    """From the start of the run: seconds, or text such as `10m`."""
    cost: float | None = None
    """Dollars that the run, and all runs under it, may cost together."""
    history_messages: int | None = None
    """The most messages of the conversation that are sent; older ones are left out."""
    context_window: int | None = None
    """Tokens; None: what the model takes."""
    max_depth: int = 3
    """How far down runs may begin runs under them; 0: not at all."""
    max_children: int = 8
    """Runs under one run at the same time; those that are asked for beyond wait for their turn."""
    max_tree: int = 32
    """Runs under one run in all, however deep."""
    stuck_steps: int = 6
    max_calls: int = 128
    """Tool calls of one reply; those beyond are refused."""

    def __post_init__(self) -> None:
        _positive("max_steps", self.max_steps)
        _positive("max_children", self.max_children)
        _positive("max_calls", self.max_calls)
        if self.max_depth < 0 or self.max_tree < 0:
            raise ValueError("max_depth and max_tree must be 0 or more")
        _positive("stuck_steps", self.stuck_steps)
        _positive("cost", self.cost)
        _positive("history_messages", self.history_messages)
        _positive("context_window", self.context_window)
        if self.max_continuations < 0:
            raise ValueError(f"max_continuations must be 0 or more, found {self.max_continuations}")
        _positive("deadline", self.deadline_seconds)

    @property
    def deadline_seconds(self) -> float | None:
        return None if self.deadline is None else seconds(self.deadline)


class Retry(Struct, frozen=True, omit_defaults=True):
    """How often and how soon a failed model call is tried again."""

    attempts: int = 3
    base_ms: int = 1000
    schedule: Literal["exponential", "linear"] = "exponential"
    longest_wait: float | str = "1h"
    """The longest wait that a provider may ask for: seconds, or text such as `10m`. A longer one ends the run, or
    hands it to a fallback."""

    def __post_init__(self) -> None:
        if self.attempts < 0 or self.base_ms < 0:
            raise ValueError("attempts and base_ms must be 0 or more")
        if self.longest_wait_seconds < 0:
            raise ValueError("longest_wait must be 0 or more")

    @property
    def longest_wait_seconds(self) -> float:
        return seconds(self.longest_wait)


class Tier(Struct, frozen=True, omit_defaults=True):
    """A model for runs whose complexity is at most `upto`; without it, for all the others."""

    model: str
    upto: float | None = None


class Routing(Struct, frozen=True, omit_defaults=True):
    """Which model answers, by how complex the message seems; the first tier that fits."""

    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        if not self.tiers:
            raise ValueError("tiers must not be empty")
        limits = [tier.upto for tier in self.tiers[:-1]]
        if None in limits:
            raise ValueError("tiers: only the last one may be without upto")
        if limits != sorted(limits, key=lambda limit: limit or 0):
            raise ValueError("tiers must be in the order of their upto")


class Loop(Struct, frozen=True, omit_defaults=True):
    """How the loop is guarded and ended."""

    doom_loop: Literal["normal", "strict"] = "normal"
    final_marker: str | None = None

    def __post_init__(self) -> None:
        if self.final_marker is not None and not self.final_marker.strip():
            raise ValueError("final_marker must not be empty")


class MemorySettings(Struct, frozen=True, omit_defaults=True):
    """What is recalled before the model is asked, and whether runs are remembered."""

    recall: int = 5
    """Memories at most; 0: none."""
    when: Literal["message", "step"] = "message"
    """For every message, or before every model call."""
    place: Literal["message", "system"] = "message"
    """Beside the message, where the prompt before it stays cached; or in the system prompt."""
    embedder: str = "auto"
    """auto (a local one, where it is installed), none, local, or provider/model-id."""
    remember: bool = True
    """What was asked and what came of it is remembered when a run ends."""
    shared: bool = False
    """Recall what the agent remembers of all its users, and not only of the user that a run is for. Each memory
    keeps its owner all the same."""

    def __post_init__(self) -> None:
        if not 0 <= self.recall <= 50:
            raise ValueError(f"recall must be from 0 to 50, found {self.recall}")
        if self.embedder not in ("auto", "none", "local") and "/" not in self.embedder:
            raise ValueError(f"embedder must be auto, none, local or provider/model-id, found {self.embedder}")


class Compaction(Struct, frozen=True, omit_defaults=True):
    """When the middle of a long conversation is folded into a summary, and who writes it."""

    at: float = 0.75
    """The share of the context window that may be full."""
    model: str | None = None
    """None: the agent's own."""

    def __post_init__(self) -> None:
        if not 0 < self.at <= 1:
            raise ValueError(f"at must be above 0 and at most 1, found {self.at}")


class Quality(Struct, frozen=True, omit_defaults=True):
    """Who judges what a run has produced, and what becomes of it then."""

    checker: str | None = None
    """The name of an agent; None: nobody."""
    minimum: float | None = None
    """The score below which the agent is told the reasons and tries again."""
    retries: int = 0
    """How often it does."""

    def __post_init__(self) -> None:
        if self.minimum is not None and not 0 <= self.minimum <= 1:
            raise ValueError(f"minimum must be from 0 to 1, found {self.minimum}")
        if self.retries < 0:
            raise ValueError(f"retries must be 0 or more, found {self.retries}")


class Errors(Struct, frozen=True, omit_defaults=True):
    """Who finds out what went wrong with a run that failed."""

    analyzer: str | None = None
    """The name of an agent; None: nobody."""


class AgentSpec(Struct, frozen=True, omit_defaults=True):
    """An agent, whole. A run keeps the one it was started with."""

    name: str
    model: str = ""
    """The name of its model; empty: the default model of the home."""
    provider: str | None = None
    model_settings: ModelSettings = ModelSettings()
    persona: str = ""
    fallbacks: tuple[str, ...] = ()
    """Models that take over, in this order, when the one before cannot answer."""
    routing: Routing | None = None
    tools: tuple[str, ...] = ()
    """The allowlist; globs allowed."""
    skills: tuple[str, ...] = ()
    """The approved skills that it may load; globs allowed."""
    output: dict[str, Any] | None = None
    """A JSON Schema that the answer must fit."""
    limits: Limits = Limits()
    budget: Literal["own", "shared"] = "own"
    """Whether max_steps counts the run's own steps, or those of all runs under it too."""
    budget_hints: bool = False
    retry: Retry = Retry()
    loop: Loop = Loop()
    quotas: Quotas = NO_QUOTAS
    """What all runs of the agent may use together."""
    approvals: ApprovalRules = ApprovalRules()
    sandbox: SandboxMode | SandboxPolicy = "auto"
    workspace: str | None = None
    """The folder that tools work in; None: where the command was started, else a folder of the home."""
    memory: MemorySettings = MemorySettings()
    compaction: Compaction = Compaction()
    heartbeat: Heartbeat = Heartbeat()
    quality: Quality = Quality()
    errors: Errors = Errors()
    concurrency: int | None = None
    """How many of its runs are worked on at a time, wherever that is. Those that wait for a person, a timer or runs
    under them are not; None: any number."""

    def __post_init__(self) -> None:
        _positive("concurrency", self.concurrency)
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name `{self.name}` must be 1 to 64 letters, digits, dots, dashes or underscores")

    @property
    def confinement(self) -> SandboxPolicy:
        return sandbox_policy(self.sandbox)
