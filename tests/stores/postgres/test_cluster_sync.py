"""Processes that follow a run of another process get its durable and live events in order, with no gaps."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest
from msgspec import Raw

from tests.patience import HANG_SECONDS, until
from tests.stores.postgres.servers import CUT, tell
from treadle.domain.envelope import Event, Origin, to_json
from treadle.domain.events import LlmRequest, LlmResponse, StepStart, Token, ToolCallDelta
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.messages import Text
from treadle.domain.models import Usage
from treadle.engine import cluster_sync
from treadle.engine.cluster_sync import ClusterSync
from treadle.engine.event_hub import EventHub
from treadle.engine.live_relay import RelayMessage
from treadle.engine.text_blocks import LiveDelta, LiveOutput, TextKey, WrittenReply, text_key
from treadle.operations.run_stream import StreamReader, follow_run
from treadle.ports.journal import Claim
from treadle.ports.notifications import Changed
from treadle.stores.postgres import notifications as line
from treadle.stores.postgres.database import open_database
from treadle.stores.postgres.journal import PostgresJournal
from treadle.stores.postgres.notifications import PostgresNotifications
from treadle.stores.postgres.writer import PostgresWriter
from treadle.testing.conformance.store import Recorder, StoreProcess
from treadle.testing.time import CountingIds, FakeClock

CLOCK, IDS = FakeClock(), CountingIds()


@dataclass
class Side:
    """One of the processes."""

    process: StoreProcess
    journal: PostgresJournal
    hub: EventHub
    line: PostgresNotifications
    others: ClusterSync

    def follow(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Sequence[Event], None]:
        return follow_run(StreamReader(run_id, after), self.hub, self.journal, self.journal)


@asynccontextmanager
async def open_side(url: str, name: str) -> AsyncGenerator[Side, None]:
    database = await open_database(url)
    hub = EventHub(CLOCK, IDS, lambda run_id, at: None)
    writer = PostgresWriter(database, hub.on_lost, CLOCK.now)
    journal = PostgresJournal(database, writer, hub, CLOCK)
    listening = PostgresNotifications(database, writer.name)
    others = ClusterSync(hub, journal, listening)
    await others.start()
    try:
        async with asyncio.timeout(HANG_SECONDS):
            yield Side(StoreProcess(journal, Recorder(), CLOCK, IDS, name), journal, hub, listening, others)
    finally:
        await others.close()
        await journal.close()


@asynccontextmanager
async def open_two_sides(url: str) -> AsyncGenerator[tuple[Side, Side], None]:
    async with open_side(url, "here") as here, open_side(url, "there") as there:
        yield here, there


class LiveText:
    """Text that a worker has said so far."""

    def __init__(self, origin: Origin, request: int, text: str) -> None:
        self.origin = origin
        self.said = Token(request, 1, 0, text)

    def make_live_events(self) -> list[LiveDelta]:
        return [self.said]


class Written(WrittenReply):
    """A reply that a worker is writing."""

    def __init__(self, origin: Origin, request: int) -> None:
        super().__init__(request, 1)
        self.origin = origin


async def request_model(there: Side, claim: Claim) -> int:
    """Append a request to a run that the other process owns, and return its sequence."""
    request = LlmRequest(step=1, attempt=1, provider="scripted", model="x", messages=1, tools_offered=True)
    return (await there.process.advance(claim, 2, intents=[request])).sequence


def reply(text: str) -> LlmResponse:
    return LlmResponse(step=1, attempt=1, parts=(Text(text),), stop="end_turn", usage=Usage(), duration_ms=1)


async def wait_for_reader(there: Side, run_id: RunId) -> None:
    while not there.hub.has_readers(run_id):  # noqa: ASYNC110 -- no event reports that it was received
        await asyncio.sleep(0.005)


def set_owner_of_claim(there: Side, claim: Claim) -> None:
    there.hub.set_owner(claim.origin.run_id, lambda: None)


async def texts_until(events: AsyncGenerator[Sequence[Event], None], whole: str) -> None:
    """Read on until the tokens say this, each character once."""
    said = ""
    async for batch in events:
        for event in batch:
            if isinstance(event.data, Token):
                assert event.data.offset == len(said)
                said += event.data.text
        assert whole.startswith(said)
        if said == whole:
            return


async def test_a_reader_sees_everything_that_another_process_commits(url: str) -> None:
    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id = claim.origin.run_id

        async def work() -> None:
            seen = 2
            for number in range(1, 41):
                seen = (await there.process.advance(claim, seen, facts=[StepStart(number)])).sequence
            await there.process.end(claim, seen)

        working = asyncio.create_task(work())
        seen = [event async for batch in here.follow(run_id) for event in batch]
        await working
        assert [event.sequence for event in seen] == list(range(1, 44))
        assert seen[-1].type == "run_end"


async def test_many_readers_see_events_of_both_processes_without_gaps(url: str) -> None:
    """The run executes here, and its messages come from the other process: with no gaps or duplicates."""

    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id = claim.origin.run_id

        async def read(at: Side) -> list[int]:
            return [event.sequence async for batch in at.follow(run_id) for event in batch if event.durable]

        async def work() -> None:
            seen = 2
            for number in range(1, 21):
                seen = (await there.process.advance(claim, seen, facts=[StepStart(number)])).sequence
                await here.process.steer(run_id, f"message {number}")
            while not (await there.process.end(claim, seen)).accepted:
                seen = (await there.journal.record(run_id)).sequence

        readers = [asyncio.create_task(read(at)) for at in (here, there, here, there)]
        await work()
        for numbers in await asyncio.gather(*readers):
            assert numbers == list(range(1, 44))


async def test_a_caller_that_waits_for_an_end_is_notified(url: str) -> None:
    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        end = here.hub.await_end(claim.origin.run_id)
        await there.process.end(claim, 2)
        origin, told = await end
        assert (origin, told.outcome) == (claim.origin, "completed")


async def test_the_owner_is_notified_of_a_delivery_and_everyone_of_commits(url: str) -> None:
    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        heard = asyncio.Event()
        there.hub.set_owner(claim.origin.run_id, heard.set)
        observed: list[object] = []
        there.hub.observers.append(lambda origin, first, drafts: observed.append(drafts))
        with there.hub.watch_commits() as news:
            await here.process.steer(claim.origin.run_id)
            await heard.wait()
            await news.wait()
        assert not observed, "observers hear of what is committed by their own process"


async def test_missed_notifications_are_caught_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No notification arrives: the processes poll."""
    monkeypatch.setattr(cluster_sync, "POLL_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(ClusterSync, "on_changed", lambda self, runs: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] -- drop notifications

    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id = claim.origin.run_id
        heard = asyncio.Event()
        there.hub.set_owner(run_id, heard.set)
        end = here.hub.await_end(run_id)
        reading = asyncio.create_task(_sequences(here, run_id))
        await here.process.steer(run_id)
        await heard.wait()
        await there.process.end(claim, 3)
        assert (await end)[1].outcome == "completed"
        assert await reading == [1, 2, 3, 4]


async def test_late_duplicate_or_unordered_notifications_change_nothing(url: str) -> None:
    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id = claim.origin.run_id
        reading = asyncio.create_task(_sequences(here, run_id))
        seen = 2
        for number in range(1, 11):
            seen = (await there.process.advance(claim, seen, facts=[StepStart(number)])).sequence
            here.others.on_changed([Changed(run_id, number), Changed(run_id, seen), Changed(run_id, 1)])
        await there.process.end(claim, seen)
        assert await reading == list(range(1, 14))


async def test_a_notification_about_missing_events_hides_no_later_event(url: str) -> None:
    """Who says so may be mistaken: what comes under that number later is shown all the same."""

    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id = claim.origin.run_id
        reading = asyncio.create_task(_sequences(here, run_id))
        seen = (await there.process.advance(claim, 2, facts=[StepStart(1)])).sequence
        here.others.on_changed([Changed(run_id, 1000)])
        said = here.hub.make_event(claim.origin, 999, Token(999, 1, 0, "x"))
        here.others.on_message(msgspec.json.encode(RelayMessage(live=(Raw(to_json(said)),))))
        for _ in range(5):  # as many reads as it takes to find that nothing is there
            await here.journal.read(run_id)
        seen = (await there.process.advance(claim, seen, facts=[StepStart(2)])).sequence
        await there.process.end(claim, seen)
        assert await reading == [1, 2, 3, 4, 5]


async def test_a_notification_connection_that_is_cut_while_in_use_is_restored_each_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "FIRST_BACKOFF_SECONDS", 0.01)
    cut = CUT + "(query LIKE 'LISTEN%' OR query LIKE 'SELECT pg_notify%')"

    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id, seen = claim.origin.run_id, 2
        reading = asyncio.create_task(_sequences(here, run_id))

        async def speak() -> None:
            while True:
                await there.line.send([b"{}"])
                await here.line.send([b"{}"])
                await asyncio.sleep(0)

        speaking = asyncio.create_task(speak())
        for number in range(1, 6):
            await tell(url, cut)
            seen = (await there.process.advance(claim, seen, facts=[StepStart(number)])).sequence
        speaking.cancel()
        await there.process.end(claim, seen)
        assert await reading == list(range(1, 9))


async def _sequences(at: Side, run_id: RunId) -> list[int]:
    return [event.sequence async for batch in at.follow(run_id) for event in batch if event.durable]


async def test_a_notification_connection_is_restored_and_no_event_is_missing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "FIRST_BACKOFF_SECONDS", 0.01)

    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id = claim.origin.run_id
        reading = asyncio.create_task(_sequences(here, run_id))
        seen = (await there.process.advance(claim, 2, facts=[StepStart(1)])).sequence
        await tell(url, CUT + "query LIKE 'LISTEN%'")
        seen = (await there.process.advance(claim, seen, facts=[StepStart(2)])).sequence
        await there.process.end(claim, seen)
        assert await reading == [1, 2, 3, 4, 5]


# ── What is being said ─────────────────────────────────────────────────────────────────────────────


async def test_tokens_of_another_process_arrive_and_a_late_reader_gets_the_earlier_text(url: str) -> None:
    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id, origin = claim.origin.run_id, claim.origin
        set_owner_of_claim(there, claim)
        request = await request_model(there, claim)
        speech = LiveText(origin, request, "")
        there.hub.set_live_text(run_id, speech)

        def say(text: str) -> None:
            offset = len(speech.said.text)
            there.hub.show_live(origin, request, Token(request, 1, offset, text))
            speech.said = Token(request, 1, 0, speech.said.text + text)

        say("nobody hears this ")
        first, second = here.follow(run_id), here.follow(run_id)
        async with aclosing(first), aclosing(second):
            reading = asyncio.create_task(texts_until(first, "nobody hears this yet, and this"))
            await wait_for_reader(there, run_id)
            say("yet, ")
            say("and this")
            await reading
            late = asyncio.create_task(texts_until(second, "nobody hears this yet, and this; all"))
            say("; all")
            await late
        there.hub.set_live_text(run_id, None)
        await there.process.advance(claim, request, facts=[reply(speech.said.text)])


async def test_a_late_reader_gets_the_reasoning_the_arguments_and_the_output_from_their_beginning(url: str) -> None:
    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id, origin = claim.origin.run_id, claim.origin
        set_owner_of_claim(there, claim)
        request = await request_model(there, claim)
        reply, output = Written(origin, request), LiveOutput(origin, request, "c0")
        reply.thinking.append("Let me see. ")
        reply.begin_call(0, "bash").append('{"command": ')
        output.append("first line\n")
        there.hub.set_live_text(run_id, reply)
        there.hub.set_live_output(run_id, "c0", output)
        found: dict[TextKey, str] = {}
        async with aclosing(here.follow(run_id)) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event.data, LiveDelta):
                        text = event.data.arguments if isinstance(event.data, ToolCallDelta) else event.data.text
                        known = found.get(text_key(event.data), "")
                        assert event.data.offset == len(known)
                        found[text_key(event.data)] = known + text
                if len(found) == 3:
                    break
        assert sorted(found.values()) == ["Let me see. ", "first line\n", '{"command": ']


async def test_missed_live_text_is_requested_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_sync, "REQUEST_INTERVAL_SECONDS", 0.01)

    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id, origin = claim.origin.run_id, claim.origin
        set_owner_of_claim(there, claim)
        request = await request_model(there, claim)
        speech = LiveText(origin, request, "")
        there.hub.set_live_text(run_id, speech)
        lost = list[bytes]()
        async with aclosing(here.follow(run_id)) as events:
            reading = asyncio.create_task(texts_until(events, "one two three"))
            await wait_for_reader(there, run_id)
            with monkeypatch.context() as deaf:
                deaf.setattr(here.others, "on_message", lost.append)
                there.hub.show_live(origin, request, Token(request, 1, 0, "one "))
                while not lost:  # noqa: ASYNC110 -- no event reports it
                    await asyncio.sleep(0.005)
            speech.said = Token(request, 1, 0, "one two ")
            with monkeypatch.context() as watched:
                told, told_there = asyncio.Event(), there.others.on_message

                def hear(message: bytes) -> None:
                    told_there(message)
                    if msgspec.json.decode(message, type=RelayMessage).lacks:
                        told.set()

                watched.setattr(there.others, "on_message", hear)
                there.hub.show_live(origin, request, Token(request, 1, 4, "two "))
                await told.wait()
            speech.said = Token(request, 1, 0, "one two three")
            there.hub.show_live(origin, request, Token(request, 1, 8, "three"))
            await reading


async def test_text_of_any_length_and_alphabet_arrives(url: str) -> None:
    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id, origin = claim.origin.run_id, claim.origin
        set_owner_of_claim(there, claim)
        request = await request_model(there, claim)
        text = 'ä☃𝄞"\\\n\x00' * 5000
        there.hub.set_live_text(run_id, LiveText(origin, request, text))
        async with aclosing(here.follow(run_id)) as events:
            await texts_until(events, text)


async def test_late_live_events_are_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token may be overtaken by the reply that it is part of: the reply has it."""

    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id, origin = claim.origin.run_id, claim.origin
        set_owner_of_claim(there, claim)
        request = await request_model(there, claim)
        async with aclosing(here.follow(run_id)) as events:
            await anext(events)
            await wait_for_reader(there, run_id)
            replied = (await there.process.advance(claim, request, facts=[reply("all of it")])).sequence
            with monkeypatch.context() as watched:
                heard, told_here = asyncio.Event(), here.others.on_message

                def hear(message: bytes) -> None:
                    told_here(message)
                    heard.set()

                watched.setattr(here.others, "on_message", hear)
                there.hub.show_live(origin, request, Token(request, 1, 0, "all of"))
                there.others.flush()
                await heard.wait()
            await there.process.end(claim, replied)
            rest = [event.type async for batch in events for event in batch]
        assert rest == ["llm_response", "run_end"]
        assert not here.hub.has_live_text(run_id)


async def test_no_live_events_are_sent_when_no_other_process_listens(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_sync, "INTEREST_SECONDS", 0.3)

    async with open_two_sides(url) as (here, there):
        claim = await there.process.claimed()
        run_id, sent = claim.origin.run_id, list[object]()
        set_owner_of_claim(there, claim)
        monkeypatch.setattr(there.others, "send_live", sent.append)
        there.hub.show_live(claim.origin, 2, Token(2, 1, 0, "alone"))
        async with aclosing(here.follow(run_id)) as events:
            await anext(events)
            await wait_for_reader(there, run_id)
        # who says no more that they listen is forgotten
        await until(lambda: not there.hub.has_readers(run_id))
        there.hub.show_live(claim.origin, 2, Token(2, 1, 0, "alone again"))
        assert not sent


@pytest.mark.parametrize(("is_owned", "known", "expected"), [(True, 0, 0), (False, 6, 0), (False, 5, 1)])
async def test_a_reader_that_catches_up_gets_events_in_order(is_owned: bool, known: int, expected: int) -> None:
    """What was committed before something was said, and comes after it, would make a reader forget that."""

    hub = EventHub(CLOCK, IDS, lambda run_id, at: None)
    origin = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"))
    if is_owned:
        hub.set_owner(origin.run_id, lambda: None)
    with hub.subscribe(origin.run_id) as reader:
        hub.show_live(origin, 6, Token(6, 1, 0, "one"))
        hub.publish_committed([hub.make_event(origin, 6, StepStart(1))], known)
        hub.publish_committed([hub.make_event(origin, 6, StepStart(1))], known)
        hub.show_live(origin, 6, Token(6, 1, 3, " two"))
        batch = await reader.take()
    assert batch is not None
    assert [event.type for event in batch] == ["token", *["step_start"] * expected, "token"]
