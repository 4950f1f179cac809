"""The state of a conversation: pending decisions, queued messages, usage, and the views that show them."""

from dataclasses import dataclass, field
from pathlib import Path

from treadle.domain.envelope import Event
from treadle.domain.ids import RunId
from treadle.domain.transcript import RunTotals
from treadle.operations import runs
from treadle.operations.approvals import ApprovalView
from treadle.surfaces.home_access.home_link import LinkState
from treadle.surfaces.tui.chat_run import ChatRun
from treadle.surfaces.tui.session_pages import EarlierRun
from treadle.surfaces.tui.transcript import ShownItem


@dataclass(frozen=True, slots=True)
class PendingQuestion:
    """A question of an agent."""

    run_id: RunId
    agent: str
    question: runs.Question

    @property
    def key(self) -> str:
        return f"{self.run_id}/{self.question.call_id}"


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A call that waits for a decision."""

    agent: str
    view: ApprovalView
    folder: Path | None = None
    """The folder that the agent works in; None if it is not known."""

    @property
    def key(self) -> str:
        return self.view.approval_id


Pending = PendingQuestion | PendingApproval


@dataclass(frozen=True, slots=True)
class ForkSource:
    """The run whose message a fork replaces, and where the fork works."""

    run_id: RunId
    folder: str
    """Empty: the current folder."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message that waits for the end of the run."""

    run_id: RunId
    text: str


@dataclass(slots=True)
class SessionTotals:
    """What the runs of the session have used with their child runs, as far as they were read."""

    tokens: int = 0
    cost: float = 0.0
    unpriced: bool = False
    runs: set[RunId] = field(default_factory=set[RunId])
    context: int = 0
    """Tokens of the conversation; 0 if they are not known, as after a reset."""
    window: int = 0
    _knows_context: bool = False

    def add(self, run: EarlierRun) -> None:
        """Add a run that is later than all others."""
        self._count(run)
        self._note_context(run.totals)

    def add_earlier(self, run: EarlierRun) -> None:
        """Add a run that is earlier than all others."""
        self._count(run)
        if not self._knows_context:
            self._note_context(run.totals)

    def _note_context(self, totals: RunTotals) -> None:
        """Keep how full the window is. Runs of commands do not call the model, and change it only by a reset."""
        self.window = totals.context_window or self.window
        if totals.context_tokens or totals.has_new_conversation:
            self.context, self._knows_context = totals.context_tokens, True

    def _count(self, run: EarlierRun) -> None:
        self.runs.add(run.run_id)
        self.tokens += run.totals.input_tokens + run.totals.output_tokens
        self.cost += run.totals.tree_cost or 0.0
        self.unpriced = self.unpriced or run.totals.tree_unpriced_calls > 0


class ChatListener:
    """What a display does when the conversation changes. The default does nothing."""

    def show_change(self, item: ShownItem | None) -> None:
        """The transcript changed: one item, or None for many."""

    def show_state(self) -> None:
        """The run, the queue, or the connection changed."""

    def handle_child_event(self, event: Event) -> None:
        """A run that a child run has started has gone on."""

    def show_pending(self) -> None:
        """The approvals and questions changed."""

    def show_end(self, run: ChatRun) -> None:
        """A run has ended, or waits for the user."""

    def show_link(self, state: LinkState, detail: str) -> None:
        """The connection to the home changed."""

    def show_error(self, text: str) -> None:
        """Something failed."""
