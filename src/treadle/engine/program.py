"""What a program brings to the runs of its engine besides models and tools: deps, and functions of instructions.

Deps live in memory only. The journal records that a run was submitted with deps of its own, so that another process
does not execute it with others."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Draft, Origin
from treadle.domain.errors import UsageError
from treadle.domain.events import RunEnd, RunQueued
from treadle.domain.ids import RunId
from treadle.ports.run_context import RunContext

MakeDeps = Callable[[RunContext[Any]], Any | Awaitable[Any]]
"""Returns the deps of a run."""
WriteInstructions = Callable[[RunContext[Any]], str | Awaitable[str]]
"""Returns the instructions of an agent for a run."""
LACKS_DEPS = (
    "It was submitted with deps of its own, which this process does not have. Open the engine with make_deps=…."
)


class HostProgram:
    """The deps of runs, and the functions of agents by their names."""

    def __init__(
        self, deps: Any = None, make_deps: MakeDeps | None = None, hide: Callable[[str], str] = lambda text: text
    ) -> None:
        self._deps = deps
        self._make_deps = make_deps
        self._hide = hide
        """Returns a text without secrets."""
        self._of_runs: dict[RunId, Any] = {}
        self._begun: set[RunId] = set()
        """Runs with deps of their own that began here: they find them when they execute."""
        self._lacking: set[RunId] = set()
        """Runs that this process could not execute, because it lacks something that they need."""
        self.deps_types: dict[str, type] = {}
        self.instructions: dict[str, WriteInstructions] = {}

    # ── Deps ──

    def give(self, run_id: RunId, deps: Any) -> None:
        """Provide deps to a run, unless it has some."""
        self._of_runs.setdefault(run_id, deps)

    def forget(self, run_id: RunId) -> None:
        """Drop the deps of a run that does not start or has ended."""
        self._of_runs.pop(run_id, None)

    @property
    def makes_deps(self) -> bool:
        """Whether it makes the deps of runs that other processes have submitted."""
        return self._make_deps is not None

    def holds(self, run_id: RunId) -> bool:
        """Return whether the run was begun here and has deps of its own."""
        return run_id in self._of_runs or run_id in self._begun

    def find(self, run_id: RunId) -> Any:
        """Return the deps of a run: its own, or those of the engine."""
        return self._of_runs.get(run_id, self._deps)

    def observe(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        """Note a run with deps of its own that begins here. Drop the deps of a run that has ended."""
        if not drafts:
            return
        if first == 1 and isinstance(queued := drafts[0].data, RunQueued) and queued.own_deps:
            self._begun.add(origin.run_id)
        if isinstance(drafts[-1].data, RunEnd):
            self._begun.discard(origin.run_id)
            self._of_runs.pop(origin.run_id, None)

    def check_deps(self, agent: str, deps_type: type | None, deps: Any) -> None:
        """Raise UsageError if a run would have no deps, or deps of another type than its agent needs."""
        if deps_type is None:
            return
        found = self._deps if deps is None else deps
        if found is None and self._make_deps is None:
            raise UsageError(
                f"Agent `{agent}` needs deps of the type {deps_type.__name__}, and the run has none. Pass deps=… "
                "to the run or to the Engine."
            )
        if found is not None and not _fits(found, deps_type):
            raise UsageError(
                f"Agent `{agent}` needs deps of the type {deps_type.__name__}, and the run has "
                f"{type(found).__name__}. Pass deps=… of that type."
            )

    async def prepare(self, origin: Origin, queued: RunQueued) -> str | None:
        """Find the deps of a run before it executes. Return what it lacks, or None."""
        run_id, parent = origin.run_id, origin.parent_run_id
        if run_id in self._of_runs:
            return None
        if parent is not None and parent in self._of_runs:
            inherited, wanted = self._of_runs[parent], self.deps_types.get(queued.agent.name)
            if wanted is None or _fits(inherited, wanted):
                self._of_runs[run_id] = inherited
                return None
        elif queued.own_deps and self._make_deps is None:
            return LACKS_DEPS
        if self._make_deps is None or not (queued.own_deps or self._deps is None):
            return None
        context = RunContext[Any](
            run_id=run_id,
            session_id=origin.session_id,
            agent=queued.agent.name,
            user=queued.user,
            tags=queued.tags,
            metadata=queued.metadata,
        )
        try:
            self._of_runs[run_id] = await _resolve(self._make_deps(context))
        except Exception as error:  # it is the code of the program
            return f"make_deps raised {type(error).__name__}: {error}. Correct it, and open the engine again."
        return None

    # ── What runs need ──

    def note_lack(self, run_id: RunId, *, is_lacking: bool) -> None:
        """Note whether this process lacks something that a run needs."""
        if is_lacking:
            self._lacking.add(run_id)
        else:
            self._lacking.discard(run_id)

    def may_have_all(self, run_id: RunId) -> bool:
        """Return whether this process has not found out yet that it lacks something. Each process tries once."""
        return run_id not in self._lacking

    # ── Instructions ──

    async def instruct(
        self, agent: AgentSpec, context: RunContext[Any], write: WriteInstructions | None = None
    ) -> AgentSpec:
        """Return the agent with the instructions that its function, if any, writes for a run. Raise UsageError if
        the function fails."""
        write = write or (self.instructions.get(agent.name) if not agent.persona else None)
        if write is None:
            return agent
        name = getattr(write, "__qualname__", type(write).__name__)
        try:
            text = await _resolve(write(context))
        except Exception as error:  # it is the code of the program
            raise UsageError(
                f"The instructions of agent `{agent.name}` could not be written: `{name}` raised "
                f"{type(error).__name__}: {error}. Nothing was started."
            ) from error
        if not isinstance(text, str):
            raise UsageError(
                f"The instructions of agent `{agent.name}` could not be written: `{name}` returned "
                f"{type(text).__name__}, not text. Nothing was started."
            )
        return msgspec.structs.replace(agent, persona=self._hide(text))


async def _resolve(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


def _fits(deps: Any, wanted: type) -> bool:
    try:
        return isinstance(deps, wanted)
    except TypeError:  # a protocol that cannot be checked, or a generic type
        return True
