"""Counters that change with every call, looked up once per tool and model and then kept."""

from treadle.domain.runs import Usage
from treadle.telemetry.exposition import OTHER, Cell, Labels, sanitize_name
from treadle.telemetry.metric_families import ModelFamilies, ToolFamilies


class ToolCells:
    """The counters of one tool that change with every call."""

    __slots__ = ("duration", "ok", "started")

    def __init__(self, families: ToolFamilies, name: str) -> None:
        self.started = families.started.cell((name,))
        self.ok = families.calls.cell((name, "ok"))
        self.duration = families.duration.cell((name,))


class ModelCells:
    """The counters of one model that change with every call."""

    __slots__ = ("_duration", "_families", "_input", "_output", "_results", "_unpriced", "first", "labels")

    def __init__(self, families: ModelFamilies, labels: Labels) -> None:
        self.labels = labels
        self._families = families
        self._results: dict[str, Cell] = {}
        self._duration, self.first = families.duration.cell(labels), families.first.cell(labels)
        self._input = families.tokens.cell((*labels, "input"))
        self._output = families.tokens.cell((*labels, "output"))
        self._unpriced = families.unpriced.cell(labels)

    def add_call(self, result: str, duration_ms: int) -> None:
        cell = self._results.get(result)
        if cell is None:
            cell = self._results[result] = self._families.calls.cell((*self.labels, result))
        cell.value += 1.0
        self._duration.observe(duration_ms / 1000)

    def add_usage(self, usage: Usage, cost: float | None) -> None:
        self._input.value += usage.input_tokens
        self._output.value += usage.output_tokens
        if usage.cache_read_tokens:
            self._families.tokens.add((*self.labels, "cache_read"), usage.cache_read_tokens)
        if usage.cache_write_tokens:
            self._families.tokens.add((*self.labels, "cache_write"), usage.cache_write_tokens)
        if cost is None:
            self._unpriced.value += 1.0
        else:
            self._families.cost.add(self.labels, cost)


class ModelsByName:
    """Counters by provider and model, for the first `most` pairs; the rest share `other`."""

    def __init__(self, families: ModelFamilies, most: int) -> None:
        self._families = families
        self._most = most
        self._kept: dict[tuple[str, str], ModelCells] = {}
        self._other: ModelCells | None = None

    def get(self, provider: str, model: str) -> ModelCells:
        kept = self._kept.get((provider, model))
        if kept is not None:
            return kept
        if len(self._kept) >= self._most:
            self._other = self._other or ModelCells(self._families, (OTHER, OTHER))
            return self._other
        kept = self._kept[provider, model] = ModelCells(
            self._families, (sanitize_name(provider), sanitize_name(model))
        )
        return kept
