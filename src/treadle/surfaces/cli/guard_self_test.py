"""A self-test of the guards: each is made to fire once, in a real run of the real engine, on a database in memory
and with a model whose replies are written down here. A guard counts as armed when its mark is in the journal."""

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import treadle
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.doctor.findings import Basis
from treadle.doctor.quarantine import simulate_deadly_run
from treadle.domain import events as e
from treadle.domain.errors import TreadleError
from treadle.domain.messages import Text, ToolUse
from treadle.domain.runs import OutcomeKind, Usage
from treadle.ports.model import Completed, Failed, ModelRequest, Show

PATIENCE = 60.0
"""Seconds for one run; a guard that has not fired by then does not."""
PLAIN: dict[str, Any] = {"memory": {"recall": 0, "embedder": "none", "remember": False}}
SHORT, UNCOUNTED = Usage(input_tokens=10, output_tokens=5), Usage()
"""What a model reports of a request."""
TOO_LONG = Failed("overflow", "the prompt is too long", retryable=False, compact=True)
PRICED = "priced"
SETTINGS = "models: {priced/scripted: {prices: {input: 1000, output: 1000}}}\n"
"""Of the home of the test: one of its models costs money."""

Step = Completed | Failed | None
"""A reply of the model, or that it fails; None: it says nothing for ever."""
Journal = Sequence[e.EventData]
Mark = Callable[[Journal], bool]


class Check(Struct, frozen=True):
    """Whether one guard is armed."""

    guard: str
    armed: bool
    detail: str
    """How the run ended that was to make it fire."""
    basis: Basis = "probed"


class Trial(Struct, frozen=True):
    """A run that must make guards fire."""

    marks: Mapping[str, Mark]
    """What each of them leaves in the journal."""
    script: Sequence[Step] = ()
    """What the model does. After the last it says that it is done."""
    settings: Mapping[str, Any] = {}
    cancelled_at: type[e.EventData] | None = None
    """The run is cancelled at the first event of this kind. A deadline would not do: a busy machine may miss it."""
    provider: str = ""
    """Empty: one of its own."""


# ── The model and its tools ──


class _Script:
    """Implements `ports.model.Model`."""

    def __init__(self, replies: Sequence[Step]) -> None:
        self._replies = list(replies)

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        reply = self._replies.pop(0) if self._replies else _says("Done.")
        if reply is None:
            await asyncio.Event().wait()
        return reply or _says("Done.")


_numbers = count()


@treadle.tool(effect="read", repeatable=True)
def doctor_counts(at: str) -> str:
    "Something else each time."
    return f"{at} {next(_numbers)}"


@treadle.tool(effect="read", repeatable=True)
def doctor_repeats(at: str) -> str:
    "The same each time."
    return "nothing new"


@treadle.tool(effect="read", repeatable=True)
def doctor_fails(at: str) -> str:
    "It cannot be done."
    raise ValueError("it cannot be done")


@treadle.tool(effect="read", repeatable=True)
def doctor_talks(at: str) -> str:
    "A great many words."
    return f"{at} {next(_numbers):09d} and more of it, " * 160  # the same length whatever the number


TOOLS = (doctor_counts, doctor_repeats, doctor_fails, doctor_talks)


def _says(text: str, stop: e.StopReason = "end_turn") -> Completed:
    return Completed((Text(text),) if text else (), stop, SHORT)


def _calls(name: str, *ats: str, usage: Usage = SHORT, text: str = "") -> list[Completed]:
    """Return one reply for each of these, with a call and perhaps a text before it."""
    uses = [ToolUse(f"call_{next(_numbers)}", name, msgspec.json.encode({"at": at}).decode()) for at in ats]
    return [Completed((Text(text), use) if text else (use,), "tool_use", usage) for use in uses]


# ── What guards leave behind ──


def _has(kind: type[e.EventData], words: str = "") -> Mark:
    """An event of a kind, with these words in it."""
    return lambda journal: any(isinstance(data, kind) and words in repr(data) for data in journal)


def _ends(outcome: OutcomeKind, words: str = "") -> Mark:
    def mark(journal: Journal) -> bool:
        return any(
            isinstance(data, e.RunEnd) and data.outcome == outcome and words in data.reason for data in journal
        )

    return mark


TRIALS: tuple[Trial, ...] = (
    Trial(
        {
            "loop: the same call is warned of": _has(e.LoopWarning, "3 times"),
            "loop: the same call is refused": _has(e.ToolCallBlocked, "these very arguments"),
            "loop: the same call ends the run": _ends("stuck", "with the same arguments"),
        },
        _calls("doctor_counts", *"aaaaaaaaa"),
    ),
    Trial(
        {
            "loop: the same result is warned of": _has(e.LoopWarning, "same result"),
            "loop: the same result is refused": _has(e.ToolCallBlocked, "same result"),
        },
        _calls("doctor_repeats", *"aaa"),
    ),
    Trial(
        {
            "loop: a cycle of calls is refused": _has(e.ToolCallBlocked, "cycle"),
            "loop: a cycle of calls ends the run": _ends("stuck", "round and round"),
        },
        _calls("doctor_counts", *"ababababab"),
    ),
    Trial(
        {"loop: strict": _ends("stuck", "in a row")},
        _calls("doctor_counts", *"aaa"),
        {"loop": {"doom_loop": "strict"}},
    ),
    Trial(
        {
            "stuck: a tool that fails again and again": _has(e.StuckDetected, "failing_tool"),
            "stuck: a tool is refused for a turn": _has(e.ToolCallBlocked, "stuck"),
        },
        _calls("doctor_fails", *"abcdefghijklmnop"),
    ),
    Trial(
        {
            "stuck: nothing new is learnt": _has(e.StuckDetected, "no_new_information"),
            "stuck: recovery is tried": _has(e.RecoveryAction),
            "stuck: the run ends": _ends("stuck"),
        },
        _calls("doctor_repeats", *"abcdefghijklmnop"),
        {"limits": {"stuck_steps": 2}},
    ),
    Trial(
        {"phantom action (answers in English)": _has(e.PhantomAction, "sent")},
        [_says("I have sent the email to Bob."), _says("No, I have not.")],
    ),
    Trial(
        {"call written as text": _has(e.CallWritten), "call written as text: the run ends": _ends("model_error")},
        [_says('<tool_call>{"name": "doctor_counts", "arguments": {}}</tool_call>')] * 2,
    ),
    Trial({"empty turn": _has(e.EmptyTurn), "empty: the run ends": _ends("empty")}, [_says(""), _says("")]),
    Trial(
        {"continuation": _has(e.Continuation), "truncated: the run ends": _ends("truncated")},
        [_says("one ", "max_tokens"), _says("two", "max_tokens")],
        {"limits": {"max_continuations": 1}},
    ),
    Trial({"max_steps": _ends("max_steps")}, _calls("doctor_counts", *"abc"), {"limits": {"max_steps": 2}}),
    Trial({"deadline": _ends("deadline")}, [None], {"limits": {"deadline": 0.2}}),
    Trial(
        {"budget hint": _has(e.BudgetHint)},
        _calls("doctor_counts", *"abc"),
        {"limits": {"max_steps": 4}, "budget_hints": True},
    ),
    Trial(
        {"output schema": _has(e.OutputRejected), "output schema: the run ends": _ends("failed", "output schema")},
        [_says("1"), _says("2"), _says("3")],
        {"output": {"type": "object", "required": ["n"]}},
    ),
    Trial({"cancel": _ends("cancelled")}, [None], cancelled_at=e.LlmRequest),
    Trial(
        {"context: old results are shortened": _has(e.ContextTrimmed)},
        _calls("doctor_talks", *"abcdefgh", usage=UNCOUNTED),
        {"limits": {"context_window": 6000}},
    ),
    Trial(
        {"context: a full one is summarized": _has(e.ContextCompacted)},
        _calls("doctor_counts", *"abcdefgh", usage=UNCOUNTED, text="one word after another " * 160),
        {"limits": {"context_window": 6000}},
    ),
    Trial({"context overflow": _ends("context_overflow")}, [TOO_LONG] * 4),
    Trial({"quota: tokens": _ends("quota_exceeded")}, settings={"quotas": {"max_llm_tokens_per_hour": 1}}),
    Trial(
        {"quota: tool calls": _has(e.RunWaiting, "in a minute")},
        [*_calls("doctor_counts", "a"), *_calls("doctor_counts", "b")],
        {"quotas": {"max_tool_calls_per_minute": 1}},
        cancelled_at=e.RunWaiting,
    ),
    Trial(
        {"quota: credits": _ends("insufficient_credits")},
        settings={"quotas": {"credits": 0.000001}},
        provider=PRICED,
    ),
    Trial({"budget: cost": _ends("budget_exhausted")}, settings={"limits": {"cost": 0.000001}}, provider=PRICED),
)
QUARANTINE = "quarantine"


async def fire_all() -> Sequence[Check]:
    """Make every guard fire, all at the same time; whether each did."""
    with tempfile.TemporaryDirectory(prefix="treadle-doctor-") as folder:
        (Path(folder) / "config.yaml").write_text(SETTINGS)
        async with create_engine("sqlite:///:memory:", home=Home(Path(folder))) as engine:
            trials = [_fire(engine, number, trial) for number, trial in enumerate(TRIALS)]
            found = [check for checks in await asyncio.gather(*trials) for check in checks]
    journal = await simulate_deadly_run()
    return [*found, Check(QUARANTINE, _ends("quarantined")(journal), _ending(journal))]


async def _fire(engine: HostedEngine, number: int, trial: Trial) -> list[Check]:
    journal: list[e.EventData] = []
    refusal = ""
    try:
        async with asyncio.timeout(PATIENCE):
            await _run(engine, f"trial{number}", trial, journal)
    except TimeoutError:
        refusal = f"it had not ended after {PATIENCE:g} s"
    except TreadleError as error:
        refusal = str(error)
    return [Check(guard, mark(journal), refusal or _ending(journal)) for guard, mark in trial.marks.items()]


async def _run(engine: HostedEngine, name: str, trial: Trial, journal: list[e.EventData]) -> None:
    provider = trial.provider or name
    engine.add_model(provider, _Script(trial.script))
    agent = treadle.Agent(name=name, model=f"{provider}/scripted", tools=TOOLS, **PLAIN, **trial.settings)
    async for event in engine.stream(agent, "Begin."):
        if event.durable:
            journal.append(event.data)
        if type(event.data) is trial.cancelled_at:
            await engine.cancel(event.run_id)


def _ending(journal: Journal) -> str:
    """How a run came out, in words."""
    ends = [f"{data.outcome}: {data.reason}".rstrip(": ") for data in journal if isinstance(data, e.RunEnd)]
    return ends[0] if ends else "it did not end"
