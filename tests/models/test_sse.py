"""The splitter gives the same payloads however the network cuts the stream."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.models.http import sse
from treadle.models.http.sse import EventTooLarge, PayloadParser


def payloads(*chunks: bytes) -> list[bytes]:
    splitter = PayloadParser()
    found = [payload for chunk in chunks for payload in splitter.feed(chunk)]
    return found + splitter.end()


def test_one_event_per_line_is_the_usual_case() -> None:
    assert payloads(b'data: {"a":1}\n\ndata: [DONE]\n\n') == [b'{"a":1}', b"[DONE]"]


def test_a_payload_is_returned_as_soon_as_it_is_complete() -> None:
    splitter = PayloadParser()
    assert splitter.feed(b"data: a\n") == []
    assert splitter.feed(b"\ndata: b") == [b"a"]
    assert splitter.feed(b"c\n\n") == [b"bc"]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data:no space\n\n", [b"no space"]),
        (b"data:  two spaces\n\n", [b" two spaces"]),
        (b": comment\n\ndata: a\n: comment\n\n", [b"a"]),
        (b"event: message\nid: 7\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data\n\ndatabase: x\n\n", []),
        (b"\n\n\n", []),
        (b"data:\n\ndata: \n\ndata:   \n\ndata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: \n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: : keepalive\n\ndata: PING\n\ndata: keep-alive\n\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbf: comment\n\ndata: a\n\n", [b"a"]),
        (b'\xef\xbb\xbf{"error":"busy"}\n', [b'{"error":"busy"}']),
        (b'{"error":"busy"}\n', [b'{"error":"busy"}']),
        (b"data: the last blank line is missing\n", [b"the last blank line is missing"]),
        (b"data: so is the line end", [b"so is the line end"]),
        (b"", []),
    ],
)
def test_every_allowed_event_format_is_parsed(stream: bytes, expected: list[bytes]) -> None:
    assert payloads(stream) == expected


LINES = st.sampled_from(["data: ", "data:", ": ", "event: ", "", '{"error":', "id: "])
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20)
STREAMS = st.lists(st.tuples(LINES, TEXT, st.sampled_from(["\n", "\r\n", "\n\n", "\r\n\r\n"])), max_size=12)


@given(STREAMS, st.lists(st.integers(0, 400), max_size=20))
def test_any_split_of_any_stream_gives_the_same_payloads(
    lines: list[tuple[str, str, str]], cuts: list[int]
) -> None:
    stream = "".join("".join(line) for line in lines).encode()
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert payloads(*pieces) == payloads(stream)
    assert payloads(*(stream[at : at + 1] for at in range(len(stream)))) == payloads(stream)


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_REPLY_EVENT_BYTES", 1024 * 1024)
    splitter = PayloadParser()
    splitter.feed(b"data: " + b"x" * 1_000_000)
    with pytest.raises(EventTooLarge, match="1 MB"):
        splitter.feed(b"x" * 100_000)
