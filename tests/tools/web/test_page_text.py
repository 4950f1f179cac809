"""Conversion of web pages to text."""

from pathlib import Path

import pytest

from tests.patience import LINEAR, growth
from treadle.tools.web.page_text import extract_text

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = {
    "nested": "<div>" * 60_000,
    "brackets": "<" * 1_000_000,
    "open tags": "<a " * 300_000,
    "comments": "<!--" * 300_000,
    "quotes": "<a b='" * 100_000 + '<a b="' * 100_000,
    "scripts": "<script>" * 200_000,
    "ends": "<div>" * 50_000 + "</p>" * 50_000,
    "attributes": "<p " + " ".join(f"a{number}=1" for number in range(100_000)) + ">",
    "spaces": "<a" + " " * 1_000_000,
    "lists": "<ul><li>x" * 100_000,
    "quoted": "<blockquote>x" * 100_000,
    "tables": "<table><tr><td>" * 20_000,
    "links": "<a href=x>y" * 100_000 + "</a>" * 100_000,
    "references": "&" * 500_000 + "&#" + "9" * 100_000 + ";",
}


@pytest.mark.parametrize("name", ["article"])
def test_golden_pages_are_converted_as_recorded(name: str) -> None:
    came = extract_text((GOLDEN / f"{name}.html").read_text(), "https://example.org/wiki/Treadle")
    assert came == (GOLDEN / f"{name}.txt").read_text().rstrip("\n")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_takes_linear_time(name: str) -> None:
    page = HOSTILE[name]
    quarter = len(page) // 32
    assert growth(lambda size: extract_text(page[:size], "https://example.org/" + "a" * 2000), quarter) < LINEAR


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("plain", "plain"),
        ("<p>a<p>b", "a\n\nb"),
        ("<td>loose<li>item", "loose\n- item"),
        ("<pre>never closed\n  x", "```\nnever closed\n  x\n```"),
        ("<a href='//[bad'>x</a>", "x"),
        ("<base href='https://other.org/d/'><a href=e>x</a>", "[x](https://other.org/d/e)"),
        ("<table><tr><td>only one cell</table>", "only one cell"),
        ("<div><nav>menu</div>after", "after"),
        ("<p hidden>no<p>yes", "yes"),
        ("a<b>b</b> <i>c</i>", "ab c"),
        ("</div></p>x", "x"),
    ],
)
def test_small_pages_are_converted(page: str, text: str) -> None:
    assert extract_text(page, "https://example.org/") == text
