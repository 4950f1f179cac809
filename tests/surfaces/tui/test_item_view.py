"""Items of the transcript as lines."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from rich.style import Style

from tests.surfaces.tui.stage import place
from treadle.domain.ids import RunId
from treadle.domain.transcript import (
    AnswerItem,
    CallItem,
    ChildItem,
    Item,
    ItemAdded,
    ItemChanged,
    LiveReplaced,
    NoteItem,
    RunTotals,
    TextAppended,
)
from treadle.surfaces.markdown.themes import find_palette
from treadle.surfaces.markdown.wrapping import hard_wrap, wrap
from treadle.surfaces.tui.chat_state import SessionTotals
from treadle.surfaces.tui.item_view import render_item
from treadle.surfaces.tui.scrollback import is_printed
from treadle.surfaces.tui.session_pages import EarlierRun
from treadle.surfaces.tui.transcript import Report, SessionTranscript, ShownItem

RUN = RunId("run_1")


def make_call(name: str = "bash", arguments: str = "{}", **facts: Any) -> CallItem:
    return CallItem(call_id="c", name=name, arguments=arguments, **{**place(), **facts})


def show(item: Item | ShownItem, *, details: bool) -> list[str]:
    shown = item if isinstance(item, ShownItem) else ShownItem(item)
    lines = render_item(shown, 80, find_palette("plain"), details=details, thinking=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def test_a_long_output_shows_its_beginning_and_its_end() -> None:
    result = "\n".join(f"line {number}" for number in range(1, 5001))
    item = make_call(arguments='{"command": "seq"}', state="done", result=result)
    lines = [line.strip() for line in show(item, details=True)]
    assert "line 1" in lines
    assert lines[-1] == "line 5000"
    assert any("4600 lines left out · /output shows all" in line for line in lines)
    assert len(lines) < 420


def test_a_line_without_an_end_is_limited_too() -> None:
    item = make_call(state="done", result="x" * 400_000 + "END")
    lines = show(item, details=True)
    assert len(lines) < 900
    assert lines[-1].endswith("END")


def test_a_note_with_details_opens_as_a_call_does() -> None:
    details = "(2026-03-01) one\n(2026-03-02) \x1b[2Jtwo"
    item = ShownItem(NoteItem(topic="memory_recalled", text="recalled 2 notes", details=details, **place()))
    assert show(item, details=False) == ["  ▸ recalled 2 notes"]
    opened = ["  ▾ recalled 2 notes", "    (2026-03-01) one", "    (2026-03-02) ␛[2Jtwo"]
    assert show(item, details=True) == opened
    item.expanded = True
    assert show(item, details=False) == opened


@given(st.lists(st.text("ab \n漢e\u0301\u200d👩\ufe0f🙂", max_size=25), max_size=4), st.integers(1, 12))
def test_wrapped_text_is_the_whole_text_in_lines_that_fit(texts: list[str], width: int) -> None:
    lines = hard_wrap([(text, Style()) for text in texts], width)
    shown = ["".join(segment.text for segment in line) for line in lines]
    assert "".join(shown) == "".join(texts).replace("\n", "")
    plain = [line for line in shown if "\u200d" not in line and "\ufe0f" not in line]
    assert all(cell_len(line) <= max(width, 2) for line in plain)
    assert wrap([(text, Style()) for text in texts], width)


def test_a_failed_command_shows_the_end_of_its_output_and_its_exit_code() -> None:
    result = "\n".join([*map(str, range(100)), "error: it broke"])
    item = make_call(arguments='{"command": "make"}', state="failed", result=result, exit_code=2)
    head, *preview = show(item, details=False)
    assert "exit code 2" in head
    assert [line.strip() for line in preview] == ["98", "99", "error: it broke"]
    refused = make_call("read_file", state="failed", result="No such file.\nTry another.")
    assert show(refused, details=False)[1:] == ["    No such file."]


def test_the_answer_of_a_command_keeps_its_lines() -> None:
    item = AnswerItem(text="runs   2\ntokens 1200 *in*", source="command", **place())
    assert show(item, details=False) == ["", "  runs   2", "  tokens 1200 *in*"]


def test_a_call_that_waits_stays_in_the_scrollback() -> None:
    assert is_printed(ShownItem(make_call(state="approval")))
    assert is_printed(ShownItem(AnswerItem(text="x", **place())))
    assert not is_printed(ShownItem(make_call(state="writing")))
    assert not is_printed(ShownItem(AnswerItem(text="x", state="writing", **place())))
    assert not is_printed(ShownItem(Report("welcome")))


def make_child(key: str, call_id: str = "c", **facts: Any) -> ChildItem:
    item = ChildItem(child_run_id=RunId(f"run_{key}"), agent="reviewer", call_id=call_id, role="spawn", **place())
    return replace(item, key=key, **facts)


def test_child_runs_are_lines_below_their_call_each_below_the_one_that_started_it() -> None:
    transcript = SessionTranscript()
    first, second = make_child("2.0"), make_child("10.0")
    below = make_child("2.0.7", "of another run", depth=2)
    transcript.apply(RUN, [ItemAdded(item) for item in (make_call("agent_spawn"), first, second, below)])
    ended = {"state": "ended", "outcome": "completed"}
    transcript.apply(
        RUN, [ItemChanged(replace(first, steps=1, **ended)), ItemChanged(replace(below, steps=2, **ended))]
    )
    [shown] = transcript.items
    assert show(shown, details=False)[1:] == [
        "    └ ✓ reviewer completed · 1 step",
        "      └ ✓ reviewer completed · 2 steps",
        "    └ ● reviewer running",
    ]


def test_what_an_attempt_wrote_goes_when_it_is_replaced() -> None:
    transcript = SessionTranscript()
    draft = AnswerItem(text="dra", state="writing", **place(4, 1))
    transcript.apply(RUN, [ItemAdded(draft), TextAppended("4.1", "text", 3, "ft")])
    assert [shown.item for shown in transcript.items] == [replace(draft, text="draft")]
    transcript.apply(RUN, [LiveReplaced(()), ItemAdded(AnswerItem(text="final", **place(6, 1)))])
    assert [shown.item.text for shown in transcript.items if isinstance(shown.item, AnswerItem)] == ["final"]


def test_live_output_is_shown_by_its_end() -> None:
    call = make_call(state="running", output="".join(f"line {number}\n" for number in range(20_000)))
    assert show(call, details=False)[-1].strip() == "line 19999"


def test_the_share_of_the_window_survives_commands_but_not_a_reset() -> None:
    asked = EarlierRun(RunId("run_1"), RunTotals(context_tokens=500, context_window=1000))
    usage, reset = (
        EarlierRun(RunId("run_2"), RunTotals()),
        EarlierRun(RunId("run_3"), RunTotals(has_new_conversation=True)),
    )
    live, opened = SessionTotals(), SessionTotals()
    for run, known in ((asked, 500), (usage, 500), (reset, 0), (asked, 500)):
        live.add(run)
        assert (live.context, live.window) == (known, 1000)
    for run in (usage, reset, asked):  # a session that is opened is read backwards
        opened.add_earlier(run)
    assert opened.context == 0


def test_the_cost_of_a_session_contains_its_child_runs() -> None:
    totals = SessionTotals()
    totals.add(EarlierRun(RunId("run_1"), RunTotals(cost=0.25, tree_cost=1.0)))
    totals.add_earlier(EarlierRun(RunId("run_2"), RunTotals(tree_unpriced_calls=1)))
    assert (totals.cost, totals.unpriced) == (1.0, True)
