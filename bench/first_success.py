"""`python -m bench.first_success`: the first command of the README, with ten seeds.

Each run is the real command in an empty home, with the default agent and the embedded model. A run succeeds if it
completes within 20 s and its answer has neither tool syntax nor a repeated line. The command fails if fewer than
nine runs succeed. The limit is for two quiet cores; the load of the machine is printed."""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.bars import Row, judge
from treadle.models.local.known_weights import WEIGHTS
from treadle.models.local.weights import find_index_url, pull_weights

FOLDER = Path(__file__).parents[1] / ".demo" / "models"
MODEL, MESSAGE = "smollm2", "Write a haiku about looms."
SEEDS, FEWEST_GOOD, MAX_SECONDS = 10, 9, 20.0
HANG_SECONDS = 300.0
_TOOL_SYNTAX = re.compile(r'```|</?tool|"(?:tool|name|arguments|answer)"\s*:|\b(?:read|write)_file\b')


class Answer(NamedTuple):
    """What the command printed, and how long it took."""

    text: str
    seconds: float
    exit_code: int


def find_fault(answer: Answer) -> str | None:
    """Return why an answer is no success, or None."""
    lines = [line.strip().casefold() for line in answer.text.splitlines() if line.strip()]
    if answer.exit_code != 0:
        return f"exit code {answer.exit_code}"
    if not lines:
        return "no text"
    if _TOOL_SYNTAX.search(answer.text):
        return "tool syntax"
    if len(set(lines)) < len(lines):
        return "a repeated line"
    return f"{answer.seconds:.1f} s" if answer.seconds > MAX_SECONDS else None


def ask(home: Path, weights: Path, seed: int) -> Answer:
    """Run the command in an empty home, with a seed among the sampling parameters of the model."""
    (home / "models").mkdir(parents=True)
    (home / "models" / f"{MODEL}.gguf").symlink_to(weights)
    sampling = {**WEIGHTS[MODEL].sampling, "seed": seed}
    pairs = ", ".join(f"{name}: {value}" for name, value in sampling.items())
    (home / "config.yaml").write_text(f"models:\n  local/{MODEL}: {{sampling: {{{pairs}}}}}\n")
    command = (str(Path(sys.executable).with_name("treadle")), "run", "-m", MODEL, MESSAGE)
    environment = {**os.environ, "TREADLE_HOME": str(home)}
    started = time.monotonic()
    ended = subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    return Answer(ended.stdout, time.monotonic() - started, ended.returncode)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", action="store_true", help="print every answer")
    each = parser.parse_args().each
    FOLDER.mkdir(parents=True, exist_ok=True)
    weights = asyncio.run(pull_weights(MODEL, FOLDER, find_index_url(os.environ), lambda done, total: None))
    good = 0
    for seed in range(1, SEEDS + 1):
        with tempfile.TemporaryDirectory() as folder:
            answer = ask(Path(folder) / "home", weights, seed)
        fault = find_fault(answer)
        good += fault is None
        print(
            f"seed {seed:2}: {answer.seconds:5.1f} s, {fault or 'good'}, load {os.getloadavg()[0]:.1f}", flush=True
        )
        if each:
            print("".join(f"    {line}\n" for line in answer.text.splitlines()))
    return judge([Row(f"answers of {SEEDS} that failed", SEEDS - good, SEEDS - FEWEST_GOOD, "answers")])


if __name__ == "__main__":
    raise SystemExit(main())
