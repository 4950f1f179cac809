"""The pages of the documentation and their code blocks.

What a fence promises is tested:

- `python`: a program. It runs as it stands.
- `bash`: a script. It runs as it stands; the scripts of one page share a home.
- `console`: commands with a prompt. Each `treadle` command and its options exist.
- `yaml` that begins with a comment `# config.yaml` or `# agents/NAME/config.yaml`: a valid file."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
WRITTEN = [page for page in PAGES if page.parent.name != "reference"]
"""The pages that are not generated."""


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[Block]:
    """Return the fenced blocks of a language in a page."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, language, found[1])
        for found in re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]


def commands(text: str) -> list[str]:
    """Return the commands of a `console` block, with lines that end in a backslash joined."""
    joined = re.sub(r"\\\n\s*", "", text)
    return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]
