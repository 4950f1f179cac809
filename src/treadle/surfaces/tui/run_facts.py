"""The facts about a run that the status line shows."""

from dataclasses import dataclass

from treadle.domain.ids import RunId


@dataclass(slots=True)
class RunFacts:
    """The state of a run for the status line."""

    run_id: RunId
    agent: str = ""
    model: str = ""
    provider: str = ""
    window: int = 0
    context: int = 0
    """Tokens of the last request and its reply."""
    has_new_conversation: bool = False
    """A reset or its undoing has replaced the conversation, and the model has not seen the new one yet."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unpriced: bool = False
    state: str = "pending"
    """pending, thinking, answering, calling, waiting:REASON, ended:OUTCOME."""
    detail: str = ""
    failure: str = ""
    retry_at: float | None = None
    started_at: float = 0.0
    ended: bool = False
    sequence: int = 0
    tool: str = ""

    @property
    def waits_for(self) -> str | None:
        return self.state.removeprefix("waiting:") if self.state.startswith("waiting:") else None
