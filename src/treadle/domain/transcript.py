"""The transcript of a run as people see it: items in order, running totals, and the changes that lead from one
state to the next. `core.transcript` makes them from events; surfaces render them and interpret no event.

Items are ordered by `sequence` and `part`. A `key` identifies an item within its run and never changes."""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from treadle.domain.events.permissions import Decision, Remember
from treadle.domain.events.run import WaitReason
from treadle.domain.events.tool_calls import CallErrorCause, CallErrorKind
from treadle.domain.ids import ApprovalId, Instant, RunId
from treadle.domain.lineage import Role
from treadle.domain.messages import Image
from treadle.domain.modes import ApprovalMode
from treadle.domain.permissions import ConcernKind
from treadle.domain.runs import OutcomeKind, Status

TextState = Literal["writing", "done", "interrupted"]
"""writing: the model has not finished it, and it is not stored. interrupted: it was stopped; the part is kept."""
CallState = Literal[
    "writing", "pending", "approval", "question", "client", "running", "done", "failed", "denied", "blocked"
]
"""writing: the model has not finished its arguments, and it is not stored. pending: it has not started. approval,
question: it waits for a reviewer or a user. client: it waits for the result of the client, which runs the tool.
denied: by a reviewer or a rule. blocked: by a guard or a hook."""
ENDED_CALL_STATES: tuple[CallState, ...] = ("done", "failed", "denied", "blocked")


class ItemPlace(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind"):
    """What all items have: their place in the run."""

    key: str
    run_id: RunId
    sequence: int
    """The event that the item begins with."""
    part: int = 0
    """The place among the items that begin with the same event."""
    at: Instant
    """Seconds since 1970."""


class MessageItem(ItemPlace, frozen=True, tag="message"):
    """A message of the user."""

    text: str
    images: tuple[Image, ...] = ()
    delivery: Literal["message", "steer", "interrupt", "command"] = "message"

    @property
    def role(self) -> Literal["user"]:
        return "user"


class ThinkingItem(ItemPlace, frozen=True, tag="thinking"):
    """The reasoning of the model before a reply."""

    text: str
    state: TextState = "done"
    step: int = 0
    duration_ms: int | None = None
    """Time until the first word of the reply. Null: unknown."""


class AnswerItem(ItemPlace, frozen=True, tag="answer"):
    """Text of the model, or the answer of a session command."""

    text: str
    state: TextState = "done"
    step: int = 0
    source: Literal["model", "command"] = "model"
    model: str = ""

    @property
    def role(self) -> Literal["assistant"]:
        return "assistant"


class CallItem(ItemPlace, frozen=True, tag="call"):
    """A tool call."""

    call_id: str
    name: str
    arguments: str = ""
    """JSON text, as the call runs with it."""
    state: CallState = "pending"
    step: int = 0
    output: str = ""
    """The end of what it has printed so far. Empty once it has a result."""
    output_start: int = 0
    """Characters of the output before that."""
    result: str = ""
    truncated: bool = False
    """The middle of the result is left out. `runs.output` reads all of it."""
    images: tuple[Image, ...] = ()
    started_at: Instant | None = None
    duration_ms: int | None = None
    """Without the wait for an approval."""
    exit_code: int | None = None
    error: CallErrorKind | None = None
    cause: CallErrorCause | None = None
    exception: str = ""
    blocked_by: str = ""
    """The guard or the hook that rejected the call."""
    note: str = ""
    """The note of the reviewer."""
    edited: bool = False
    """A reviewer edited the arguments."""

    @property
    def is_final(self) -> bool:
        return self.state in ENDED_CALL_STATES


class ApprovalItem(ItemPlace, frozen=True, tag="approval"):
    """A request to approve a call."""

    approval_id: ApprovalId
    call_id: str
    name: str
    arguments: str
    reason: str
    state: Literal["pending", "approved", "denied", "expired", "ended"] = "pending"
    """ended: the run ended before the decision."""
    pattern: str | None = None
    destructive: str | None = None
    is_plan: bool = False
    """Its approval ends plan mode."""
    concern: ConcernKind | None = None
    places: tuple[str, ...] = ()
    expires_at: Instant | None = None
    decision: Decision | None = None
    by: str = ""
    note: str = ""
    edited_arguments: str | None = None
    remember: Remember = "once"
    superseded: bool = False


class QuestionItem(ItemPlace, frozen=True, tag="question"):
    """A question to the user."""

    call_id: str
    question: str
    options: tuple[str, ...] = ()
    during: str | None = None
    """The call in progress that asks it. Null: the question is a call of its own, and the run waits."""
    expires_at: Instant | None = None
    state: Literal["open", "answered", "ended"] = "open"
    answer: str = ""
    by: str = ""


PlanStatus = Literal["pending", "in_progress", "completed"]


class PlanStep(Struct, frozen=True):
    text: str
    status: PlanStatus = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


class PlanItem(ItemPlace, frozen=True, tag="plan"):
    """The plan of the agent, as one call of `update_plan` sets it. The latest one counts."""

    call_id: str
    steps: tuple[PlanStep, ...]


NoteLevel = Literal["detail", "info", "warning", "error"]
"""detail: of interest when a run is examined."""


class NoteItem(ItemPlace, frozen=True, tag="note"):
    """What Treadle reports about the run."""

    topic: str
    """The type of the event that it reports. For a model call that is retried, that of the latest one."""
    text: str
    """A sentence for people. Parts of it may come from a model or a tool."""
    level: NoteLevel = "info"
    details: str = ""
    """Longer text that belongs to it, such as recalled memories."""
    call_id: str = ""
    count: int = 1
    """How many of what it reports: failed attempts of a model call, recalled memories."""
    wake_at: Instant | None = None
    """When the run continues, if it waits."""


class ChildItem(ItemPlace, frozen=True, tag="child"):
    """A child run."""

    child_run_id: RunId
    agent: str
    call_id: str
    """The call that started it. An evaluation has a name that no call has."""
    role: Role
    depth: int = 1
    """1: a child of the run; 2: a child of a child."""
    state: Literal["running", "waiting", "ended"] = "running"
    waiting_for: str = ""
    doing: str = ""
    """What it does now, if its own events are followed."""
    steps: int = 0
    withheld: tuple[str, ...] = ()
    status: Status | None = None
    outcome: OutcomeKind | None = None
    reason: str = ""


class EndItem(ItemPlace, frozen=True, tag="end"):
    """The end of the run."""

    status: Status
    outcome: OutcomeKind
    text: str = ""
    """The answer, if no item before holds it."""
    answer_key: str = ""
    """The key of the item that holds the answer."""
    reason: str = ""
    next: str = ""
    unverified_claim: str = ""
    silent: bool = False
    score: float | None = None
    diagnosis: str = ""


Item = (
    MessageItem
    | ThinkingItem
    | AnswerItem
    | CallItem
    | ApprovalItem
    | QuestionItem
    | PlanItem
    | NoteItem
    | ChildItem
    | EndItem
)

Activity = Literal["", "thinking", "answering", "calling", "compacting"]


class RunTotals(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of a run and what it has used. What is unknown is null."""

    status: Status = "pending"
    outcome: OutcomeKind | None = None
    waiting_for: WaitReason | None = None
    detail: str = ""
    """What it waits for, in words."""
    wake_at: Instant | None = None
    """When the run continues or sends its request again."""
    failure: str = ""
    """The error of the latest model call, until one succeeds."""
    activity: Activity = ""
    tool: str = ""
    """The tool that is being called."""
    agent: str = ""
    provider: str = ""
    model: str = ""
    mode: ApprovalMode | None = None
    """The mode of the session; null: the approval rules of the agent decide alone."""
    is_command: bool = False
    """It executes a session command."""
    is_interrupted: bool = False
    """An interrupt was requested, and nothing since then continues the run."""
    started_at: Instant | None = None
    asked_at: Instant | None = None
    """When the request was sent that the model is answering; null: it answers none."""
    active_ms: int = 0
    """Time in which the run did not wait, up to `active_since`."""
    active_since: Instant | None = None
    """Since when the run is active; null while it waits and after its end."""
    steps: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cost: float | None = None
    """Dollars, as far as prices are known; null: no call had a known price."""
    unpriced_calls: int = 0
    """Model calls that `cost` does not include, because their price is unknown."""
    tree_cost: float | None = None
    """The cost with all child runs that have ended."""
    tree_unpriced_calls: int = 0
    credits: float | None = None
    score: float | None = None
    context_tokens: int = 0
    """Tokens of the latest request and its reply."""
    context_window: int = 0
    has_new_conversation: bool = False
    """A reset or its undoing has replaced the conversation, and the model has not read the new one yet."""

    def elapsed_ms(self, now: Instant) -> int:
        """Return how long the run has been active, without the time in which it waited."""
        running = 0 if self.active_since is None else max(0, round((now - self.active_since) * 1000))
        return self.active_ms + running


class ItemAdded(Struct, frozen=True, tag="item_added", tag_field="change"):
    """A new item. Its place follows from its sequence and part; it is not always the last."""

    item: Item


class ItemChanged(Struct, frozen=True, tag="item_changed", tag_field="change"):
    """An item has changed; this is all of it."""

    item: Item


class TextAppended(Struct, frozen=True, tag="text_appended", tag_field="change"):
    """Text was added to an item that is in progress."""

    key: str
    field: Literal["text", "arguments", "output"]
    offset: int
    """Characters before it. For `output`, those that were dropped count too."""
    text: str


class LiveReplaced(Struct, frozen=True, tag="live_replaced", tag_field="change"):
    """The items in the state `writing` are these, and no others."""

    items: tuple[Item, ...]


class TotalsChanged(Struct, frozen=True, tag="totals_changed", tag_field="change"):
    """The totals have changed; these are all of them."""

    totals: RunTotals


Change = ItemAdded | ItemChanged | TextAppended | LiveReplaced | TotalsChanged


def is_live(item: Item) -> bool:
    """Return whether the model is still writing the item."""
    return isinstance(item, ThinkingItem | AnswerItem | CallItem) and item.state == "writing"


def append_text(item: Item, change: TextAppended) -> Item:
    """Return an item with text that was added to it."""
    match item:
        case ThinkingItem() | AnswerItem() if change.field == "text":
            return replace(item, text=item.text[: change.offset] + change.text)
        case CallItem() if change.field == "arguments":
            return replace(item, arguments=item.arguments[: change.offset] + change.text)
        case CallItem() if change.field == "output":
            kept = item.output[: max(0, change.offset - item.output_start)]
            return replace(item, output=kept + change.text)
        case _:
            return item
