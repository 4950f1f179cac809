"""Cases made of recorded runs: the message, what was said before, and the results of the tool calls."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from treadle.domain.envelope import Event
from treadle.domain.errors import InvalidState, UsageError
from treadle.domain.events import (
    RunEnd,
    RunQueued,
    StepStart,
    ToolCallEnd,
    ToolCallError,
    ToolCallStart,
    UserMessage,
)
from treadle.domain.ids import RunId
from treadle.domain.messages import Message
from treadle.domain.suites import CalledCheck, Case, Check, EndsAs, RecordedCall, SuiteMessage
from treadle.operations import runs
from treadle.operations.operation import LocalCaller, list_items

MAX_NAME_CHARACTERS = 48
CONTINUE = "Continue."
"""The message of a case that begins at a later step."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def read_recorded_case(
    caller: LocalCaller, run_id: RunId, step: int | None = None, name: str = "", checks: tuple[Check, ...] = ()
) -> tuple[str, Case]:
    """Return the agent of a run that the caller may read, and a case that repeats it. The case has what was said
    before in the session, and no secrets."""
    context = caller.context
    await context.readable_run(run_id)
    async with aclosing(caller.read_stored(run_id)) as stored:
        events = [event async for event in stored]
    agent, case = make_case(events, step, name, checks)
    earlier = await _read_conversation(caller, run_id)
    case = msgspec.structs.replace(case, conversation=(*earlier, *case.conversation))
    clean = context.vault.redactor.redact(msgspec.json.encode(case).decode()).text
    return agent, msgspec.json.decode(clean, type=Case)


async def _read_conversation(caller: LocalCaller, run_id: RunId) -> Sequence[SuiteMessage]:
    """Return what was said in the session of a run before it."""
    view = await caller.call(runs.SHOW, runs.ShowRun(run_id))
    request = runs.ListRuns(session_id=view.session_id)
    ids = [each.run_id for each in reversed(await list_items(caller, runs.LIST, request))]
    found: list[SuiteMessage] = []
    for each in ids[: ids.index(run_id)]:
        detail = await caller.call(runs.SHOW, runs.ShowRun(each))
        if detail.message and detail.result is not None and detail.result.text:
            found += [SuiteMessage("user", detail.message), SuiteMessage("assistant", detail.result.text)]
    return found


def make_case(
    events: Sequence[Event], step: int | None = None, name: str = "", checks: tuple[Check, ...] = ()
) -> tuple[str, Case]:
    """Return the agent of a run and a case that repeats the run. Its checks are given, or what the run did.

    With a step, the case begins there: what the run did before is told as history."""
    queued = events[0].data
    if not isinstance(queued, RunQueued) or queued.command is not None:
        raise InvalidState(
            f"{events[0].run_id} carries out a session command. Choose a run that answers a message."
        )
    asked = next((event.data.message for event in events if isinstance(event.data, UserMessage)), None)
    if asked is None:
        raise InvalidState(
            f"{events[0].run_id} has no message of its own: it is a fork. Choose the run that it was forked from."
        )
    calls = tuple(_list_calls(events))
    end = next((event.data for event in events if isinstance(event.data, RunEnd)), None)
    if end is None:
        raise UsageError(f"{events[0].run_id} has not ended. Make a case of it when it has.")
    before = [SuiteMessage(each.role, each.text) for each in queued.before if _is_said(each)]
    message = asked.text
    if step is not None and step > 1:
        done = _describe_steps(events, step)
        before += [SuiteMessage("user", message), SuiteMessage("assistant", done)]
        message = CONTINUE
    case = Case(
        name=name or make_name(asked.text),
        message=message,
        conversation=tuple(before),
        calls=calls,
        source=events[0].run_id,
        tags=tuple(queued.tags),
        checks=checks or _describe(end, calls),
    )
    return queued.agent.name, case


def _describe_steps(events: Sequence[Event], step: int) -> str:
    """Return what a run did before a step, as an assistant would tell it."""
    if not any(isinstance(event.data, StepStart) and event.data.step == step for event in events):
        raise UsageError(f"{events[0].run_id} has no step {step}.")
    earlier: list[Event] = []
    for event in events:
        if isinstance(event.data, StepStart) and event.data.step == step:
            break
        earlier.append(event)
    lines = [
        f"- {each.tool} {msgspec.json.encode(each.arguments).decode()}: {each.result}"
        for each in _list_calls(earlier)
    ]
    return "\n".join(("What I have done so far:", *lines))


def make_name(message: str) -> str:
    """Return a name for a case from the beginning of its message."""
    words = "".join(character if character.isalnum() else " " for character in message.lower()).split()
    return "-".join(words)[:MAX_NAME_CHARACTERS].strip("-") or "case"


def _is_said(message: Message) -> bool:
    return message.role in ("user", "assistant") and bool(message.text.strip())


def _list_calls(events: Sequence[Event]) -> Sequence[RecordedCall]:
    started: dict[str, ToolCallStart] = {}
    found: list[RecordedCall] = []
    for event in events:
        match event.data:
            case ToolCallStart() as start:
                started[start.call_id] = start
            case ToolCallEnd() | ToolCallError() as ended:
                start: Any = started.get(ended.call_id)
                arguments = decode_arguments("" if start is None else start.arguments)
                is_error = isinstance(ended, ToolCallError)
                if start is not None:
                    found.append(
                        RecordedCall(tool=start.name, result=ended.content, arguments=arguments, is_error=is_error)
                    )
            case _:
                pass
    return found


def _describe(end: RunEnd, calls: Sequence[RecordedCall]) -> tuple[Check, ...]:
    """Return checks that the recorded run passes."""
    tools = dict.fromkeys(each.tool for each in calls)
    return (EndsAs(end.outcome), *(CalledCheck(tool) for tool in tools))


def decode_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call; none if they are not a JSON object."""
    try:
        return _decode(text or "{}")
    except msgspec.DecodeError:
        return {}
