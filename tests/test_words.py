"""Plain names and plain English: class names are unique, and no text or test name uses
words that the project avoids."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.documentation import DOCS, ROOT

SOURCE = ROOT / "src" / "treadle"
AVOIDED = re.compile(
    r"\b(?:whoever|whomever|nobody|somebody|what came of|is to be had|lets? go of|takes? up|taken up|so long as"
    r"|by itself|beside|without a double|keeping house)\b"
    r"|(?<!there )\bis no (?!longer\b)",
    re.IGNORECASE,
)
"""The worst of the words to avoid. "There is no session" and "is no longer" are plain English."""

STILL_AVOIDED: dict[str, int] = {
    "core/guards/claims.py": 1,
    "stores/postgres/functions/projections.sql": 2,
    "stores/postgres/functions/verbs.sql": 6,
    "stores/postgres/journal.py": 3,
    "testing/simulation/scenario.py": 1,
}
"""Hits that a file may have; a number may only shrink. `claims.py` lists words of answers, and the last one is a
name in scripts of simulations. In `stores/postgres` it is a key with which workers call the functions of the
database: workers of other versions on the same database use it too."""

TEST_FILES = sorted((ROOT / "tests").rglob("*.py"))
DEFINITION = re.compile(r"^\s*(?:async def|def|class) (\w+)", re.MULTILINE)
ONE_WORD_TEST = re.compile(r"test \S+")

ONE_WORD_TESTS = {"tests/peers/mcp_fixtures.py": ["test sampling", "test elicitation"]}
"""Names that the conformance suite of MCP prescribes for the tools of a server. The name of any other test is a
sentence."""

SHARED_NAMES = {"QuotaExceeded": 2}
"""`QuotaExceeded` is an error and an event, both on the wire."""


def avoided_in(texts: Iterator[str]) -> list[str]:
    return [found[0] for text in texts for found in AVOIDED.finditer(" ".join(text.split()))]


def may_contain(source: str) -> bool:
    """Return whether a source may contain an avoided word in a text. To take all sources apart costs 14 s."""
    words = re.sub(r"\b[bfru]{1,2}(?=[\"'])|[\"'#\\]", " ", source, flags=re.IGNORECASE)
    return AVOIDED.search(" ".join(words.split())) is not None


def texts_of(path: Path) -> Iterator[str]:
    """Yield the docstrings, the string constants and the comments of a module."""
    source = path.read_text()
    if not may_contain(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_source_does_not_use_avoided_words() -> None:
    found = {str(path.relative_to(SOURCE)): avoided_in(texts_of(path)) for path in sorted(SOURCE.rglob("*.py"))}
    grown = {name: hits for name, hits in found.items() if len(hits) > STILL_AVOIDED.get(name, 0)}
    assert grown == {}


def prose_of(path: Path) -> Iterator[str]:
    """Yield the docstrings, the assertion messages and the comments of a module of tests."""
    source = path.read_text()
    if not may_contain(source):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) | ast.Assert(msg=ast.Constant(value=str(text))):
                yield text
            case ast.Assert(msg=ast.JoinedStr(values=values)):
                parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in values)
                yield "".join(map(str, parts))
            case _:
                pass
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_docstrings_messages_and_comments_of_tests_do_not_use_avoided_words() -> None:
    found = {str(path.relative_to(ROOT)): avoided_in(prose_of(path)) for path in TEST_FILES}
    assert {name: hits for name, hits in found.items() if hits} == {}


def names_of(path: Path) -> Iterator[str]:
    """Yield the words of each name of a function or class in a module of tests."""
    for name in DEFINITION.findall(path.read_text()):
        yield name.strip("_").replace("_", " ")


def test_names_in_tests_do_not_use_avoided_words() -> None:
    found = {str(path.relative_to(ROOT)): avoided_in(names_of(path)) for path in TEST_FILES}
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_a_test_name_has_at_least_two_words() -> None:
    found = {
        str(path.relative_to(ROOT)): [name for name in names_of(path) if ONE_WORD_TEST.fullmatch(name)]
        for path in TEST_FILES
    }
    assert {name: hits for name, hits in found.items() if hits} == ONE_WORD_TESTS


def test_documents_do_not_use_avoided_words() -> None:
    pages = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
    found = {str(page.relative_to(ROOT)): avoided_in(iter([page.read_text()])) for page in pages}
    grown = {name: hits for name, hits in found.items() if len(hits) > STILL_AVOIDED.get(name, 0)}
    assert grown == {}


def find_avoided(files: Iterable[Path]) -> dict[str, list[str]]:
    """Return the avoided words in whole files, without the marks of comments, by file."""
    found: dict[str, list[str]] = {}
    for path in files:
        text = re.sub(r"^\s*(?:--|//|\*|#)", "", path.read_text(), flags=re.MULTILINE)
        if hits := avoided_in(iter([text])):
            found[str(path.relative_to(ROOT))] = hits
    return found


def test_sql_does_not_use_avoided_words() -> None:
    files = sorted(SOURCE.rglob("*.sql"))
    assert len(files) > 25
    allowed = {f"src/treadle/{name}": count for name, count in STILL_AVOIDED.items()}
    found = find_avoided(files)
    assert {name: hits for name, hits in found.items() if len(hits) > allowed.get(name, 0)} == {}


def test_the_dashboard_does_not_use_avoided_words() -> None:
    files = [
        path for path in sorted((ROOT / "web" / "src").rglob("*")) if path.suffix in (".ts", ".svelte", ".css")
    ]
    assert len(files) > 50
    assert find_avoided(files) == {}


def test_shipped_files_and_examples_do_not_use_avoided_words() -> None:
    kinds = (".ipynb", ".md", ".py", ".toml", ".yaml", ".yml")
    shipped = [path for path in sorted(SOURCE.rglob("*")) if path.suffix in kinds and path.suffix != ".py"]
    examples = [path for path in sorted((ROOT / "examples").rglob("*")) if path.suffix in kinds]
    assert shipped
    assert len(examples) > 5
    assert find_avoided([*shipped, *examples]) == {}


def test_public_class_names_are_unique() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(str(path.relative_to(SOURCE)))
    shared = {name: paths for name, paths in modules.items() if len(paths) > SHARED_NAMES.get(name, 1)}
    assert shared == {}
