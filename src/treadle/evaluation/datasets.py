"""Cases and results as JSON lines, in the shapes of OpenAI's evaluation items and of LangSmith's examples."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, cast

import msgspec

from treadle.domain.errors import UsageError
from treadle.domain.evaluations import CaseResult
from treadle.domain.suites import Case, Contains, Equals, SuiteMessage
from treadle.operations.recorded_cases import make_name

Shape = Literal["openai", "langsmith"]
QUESTIONS = ("input", "question", "prompt", "message", "messages", "query")
"""Keys under which data sets have the message, the most common first."""
ANSWERS = ("expected", "ideal", "answer", "ground_truth", "output", "reference", "correct_label")
"""Keys under which they have a good answer."""


def read_cases(text: str) -> Iterator[Case]:
    """Yield the case of each line. Raise UsageError that names the line of what is wrong."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield read_case(msgspec.json.decode(line), number)
            except (msgspec.DecodeError, ValueError) as error:
                raise UsageError(f"Line {number} is not a case: {error}. Nothing after it was added.") from None


def read_case(data: Any, number: int) -> Case:
    """Return the case of an item. Raise ValueError if it has no message."""
    item = _mapping(_mapping(data).get("item", data))
    inputs = _mapping(item.get("inputs", item))
    outputs = _mapping(item.get("outputs", item))
    message, conversation = _read_message(_find(inputs, QUESTIONS))
    expected = _find(outputs, ANSWERS)
    checks = () if expected is None else (Contains(str(expected), ignore_case=True),)
    metadata = _mapping(item.get("metadata", {}))
    name = str(metadata.get("name") or f"{make_name(message)}-{number}")
    return Case(name=name, message=message, conversation=conversation, checks=checks)


def write_case(case: Case, shape: Shape, result: CaseResult | None = None) -> str:
    """Return a case as a line, with the result of a run if there is one."""
    expected = next((each.text for each in case.checks if isinstance(each, Contains | Equals)), None)
    messages = [{"role": each.role, "content": each.text} for each in case.conversation]
    messages.append({"role": "user", "content": case.message})
    if shape == "openai":
        item: dict[str, Any] = {"input": messages, "name": case.name}
        line: dict[str, Any] = {"item": item if expected is None else item | {"expected": expected}}
        if result is not None:
            line["sample"] = {"output_text": result.answer}
            line["passed"] = result.state == "passed"
    else:
        line = {"inputs": {"messages": messages}, "metadata": {"name": case.name}}
        line["outputs"] = {} if expected is None else {"answer": expected}
        if result is not None:
            line["run_outputs"] = {"answer": result.answer}
            line["feedback"] = [
                {"key": each.check, "score": each.score if each.score is not None else float(each.passed)}
                for each in result.grades
            ]
    return msgspec.json.encode(line).decode()


def write_cases(cases: Iterable[Case], shape: Shape, results: Mapping[str, CaseResult]) -> Iterator[str]:
    """Yield the line of each case, with its result by the name of the case."""
    for case in cases:
        yield write_case(case, shape, results.get(case.name))


def _read_message(value: Any) -> tuple[str, tuple[SuiteMessage, ...]]:
    if isinstance(value, str) and value.strip():
        return value, ()
    if isinstance(value, list) and value:
        said = [_mapping(each) for each in cast("list[Any]", value)]
        texts = [SuiteMessage(str(each.get("role", "user")), str(each.get("content", ""))) for each in said]
        return texts[-1].text, tuple([each for each in texts[:-1] if each.role in ("user", "assistant")])
    raise ValueError(f"it has no message under one of the keys {', '.join(QUESTIONS)}")


def _find(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return cast("dict[str, Any]", value)
