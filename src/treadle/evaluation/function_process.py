"""The process of a function check: it calls the function that its argument names with the run in `run.json`, and
prints what the function returned."""

import asyncio
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec

from treadle.evaluation.grading import FunctionVerdict, Observed

RUN_FILE = "run.json"
MARK = "treadle-check-result:"
"""What the line with the verdict begins with. The function may print others."""


def call_function(reference: str, run: Observed) -> FunctionVerdict:
    """Return the verdict of a function, `FILE.py:name` in the current folder or `module:name`."""
    try:
        place, _, name = reference.partition(":")
        value = getattr(import_module(place.removesuffix(".py").replace("/", ".")), name)(run)
        if asyncio.iscoroutine(value):
            value = asyncio.run(value)
        score, reason = cast("tuple[Any, Any]", value) if isinstance(value, tuple) else (value, "")
        return FunctionVerdict(float(score), str(reason), isinstance(score, bool))
    except Exception as error:
        return FunctionVerdict(error=f"{type(error).__name__}: {error}")


def main() -> None:
    run = msgspec.json.decode(Path(RUN_FILE).read_bytes(), type=Observed)
    sys.path.insert(0, str(Path.cwd()))
    verdict = call_function(sys.argv[1], run)
    print(f"\n{MARK}{msgspec.json.encode(verdict).decode()}", flush=True)


if __name__ == "__main__":
    main()
