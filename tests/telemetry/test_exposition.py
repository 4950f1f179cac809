"""Numbers and names in the Prometheus text format, whatever names users choose."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.telemetry.reading import read, value
from treadle.telemetry.exposition import Family, Histogram, Names, render_page

texts = st.text(alphabet=st.characters(codec=None), max_size=100)


@given(st.lists(st.tuples(texts, texts), max_size=10), st.floats(allow_nan=False, allow_infinity=False))
def test_any_label_and_number_can_be_read_back(labels: list[tuple[str, str]], amount: float) -> None:
    names = Names()
    family = Family("a_total", "It says \\ and\nmore.", ("one", "two"))
    for one, two in labels:
        family.set(amount, (names.get_label(one), names.get_label(two)))
    samples = read(render_page([family]))
    for one, two in labels:
        assert value(samples, "a_total", one=names.get_label(one), two=names.get_label(two)) == amount


@given(texts)
def test_a_label_value_is_short_and_printable(name: str) -> None:
    shown = Names().get_label(name)
    assert len(shown) <= 80
    assert shown.isprintable()


def test_the_number_of_label_values_is_limited() -> None:
    names = Names(max_names=3)
    assert [names.get_label(name) for name in "abcdea"] == ["a", "b", "c", "other", "other", "a"]


@given(st.lists(st.floats(0, 10)))
def test_a_histogram_counts_everything_once(seconds: list[float]) -> None:
    histogram = Histogram("h", "How long.", ("who",), (0.5, 1.0, 5.0))
    cell = histogram.cell(("me",))
    for each in seconds:
        cell.observe(each)
    samples = read(render_page([histogram]))
    assert value(samples, "h_count", who="me") == len(seconds)
    assert value(samples, "h_sum", who="me") == pytest.approx(sum(seconds))
    for bound, label in ((0.5, "0.5"), (1.0, "1"), (5.0, "5")):
        assert value(samples, "h_bucket", who="me", le=label) == sum(each <= bound for each in seconds)


def test_the_strict_reader_refuses_invalid_text() -> None:
    for wrong in (
        b"a 1\n",
        b"# HELP a x\n# TYPE a gauge\na 1",
        b"# HELP a x\n# TYPE a gauge\na 1\na 1\n",
        b'# HELP a x\n# TYPE a gauge\na{l="\\x"} 1\n',
        b"# HELP a x\n# TYPE a gauge\nb 1\n",
        b"# HELP a x\n# TYPE a counter\na 1\n",
    ):
        with pytest.raises(AssertionError):
            read(wrong)


def test_the_parser_of_prometheus_reads_the_same() -> None:
    parser: Any = pytest.importorskip("prometheus_client.parser")
    family = Family("a_total", "x", ("who",))
    family.add(('a "quoted"\\name',), 2.5)
    [read_family] = parser.text_string_to_metric_families(render_page([family]).decode())
    [sample] = read_family.samples
    assert (sample.labels, sample.value) == ({"who": 'a "quoted"\\name'}, 2.5)
