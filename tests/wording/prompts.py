"""The texts that models read: the definitions of built-in tools, and every text of the modules below, which write
prompts, results of tools, notices and requests to go on.

    python -m tests.wording.prompts

records them again into `tests/wording/data/prompts.txt`. A changed text changes what models do: change texts in a
commit of their own, and read the difference."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import treadle
from treadle.domain.tools import ToolSpec
from treadle.home.tool_names import list_known_tools
from treadle.tools.builtin import INTERNAL_TOOLS

ROOT = Path(treadle.__file__).parent
RECORDED = Path(__file__).parent / "data" / "prompts.txt"
PLACES = (
    "home/agent_context.py", "config/agent_files.py", "config/home.py", "core", "engine", "mcp/tools.py",
    "models/emulated_tools", "models/formats", "ports/tool.py", "skills", "tools",
)  # fmt: skip
"""Packages and modules of `treadle` that write texts for models. Some of their texts are for people only."""
_TABLES = frozenset({"program_risks.py", "git_risks.py", "verb_risks.py"})
"""Modules that list options and verbs of programs. They contain no text for models."""
_SENTENCE = re.compile(r"[A-Za-z]{2,}\W*\s\W*[A-Za-z]{2,}")


def render_prompts() -> str:
    """Return all texts: the tools first, then the texts of each module."""
    parts = [_render_tool(spec) for spec in _list_tools()]
    for path in _list_files():
        texts = list(dict.fromkeys(find_texts(path.read_text())))
        if texts:
            parts.append("\n".join([f"── {path.relative_to(ROOT)} ──", *texts]))
    return "\n\n".join(parts) + "\n"


def _list_tools() -> list[ToolSpec]:
    known = {**list_known_tools(), **{tool.spec.name: tool.spec for tool in INTERNAL_TOOLS}}
    return [known[name] for name in sorted(known)]


def _render_tool(spec: ToolSpec) -> str:
    schema = json.dumps(spec.schema, indent=1, ensure_ascii=False)
    return f"── tool {spec.name} ──\n{spec.description}\n{schema}"


def _list_files() -> Iterator[Path]:
    for place in PLACES:
        path = ROOT / place
        found = [path] if path.is_file() else sorted(path.rglob("*.py"))
        yield from (each for each in found if each.name not in _TABLES)


def find_texts(source: str) -> Iterator[str]:
    """Yield the texts of a module that have at least two words, in their order, without its docstrings.
    Placeholders are shown as their expressions."""
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
    found = [
        (node.lineno, node.col_offset, _render_text(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in skipped
    ]
    for _, _, text in sorted(found):
        if _SENTENCE.search(text):
            yield text.replace("\n", "⏎")


def _render_text(node: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(
        f"{{{ast.unparse(part.value)}}}" if isinstance(part, ast.FormattedValue) else _render_text(part)
        for part in node.values
        if isinstance(part, ast.FormattedValue | ast.Constant)
    )


if __name__ == "__main__":
    RECORDED.write_text(render_prompts())
