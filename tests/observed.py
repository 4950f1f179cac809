"""Results of tools without the line that states how the call ended."""

from collections.abc import Iterable

from treadle.domain.messages import Part, ToolResult
from treadle.domain.observations import extract_text


def told(result: Part) -> ToolResult:
    assert isinstance(result, ToolResult)
    return ToolResult(result.call_id, extract_text(result.content), result.is_error)


def all_told(parts: Iterable[Part]) -> tuple[ToolResult, ...]:
    return tuple(told(part) for part in parts)
