"""The state of a conversation: pending decisions, queued messages, usage, and the views that show them."""

from dataclasses import dataclass, field
from pathlib import Path

from treadle.domain.ids import RunId
from treadle.operations import runs
from treadle.operations.approvals import ApprovalView
from treadle.surfaces.cli.home_link import LinkState
from treadle.surfaces.tui.run_facts import RunFacts
from treadle.surfaces.tui.transcript import Item


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
class Totals:
    """What the runs of the session have used, as far as they were read."""

    tokens: int = 0
    cost: float = 0.0
    unpriced: bool = False
    runs: set[RunId] = field(default_factory=set[RunId])
    context: int = 0
    """Tokens of the conversation; 0 if they are not known, as after a reset."""
    window: int = 0
    _knows_context: bool = False

    def add(self, facts: RunFacts) -> None:
        """Add a run that is later than all others."""
        self._count(facts)
        self._note_context(facts)

    def add_earlier(self, facts: RunFacts) -> None:
        """Add a run that is earlier than all others."""
        self._count(facts)
        if not self._knows_context:
            self._note_context(facts)

    def _note_context(self, facts: RunFacts) -> None:
        """Keep how full the window is. Runs of commands do not call the model, and change it only by a reset."""
        self.window = facts.window or self.window
        if facts.context or facts.has_new_conversation:
            self.context, self._knows_context = facts.context, True

    def _count(self, facts: RunFacts) -> None:
        self.runs.add(facts.run_id)
        self.tokens += facts.input_tokens + facts.output_tokens
        self.cost += facts.cost
        self.unpriced = self.unpriced or facts.unpriced


class ChatListener:
    """What a display does when the conversation changes. The default does nothing."""

    def show_change(self, item: Item | None) -> None:
        """The transcript changed: one item, or None for many."""

    def show_state(self) -> None:
        """The run, the queue, or the connection changed."""

    def show_pending(self) -> None:
        """The approvals and questions changed."""

    def show_end(self, facts: RunFacts) -> None:
        """A run has ended, or waits for the user."""

    def show_link(self, state: LinkState, detail: str) -> None:
        """The connection to the home changed."""

    def show_error(self, text: str) -> None:
        """Something failed."""
