"""The one transcript: a snapshot and the changes after it equal the fold of everything, whenever a reader joins."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.core.run_scenario import ORIGIN
from tests.core.test_fold import TURNS, make_history
from tests.corpus.databases import load_sqlite
from treadle.bootstrap.offline_service import open_service_readonly
from treadle.core.transcript.copy import TranscriptCopy
from treadle.core.transcript.fold import RunTranscript
from treadle.domain import events as e
from treadle.domain.envelope import Event, Origin, make_draft
from treadle.domain.events import EventData
from treadle.domain.ids import ApprovalId, EventId
from treadle.domain.messages import Text, Thinking, ToolUse, user
from treadle.domain.runs import Metrics, Usage
from treadle.domain.transcript import (
    AnswerItem,
    ApprovalItem,
    CallItem,
    Change,
    ChildItem,
    EndItem,
    NoteItem,
    PlanItem,
    QuestionItem,
)
from treadle.stores.sqlite.connection import open_database

APPROVAL = ApprovalId("apr_1")


def at_live(data: EventData, sequence: int, origin: Origin = ORIGIN) -> Event:
    made = make_draft(EventId("evt_live"), 1_000.0, data)
    return Event(
        event_id=made.event_id,
        timestamp=made.timestamp,
        origin=origin,
        sequence=sequence,
        type=made.type,
        data=made.data,
        raw=made.raw,
    )


def cut(text: str, chance: Random) -> Iterator[tuple[int, str]]:
    """Yield a text in pieces with their offsets."""
    offset = 0
    while offset < len(text):
        length = chance.randint(1, 12)
        yield offset, text[offset : offset + length]
        offset += length


def write_reply(reply: e.LlmResponse, request: int, chance: Random, origin: Origin) -> Iterator[Event]:
    """Yield the live events of a reply, as its provider would have streamed it."""
    index = 0
    for part in reply.parts:
        match part:
            case Thinking(text=text):
                for offset, piece in cut(text, chance):
                    yield at_live(e.ThinkingDelta(request, reply.attempt, offset, piece), request, origin)
            case Text(text=text):
                for offset, piece in cut(text, chance):
                    yield at_live(e.Token(request, reply.attempt, offset, piece), request, origin)
            case ToolUse(name=name, arguments=arguments):
                for offset, piece in cut(arguments, chance):
                    yield at_live(
                        e.ToolCallDelta(
                            request=request,
                            attempt=reply.attempt,
                            index=index,
                            offset=offset,
                            name=name,
                            arguments=piece,
                        ),
                        request,
                        origin,
                    )
                index += 1
            case _:
                pass


def add_live_events(history: list[Event], chance: Random) -> list[Event]:
    """Return a journal with the live events that a reader in the same process would have seen."""
    events: list[Event] = []
    request = 0
    for event in history:
        if isinstance(event.data, e.LlmRequest):
            request = event.sequence
        elif isinstance(event.data, e.LlmResponse) and request:
            events += write_reply(event.data, request, chance, event.origin)
        elif isinstance(event.data, e.LlmError) and request and chance.random() < 0.7:
            text = "What a failed attempt had written."
            events += [
                at_live(e.Token(request, event.data.attempt, offset, piece), request, event.origin)
                for offset, piece in cut(text, chance)
            ]
        events.append(event)
        if isinstance(event.data, e.ToolCallStart) and chance.random() < 0.5:
            for offset, piece in cut("line one\nline two\n", chance):
                progress = e.ToolCallProgress(event.sequence, event.data.call_id, offset, piece)
                events.append(at_live(progress, event.sequence, event.origin))
    return events


def list_missed_text(events: list[Event]) -> list[Event]:
    """Return the live events so far as a reader that joins now gets them: each text from its beginning."""
    texts: dict[tuple[object, ...], tuple[Event, str]] = {}
    for event in events:
        match event.data:
            case e.Token(request=request, text=text):
                key = ("text", request)
            case e.ThinkingDelta(request=request, text=text):
                key = ("thinking", request)
            case e.ToolCallDelta(request=request, index=index, arguments=text):
                key = ("call", request, index)
            case e.ToolCallProgress(call_id=call_id, text=text):
                key = ("output", call_id)
            case _:
                if isinstance(event.data, e.LlmResponse | e.LlmError):
                    texts = {known: value for known, value in texts.items() if known[0] == "output"}
                continue
        first, before = texts.get(key, (event, ""))
        texts[key] = (first, before + text)
    missed: list[Event] = []
    for first, text in texts.values():
        field = "arguments" if isinstance(first.data, e.ToolCallDelta) else "text"
        missed.append(msgspec.structs.replace(first, data=msgspec.structs.replace(first.data, **{field: text})))
    return missed


def check_every_join(events: list[Event], chance: Random) -> None:
    whole = RunTranscript(events[0].run_id)
    lost_at, follower, copies = -1, TranscriptCopy(), list[TranscriptCopy]()
    known = 0
    stops = set(range(len(events))) if len(events) < 120 else set(chance.sample(range(len(events)), 60))
    for index, event in enumerate(events):
        changes = roundtrip(whole.apply(event))
        for copy in [*copies, *([] if lost_at >= 0 else [follower])]:
            for change in changes:
                copy.apply(change)
        if lost_at < 0:
            known = whole.sequence
        if index in stops:
            joined = TranscriptCopy()
            for change in roundtrip(whole.list_changes(0)):
                joined.apply(change)
            check_same(joined, whole)
            check_late_fold(events[: index + 1], whole)
            copies = [*copies[-2:], joined]
            if lost_at < 0 and chance.random() < 0.3:
                lost_at = index
            elif lost_at >= 0 and chance.random() < 0.5:
                lost_at = -1
                for change in roundtrip(whole.list_changes(known)):
                    follower.apply(change)
                check_same(follower, whole)
    for copy in copies:
        check_same(copy, whole)


def roundtrip(changes: Any) -> list[Change]:
    """Return changes as a client decodes them."""
    return msgspec.json.decode(msgspec.json.encode(list(changes)), type=list[Change])


def check_same(copy: TranscriptCopy, whole: RunTranscript) -> None:
    assert copy.items == whole.items
    assert copy.totals == whole.totals
    assert len({item.key for item in copy.items}) == len(copy.items)


def check_late_fold(events: list[Event], whole: RunTranscript) -> None:
    """A fold that begins late, with the journal and the text in progress, has the same items."""
    late = RunTranscript(whole.run_id)
    for event in events:
        if event.durable:
            late.apply(event)
    for event in list_missed_text(events):
        late.apply(event)
    assert late.items == whole.items


@given(TURNS, st.randoms(use_true_random=False))
def test_a_snapshot_and_its_changes_equal_the_fold_of_everything(turns: list[Any], chance: Random) -> None:
    check_every_join(add_live_events(make_history(turns), chance), chance)


async def test_recorded_runs_have_the_same_transcript_for_every_reader(tmp_path: Path) -> None:
    url = load_sqlite(tmp_path / "treadle.db")
    open_database(url.removeprefix("sqlite:///")).close()

    async with open_service_readonly(url) as service:
        records = await service.runs(limit=1000)
        runs = [[event async for event in service.read_stored(each.origin.run_id)] for each in records]
    kinds: set[type] = set()
    for number, events in enumerate(runs):
        chance = Random(number)
        check_every_join(add_live_events(events, chance), chance)
        whole = RunTranscript(events[0].run_id)
        for event in events:
            whole.apply(event)
        kinds |= {type(item) for item in whole.items}
        if isinstance(events[-1].data, e.RunEnd):
            check_totals(whole, events[-1].data.metrics)
            assert isinstance(whole.items[-1], EndItem)
            assert not any(isinstance(item, CallItem) and not item.is_final for item in whole.items)
            assert not any(isinstance(item, ApprovalItem) and item.state == "pending" for item in whole.items)
    assert kinds >= {ApprovalItem, QuestionItem, ChildItem, NoteItem, EndItem, AnswerItem, CallItem}


def check_totals(whole: RunTranscript, metrics: Metrics) -> None:
    """The running totals end at what the run records."""
    totals = whole.totals
    assert (totals.steps, totals.input_tokens, totals.output_tokens) == (
        metrics.steps,
        metrics.input_tokens,
        metrics.output_tokens,
    )
    assert totals.tool_calls == metrics.actions
    assert abs((totals.cost or 0.0) - metrics.cost) < 1e-9
    assert totals.unpriced_calls == metrics.unpriced_calls


# ── Single facts ──


def fold(*data: EventData, at: float = 1_000.0) -> RunTranscript:
    """Return the transcript of events that are a second apart."""
    transcript = RunTranscript(ORIGIN.run_id)
    for sequence, each in enumerate(data, start=1):
        made = make_draft(EventId(f"evt_{sequence}"), at + sequence, each)
        transcript.apply(
            Event(
                event_id=made.event_id,
                timestamp=made.timestamp,
                origin=ORIGIN,
                sequence=sequence,
                type=made.type,
                data=made.data,
                raw=made.raw,
            )
        )
    return transcript


REQUEST = e.LlmRequest(step=1, attempt=1, provider="acme", model="big", messages=1)


def reply(*parts: Any, cost: float | None = 0.25) -> e.LlmResponse:
    return e.LlmResponse(
        step=1, attempt=1, parts=parts, stop="end_turn", usage=Usage(100, 10), duration_ms=5, cost=cost
    )


def test_a_decision_changes_the_approval_and_the_call() -> None:
    asked = (
        e.UserMessage(user("go")),
        REQUEST,
        reply(ToolUse("c1", "bash", "{}")),
        e.ApprovalRequested(APPROVAL, "c1", "bash", "{}", "a rule asks"),
    )
    waiting = fold(*asked, e.RunWaiting("approval", "bash"))
    assert [item.state for item in waiting.items if isinstance(item, CallItem | ApprovalItem)] == [
        "approval",
        "pending",
    ]
    decided = fold(
        *asked, e.RunWaiting("approval", "bash"), e.ApprovalDecided(APPROVAL, "approve", '{"a":1}', by="ann")
    )
    call, approval = (item for item in decided.items if isinstance(item, CallItem | ApprovalItem))
    assert isinstance(call, CallItem)
    assert isinstance(approval, ApprovalItem)
    assert (call.state, call.arguments, call.edited) == ("pending", '{"a":1}', True)
    assert (approval.state, approval.by) == ("approved", "ann")


def test_the_time_of_a_run_does_not_count_its_waits() -> None:
    asked = (
        e.UserMessage(user("go")),
        e.RunStart(()),
        REQUEST,
        reply(Text("ok")),
        e.RunWaiting("approval", "bash"),
    )
    assert fold(*asked).totals.elapsed_ms(2_000_000.0) == 3_000
    assert fold(*asked, e.StepStart(2)).totals.elapsed_ms(1_008.0) == 5_000


def test_retries_of_one_call_are_one_note() -> None:
    error = e.LlmError(1, 1, "overloaded", "acme is overloaded (503).", True)
    retry = e.LlmRetry(1, 1, 1_010.0, 2_000)
    items = fold(
        e.UserMessage(user("go")), REQUEST, error, retry, REQUEST, error, retry, REQUEST, reply(Text("hi"))
    ).items
    [note] = [item for item in items if isinstance(item, NoteItem)]
    assert (note.count, note.wake_at) == (2, None)
    assert note.text == "acme is overloaded (503). Retrying in 2.0 s."


def list_notes(*data: EventData) -> list[tuple[str, str]]:
    return [(item.level, item.text) for item in fold(*data).items if isinstance(item, NoteItem)]


def test_the_note_about_a_wait_is_in_the_past_once_it_is_over() -> None:
    """Nothing says that a run can be resumed after it was cancelled."""
    cancelled = e.RunEnd("failed", "cancelled", Metrics())
    interrupted = e.RunWaiting("interrupted", "")
    assert list_notes(interrupted) == [("warning", "Interrupted. The next message resumes the run.")]
    for following in (cancelled, e.StepStart(1)):
        assert list_notes(interrupted, following) == [("info", "Interrupted.")]
    quota = e.RunWaiting("quota", "ann has no credits")
    assert list_notes(quota) == [("info", "waiting: ann has no credits")]
    assert list_notes(quota, interrupted, cancelled) == [
        ("info", "waited: ann has no credits"),
        ("info", "Interrupted."),
    ]


def test_a_summary_is_one_note() -> None:
    begun = e.CompactionStarted("compact", "command", 0, 6, "acme", "big")
    made = e.ContextCompacted("compact", "command", 0, 6, (), "All of it.", 900, 100)
    failed = e.CompactionFailed("compact", "command", reason="It was interrupted.", cause="interrupted")
    assert list_notes(begun) == [("info", "6 messages are being summed up")]
    assert list_notes(begun, made) == [("info", "summed up: about 900 tokens before, 100 now")]
    [(level, text)] = list_notes(begun, failed)
    assert (level, text) == ("warning", "no summary could be made, and nothing is lost: It was interrupted.")
    assert list_notes(begun, begun, made, begun, made) == 2 * [
        ("info", "summed up: about 900 tokens before, 100 now")
    ]


def test_the_failure_that_ends_a_run_is_shown_once() -> None:
    error = e.LlmError(1, 1, "overloaded", "acme is overloaded (503).", True)
    end = e.RunEnd("failed", "model_error", Metrics(), reason="acme is overloaded (503). It was tried 2 times.")
    assert list_notes(REQUEST, error) == [("warning", "acme is overloaded (503).")]
    assert list_notes(REQUEST, error, end) == [("detail", "acme is overloaded (503).")]


def test_a_price_that_is_not_known_stays_unknown() -> None:
    unknown = fold(REQUEST, reply(Text("hi"), cost=None)).totals
    assert (unknown.cost, unknown.unpriced_calls, unknown.tree_cost) == (None, 1, None)
    assert fold(REQUEST, reply(Text("hi"))).totals.cost == 0.25


def test_the_cost_of_child_runs_is_part_of_the_tree() -> None:
    spawn = e.AgentSpawn("c1", ORIGIN.run_id, ORIGIN.session_id, "helper", "spawn")
    own = Metrics(model_calls=1, cost=0.5)
    end = e.AgentEnd(
        call_id="c1",
        run_id=ORIGIN.run_id,
        agent="helper",
        status="completed",
        outcome="completed",
        text="done",
        reason="",
        metrics=own,
    )
    deep = msgspec.structs.replace(end, tree_metrics=Metrics(model_calls=2, cost=0.75))
    before = (REQUEST, reply(ToolUse("c1", "agent_spawn", "{}")), spawn)
    assert fold(*before, end).totals.tree_cost == 0.75
    totals = fold(*before, deep).totals
    assert (totals.cost, totals.tree_cost) == (0.25, 1.0)


def test_text_that_may_be_silence_is_not_shown_before_it_is_certain() -> None:
    transcript = fold(e.UserMessage(user("go")), REQUEST)
    assert not transcript.apply(at_live(e.Token(2, 1, 0, "NO_"), 2)) or not transcript.live_items
    transcript.apply(at_live(e.Token(2, 1, 3, "body knows"), 2))
    [item] = transcript.live_items
    assert isinstance(item, AnswerItem)
    assert item.text == "NO_body knows"


def test_text_after_a_gap_waits_for_its_beginning() -> None:
    transcript = fold(e.UserMessage(user("go")), REQUEST)
    transcript.apply(at_live(e.Token(2, 1, 5, "world"), 2))
    assert transcript.live_items == []
    transcript.apply(at_live(e.Token(2, 1, 0, "hello world"), 2))
    assert [item.text for item in transcript.live_items if isinstance(item, AnswerItem)] == ["hello world"]


def test_a_plan_is_an_item() -> None:
    arguments = '{"entries":[{"content":"look","status":"completed"},{"content":"act"}]}'
    transcript = fold(
        REQUEST,
        reply(ToolUse("c1", "update_plan", arguments)),
        e.ToolCallStart("c1", "update_plan", arguments, "run_1:c1"),
        e.ToolCallEnd("c1", "update_plan", "shown", 1),
    )
    [plan] = [item for item in transcript.items if isinstance(item, PlanItem)]
    assert [(step.text, step.status) for step in plan.steps] == [("look", "completed"), ("act", "pending")]


def test_the_changes_that_the_dashboard_applies_in_its_tests_are_current() -> None:
    from tests.core.transcript_cases import RECORD, make_record

    assert RECORD.read_bytes() == make_record(), "record them: python -m tests.core.transcript_cases"
