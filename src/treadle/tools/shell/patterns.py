"""The glob to offer to somebody who does not want to be asked about such a command again."""

import re

from treadle.tools.shell.calls import Call, Parsed
from treadle.tools.shell.escapes import SUBCOMMANDS
from treadle.tools.shell.wrappers import SHELLS, WRAPPERS

_TWO_WORDS = frozenset(
    {"npm run", "pnpm run", "yarn run", "docker compose", "uv pip", "uv run", "poetry run", "go mod"}
)
_THREE_WORDS = frozenset({"gh", "aws", "gcloud", "az"})
_PLAIN = re.compile(r"[A-Za-z0-9_./:@+-]+")
_ANYTHING = (
    SHELLS | WRAPPERS.keys() | {"find", "eval", "su", "python", "python3", "node", "perl", "ruby", "php", "awk"}
)
"""Programs that run whatever they are told: to allow them always is to allow everything."""


def pattern_for(parsed: Parsed) -> str | None:
    """For one simple command that can be understood: its program and what it does, with any further words."""
    if parsed.opaque is not None or len(parsed.calls) != 1 or parsed.calls[0].within:
        return None
    call = parsed.calls[0]
    words = call.words[: _depth(call)]
    if call.program in _ANYTHING or not all(_PLAIN.fullmatch(word) for word in words):
        return None
    if any(word.startswith("-") for word in words):
        return None
    exact = " ".join(words)
    return exact if len(words) == len(call.words) else f"{exact} *"


def _depth(call: Call) -> int:
    """How many words say what a command does."""
    if call.program in _THREE_WORDS or " ".join(call.words[:2]) in _TWO_WORDS:
        return 3
    return 2 if call.program in SUBCOMMANDS else 1
