"""Event data of version 1 is upgraded when it is decoded. An older worker can decode version 2."""

from typing import Any

import msgspec
import pytest

from tests.domain.test_envelope import ORIGIN
from treadle.domain import events as e
from treadle.domain.envelope import VERSION, Event, decode_data, from_json, make_draft, to_json
from treadle.domain.events import VOCABULARY, EventData
from treadle.domain.events.version_1 import ADDED
from treadle.domain.excerpts import take_excerpt
from treadle.domain.ids import ApprovalId
from treadle.domain.quotas import Shortage
from treadle.domain.runs import Metrics, Outcome, Usage

AFTER_AN_ERROR = "Do not make up a result: say that it failed, or try another way."
AFTER_A_DENIAL = "Do not try this call again: go on without it, or say what you need it for."
NO_REVIEWER = "It needs an approval, and nobody can answer: the message came without a terminal or a channel."
TREE = "The tree of runs that this one belongs to may have 7 runs under its root. Do the rest yourself."


def decode_1(data: EventData) -> Any:
    """Return the data as it is read from a journal of version 1."""
    draft = make_draft("evt_1", 1.0, data)
    return decode_data(draft.type, draft.raw, 1)


def call_error(kind: Any, content: str) -> Any:
    return decode_1(e.ToolCallError("c", "post", kind, content))


@pytest.mark.parametrize(
    ("detail", "shortage"),
    [
        (
            "Agent `ada` may call tools 1,000 times in a minute; it has 999 times, and 2 more are wanted. There is "
            "room again on Tuesday, 2023-11-14 22:13 UTC.",
            Shortage("agent/ada", "calls", 1000.0, 999.0, 0.0, 2.0, 1_700_000_030.5),
        ),
        (
            "The access token tok_1 may use 3,000 model tokens in an hour; 920 are used, and the next call may "
            "take 1,500. Calls under way have set the rest aside.",
            Shortage("token/tok_1", "tokens", 3000.0, 920.0, 0.0, 1500.0),
        ),
        (
            "The run may cost 0.5 dollars; it has cost 1.2e-05, and the next call may cost 0.01. Calls under way "
            "have set the rest aside.",
            Shortage("tree/", "cost", 0.5, 1.2e-05, 0.0, 0.01),
        ),
        (
            "Agent `ada` may spend 5 credits, and no price is known of the model to be asked.",
            Shortage("agent/ada", "credits", 5.0, 0.0),
        ),
        ("something that was never written", None),
    ],
)
def test_the_shortage_is_read_from_the_detail_of_a_wait(detail: str, shortage: Shortage | None) -> None:
    assert decode_1(e.RunWaiting("budget", detail, 1_700_000_030.5)).shortage == shortage


def test_waits_name_what_they_wait_for() -> None:
    both = decode_1(e.RunWaiting("approval", "apr_1: post (a rule; of sorts); apr_2: sign (b)"))
    assert both.subjects == ("apr_1", "apr_2")
    assert decode_1(e.RunWaiting("answer", "call_7: Which one?")).subjects == ("call_7",)
    assert decode_1(e.RunWaiting("child", "told to stop: run_1, run_2")).subjects == ("run_1", "run_2")
    assert decode_1(e.RunWaiting("child", "run_1 (ada); c2 waits until another has ended")).subjects == (
        "run_1",
        "c2",
    )
    assert (
        decode_1(e.RunWaiting("breaker", "p/m fails too often and is left alone for 30 s")).breaker_seconds == 30.0
    )


def test_ends_and_recoveries_name_their_cause() -> None:
    reason = "The run and those under it may take 5 steps together, and all are used."
    steps = Shortage("tree/", "steps", 5.0, 5.0, 0.0, 1.0)
    assert decode_1(e.RunEnd("failed", "max_steps", Metrics(), reason=reason)).shortage == steps
    spawn: Any = e.AgentSpawn(
        "c", ORIGIN.run_id, ORIGIN.session_id, "judge", "quality", end=Outcome("failed", "", reason)
    )
    assert decode_1(spawn).end.shortage == steps
    assert decode_1(e.RunRecovered(2, "The worker before died or lost its lease.")).cause == "worker_died"
    assert decode_1(e.RunRecovered(2, "The engine failed: KeyError: 'x'")).cause == "engine_failed"
    assert decode_1(e.BudgetExhausted("tree/run_1", 1.0, 0.5, 0.0)).unpriced
    assert not decode_1(e.BudgetExhausted("tree/run_1", 1.0, 0.5, 0.6)).unpriced


@pytest.mark.parametrize(
    ("kind", "content", "cause", "excerpt"),
    [
        ("failed", f"`post` failed: KeyError: 'x'. {AFTER_AN_ERROR}", "tool_error", "KeyError: 'x'."),
        ("failed", f"exit status 1 {AFTER_AN_ERROR}", None, "exit status 1"),
        ("failed", "`post` failed: KeyError: 'x'.", "raised", "'x'"),
        ("failed", "Nothing was begun: No agent is called `bob`; known: ada", "not_started",
         "No agent is called `bob`; known: ada"),
        ("failed", f"Nothing was begun. {TREE}", "tree_full", None),
        ("invalid_arguments", "`post` was not run: `text` must be str.", None, "`text` must be str."),
        ("denied", f"`post` was not run. {NO_REVIEWER} (the rule says ask) {AFTER_A_DENIAL}", "no_reviewer",
         "the rule says ask"),
        ("denied", f"`post` was not run. Denied. not that {AFTER_A_DENIAL}", "reviewer", "Denied. not that"),
        ("denied", f"`post` was not run. It is not allowed: the rule says deny. {AFTER_A_DENIAL}", "rule",
         "It is not allowed: the rule says deny."),
        ("skipped", "Nobody answered in time. Go on with what you think best, and say what you assumed.", "expired",
         None),
    ],
)  # fmt: skip
def test_failed_calls_name_their_cause(kind: str, content: str, cause: str | None, excerpt: str | None) -> None:
    found = call_error(kind, content)
    assert found.cause == cause
    assert (None if found.excerpt is None else take_excerpt(content, found.excerpt)) == excerpt


def test_failed_calls_name_the_limit_and_the_subject() -> None:
    assert call_error("timeout", f"`post` did not end within 0.5 s and was stopped. {AFTER_AN_ERROR}").limit == 0.5
    assert call_error("failed", f"Nothing was begun. {TREE}").limit == 7.0
    assert call_error("failed", "Nothing was begun: no tool is called `bob`; known tools: ada").subject == "bob"
    private = f"`post` was not run. {NO_REVIEWER} (private place: it reads /home/a/.env (a key)) {AFTER_A_DENIAL}"
    assert call_error("denied", private).concern == "private"


def test_approval_of_a_private_place_still_covers_that_place() -> None:
    reason = "private place: it reads /home/a/.env (a file of keys)"
    found = decode_1(e.ApprovalRequested(ApprovalId("apr_1"), "c", "read_file", "{}", reason))
    assert (found.concern, found.places) == ("private", ("/home/a/.env",))


def test_truncated_results_have_their_full_length() -> None:
    mark = '\n[… 80 of 100 characters are left out here; recall(call_id="c", start=12) reads on from there …]\n'
    found = decode_1(e.ToolCallEnd("c", "post", "a" * 12 + mark + "z" * 8, 1, truncated=True))
    assert found.truncation == e.Truncation(100, 12, 8)
    edited = '[a person had it run with other arguments: {"text":"]\\n"}]\nposted'
    found = decode_1(e.ToolCallEnd("c", "post", edited, 1))
    assert take_excerpt(edited, found.excerpt) == "posted"


def test_recalled_memories_have_their_dates_and_texts() -> None:
    section = (
        "[from memory]\n- (2024-03-01) Ada likes tea\n[from the journal]\n- (undated) a quiet day\n[end of memory]"
    )
    found = decode_1(e.MemoryRecalled((e.Reminder("mem_7", 0.5),), section))
    [reminder], [note] = found.reminders, found.notes
    assert (reminder.memory_id, reminder.score, reminder.created_at) == ("mem_7", 0.5, 1_709_251_200.0)
    assert take_excerpt(section, reminder.excerpt) == "Ada likes tea"
    assert (note.created_at, take_excerpt(section, note.excerpt)) == (None, "a quiet day")


def test_models_and_summaries_name_their_cause() -> None:
    tier = decode_1(e.ModelResolved("p", "m", "custom", "complexity 42 (code: 20): the tier up to 50; alias x"))
    assert (tier.choice, tier.complexity, tier.resolution) == ("tier", 42, "alias x")
    fallback = decode_1(e.ModelResolved("p", "m", "custom", "a fallback"))
    assert (fallback.choice, fallback.resolution) == ("fallback", "")
    reason = "p/m fails too often and is left alone for 7 s"
    assert decode_1(e.LlmFallback(1, "p", "m", "q/n", reason)).breaker_seconds == 7.0
    error = decode_1(e.LlmError(1, 1, "not_found", "down No fallback could take over: no key", False))
    assert error.no_fallback == "no key"
    assert decode_1(e.CompactionFailed("compact", "threshold", "It was interrupted.")).cause == "interrupted"
    assert decode_1(e.CompactionFailed("compact", "threshold", "busy", Usage())).cause == "failed"


def test_stored_bytes_and_versions_do_not_change() -> None:
    draft = make_draft("evt_1", 1.0, e.RunRecovered(2, "The engine failed: KeyError: 'x'"))
    stored = Event(draft.event_id, 1.0, ORIGIN, 1, draft.type, decode_data(draft.type, draft.raw, 1), draft.raw, 1)
    again = from_json(to_json(stored))
    assert (again.version, again.raw, again.data) == (1, draft.raw, stored.data)
    assert to_json(again) == to_json(stored)
    assert make_draft("evt_2", 1.0, stored.data).raw != draft.raw, "the facts are written when it is encoded anew"


def test_data_of_this_version_is_not_upgraded() -> None:
    draft = make_draft("evt_1", 1.0, e.RunRecovered(2, "The engine failed: KeyError: 'x'"))
    assert decode_data(draft.type, draft.raw, VERSION) == draft.data


def test_a_worker_of_version_1_decodes_version_2() -> None:
    """Version 2 only adds optional fields, so the structs of version 1 can decode its bytes."""
    full: tuple[EventData, ...] = (
        e.RunWaiting("quota", "wait", 1.0, ("apr_1",), Shortage("agent/a", "calls", 1, 1, 0, None), 2.0),
        e.ToolCallError(
            "c", "post", "failed", "text", excerpt=(0, 2), cause="raised", exception="KeyError", limit=1
        ),
        e.RunEnd("failed", "max_steps", Metrics(), shortage=Shortage("tree/r", "steps", 1, 1)),
        e.MemoryRecalled((e.Reminder("mem_1", 0.5, 1.0, (0, 3)),), "section"),
        e.HookBlocked("c", "post", "Strict", "text", "after", "failed", (0, 2)),
    )
    for data in full:
        draft = make_draft("evt_1", 1.0, data)
        old = _struct_of_version_1(draft.type)
        decoded = msgspec.json.decode(draft.raw, type=old)
        names = old.__struct_fields__
        assert msgspec.to_builtins(decoded) == {
            name: value for name, value in msgspec.to_builtins(data).items() if name in names
        }


def _struct_of_version_1(type_: str) -> Any:
    data, added = VOCABULARY[type_].data, {*ADDED.get(type_, ()), "excerpt"}
    fields = [
        (each.name, each.type, each.default) if each.default is not msgspec.NODEFAULT else (each.name, each.type)
        for each in msgspec.structs.fields(data)
        if each.name not in added
    ]
    return msgspec.defstruct(data.__name__, fields, omit_defaults=True)


def test_fields_of_version_2_are_optional() -> None:
    for type_, paths in ADDED.items():
        fields = {each.name: each for each in msgspec.structs.fields(VOCABULARY[type_].data)}
        for name in (path for path in paths if "." not in path):
            has_default = fields[name].default is not msgspec.NODEFAULT
            assert has_default or fields[name].default_factory is not msgspec.NODEFAULT, f"{type_}.{name}"
