"""Suites: cases, the checks that grade their runs, and the targets that run them."""

from typing import Any

from msgspec import Struct

from treadle.domain.runs import OutcomeKind
from treadle.domain.tools import DEFAULT_STUB, Otherwise

# ── Checks ──


class Equals(Struct, frozen=True, tag_field="check", tag="equals"):
    """The answer is this text."""

    text: str
    ignore_case: bool = False


class Contains(Struct, frozen=True, tag_field="check", tag="contains"):
    """The answer contains this text."""

    text: str
    ignore_case: bool = False


class Lacks(Struct, frozen=True, tag_field="check", tag="lacks"):
    """The answer does not contain this text."""

    text: str
    ignore_case: bool = False


class MatchesCheck(Struct, frozen=True, tag_field="check", tag="matches"):
    """A regular expression matches somewhere in the answer."""

    pattern: str


class FitsSchema(Struct, frozen=True, tag_field="check", tag="json_schema"):
    """The answer is JSON that fits a JSON Schema."""

    schema: dict[str, Any]


class JsonValue(Struct, frozen=True, tag_field="check", tag="json_path"):
    """The answer is JSON with this value at a path such as `$.items[0].name`."""

    path: str
    equals: Any


class CalledCheck(Struct, frozen=True, tag_field="check", tag="called"):
    """A tool was called, with these arguments among others."""

    tool: str
    arguments: dict[str, Any] = {}
    times: int | None = None
    """Exactly so often. Null: at least once."""


class NotCalled(Struct, frozen=True, tag_field="check", tag="not_called"):
    """A tool was not called."""

    tool: str


class CallOrder(Struct, frozen=True, tag_field="check", tag="order"):
    """Tools were called in this order, possibly with others between them."""

    tools: tuple[str, ...]


class FileCheck(Struct, frozen=True, tag_field="check", tag="file"):
    """A file of the workspace after the run."""

    path: str
    contains: str | None = None
    equals: str | None = None
    absent: bool = False
    """It does not exist."""


class CommandCheck(Struct, frozen=True, tag_field="check", tag="command"):
    """A command ends with this exit code in the workspace after the run."""

    run: str
    exit_code: int = 0
    timeout: float = 60.0
    """In seconds."""


class MaxCost(Struct, frozen=True, tag_field="check", tag="max_cost"):
    """The run costs at most so many dollars."""

    dollars: float


class MaxSteps(Struct, frozen=True, tag_field="check", tag="max_steps"):
    """The run has at most so many steps."""

    steps: int


class MaxSeconds(Struct, frozen=True, tag_field="check", tag="max_seconds"):
    """The run takes at most so long."""

    seconds: float


class EndsAs(Struct, frozen=True, tag_field="check", tag="outcome"):
    """The run has this outcome."""

    outcome: OutcomeKind


class JudgeCheck(Struct, frozen=True, tag_field="check", tag="judge"):
    """An agent scores the run by a rubric."""

    rubric: str
    agent: str = ""
    """The judge. Empty: the agent `default`, without its tools."""
    reference: str = ""
    """A good answer."""
    minimum: float = 0.7
    """The least score, from 0 to 1."""


class FunctionCheck(Struct, frozen=True, tag_field="check", tag="python"):
    """A Python function returns whether the run is right, or its score. It is named as `FILE.py:function`, relative
    to the suite, or as `module:function` of an installed package."""

    function: str
    minimum: float = 1.0
    """The least score."""


Check = (
    Equals
    | Contains
    | Lacks
    | MatchesCheck
    | FitsSchema
    | JsonValue
    | CalledCheck
    | NotCalled
    | CallOrder
    | FileCheck
    | CommandCheck
    | MaxCost
    | MaxSteps
    | MaxSeconds
    | EndsAs
    | JudgeCheck
    | FunctionCheck
)
CHECKS: tuple[type[Struct], ...] = (
    Equals,
    Contains,
    Lacks,
    MatchesCheck,
    FitsSchema,
    JsonValue,
    CalledCheck,
    NotCalled,
    CallOrder,
    FileCheck,
    CommandCheck,
    MaxCost,
    MaxSteps,
    MaxSeconds,
    EndsAs,
    JudgeCheck,
    FunctionCheck,
)

# ── Cases ──


class SuiteMessage(Struct, frozen=True, omit_defaults=True):
    """An earlier message of the conversation."""

    role: str
    """`user` or `assistant`."""
    text: str


class RecordedCall(Struct, frozen=True, omit_defaults=True):
    """The recorded result of a tool call."""

    tool: str
    result: str
    arguments: dict[str, Any] = {}
    is_error: bool = False


class Case(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One message for an agent, and what is checked afterwards."""

    name: str
    message: str
    conversation: tuple[SuiteMessage, ...] = ()
    """What was said before."""
    attachments: tuple[str, ...] = ()
    """Paths of text files and images, relative to the suite."""
    files: dict[str, str] = {}
    """Files of the workspace, with their contents."""
    calls: tuple[RecordedCall, ...] | None = None
    """Recorded results of tool calls. Null: the tools run."""
    unrecorded: Otherwise = "stop"
    """What happens to a call without a recorded result."""
    stub: str = DEFAULT_STUB
    """What the model is told with `unrecorded: stub`."""
    source: str = ""
    """The run that the case was made of."""
    tags: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


class SuiteTarget(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What runs the cases: an agent, a version of it, another model."""

    agent: str
    """`NAME`, `NAME@7` or `NAME@LABEL`."""
    name: str = ""
    """How reports name it. Empty: the agent and the model."""
    model: str | None = None
    limits: dict[str, Any] | None = None
    tools: tuple[str, ...] | None = None

    @property
    def label(self) -> str:
        return self.name or (self.agent if self.model is None else f"{self.agent}, {self.model}")


class Suite(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The content of `evals/NAME.yaml`."""

    agent: str = ""
    """The agent that runs the cases, if there are no targets."""
    targets: tuple[SuiteTarget, ...] = ()
    """What runs the cases. The others are compared with the first."""
    timeout: float = 600.0
    """Seconds for one case."""
    checks: tuple[Check, ...] = ()
    """Checks of every case."""
    cases: tuple[Case, ...] = ()
