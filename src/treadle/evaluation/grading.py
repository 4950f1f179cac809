"""Grading: what a check says about a finished run. Pure; checks that run something are in `effects`."""

import re
from collections.abc import Callable, Mapping
from typing import Any, assert_never, cast

import msgspec
from msgspec import Struct

from treadle.domain.evaluations import CheckGrade
from treadle.domain.runs import OutcomeKind
from treadle.domain.schemas import find_mismatch
from treadle.domain.suites import (
    CalledCheck,
    CallOrder,
    Check,
    CommandCheck,
    Contains,
    EndsAs,
    Equals,
    FileCheck,
    FitsSchema,
    FunctionCheck,
    JsonValue,
    JudgeCheck,
    Lacks,
    MatchesCheck,
    MaxCost,
    MaxSeconds,
    MaxSteps,
    NotCalled,
)

SHOWN_CHARACTERS = 200
_STEP = re.compile(r"\.([^.\[\]]+)|\[(-?\d+)\]|\['([^']*)'\]")


class ObservedCall(Struct, frozen=True):
    """A tool call of a run."""

    tool: str
    arguments: dict[str, Any]
    result: str
    is_error: bool = False


class Observed(Struct, frozen=True):
    """What a finished run did."""

    run_id: str
    outcome: OutcomeKind
    answer: str
    calls: tuple[ObservedCall, ...]
    cost: float
    steps: int
    duration_ms: int
    reason: str = ""
    unrecorded: int = 0
    workspace: str = ""
    transcript: str = ""
    """The run as a judge reads it."""


class FunctionVerdict(Struct, frozen=True, omit_defaults=True):
    """What the function of a check returned."""

    score: float = 0.0
    reason: str = ""
    is_truth: bool = False
    """It returned a truth value, not a score."""
    error: str = ""
    """What it raised."""


Effectful = CommandCheck | JudgeCheck | FunctionCheck
"""Checks that run something."""
Files = Callable[[str], str | None]
"""Returns the content of a file of the workspace, or None if there is none."""


def name_check(check: Check) -> str:
    """Return what reports call a check."""
    kind = str(check.__struct_config__.tag)
    match check:
        case CalledCheck(tool=tool) | NotCalled(tool=tool):
            return f"{kind} {tool}"
        case FileCheck(path=path) | JsonValue(path=path):
            return f"{kind} {path}"
        case FunctionCheck(function=function):
            return f"{kind} {function}"
        case _:
            return kind


def grade(check: Check, run: Observed, files: Files) -> CheckGrade:
    """Return the grade of a check that runs nothing."""
    problem = find_problem(check, run, files)
    return CheckGrade(name_check(check), problem is None, problem or "")


def find_problem(check: Check, run: Observed, files: Files) -> str | None:
    """Return why a run does not pass a check, or None if it does."""
    match check:
        case Equals() | Contains() | Lacks() | MatchesCheck() | FitsSchema() | JsonValue():
            return _check_answer(check, run.answer)
        case CalledCheck():
            return _check_called(check, run)
        case NotCalled(tool=tool):
            count = sum(call.tool == tool for call in run.calls)
            return f"`{tool}` was called {count} times" if count else None
        case CallOrder(tools=tools):
            return _check_order(tools, [call.tool for call in run.calls])
        case FileCheck():
            return _check_file(check, files(check.path))
        case MaxCost() | MaxSteps() | MaxSeconds() | EndsAs():
            return _check_facts(check, run)
        case CommandCheck() | JudgeCheck() | FunctionCheck():
            raise AssertionError(f"{name_check(check)} runs something")
    assert_never(check)


def _check_answer(
    check: Equals | Contains | Lacks | MatchesCheck | FitsSchema | JsonValue, answer: str
) -> str | None:
    match check:
        case Equals(text=text, ignore_case=ignores):
            same = _fold(answer.strip(), ignores) == _fold(text.strip(), ignores)
            return None if same else f"the answer is {_show(answer)}, not {_show(text)}"
        case Contains(text=text, ignore_case=ignores):
            has = _fold(text, ignores) in _fold(answer, ignores)
            return None if has else f"the answer lacks {_show(text)}: {_show(answer)}"
        case Lacks(text=text, ignore_case=ignores):
            has = _fold(text, ignores) in _fold(answer, ignores)
            return f"the answer contains {_show(text)}" if has else None
        case MatchesCheck(pattern=pattern):
            return None if re.search(pattern, answer) else f"`{pattern}` matches nothing in {_show(answer)}"
        case FitsSchema(schema=schema):
            wrong = find_mismatch(answer, schema)
            return None if wrong is None else f"the answer does not fit the schema: {wrong}"
        case JsonValue(path=path, equals=wanted):
            return _check_json(answer, path, wanted)


def _check_facts(check: MaxCost | MaxSteps | MaxSeconds | EndsAs, run: Observed) -> str | None:
    match check:
        case MaxCost(dollars=most):
            return None if run.cost <= most else f"it cost ${run.cost:.6g}, more than ${most:g}"
        case MaxSteps(steps=most):
            return None if run.steps <= most else f"it had {run.steps} steps, more than {most}"
        case MaxSeconds(seconds=most):
            took = run.duration_ms / 1000
            return None if took <= most else f"it took {took:.1f} s, more than {most:g} s"
        case EndsAs(outcome=outcome):
            told = f"it ended as `{run.outcome}`, not `{outcome}`" + (f": {run.reason}" if run.reason else "")
            return None if run.outcome == outcome else told


def find_value(document: Any, path: str) -> Any:
    """Return the value at a JSON path such as `$.items[0].name`. Raise LookupError if there is none."""
    rest = path.removeprefix("$")
    rest = rest if rest.startswith((".", "[")) or not rest else f".{rest}"
    place, value = 0, document
    for found in _STEP.finditer(rest):
        if found.start() != place:
            break
        place = found.end()
        name, index = found[1] or found[3], found[2]
        try:
            value = value[int(index)] if index is not None else value[name]
        except (KeyError, IndexError, TypeError):
            raise LookupError(f"there is nothing at `{found[0]}`") from None
    if place != len(rest):
        raise LookupError(f"`{rest[place:]}` is not part of a path")
    return value


def _check_json(answer: str, path: str, wanted: Any) -> str | None:
    try:
        value = find_value(msgspec.json.decode(answer), path)
    except msgspec.DecodeError:
        return f"the answer is not JSON: {_show(answer)}"
    except LookupError as error:
        return f"{path}: {error}"
    return None if value == wanted else f"{path} is {_show(str(value))}, not {_show(str(wanted))}"


def _check_called(check: CalledCheck, run: Observed) -> str | None:
    of_tool = [call for call in run.calls if call.tool == check.tool]
    fitting = [call for call in of_tool if _has_arguments(call.arguments, check.arguments)]
    if check.times is not None:
        return None if len(fitting) == check.times else f"it was called {len(fitting)} times, not {check.times}"
    if fitting:
        return None
    if not of_tool:
        return f"`{check.tool}` was not called"
    return f"`{check.tool}` was called with {_show(str(of_tool[-1].arguments))}, not {_show(str(check.arguments))}"


def _has_arguments(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in found and _fits(found[name], value) for name, value in wanted.items())


def _fits(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return _has_arguments(cast("dict[str, Any]", found), cast("dict[str, Any]", wanted))
    return bool(found == wanted)


def _check_order(wanted: tuple[str, ...], called: list[str]) -> str | None:
    rest = iter(called)
    missing = [tool for tool in wanted if tool not in rest]  # `in` consumes the calls up to the tool
    return f"`{missing[0]}` was not called in its place; calls: {', '.join(called) or 'none'}" if missing else None


def _check_file(check: FileCheck, content: str | None) -> str | None:
    if check.absent:
        return None if content is None else f"{check.path} exists"
    if content is None:
        return f"{check.path} does not exist"
    if check.equals is not None and content.strip() != check.equals.strip():
        return f"{check.path} is {_show(content)}, not {_show(check.equals)}"
    if check.contains is not None and check.contains not in content:
        return f"{check.path} lacks {_show(check.contains)}"
    return None


def _fold(text: str, ignores_case: bool) -> str:
    return text.casefold() if ignores_case else text


def _show(text: str) -> str:
    shown = " ".join(text.split())
    return f"`{shown if len(shown) <= SHOWN_CHARACTERS else shown[: SHOWN_CHARACTERS - 1] + '…'}`"
