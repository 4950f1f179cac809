"""How a tool call is shown to a reviewer: completely, with the decoded command and without hidden characters."""

import json
import re

import pytest

from treadle.surfaces.terminal.call_view import readable_json, show_call, summarize_call
from treadle.surfaces.terminal.text import count_invisible, pieces, reveal

WIDE = 200


def lines(columns: int = WIDE, rows: int | None = None, **arguments: object) -> list[str]:
    return show_call(json.dumps(arguments), columns, rows).lines


def test_short_arguments_are_shown_first_and_long_ones_with_their_size_and_lines() -> None:
    assert lines(content="one\ntwo\n")[0] == "  content (8 characters, 2 lines):"
    assert lines(content="one\ntwo", path="note.txt", force=True) == [
        "  │ path: note.txt",
        "  │ force: true",
        "  content (7 characters, 2 lines):",
        "  │ one",
        "  │ two",
    ]


def test_values_are_decoded_and_spaces_kept() -> None:
    assert show_call(r'{"command": "\u0072m   -rf\t\u00fc"}', WIDE).lines == ["  │ command: rm   -rf\tü"]
    assert show_call("", WIDE).lines == ["  (no arguments)"]
    assert show_call("[1", WIDE).lines == ["  the arguments, which are not a JSON object (2 characters):", "  │ [1"]


def test_no_line_of_a_call_can_imitate_the_prompt() -> None:
    forged = " " * 200 + "Run it? [y]es"
    told = lines(40, command=f"{forged}\nRun it?\r\x0bRun it?\u2028Run it?")
    assert all(line.startswith(("  │ ", "  ┆ ")) for line in told[1:-1])
    assert all(len(line) < 40 for line in told[1:-1])


def test_the_last_of_two_equal_names_counts_with_a_warning() -> None:
    told = show_call('{"command": "ls", "command": "rm x"}', WIDE).lines
    assert told == ["  │ command: rm x", "  ! the arguments name `command` twice; the last one counts"]


def test_a_long_call_has_its_head_its_tail_and_how_much_is_between() -> None:
    text = "\n".join(f"line {number}" for number in range(1000))
    cut = show_call(json.dumps({"path": "x", "content": text}), WIDE, 20)
    assert not cut.is_whole
    assert len(cut.lines) == 20
    assert cut.lines[:3] == ["  │ path: x", f"  content ({len(text)} characters, 1000 lines):", "  │ line 0"]
    assert cut.lines[-1] == "  │ line 999"
    [gap] = [line for line in cut.lines if "not shown" in line]
    left_out = [f"line {number}" for number in range(1000) if f"  │ line {number}" not in cut.lines]
    assert f" {sum(map(len, left_out))} characters on {len(left_out)} lines" in gap
    assert show_call(json.dumps({"content": text}), WIDE).is_whole


def test_a_long_line_and_many_arguments_are_cut_as_well() -> None:
    assert not show_call(json.dumps({"command": "x" * 10_000 + "; rm -rf /"}), 80, 20).is_whole
    assert not show_call(json.dumps({f"a{number}": number for number in range(100)}), 80, 20).is_whole


UNSEEN = [
    *(0x00, 0x1B, 0x0D, 0x7F, 0x85, 0xA0, 0xAD, 0x034F, 0x061C, 0x115F, 0x1160, 0x180E, 0x2003, 0x200B, 0x200C),
    *(0x200D, 0x200F, 0x2028, 0x2029, 0x202E, 0x202F, 0x205F, 0x2060, 0x2064, 0x2066, 0x2800, 0x3000, 0x3164),
    *(0xFE0F, 0xFEFF, 0xFFA0, 0xE0001, 0xE0041, 0xE0100, 0xE000, 0xD800),
]


@pytest.mark.parametrize("code", UNSEEN, ids=lambda code: f"{code:04X}")
def test_invisible_characters_are_shown_as_codes_with_a_warning(code: int) -> None:
    assert reveal(f"a{chr(code)}b") == f"a<U+{code:04X}>b"
    call, warning = lines(command=f"ls{chr(code)}")
    assert call == f"  │ command: ls<U+{code:04X}>"
    assert warning.startswith("  ! it has 1 character that is invisible")
    assert f"<U+{code:04X}>" in summarize_call(json.dumps({"command": f"ls{chr(code)}"}))


def test_visible_characters_are_not_changed() -> None:
    seen = "Grüße, 世界 👋 é\n\tend"
    assert reveal(seen) == seen
    assert count_invisible(seen) == 0


def test_pieces_fit_and_lose_nothing() -> None:
    text = "世界\u200b" * 50 + "\tx" * 20
    found = list(pieces(text, 20))
    assert "".join(found) == text
    assert list(pieces("", 20)) == [""]
    assert all(len(re.sub("[世界]", "xx", reveal(piece))) <= 20 for piece in found)


def test_a_call_is_summarised_on_one_line() -> None:
    assert summarize_call('{"command": "a\\n  b"}') == "a⏎  b"
    assert summarize_call('{"content": "x\\ny", "path": "p"}') == "path: p, content: x⏎y"
    assert summarize_call('{"command": "abcdef"}', 4) == "abc…"


def test_json_to_copy_means_the_same() -> None:
    arguments = {"path": "ü\u200b\u202e", "content": 'a\n"b"\U000e0041'}
    copied = readable_json(json.dumps(arguments))
    assert json.loads(copied) == arguments
    assert count_invisible(copied) == 0
