"""Prints which files and functions are long. It fails nothing: one concern per file is the rule.

`make lint` calls it: `python -m tests.lengths`."""

import ast
from collections.abc import Iterator

from tests.test_architecture import FILES, parsed, text_of

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50


def count_body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function without its signature, which holds the options of a command."""
    return (function.end_lineno or 0) - function.body[0].lineno + 1


def find_long() -> Iterator[str]:
    """Yield a line for each file and function that is longer than it should be."""
    for path in FILES:
        lines = len(text_of(path).splitlines())
        if lines > MAX_FILE_LINES:
            yield f"src/treadle/{path}: {lines} lines; look again beyond {MAX_FILE_LINES}"
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = count_body_lines(node)
                if lines > MAX_FUNCTION_LINES:
                    yield f"src/treadle/{path}:{node.lineno}: {node.name} has {lines} lines"


if __name__ == "__main__":
    for line in find_long():
        print(f"note: {line}")
