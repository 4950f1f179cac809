"""A strict parser of the Prometheus text format: whatever Prometheus' own parser rejects is an error here."""

import math
import re
from collections.abc import Iterator

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
HELP = re.compile(rf"# HELP ({NAME}) ((?:[^\\]|\\\\|\\n)*)")
TYPE = re.compile(rf"# TYPE ({NAME}) (counter|gauge|histogram)")
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Labels = frozenset[tuple[str, str]]
Samples = dict[tuple[str, Labels], float]


def read(page: bytes) -> Samples:
    """Return every sample of a page. Check that families are contiguous, start with help and type, and have no
    duplicates."""
    text = page.decode()
    assert text.endswith("\n"), "the last line ends like the others"
    found: Samples = {}
    families: dict[str, str] = {}
    lines = text[:-1].split("\n")
    at = 0
    while at < len(lines):
        helped, typed = (
            found.fullmatch(line) for found, line in zip((HELP, TYPE), [*lines[at:], ""], strict=False)
        )
        assert helped, lines[at]
        assert typed, f"{lines[at]} is not followed by a type"
        name, kind = typed[1], typed[2]
        assert helped[1] == name
        assert name not in families, f"{name} comes twice"
        assert (kind == "counter") == name.endswith("_total"), f"{name} is a {kind}"
        families[name] = kind
        at += 2
        while at < len(lines) and not lines[at].startswith("#"):
            sample, labels, value = _sample(lines[at])
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert sample in [name + suffix for suffix in suffixes], f"{sample} stands under {name}"
            assert (sample, labels) not in found, f"{lines[at]} comes twice"
            found[sample, labels] = value
            at += 1
        if kind == "histogram":
            _check_histogram(name, found)
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def _sample(line: str) -> tuple[str, Labels, float]:
    match = SAMPLE.fullmatch(line)
    assert match, line
    labels = list(_labels(match[2])) if match[2] else []
    assert len({name for name, _ in labels}) == len(labels), f"a label comes twice: {line}"
    return match[1], frozenset(labels), math.inf if match[3] == "+Inf" else float(match[3])


def _labels(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, text[at:]
        yield match[1], re.sub(r"\\.", lambda found: UNESCAPED[found[0]], match[2])
        at = match.end()


def _check_histogram(name: str, found: Samples) -> None:
    """Buckets grow, the last is all of them, and there is a sum."""
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), count in found.items():
        if sample == f"{name}_bucket":
            bounds = dict(labels)
            bound = bounds.pop("le")
            series.setdefault(frozenset(bounds.items()), []).append(
                (math.inf if bound == "+Inf" else float(bound), count)
            )
    for labels, buckets in series.items():
        assert buckets == sorted(buckets), "bounds and counts grow together"
        assert [count for _, count in buckets] == sorted(count for _, count in buckets)
        assert buckets[-1] == (math.inf, found[f"{name}_count", labels])
        assert (f"{name}_sum", labels) in found
