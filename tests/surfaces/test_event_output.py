"""The printed events of a run: text as it arrives, no duplicates, and no control sequences."""

import io

import pytest

from treadle.domain import events as e
from treadle.domain.envelope import Event, Origin, make_draft
from treadle.domain.ids import AgentId, ApprovalId, EventId, RunId, SessionId
from treadle.domain.messages import Text
from treadle.domain.runs import Metrics, Usage
from treadle.operations.transcripts import RunTranscript
from treadle.surfaces.terminal.event_output import TranscriptPrinter
from treadle.surfaces.terminal.text import inert, one_line

ORIGIN = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show_events(out: io.StringIO, *happened: e.EventData) -> str:
    printer, transcript, sequence = TranscriptPrinter(out), RunTranscript(ORIGIN.run_id), 0
    for data in happened:
        made = make_draft(EventId("evt_1"), 0.0, data)
        event = Event(
            event_id=made.event_id,
            timestamp=0.0,
            origin=ORIGIN,
            sequence=sequence + 1,
            type=made.type,
            data=data,
            raw=made.raw,
        )
        sequence += event.durable
        printer.show(event, transcript.apply(event))
    return out.getvalue()


def token(offset: int, text: str, attempt: int = 1, request: int = 6) -> e.Token:
    return e.Token(request, attempt, offset, text)


def reply(text: str) -> e.LlmResponse:
    return e.LlmResponse(step=1, attempt=1, parts=(Text(text),), stop="end_turn", usage=Usage(), duration_ms=1)


END = e.RunEnd("completed", "completed", Metrics())
LONG = "An answer that is not short."


def test_a_terminal_shows_text_as_it_arrives() -> None:
    assert show_events(Terminal(), token(0, LONG), token(len(LONG), " More")) == f"{LONG} More"


def test_a_reply_ends_its_line_once() -> None:
    assert show_events(Terminal(), token(0, LONG), reply(LONG), END) == f"{LONG}\n"
    assert show_events(Terminal(), token(0, f"{LONG}\n"), reply(f"{LONG}\n"), END) == f"{LONG}\n"


def test_text_that_a_late_reader_missed_is_shown_with_the_whole_reply() -> None:
    assert show_events(Terminal(), token(0, LONG[:20]), reply(LONG), END) == f"{LONG}\n"
    assert show_events(Terminal(), token(0, LONG[:20]), token(0, LONG), reply(LONG), END) == f"{LONG}\n"


def test_a_short_reply_is_held_until_it_cannot_be_the_silent_marker() -> None:
    assert show_events(Terminal(), token(0, "NO_"), token(3, "REPLY"), reply("NO_REPLY")) == ""
    silent = e.RunEnd("completed", "silent", Metrics())
    assert show_events(Terminal(), token(0, "NO_REPLY"), reply("NO_REPLY"), silent) == ""
    assert show_events(Terminal(), token(0, "Yes."), reply("Yes."), END) == "Yes.\n"
    assert show_events(io.StringIO(), reply("Yes."), e.ToolCallStart("c", "add", "{}", "k"), reply("No."), END) == (
        "Yes.\nNo.\n"
    )


def test_other_events_do_not_break_the_line() -> None:
    asked, thought = e.RunInterrupted("Interrupted by the user."), e.ThinkingDelta(6, 1, 0, "hm")
    words = (token(0, LONG), thought, asked, token(len(LONG), " More"), reply(f"{LONG} More"))
    assert show_events(Terminal(), *words) == f"{LONG} More\n"
    assert show_events(Terminal(), token(0, "An answer"), asked, token(9, LONG[9:]), reply(LONG)) == f"{LONG}\n"


def test_a_failed_attempt_keeps_its_own_line_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    failed = (e.LlmError(1, 1, "server", "fake broke off.", True), e.LlmRetry(1, 2, 0.0, 1500))
    attempts = (token(0, LONG), *failed, e.AttemptReset(8, 2), token(0, LONG, 2, 8), reply(LONG), END)
    assert show_events(Terminal(), *attempts) == f"{LONG}\n{LONG}\n"
    assert capsys.readouterr().err == "fake broke off. Retrying in 1.5 s.\n"
    show_events(Terminal(), failed[0], e.LlmRetry(1, 2, 1_800_001_500.0, 1_500_000), END)
    assert capsys.readouterr().err == "fake broke off. Retrying in 25 min, at 2027-01-15 08:25:00 UTC.\n"


def test_a_pipe_gets_no_text_of_a_failed_attempt() -> None:
    failed = e.LlmError(1, 1, "server", "fake broke off.", True)
    assert (
        show_events(io.StringIO(), token(0, "Void words, many of them."), failed, reply(LONG), END) == f"{LONG}\n"
    )


def test_calls_are_printed_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    show_events(
        io.StringIO(),
        e.ToolCallStart("c", "add", '{"a":\n2}', "k"),
        e.ToolCallEnd("c", "add", "\x1b[2J5\nmore", 3),
        e.ToolCallError("d", "add", "timeout", "No result within 120 s."),
    )
    assert capsys.readouterr().err == "· add 2\n  add: ␛[2J5 more · 3 ms\n  add timeout: No result within 120 s.\n"


def test_a_line_says_once_what_failed_and_which_secret_was_used(capsys: pytest.CaptureFixture[str]) -> None:
    used = e.SecretUsed("TOKEN", "web_fetch", "c")
    show_events(
        io.StringIO(),
        e.ToolCallError("c", "add", "failed", "It raised: no.", excerpt=(11, 14), exception="ValueError"),
        e.ToolCallError("c", "add", "invalid_arguments", "Not run: `a` must be int.", excerpt=(9, 25)),
        used,
        used,
        e.SecretUsed("TOKEN", "web_fetch", "d"),
    )
    assert capsys.readouterr().err.splitlines() == [
        "  add failed: ValueError: no.",
        "  add invalid arguments: `a` must be int.",
        "  web_fetch uses the secret TOKEN",
        "  web_fetch uses the secret TOKEN",
    ]


def test_a_call_is_shown_with_its_invisible_characters(capsys: pytest.CaptureFixture[str]) -> None:
    show_events(io.StringIO(), e.ToolCallStart("c", "bash", '{"command": "ls\u200b"}', "k"))
    assert capsys.readouterr().err == "· bash ls<U+200B>\n"


def test_a_note_on_a_denial_is_quoted_completely(capsys: pytest.CaptureFixture[str]) -> None:
    asked = e.ApprovalRequested(ApprovalId("apr_1"), "c", "bash", "{}", "a rule asks")
    show_events(io.StringIO(), asked, e.ApprovalDecided(ApprovalId("apr_1"), "deny", note="no " * 50))
    assert capsys.readouterr().err == f"  denied: “{('no ' * 50).strip()}”\n"


def test_no_control_sequence_reaches_a_terminal() -> None:
    assert (
        show_events(Terminal(), token(0, "\x1b]0;title\x07 and \u202egpj.exe")) == "␛]0;title␇ and <U+202E>gpj.exe"
    )


@pytest.mark.parametrize("code", [*range(0x20), 0x7F, *range(0x80, 0xA0), 0x061C, 0x200F, 0x202E, 0x2066])
def test_control_characters_are_shown_instead_of_obeyed(code: int) -> None:
    kept = chr(code) in "\n\t"
    assert (inert(f"a{chr(code)}b") == f"a{chr(code)}b") == kept


def test_other_text_is_left_alone() -> None:
    assert inert("Grüße, 世界 👩\u200d👧\n\tend") == "Grüße, 世界 👩\u200d👧\n\tend"


def test_a_truncated_line_ends_with_an_ellipsis() -> None:
    assert one_line("a\n b\tc") == "a b c"
    assert one_line("abcdef", 4) == "abc…"
