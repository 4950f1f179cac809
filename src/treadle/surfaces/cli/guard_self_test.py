"""A self-test of the guards. Each guard fires once in a real run of the engine, with a database in memory and a
scripted model. A guard is armed if the journal of the run holds the evidence: an event or an outcome."""

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
from treadle.doctor.quarantine import simulate_deadly_run
from treadle.domain import events as e
from treadle.domain.errors import TreadleError
from treadle.domain.messages import Text, ToolUse
from treadle.domain.runs import OutcomeKind, Usage
from treadle.operations.system_facts import FindingBasis
from treadle.ports.model import Completed, Failed, ModelRequest, Show

TRIAL_SECONDS = 60.0
"""Time limit of one run. A guard that has not fired by then is not armed."""
AGENT_SETTINGS: dict[str, Any] = {"memory": {"recall": 0, "embedder": "none", "remember": False}}
SHORT, UNCOUNTED = Usage(input_tokens=10, output_tokens=5), Usage()
"""Token counts that the scripted model reports. `UNCOUNTED`: none, so the engine estimates them."""
TOO_LONG = Failed("overflow", "the prompt is too long", retryable=False, compact=True)
PRICED_PROVIDER = "priced"
HOME_SETTINGS = "models: {priced/scripted: {prices: {input: 1000, output: 1000}}}\n"
"""The `config.yaml` of the test's home: one model has prices."""

Step = Completed | Failed | None
"""A reply or a failure of the model. None: the model never answers."""
Journal = Sequence[e.EventData]
Evidence = Callable[[Journal], bool]
"""Whether a journal proves that a guard fired."""


class Check(Struct, frozen=True):
    """Whether one guard is armed."""

    guard: str
    armed: bool
    detail: str
    """How the run of the trial ended."""
    basis: FindingBasis = "probed"


class Trial(Struct, frozen=True):
    """A run that must make guards fire."""

    evidence: Mapping[str, Evidence]
    """The evidence for each guard, by the name of the guard."""
    script: Sequence[Step] = ()
    """What the model does, step by step. After the last step it answers "Done."."""
    settings: Mapping[str, Any] = {}
    cancelled_at: type[e.EventData] | None = None
    """Cancel the run at the first event of this type. A deadline is unreliable here: a busy machine may miss it."""
    provider: str = ""
    """The provider of the model. Empty: one for this trial alone."""


# ── The model and its tools ──


class _ScriptedModel:
    """Follows the script of a trial. Implements `ports.model.Model`."""

    def __init__(self, replies: Sequence[Step]) -> None:
        self._replies = list(replies)

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        reply = self._replies.pop(0) if self._replies else DONE
        if reply is None:
            await asyncio.Event().wait()
        return reply or DONE


_numbers = count()


@treadle.tool(effect="read", repeatable=True)
def doctor_counts(at: str) -> str:
    "Return a different text each time."
    return f"{at} {next(_numbers)}"


@treadle.tool(effect="read", repeatable=True)
def doctor_tells_time(at: str) -> str:
    "Return a text that differs only in its time, which is nothing new."
    minutes, seconds = divmod(next(_numbers), 60)
    return f"{at} 12:{minutes % 60:02d}:{seconds:02d}"


@treadle.tool(effect="read", repeatable=True)
def doctor_repeats(at: str) -> str:
    "Return the same text each time."
    return "nothing new"


@treadle.tool(effect="read", repeatable=True)
def doctor_fails(at: str) -> str:
    "Fail each time."
    raise ValueError("this tool always fails")


@treadle.tool(effect="read", repeatable=True)
def doctor_talks(at: str) -> str:
    "Return a long text."
    return f"{at} {next(_numbers):09d} and more of it, " * 160  # the same length whatever the number


TOOLS = (doctor_counts, doctor_tells_time, doctor_repeats, doctor_fails, doctor_talks)


def _answer(text: str, stop: e.StopReason = "end_turn") -> Completed:
    """Return a reply without tool calls."""
    return Completed((Text(text),) if text else (), stop, SHORT)


def _calls(name: str, *ats: str, usage: Usage = SHORT, text: str = "") -> list[Completed]:
    """Return one reply per argument, each with a call of the tool and optionally a text before it."""
    uses = [ToolUse(f"call_{next(_numbers)}", name, msgspec.json.encode({"at": at}).decode()) for at in ats]
    return [Completed((Text(text), use) if text else (use,), "tool_use", usage) for use in uses]


DONE = _answer("Done.")

# ── Evidence that a guard fired ──


def _has(kind: type[e.EventData], /, **fields: object) -> Evidence:
    """Accept a journal that holds an event of this type with these values of fields."""

    def matches(data: e.EventData) -> bool:
        return isinstance(data, kind) and all(getattr(data, name) == value for name, value in fields.items())

    return lambda journal: any(map(matches, journal))


def _ends(outcome: OutcomeKind) -> Evidence:
    """Accept the journal of a run that ended with this outcome."""
    return _has(e.RunEnd, outcome=outcome)


TRIALS: tuple[Trial, ...] = (
    Trial(
        {
            "loop: a repeated call gets a warning": _has(e.LoopWarning, count=3),
            "loop: a repeated call is rejected": _has(e.ToolCallBlocked, guard="loop"),
            "loop: a repeated call ends the run": _ends("stuck"),
        },
        _calls("doctor_tells_time", *"aaaaaaaaa"),
    ),
    Trial(
        {
            "loop: a repeated result gets a warning": _has(e.LoopWarning, count=2),
            "loop: a repeated result is rejected": _has(e.ToolCallBlocked, guard="loop"),
        },
        _calls("doctor_repeats", *"aaa"),
    ),
    Trial(
        {
            "loop: a cycle of calls is rejected": _has(e.ToolCallBlocked, guard="loop"),
            "loop: a cycle of calls ends the run": _ends("stuck"),
        },
        _calls("doctor_tells_time", *"abababab"),  # too few for the limits of a repeated call
    ),
    Trial(
        {"loop: strict": _ends("stuck")},
        _calls("doctor_counts", *"aaa"),
        {"loop": {"doom_loop": "strict"}},
    ),
    Trial(
        {
            "stuck: a failing tool is detected": _has(e.StuckDetected, kind="failing_tool"),
            "stuck: a failing tool is rejected for one turn": _has(e.ToolCallBlocked, guard="stuck"),
        },
        _calls("doctor_fails", *"abcdefghijklmnop"),
    ),
    Trial(
        {
            "stuck: no new information is detected": _has(e.StuckDetected, kind="no_new_information"),
            "stuck: recovery starts": _has(e.RecoveryAction),
            "stuck: the run ends": _ends("stuck"),
        },
        _calls("doctor_repeats", *"abcdefghijklmnop"),
        {"limits": {"stuck_steps": 2}},
    ),
    Trial(
        {"phantom action (answers in English)": _has(e.PhantomAction)},
        [_answer("I have sent the email to Bob."), _answer("No, I have not.")],
    ),
    Trial(
        {"call written as text": _has(e.CallWritten), "call written as text: the run ends": _ends("model_error")},
        [_answer('<tool_call>{"name": "doctor_counts", "arguments": {}}</tool_call>')] * 2,
    ),
    Trial({"empty turn": _has(e.EmptyTurn), "empty: the run ends": _ends("empty")}, [_answer(""), _answer("")]),
    Trial({"refused: the run ends": _ends("refused")}, [_answer("I cannot", "refusal")]),
    Trial(
        {"continuation": _has(e.Continuation), "truncated: the run ends": _ends("truncated")},
        [_answer("one ", "max_tokens"), _answer("two", "max_tokens")],
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
        {"output schema": _has(e.OutputRejected), "output schema: the run ends": _ends("failed")},
        [_answer("1"), _answer("2"), _answer("3")],
        {"output": {"type": "object", "required": ["n"]}},
    ),
    Trial({"cancel": _ends("cancelled")}, [None], cancelled_at=e.LlmRequest),
    Trial(
        {"context: old results are truncated": _has(e.ContextTrimmed)},
        _calls("doctor_talks", *"abcdefgh", usage=UNCOUNTED),
        {"limits": {"context_window": 6000}},
    ),
    Trial(
        {"context: a full context is summarized": _has(e.ContextCompacted)},
        _calls("doctor_counts", *"abcdefgh", usage=UNCOUNTED, text="one word after another " * 160),
        {"limits": {"context_window": 6000}},
    ),
    Trial({"context overflow": _ends("context_overflow")}, [TOO_LONG] * 4),
    Trial({"quota: tokens": _ends("quota_exceeded")}, settings={"quotas": {"max_llm_tokens_per_hour": 1}}),
    Trial(
        {"quota: tool calls": _has(e.RunWaiting, reason="quota")},
        [*_calls("doctor_counts", "a"), *_calls("doctor_counts", "b")],
        {"quotas": {"max_tool_calls_per_minute": 1}},
        cancelled_at=e.RunWaiting,
    ),
    Trial(
        {"quota: credits": _ends("insufficient_credits")},
        settings={"quotas": {"credits": 0.000001}},
        provider=PRICED_PROVIDER,
    ),
    Trial(
        {"budget: cost": _ends("budget_exhausted")},
        settings={"limits": {"cost": 0.000001}},
        provider=PRICED_PROVIDER,
    ),
)
QUARANTINE = "quarantine"


async def check_guards() -> Sequence[Check]:
    """Run all trials at the same time. Return whether each guard fired."""
    with tempfile.TemporaryDirectory(prefix="treadle-doctor-") as folder:
        (Path(folder) / "config.yaml").write_text(HOME_SETTINGS)
        async with create_engine("sqlite:///:memory:", home=Home(Path(folder))) as engine:
            trials = [_run_trial(engine, number, trial) for number, trial in enumerate(TRIALS)]
            found = [check for checks in await asyncio.gather(*trials) for check in checks]
    journal = await simulate_deadly_run()
    return [*found, Check(QUARANTINE, _ends("quarantined")(journal), _describe_end(journal))]


async def _run_trial(engine: HostedEngine, number: int, trial: Trial) -> list[Check]:
    """Run one trial. Return a check for each of its guards."""
    journal: list[e.EventData] = []
    failure = ""
    try:
        async with asyncio.timeout(TRIAL_SECONDS):
            await _record_run(engine, f"trial{number}", trial, journal)
    except TimeoutError:
        failure = f"the run had not ended after {TRIAL_SECONDS:g} s"
    except TreadleError as error:
        failure = str(error)
    return [
        Check(guard, is_proven(journal), failure or _describe_end(journal))
        for guard, is_proven in trial.evidence.items()
    ]


async def _record_run(engine: HostedEngine, name: str, trial: Trial, journal: list[e.EventData]) -> None:
    """Run the script of a trial and add its stored events to the journal."""
    provider = trial.provider or name
    engine.add_model(provider, _ScriptedModel(trial.script))
    agent = treadle.Agent(name=name, model=f"{provider}/scripted", tools=TOOLS, **AGENT_SETTINGS, **trial.settings)
    async for event in engine.stream(agent, "Begin."):
        if event.durable:
            journal.append(event.data)
        if type(event.data) is trial.cancelled_at:
            await engine.cancel(event.run_id)


def _describe_end(journal: Journal) -> str:
    """Return the outcome of a run and its reason."""
    ends = [f"{data.outcome}: {data.reason}".rstrip(": ") for data in journal if isinstance(data, e.RunEnd)]
    return ends[0] if ends else "the run did not end"
