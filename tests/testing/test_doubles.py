"""The public test doubles work as documented, and fail where they should."""

import asyncio
from typing import Any

import pytest

from tests.testing.harnesses import InMemory, simulated
from treadle.domain.agents import ModelSettings
from treadle.domain.ids import RunId
from treadle.domain.messages import Thinking, user
from treadle.ports.journal import Advance
from treadle.ports.model import (
    CallDelta,
    Completed,
    Conversation,
    Delta,
    Failed,
    Model,
    ModelRequest,
    Preamble,
    ReasoningDelta,
    TextDelta,
)
from treadle.testing.conformance.store import OPENING, StoreProcess, make_step, open_in_one_process
from treadle.testing.faults import Crashed, Fault, FaultyJournal, Operation
from treadle.testing.models import FunctionModel, ScriptedFailure, ScriptedModel, ScriptedReply, ask, call, say
from treadle.testing.time import CountingIds, FakeClock, LoopClock


def make_request(*texts: str) -> ModelRequest:
    conversation = Conversation(user(text) for text in texts)
    return ModelRequest("m", Preamble("", ()), conversation, ModelSettings())


async def answer(model: Model, request: ModelRequest | None = None) -> list[Delta | Completed | Failed]:
    events: list[Delta | Completed | Failed] = []
    events.append(await model.reply(request or make_request("hello"), events.append))
    return events


# ── ScriptedModel ──────────────────────────────────────────────────────────────────────────────────


async def test_a_script_is_followed_exactly() -> None:
    with ScriptedModel(say("one two", thinking="hm"), ask(call("look", n=1))) as model:
        events = await answer(model)
        assert events[:3] == [ReasoningDelta("hm"), TextDelta("one"), TextDelta(" two")]
        end = events[-1]
        assert isinstance(end, Completed)
        assert isinstance(end.parts[0], Thinking)
        calls = await answer(model)
        assert calls[0] == CallDelta(0, "look", '{"n":1}')
        assert isinstance(calls[-1], Completed)
        assert calls[-1].stop == "tool_use"


async def test_an_unexpected_request_fails() -> None:
    model = ScriptedModel(say("only this"))
    await answer(model)
    with pytest.raises(AssertionError, match="request 2 is not in the script"):
        await answer(model)


def test_an_unused_step_fails() -> None:
    with pytest.raises(AssertionError, match="1 steps of the script were not used"), ScriptedModel(say("x")):
        pass


def test_an_unused_step_does_not_hide_the_error_before_it() -> None:
    with pytest.raises(ValueError, match="the real one"), ScriptedModel(say("x")):
        raise ValueError("the real one")


async def test_a_step_may_inspect_its_request() -> None:
    def check(request: ModelRequest) -> None:
        assert request.conversation.messages[-1].text == "expected"

    await answer(ScriptedModel(say("ok", check=check)), make_request("expected"))
    with pytest.raises(AssertionError):
        await answer(ScriptedModel(say("ok", check=check)), make_request("something else"))


async def test_requests_are_kept_as_they_were() -> None:
    model = ScriptedModel(say("ok"))
    request = make_request("before")
    await answer(model, request)
    request.conversation.messages.append(user("after"))
    assert [message.text for message in model.requests[0].conversation.messages] == ["before"]


async def test_a_scripted_failure_comes_after_its_text() -> None:
    events = await answer(ScriptedModel(ScriptedFailure(text="half a", retry_after=2.0)))
    assert events[:2] == [TextDelta("half"), TextDelta(" a")]
    assert isinstance(events[-1], Failed)
    assert events[-1].retry_after == 2.0


async def test_a_function_answers_each_request() -> None:
    def echo(request: ModelRequest) -> ScriptedReply:
        return say(request.conversation.messages[-1].text.upper())

    model = FunctionModel(echo)
    assert (await answer(model, make_request("hello")))[0] == TextDelta("HELLO")
    assert (await answer(model, make_request("again")))[0] == TextDelta("AGAIN")


# ── Time and names ─────────────────────────────────────────────────────────────────────────────────


def test_a_fake_clock_stands_still_until_moved() -> None:
    clock = FakeClock(1000.0)
    assert (clock.now(), clock.now(), clock.monotonic()) == (1000.0, 1000.0, 0.0)
    clock.pass_time(5)
    assert (clock.now(), clock.monotonic()) == (1005.0, 5.0)
    clock.jump(-3600)
    assert (clock.now(), clock.monotonic()) == (1005.0 - 3600, 5.0)


def test_a_loop_clock_follows_the_time_of_its_loop() -> None:
    async def pass_an_hour() -> tuple[float, float]:
        clock = LoopClock(1000.0)
        await asyncio.sleep(3600)
        return clock.now(), clock.monotonic()

    assert simulated(pass_an_hour()) == (4600.0, 3600.0)


def test_ids_count_up_in_the_form_of_a_uuid7() -> None:
    ids, again = CountingIds(), CountingIds()
    first, second = ids("run"), ids("evt")
    assert (first, second) == (again("run"), again("evt"))
    assert first.startswith("run_")
    assert second.startswith("evt_")
    assert first[4:] < second[4:]
    digits = first[4:]
    assert len(digits) == 32
    assert (digits[12], digits[16]) == ("7", "8")
    int(digits, 16)


# ── FaultyJournal ──────────────────────────────────────────────────────────────────────────────────


class Faulty:
    """A process on a journal that dies at one operation."""

    def __init__(self, process: StoreProcess, operation: Operation | None, fault: Fault | None) -> None:
        self.process = process
        self.crashes = 0
        self.planned: list[Operation] = []

        def plan(asked: Operation) -> Fault | None:
            self.planned.append(asked)
            return fault if asked == operation else None

        def crashed() -> None:
            self.crashes += 1

        self.journal = FaultyJournal(process.store, plan, crashed, lambda: 0.0)


@pytest.mark.parametrize("fault", ["before", "after", None])
async def test_a_faulty_write_happens_or_not_by_the_kind_of_fault(fault: Fault | None) -> None:
    async with open_in_one_process(InMemory()) as process:
        claim = await process.claimed()
        faulty = Faulty(process, "advance", fault)
        advance = Advance(claim.origin.run_id, claim.epoch, 2, (process.draft(make_step(1)),))
        if fault is None:
            assert (await faulty.journal.advance(advance)).accepted
        else:
            with pytest.raises(Crashed):
                await faulty.journal.advance(advance)
        written, crashes = await process.types(claim.origin.run_id), faulty.crashes
    assert written == (OPENING if fault == "before" else [*OPENING, "step_start"])
    assert crashes == (0 if fault is None else 1)


async def test_a_crashed_process_stays_crashed() -> None:
    async with open_in_one_process(InMemory()) as process:
        run_id = await process.submit()
        faulty = Faulty(process, "claim", "after")
        with pytest.raises(Crashed):
            await faulty.journal.claim(run_id, "worker")
        attempts: tuple[Any, ...] = (
            faulty.journal.read(run_id),
            faulty.journal.renew("worker"),
            faulty.journal.runnable(),
            faulty.journal.claim(run_id, "worker"),
            faulty.journal.submit(process.origin(), process.opening()),
            faulty.journal.deliver(run_id, process.draft(make_step(1)), "k"),
        )
        for attempt in attempts:
            with pytest.raises(Crashed):
                await attempt
        assert faulty.crashes == 1
        assert faulty.planned == ["claim"]
        assert await process.types(run_id) == OPENING
        assert len(await process.store.find()) == 1


def test_waiting_callers_fail_when_the_process_crashes() -> None:
    async def run() -> None:
        async with open_in_one_process(InMemory()) as process:
            run_id = await process.submit()
            faulty = Faulty(process, None, None)
            faulty.journal.stall(60)
            waiting = asyncio.ensure_future(faulty.journal.claim(run_id, "worker"))
            await asyncio.sleep(1)
            faulty.journal.die()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            assert (await process.store.record(run_id)).status == "pending"

    simulated(run())


def test_a_stalled_process_does_nothing() -> None:
    async def run() -> float:
        async with open_in_one_process(InMemory()) as process:
            run_id = await process.submit()
            faulty = Faulty(process, None, None)
            faulty.journal.stall(25)
            await faulty.journal.claim(RunId(run_id), "worker")
            return asyncio.get_running_loop().time()

    assert simulated(run()) == 25


def test_a_crash_is_not_an_exception_that_code_handles() -> None:
    assert not issubclass(Crashed, Exception)
