"""One virtual environment per peer, created once under bench/.envs with the newest releases."""

import subprocess
import sys
from pathlib import Path

from bench.scenarios import Contestant, Failure

ENVIRONMENTS = Path(__file__).parent / ".envs"


def python_for(contestant: Contestant, *, refresh: bool) -> str | Failure:
    """Return the interpreter for a contestant: the project's own, or that of the peer's environment."""
    if not contestant.requirements:
        return sys.executable
    directory = ENVIRONMENTS / contestant.name
    python = directory / "bin" / "python"
    receipt = directory / "installed.txt"
    wanted = "\n".join([sys.version, *contestant.requirements])
    if not refresh and receipt.exists() and receipt.read_text() == wanted:
        return str(python)
    receipt.unlink(missing_ok=True)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--upgrade"]
    for command in ([sys.executable, "-m", "venv", "--clear", str(directory)], [*pip, *contestant.requirements]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return Failure(_reason(done.stderr or done.stdout))
    receipt.write_text(wanted)
    return str(python)


def _reason(output: str) -> str:
    """Return the line that says why: pip's last error, or the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no reason given"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines)[-1][:160]
