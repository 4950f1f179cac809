"""Patterns of tool calls, run on the real engine, and what the guards made of them. This prints the table:

python -m tests.engine.run_patterns"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

import treadle
from tests.engine.running import agent, in_virtual_time, journal, virtually
from treadle.api.engine import HostedEngine
from treadle.domain import events as e
from treadle.domain.agents import Limits
from treadle.domain.tools import Effect
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say

FOLDER: Final = Path(__file__).parent / "patterns"
LONG: Final = "x" * 1000
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_TIMES = re.compile(r" x(\d+)$")
REPORT: Final = "This is what I did."
EFFECTS: Final[dict[str, Effect]] = {
    "bash": "external",
    "browser": "external",
    "next_item": "external",
    "send": "external",
    "write_file": "write",
    "edit_file": "write",
    "ticket": "write",
    "read_file": "read",
    "grep": "read",
    "glob": "read",
    "look": "read",
    "poll": "read",
}


class Pattern(Struct, frozen=True):
    """A pattern of calls, and the kinds of `stuck_detected` with which it may be stopped."""

    name: str
    calls: tuple[str, ...]
    source: str = field(default="", name="from")
    kind: str | tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        return (self.kind,) if isinstance(self.kind, str) else self.kind


class PlannedCall(Struct, frozen=True):
    tool: str
    argument: str
    result: str


class Finding(Struct, frozen=True):
    """What the guards made of a pattern."""

    pattern: Pattern
    planned: int
    ran: int
    outcome: str | None
    kinds: tuple[str, ...]
    """The kinds of `stuck_detected`, in order."""
    warnings: int
    refused: int


def load_patterns(name: str) -> list[Pattern]:
    return msgspec.yaml.decode((FOLDER / f"{name}.yaml").read_bytes(), type=list[Pattern])


def expand(pattern: Pattern) -> list[list[PlannedCall]]:
    """Return the calls, turn by turn."""
    return [turn for group in pattern.calls for turn in _expand_group(group)]


def _expand_group(group: str) -> Iterator[list[PlannedCall]]:
    times = _TIMES.search(group)
    text = _TIMES.sub("", group)
    lengths = [len(_numbers(found)) for found in _RANGE.finditer(text)]
    for index in range(int(times[1]) if times else max(lengths, default=1)):
        turns: list[list[PlannedCall]] = []
        for line in _fill(text, index).split("\n"):
            planned = _parse(line.removeprefix("- ").removeprefix("+ "))
            if line.startswith("+ "):
                turns[-1].append(planned)
            else:
                turns.append([planned])
        yield from turns


def _numbers(found: re.Match[str]) -> range:
    first, last = int(found[1]), int(found[2])
    return range(first, last + 1) if last >= first else range(first, last - 1, -1)


def _fill(text: str, index: int) -> str:
    def number(found: re.Match[str]) -> str:
        numbers = _numbers(found)
        return str(numbers[index % len(numbers)])

    return _RANGE.sub(number, text).replace("{long}", LONG)


def _parse(line: str) -> PlannedCall:
    tool, argument, result = line.split(" | ", 2) if line.count(" | ") >= 2 else (*line.split(" | ", 1), "")
    return PlannedCall(tool.strip(), argument.strip(), result.strip())


class Player:
    """Plays patterns one after the other: the model makes the planned calls, and the tools give the planned
    results."""

    def __init__(self) -> None:
        self.tools = [self._make_tool(name, effect) for name, effect in EFFECTS.items()]
        self._turns: deque[list[PlannedCall]] = deque()
        self._results: dict[tuple[str, str], deque[str]] = defaultdict(deque)
        self._ids = count()

    def load(self, pattern: Pattern) -> int:
        """Start a pattern. Return the number of its calls."""
        self._turns = deque(expand(pattern))
        self._results.clear()
        planned = [each for turn in self._turns for each in turn]
        for each in planned:
            self._results[each.tool, each.argument].append(each.result)
        return len(planned)

    def answer(self, _: ModelRequest) -> ScriptStep:
        if not self._turns:
            return say(REPORT)
        calls = self._turns.popleft()
        return ask(*[call(each.tool, f"c{next(self._ids)}", x=each.argument) for each in calls])

    def _make_tool(self, name: str, effect: Effect) -> Any:
        @treadle.tool(name=name, description=f"To {name}.", effect=effect, poller=name == "poll")
        def planned(x: str) -> str:
            result = self._results[name, x].popleft()
            if result.startswith("!"):
                raise ValueError(result[1:])
            return result

        return planned


async def run_patterns(patterns: Sequence[Pattern], **limits: Any) -> list[Finding]:
    """Run each pattern to its end, and return what the guards made of it."""
    player = Player()
    hero = agent(tools=player.tools, limits=Limits(max_steps=None, **limits))
    async with in_virtual_time(FunctionModel(player.answer)) as engine:
        return [await _run_pattern(engine, hero, player, each) for each in patterns]


async def _run_pattern(engine: HostedEngine, hero: treadle.Agent, player: Player, pattern: Pattern) -> Finding:
    planned = player.load(pattern)
    result = await engine.run(hero, "Do the work.")
    events = [event.data for event in await journal(engine, result.run_id)]
    return Finding(
        pattern,
        planned=planned,
        ran=sum(isinstance(data, e.ToolCallStart) for data in events),
        outcome=result.outcome,
        kinds=tuple(data.kind for data in events if isinstance(data, e.StuckDetected)),
        warnings=sum(isinstance(data, e.LoopWarning) for data in events),
        refused=sum(isinstance(data, e.ToolCallBlocked) for data in events),
    )


def render_table(findings: Sequence[Finding]) -> str:
    """Return a line per pattern: its calls, how many ran and were refused, the warnings, and how it ended."""
    lines = [f"{'pattern':56} {'calls':>5} {'ran':>4} {'refused':>7} {'warned':>6}  end"]
    for each in findings:
        end = f"{each.outcome} ({each.kinds[-1]})" if each.kinds else each.outcome
        name = each.pattern.name
        lines.append(f"{name:56} {each.planned:5} {each.ran:4} {each.refused:7} {each.warnings:6}  {end}")
    return "\n".join(lines)


def main() -> None:
    for name in ("productive", "sessions", "stopped"):
        print(f"── {name} ──")
        print(render_table(virtually(run_patterns(load_patterns(name)))))


if __name__ == "__main__":
    main()
