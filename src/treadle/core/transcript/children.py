"""Child runs, as lines that say what each of them does."""

from msgspec.structs import replace

from treadle.core.transcript.item_store import ItemStore
from treadle.core.transcript.writing import make_key
from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.domain.ids import RunId
from treadle.domain.transcript import ChildItem

THINKING = "thinking"


class ChildFold:
    """Applies the events of child runs: those in the journal of the run, and those of the children themselves."""

    def __init__(self, store: ItemStore) -> None:
        self._store = store
        self._children: dict[RunId, ChildItem] = {}

    @property
    def run_ids(self) -> set[RunId]:
        """The descendants that are known and have not ended."""
        return {run_id for run_id, child in self._children.items() if child.state != "ended"}

    def apply(self, event: Event) -> None:
        """Apply an event of the run itself."""
        match event.data:
            case e.AgentSpawn() as data:
                self._put(_make_child(event, data, key=make_key(event.sequence), depth=1))
            case e.AgentEnd() as data:
                self._end(data)
            case e.AgentWaiting(run_id=run_id, reason=reason):
                self._change(run_id, state="waiting", waiting_for=reason, doing="")
            case e.AgentAnswered(run_id=run_id):
                self._change(run_id, state="running", waiting_for="", doing="")
            case _:
                pass

    def apply_of_child(self, event: Event) -> None:
        """Apply an event of a descendant. What it says is shown until the run's own journal says more."""
        child = self._children.get(event.run_id)
        if child is None:
            return
        match event.data:
            case e.StepStart(step=step):
                self._change(
                    event.run_id, state="running", waiting_for="", doing=THINKING, steps=max(step, child.steps)
                )
            case e.ToolCallStart(name=name) | e.ClientCallRequested(name=name):
                self._change(event.run_id, state="running", waiting_for="", doing=name)
            case e.LlmRetry():
                self._change(event.run_id, doing="retrying")
            case e.AgentSpawn() as data:
                key = f"{child.key}.{event.sequence}"
                found = _make_child(event, data, key=key, depth=child.depth + 1)
                self._put(replace(found, run_id=child.run_id, sequence=child.sequence, part=child.part + 1))
            case e.AgentWaiting() | e.AgentAnswered() | e.AgentEnd():
                self.apply(event)
            case e.RunEnd() as data:
                self._change(event.run_id, state="ended", status=data.status, outcome=data.outcome, doing="")
            case _:
                pass

    def close_all(self) -> None:
        """Close the children that the end of the run leaves open."""
        for child in list(self._children.values()):
            if child.state != "ended":
                self._put(replace(child, state="ended", doing="", waiting_for=""))

    def _end(self, data: e.AgentEnd) -> None:
        child = self._children.get(data.run_id)
        if child is not None:
            self._put(
                replace(
                    child,
                    state="ended",
                    status=data.status,
                    outcome=data.outcome,
                    steps=data.steps,
                    reason=data.reason,
                    doing="",
                    waiting_for="",
                )
            )

    def _change(self, run_id: RunId, **facts: object) -> None:
        child = self._children.get(run_id)
        if child is not None and child.state != "ended":
            changed = replace(child, **facts)
            if changed != child:
                self._put(changed)

    def _put(self, child: ChildItem) -> None:
        self._children[child.child_run_id] = child
        self._store.put(child)


def _make_child(event: Event, data: e.AgentSpawn, key: str, depth: int) -> ChildItem:
    return ChildItem(
        key=key,
        run_id=event.run_id,
        sequence=event.sequence,
        at=event.timestamp,
        child_run_id=data.run_id,
        agent=data.agent,
        call_id=data.call_id,
        role=data.role,
        depth=depth,
        withheld=data.withheld,
    )
