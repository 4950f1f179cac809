"""Metrics in the Prometheus text format 0.0.4. A family has a name, and a value for each set of labels.

Names that users choose become labels, so their number is limited: the rest are counted as `other`."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

OTHER = "other"
MAX_NAMES = 100
MAX_NAME_CHARS = 80
Labels = tuple[str, ...]


class Names:
    """The values of a label that users choose: the first ones as they are, the rest as `other`."""

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._most = max_names
        self._kept: dict[str, str] = {}

    def find(self, name: str) -> str | None:
        """Return the label value of a name that has one of its own, or None."""
        return self._kept.get(name)

    def get_label(self, name: str) -> str:
        """Return the label value of a name."""
        kept = self._kept.get(name)
        if kept is not None:
            return kept
        if len(self._kept) >= self._most:
            return OTHER
        kept = self._kept[name] = sanitize_name(name)
        return kept


def sanitize_name(name: str) -> str:
    """Return the name without control characters, truncated if necessary."""
    cut = name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 1]}…"
    return "".join(character if character.isprintable() else "\ufffd" for character in cut)


class Cell:
    """One number of a family. Callers that change it often keep a reference."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Family:
    """Counters or gauges that share a name."""

    def __init__(
        self, name: str, help_text: str, labels: Labels = (), kind: Literal["counter", "gauge"] = "counter"
    ) -> None:
        self.name = name
        self.help_text = help_text
        self.kind: Literal["counter", "gauge"] = kind
        self._cells: dict[Labels, Cell] = {}
        self.labels = labels
        if not labels:
            self.cell()

    def cell(self, labels: Labels = ()) -> Cell:
        """Return the number for these labels, created with the value 0 if missing."""
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = Cell()
        return cell

    def add(self, labels: Labels = (), amount: float = 1.0) -> None:
        self.cell(labels).value += amount

    def set(self, value: float, labels: Labels = ()) -> None:
        self.cell(labels).value = value

    def clear(self) -> None:
        self._cells.clear()

    def select(self, label: str, values: Collection[str | None]) -> "Family | None":
        """Return the part whose label has one of these values, or None without such a label."""
        if label not in self.labels:
            return None
        place = self.labels.index(label)
        part = Family(self.name, self.help_text, self.labels, self.kind)
        part._cells = {labels: cell for labels, cell in self._cells.items() if labels[place] in values}
        return part

    def lines(self) -> Iterator[str]:
        yield from _render_header(self.name, self.help_text, self.kind)
        for labels, cell in self._cells.items():
            yield f"{self.name}{_render_labels(self.labels, labels)} {_render_number(cell.value)}"


class Durations:
    """The number of observations per bucket, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds


class Histogram:
    """A histogram of durations in seconds."""

    kind = "histogram"

    def __init__(self, name: str, help_text: str, labels: Labels, bounds: Sequence[float]) -> None:
        self.name = name
        self.help_text = help_text
        self.labels = labels
        self._bounds = tuple(bounds)
        self._cells: dict[Labels, Durations] = {}

    def cell(self, labels: Labels = ()) -> Durations:
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = Durations(self._bounds)
        return cell

    def select(self, label: str, values: Collection[str | None]) -> "Histogram | None":
        """Return the part whose label has one of these values, or None without such a label."""
        if label not in self.labels:
            return None
        place = self.labels.index(label)
        part = Histogram(self.name, self.help_text, self.labels, self._bounds)
        part._cells = {labels: cell for labels, cell in self._cells.items() if labels[place] in values}
        return part

    def lines(self) -> Iterator[str]:
        yield from _render_header(self.name, self.help_text, self.kind)
        for labels, cell in self._cells.items():
            total = 0
            for bound, count in zip((*map(_render_number, self._bounds), "+Inf"), cell.counts, strict=True):
                total += count
                at_most = _render_labels((*self.labels, "le"), (*labels, bound))
                yield f"{self.name}_bucket{at_most} {total}"
            labelled = _render_labels(self.labels, labels)
            yield f"{self.name}_sum{labelled} {_render_number(cell.sum)}"
            yield f"{self.name}_count{labelled} {total}"


def render_page(families: Iterable[Family | Histogram]) -> bytes:
    """Return all families as they are sent."""
    lines = [line for family in families for line in family.lines()]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def merge_pages(pages: Mapping[str, bytes]) -> bytes:
    """Return the pages of several processes as one. Each value has the label `process`: the name of its page."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for process, page in pages.items():
        label, values = f'process="{_escape(process)}"', list[str]()
        for line in page.decode().splitlines():
            if line.startswith("# HELP "):
                header, values = families.setdefault(line.split(" ", 3)[2], ([], []))
                header[:] = [line]
            elif line.startswith("# TYPE "):
                families[line.split(" ", 3)[2]][0][1:] = [line]
            elif line:
                values.append(_add_label(line, label))
    lines = [line for header, values in families.values() for line in (*header, *values)]
    return ("\n".join(lines) + "\n").encode()


def _add_label(line: str, label: str) -> str:
    name = line[: min(at for at in (line.find("{"), line.find(" ")) if at >= 0)]
    rest = line[len(name) :]
    return f"{name}{{{label},{rest[1:]}" if rest.startswith("{") else f"{name}{{{label}}}{rest}"


def _render_header(name: str, help_text: str, kind: str) -> tuple[str, str]:
    escaped = help_text.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {escaped}", f"# TYPE {name} {kind}"


def _render_labels(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _render_number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
