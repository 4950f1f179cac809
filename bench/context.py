"""`python -m bench.context`: checks that a long session keeps its facts, and that a run starts as cheaply at its
end as at its beginning.

A scripted session of 1,000 steps has 40 facts planted at known places: in user messages, in replies and in tool
results. Some are pinned. The scripted summariser may return only text from its request, and forgets some facts on
purpose. At every request, every planted fact that was not forgotten must be present, every call must have one
result, and nothing may exceed the window, as the model itself counts it. `--embedded` also lets the embedded model
write the summaries of a shorter session, and prints how many facts it kept."""

import argparse
import asyncio
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import treadle
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.core.context.compaction import INSTRUCTIONS
from treadle.core.context.transcript import repair
from treadle.domain.events import ContextCompacted
from treadle.domain.messages import Message, Text, ToolResult, ToolUse
from treadle.domain.runs import Usage
from treadle.models.local.weights import find_index_url, pull_weights
from treadle.ports.model import Completed, Failed, ModelRequest, Show, TextDelta
from treadle.ports.tool import Tool

WINDOW = 8000
STEPS = 1000
STEPS_A_RUN = 50
FACTS = 40
PINNED = 8
FORGOTTEN_EVERY = 5
STEP_BAR = 1.3
START_BAR = 1.5
MIN_COMPACTIONS = 3
SESSIONS = 3
EMBEDDED_WINDOW = 4000
EMBEDDED_STEPS = 100
_FACT = re.compile(r"FACT-\d\d: [^.]*\.")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_FILLER = "The quick survey of the northern field went on as planned and nothing out of the ordinary was seen. "


def make_fact(number: int) -> str:
    return f"FACT-{number:02}: the code of room {number * 37 % 101} is {number * 7919 % 9973}."


def count_tokens(text: str) -> int:
    """Return the tokens as this model counts them, which differs from our estimate."""
    return len(_TOKEN.findall(text))


def text_of(message: Message) -> str:
    parts: list[str] = []
    for part in message.parts:
        match part:
            case Text(text):
                parts.append(text)
            case ToolResult(_, content):
                parts.append(content)
            case ToolUse(_, name, arguments):
                parts.append(f"{name} {arguments}")
            case _:
                pass
    return "\n".join(parts)


class ScriptedSession:
    """The model, its summariser, and the checks of every request. Implements `Model`."""

    def __init__(self, window: int = WINDOW, write: Callable[[str], str] | None = None) -> None:
        self._window = window
        self._write = write or self._from_the_request
        self.planted: dict[str, str] = {}
        """Every fact, and where it was planted."""
        self.forgotten: set[str] = set()
        self.violations: list[str] = []
        self.steps = 0
        self.costs: list[float] = []
        """CPU milliseconds of the engine before each request, without the model and these checks."""
        self._cost = 0.0
        self._left_at: float | None = None
        self.largest = 0
        self._sizes: dict[Message, int] = {}
        self.present: set[str] = set()
        """The facts in the latest request that was checked."""
        self.spread = STEPS
        """Over how many steps the facts are planted."""
        self.places: tuple[str, ...] = ("tool", "assistant", "tool", "user")

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        if self._left_at is not None:
            self._cost += time.process_time() - self._left_at
        reply = self._reply(request, show)
        self._left_at = time.process_time()
        return reply

    def _reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        system, messages = request.preamble.system, request.conversation.messages
        size = count_tokens(system) + sum(self._size(message) for message in messages)
        self.largest = max(self.largest, size)
        if size > self._window:
            self.violations.append(f"a request of {size} tokens at step {self.steps}")
            return Failed("overflow", "prompt is too long", False, compact=True)
        if system.startswith(INSTRUCTIONS):
            return self._summed_up(messages[0].text, size)
        self.costs.append(self._cost * 1000)
        self._cost = 0.0
        self._check(messages)
        return self._step(size, show)

    def _size(self, message: Message) -> int:
        found = self._sizes.get(message)
        if found is None:
            found = self._sizes[message] = count_tokens(text_of(message))
        return found

    def _check(self, messages: list[Message]) -> None:
        if self.steps % 10:
            return  # checking costs far more than the engine
        if repair(messages) != tuple(messages):
            self.violations.append(f"the conversation is out of shape at step {self.steps}")
        self.present = set(_FACT.findall("\n".join(text_of(message) for message in messages)))
        lost = set(self.planted) - self.forgotten - self.present
        if lost:
            self.violations.append(f"step {self.steps}: lost {sorted(lost)[0]} ({self.planted[sorted(lost)[0]]})")

    def _summed_up(self, prompt: str, size: int) -> Completed:
        written = self._write(prompt)
        asked, kept = set(_FACT.findall(prompt)), set(_FACT.findall(written))
        pinned = {each for each, where in self.planted.items() if where == "pinned"}
        self.forgotten |= asked - kept - pinned
        return Completed((Text(written),), "end_turn", Usage(size, count_tokens(written)))

    def _from_the_request(self, prompt: str) -> str:
        facts = dict.fromkeys(_FACT.findall(prompt))
        kept = [each for each in facts if int(each[5:7]) % FORGOTTEN_EVERY or self.planted[each] == "pinned"]
        return "\n".join(("## Goal", "Survey the field.", "## Done", *kept))

    def _step(self, size: int, show: Show) -> Completed:
        self.steps += 1
        said = f"Step {self.steps}."
        if (number := self.due("assistant")) is not None:
            said += f" {self.plant(number, 'assistant')}"
        show(TextDelta(said))
        usage = Usage(size, count_tokens(said) + 12)
        if self.steps % STEPS_A_RUN == 0:
            return Completed((Text(said),), "end_turn", usage)
        use = ToolUse(f"c{self.steps}", "survey", f'{{"number": {self.steps}}}')
        return Completed((Text(said), use), "tool_use", usage)

    def due(self, where: str) -> int | None:
        """Return the number of the fact to plant there now."""
        number = len(self.planted)
        wanted = number * max(FACTS, self.spread - 2 * STEPS_A_RUN) // FACTS
        due = number < FACTS and self.steps >= wanted
        return number if due and self.places[number % len(self.places)] == where else None

    def plant(self, number: int, where: str) -> str:
        self.planted[make_fact(number)] = where
        return make_fact(number)


def make_agent(survey: Tool, window: int, writer: str | None) -> treadle.Agent:
    return treadle.Agent(
        name="surveyor",
        model="scripted/x",
        persona="You survey the field.",
        tools=[survey],
        limits={"context_window": window, "max_steps": None, "stuck_steps": 10**6},
        memory={"recall": 0, "remember": False},
        compaction={"model": writer},
    )


def make_survey_tool(session: ScriptedSession) -> Tool:
    @treadle.tool(effect="read", repeatable=True)
    async def survey(number: int) -> str:
        """Survey a part of the field."""
        number_of = session.due("tool")
        found = "" if number_of is None else session.plant(number_of, "tool")
        return f"Part {number}. {_FILLER * 3} {found}"

    return survey


async def long_session(
    folder: Path, session: ScriptedSession, window: int = WINDOW, steps: int = STEPS, writer: str | None = None
) -> list[ContextCompacted]:
    """Run the session, and return its compactions."""
    engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder))
    engine.add_model("scripted", session)
    compactions: list[ContextCompacted] = []
    async with engine:
        hero, session_id, pinned = make_agent(make_survey_tool(session), window, writer), None, 0
        while session.steps < steps:
            told = ""
            if (number := session.due("user")) is not None and pinned < PINNED and session_id is not None:
                session.planted[make_fact(number)] = "pinned"
                await engine.run(hero, f"/pin {make_fact(number)}", session=session_id)
                pinned += 1
            elif number is not None:
                told = session.plant(number, "user")
            result = await engine.run(hero, f"Go on with the survey. {told}", session=session_id)
            session_id = result.session_id
            if result.outcome != "completed":
                session.violations.append(f"a run ended {result.outcome}: {result.reason}")
                break
            stored = [event.data async for event in engine.service.read_stored(result.run_id)]
            compactions += [data for data in stored if isinstance(data, ContextCompacted)]
    return compactions


def per_step(costs: list[float], around: int) -> float:
    """Return the CPU milliseconds of a step, with its share of summaries, over the hundred steps around this
    one."""
    return statistics.mean(costs[around - 50 : around + 50])


class ShortModel:
    """Answers at once, and records the time of each request. Implements `Model`."""

    def __init__(self) -> None:
        self.asked_at = 0.0

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        self.asked_at = time.process_time()
        if request.preamble.system.startswith(INSTRUCTIONS):
            return Completed((Text("## Done\nThey talked."),), "end_turn", Usage(estimated=True))
        said = "That is so, as far as I can tell from here."
        return Completed((Text(said),), "end_turn", Usage(estimated=True))


async def many_runs(folder: Path, runs: int, window: int | None) -> list[float]:
    """Return the CPU milliseconds from the submission of each run of one session to its first request."""
    model = ShortModel()
    engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder))
    engine.add_model("scripted", model)
    nothing = {"recall": 0, "remember": False}
    limits = {"context_window": window}
    hero = treadle.Agent(name="talker", model="scripted/x", limits=limits, memory=nothing)
    costs: list[float] = []
    async with engine:
        session: str | None = None
        for number in range(runs):
            began = time.process_time()
            result = await engine.run(
                hero, f"Tell me something about the number {number}, please.", session=session
            )
            costs.append((model.asked_at - began) * 1000)
            session = result.session_id
    return costs


def long_report() -> bool:
    session = ScriptedSession()
    with tempfile.TemporaryDirectory() as folder:
        compactions = asyncio.run(long_session(Path(folder), session))
    early, late = per_step(session.costs, 100), per_step(session.costs, len(session.costs) - 50)
    pinned = sum(where == "pinned" for where in session.planted.values())
    print(
        f"{session.steps} steps, {len(compactions)} compactions, window {WINDOW}, largest request {session.largest}"
    )
    print(
        f"{len(session.planted)} facts planted, {pinned} of them pinned, {len(session.forgotten)} forgotten by the "
        f"writer on purpose: {len(session.planted) - len(session.forgotten)} present at the end"
    )
    print(
        f"CPU a step: {early:.3f} ms around step 100, {late:.3f} ms at the end: {late / early:.2f} (bar {STEP_BAR})"
    )
    for violation in session.violations[:5]:
        print(f"VIOLATION: {violation}")
    return (
        not session.violations
        and len(compactions) >= MIN_COMPACTIONS
        and len(session.planted) == FACTS
        and pinned > 0
        and late / early <= STEP_BAR
    )


def start_report(window: int | None, label: str, runs: int = 1000) -> bool:
    """Print the median around the 10th run and at the end, over a few sessions."""
    early, late = list[float](), list[float]()
    for _ in range(SESSIONS):
        with tempfile.TemporaryDirectory() as folder:
            costs = asyncio.run(many_runs(Path(folder), runs, window))
        early += costs[4:15]
        late += costs[-11:]
    before, after = statistics.median(early), statistics.median(late)
    ratio = f"{after / before:.2f} (bar {START_BAR})"
    print(f"start of a run, {label}: {before:.2f} ms CPU at the 10th, {after:.2f} ms at the {runs}th: {ratio}")
    return after / before <= START_BAR


def embedded_report() -> None:
    """Print the same for a shorter session whose summaries the embedded model writes. It has no bar."""
    session = ScriptedSession(EMBEDDED_WINDOW, lambda prompt: "")
    session.spread, session.places = EMBEDDED_STEPS, ("tool", "assistant")
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        home.weights.mkdir()
        asyncio.run(pull_weights("smollm2", home.weights, find_index_url(os.environ), lambda done, total: None))
        work = long_session(Path(folder), session, EMBEDDED_WINDOW, EMBEDDED_STEPS, "local/smollm2")
        compactions = asyncio.run(work)
    folded = {each for each, where in session.planted.items() if where != "pinned"}
    kept = set(_FACT.findall("\n".join(each.summary for each in compactions[-1:])))
    present = folded & session.present
    print(
        f"the embedded model: {len(compactions)} summaries, {len(folded)} facts that are not pinned, "
        f"{len(present)} present at the end, {len(kept & folded)} of them in its last summary"
    )
    pinned = {each for each, where in session.planted.items() if where == "pinned"}
    print(f"pinned: {len(pinned & session.present)} of {len(pinned)} present at the end")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.context", description=__doc__)
    parser.add_argument("--embedded", action="store_true", help="also let the embedded model write summaries")
    options = parser.parse_args()
    good = [long_report(), start_report(4000, "summed up now and then"), start_report(None, "never summed up")]
    if options.embedded:
        embedded_report()
    print("all bars hold" if all(good) else "a bar does not hold")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
