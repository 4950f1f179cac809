"""Queries that are made of messages. No message is a syntax error."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from treadle.domain.text import fold_words
from treadle.memory.queries import MAX_KEYS, MAX_WORDS, MemoryQuery, parse_query, stem
from treadle.ports.memory_index import Term
from treadle.stores.sqlite.connection import connect
from treadle.stores.sqlite.memory import _build_query  # pyright: ignore[reportPrivateUsage] -- what FTS5 is really asked

NONE = set[str]()

fts = connect(":memory:")
fts.execute("CREATE VIRTUAL TABLE t USING fts5 (words, tokenize = 'ascii', detail = 'none')")
WORDS = " ".join(fold_words("ERR_CONN_4711 in /etc/relay.toml since v2.3.1 for user_id, says Zoë"))
fts.execute("INSERT INTO t VALUES (?)", (WORDS,))

anything = (
    st.text()
    | st.text(alphabet="\"'`*():^+-{}[]\\/,.;ANDORNTE \t\n\0é“”«»„ab12_")
    | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode())
)


def matches(terms: list[Term]) -> bool:
    queries = [_build_query(term, ("",)) for term in terms]
    return [row for query in queries for row in fts.execute("SELECT 1 FROM t WHERE t MATCH ?", (query,))] != []


@given(anything)
@example('"')
@example('""')
@example('"\0"')
@example("NEAR(a b) AND NOT OR")
@example("text : x")
@example("`'\"“”„«»")
@example("²")
@example("\u0345\u0300")
@example("ß \u017f \u0149")
@example("\U0001d518\U0001d52b \uff11\uff12 \u0663\u0664 日本語")
def test_any_message_gives_a_valid_query(message: str) -> None:
    question = parse_query(message)
    matches(question.word_terms)
    assert len(question.words) <= MAX_WORDS
    assert len(question.keys) <= MAX_KEYS


@given(st.text(alphabet="abcdefgéöå ABC_-./0123456789", min_size=3, max_size=40))
def test_literal_text_is_found(text: str) -> None:
    question = parse_query(f'about "{text}"')
    fts.execute("BEGIN")
    fts.execute("INSERT INTO t VALUES (?)", (" ".join(fold_words(f"before {text} after")),))
    try:
        for term in question.key_terms:
            assert matches([term]), term
    finally:
        fts.execute("ROLLBACK")


def keys(message: str) -> set[str]:
    return {" ".join(key.tokens) for key in parse_query(message).keys}


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("what is ERR_CONN_4711?", {"err conn 4711"}),
        ("where has user_id gone", {"user id"}),
        ("what changed in v2.3.1.", {"v2 3 1"}),
        ("what is in /etc/relay.toml?", {"etc relay toml"}),
        ("does parseHeaderLine fail", {"parseheaderline"}),
        ('where is "Export as ledger"?', {"export as ledger"}),
        ("who sets 'needs triage' there", {"needs triage"}),
        ("it's the user's wish, isn't it", NONE),
        ("ask Zoë about it", {"zoe"}),
        ("Ask about it", NONE),
        ("WHY IS IT SO LOUD", NONE),
        ("on 2025-08-19 at night", {"2025 08 19"}),
        ("the follow-up was fine", NONE),
    ],
)
def test_identifiers_and_quotes_are_literal_keys(message: str, found: set[str]) -> None:
    assert keys(message) == found


def test_an_identifier_weighs_more_than_a_name_or_a_small_number() -> None:
    weights = {key.tokens[0]: key.weight for key in parse_query("did Anna see 7 of E4711 x").keys}
    assert weights["e4711"] > weights["anna"] > weights["7"]


@pytest.mark.parametrize(
    "message", ["", "  \n", "hello!", "ok, thanks", "good morning", "and then?", "...", "danke"]
)
def test_small_talk_gives_an_empty_query(message: str) -> None:
    assert parse_query(message) == MemoryQuery()
    assert parse_query(message).word_terms == []


def test_words_are_found_in_their_forms() -> None:
    assert stem("invoices") == stem("invoice")
    assert stem("painting") == stem("painted")
    assert stem("4711s") != ""
    assert matches(parse_query("what do relays say").word_terms)
    assert fold_words("Ünïcödé_x") == ("unicode", "x")


def test_a_long_message_is_read_at_its_beginning() -> None:
    question = parse_query("relay " * 10_000 + "ERR_CONN_4711")
    assert question.words == ("relay",)
    assert not question.keys
    long_words = parse_query(" ".join(f"{'w' * (3 + n)}" for n in range(40)))
    assert len(long_words.words) == MAX_WORDS
