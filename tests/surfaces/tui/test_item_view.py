"""Items of the transcript as lines."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from treadle.domain.ids import RunId
from treadle.surfaces.markdown.wrapping import hard_wrap, wrap
from treadle.surfaces.tui.chat_state import Totals
from treadle.surfaces.tui.item_view import render_item
from treadle.surfaces.tui.run_facts import RunFacts
from treadle.surfaces.tui.terminal_output import is_printed
from treadle.surfaces.tui.themes import find_palette
from treadle.surfaces.tui.transcript import MAX_LIVE_CHARACTERS, ChildLine, Item, ShownAnswer, ShownCall, ShownNote

RUN = RunId("run_1")


def show(item: Item, *, details: bool) -> list[str]:
    lines = render_item(item, 80, find_palette("plain"), details=details, thinking=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def test_a_long_output_shows_its_beginning_and_its_end() -> None:
    result = "\n".join(f"line {number}" for number in range(1, 5001))
    item = ShownCall(RUN, name="bash", arguments='{"command": "seq"}', state="done", result=result)
    lines = [line.strip() for line in show(item, details=True)]
    assert "line 1" in lines
    assert lines[-1] == "line 5000"
    assert any("4600 lines left out · F6 shows all" in line for line in lines)
    assert len(lines) < 420


def test_a_line_without_an_end_is_limited_too() -> None:
    item = ShownCall(RUN, name="bash", arguments="{}", state="done", result="x" * 400_000 + "END")
    lines = show(item, details=True)
    assert len(lines) < 900
    assert lines[-1].endswith("END")


def test_a_note_with_details_opens_as_a_call_does() -> None:
    item = ShownNote(RUN, text="recalled 2 notes", details="(2026-03-01) one\n(2026-03-02) \x1b[2Jtwo")
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
    item = ShownCall(RUN, name="bash", arguments='{"command": "make"}', state="failed", result=result, exit_code=2)
    head, *preview = show(item, details=False)
    assert "exit code 2" in head
    assert [line.strip() for line in preview] == ["98", "99", "error: it broke"]
    refused = ShownCall(RUN, name="read_file", arguments="{}", state="failed", result="No such file.\nTry another.")
    assert show(refused, details=False)[1:] == ["    No such file."]


def test_the_answer_of_a_command_keeps_its_lines() -> None:
    item = ShownAnswer(RUN, text="runs   2\ntokens 1200 *in*", done=True, source="command")
    assert show(item, details=False) == ["", "  runs   2", "  tokens 1200 *in*"]


def test_a_call_that_waits_stays_in_the_scrollback() -> None:
    assert is_printed(ShownCall(RUN, state="approval"))
    assert is_printed(ShownAnswer(RUN, text="x", done=True))
    assert not is_printed(ShownCall(RUN, state="writing"))
    assert not is_printed(ShownAnswer(RUN, text="x"))
    assert not is_printed(ShownAnswer(None, text="welcome", done=True, source="report"))


def test_a_child_run_is_a_line_with_its_steps() -> None:
    children = [ChildLine(RUN, "reviewer", state="completed", steps=steps, ended=True) for steps in (1, 2)]
    item = ShownCall(RUN, name="agent_spawn", arguments="{}", state="done", children=children)
    assert [line.rsplit(" · ", 1)[-1] for line in show(item, details=False)[1:]] == ["1 step", "2 steps"]


def test_live_output_keeps_its_end_and_omits_known_text() -> None:
    call = ShownCall(RUN, name="bash", arguments="{}", state="running")
    whole = "".join(f"line {number}\n" for number in range(200_000))
    for at in range(0, len(whole), 50_000):
        call.add_output(at, whole[at : at + 50_000])
        call.add_output(at, whole[at : at + 50_000])
    assert whole.endswith(call.output)
    assert MAX_LIVE_CHARACTERS <= len(call.output) <= 2 * MAX_LIVE_CHARACTERS
    assert show(call, details=False)[-1].strip() == "line 199999"


def test_the_share_of_the_window_survives_commands_but_not_a_reset() -> None:
    asked = RunFacts(RunId("run_1"), context=500, window=1000)
    usage, reset = RunFacts(RunId("run_2")), RunFacts(RunId("run_3"), has_new_conversation=True)
    live, opened = Totals(), Totals()
    for facts, known in ((asked, 500), (usage, 500), (reset, 0), (asked, 500)):
        live.add(facts)
        assert (live.context, live.window) == (known, 1000)
    for facts in (usage, reset, asked):  # a session that is opened is read backwards
        opened.add_earlier(facts)
    assert opened.context == 0
