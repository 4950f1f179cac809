"""No code compares a text with a sentence of ours, and none makes a decision by the text of an error."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

import treadle

ROOT = Path(treadle.__file__).parent
OTHERS = {
    "channels/telegram.py": "error descriptions of the Bot API, which has no codes for them",
    "core/context": "marks in stored transcripts: a format that the corpus pins",
    "core/guards": "answers of models",
    "domain/attachments.py": "the format of attached files in stored messages",
    "domain/edits/patch_format.py": "the format of patches",
    "domain/permissions.py": "the prefix of an exact pattern in stored rules",
    "mcp/connection.py": "error messages of the MCP library, which has no code of their own for them",
    "models/formats/call_dialects.py": "tool calls that models write as text",
    "models/http": "error texts and replies of providers",
    "operations/memory_service.py": "the place that msgspec writes into its error",
    "operations/request_checks.py": "the place and the limit that msgspec writes into its error",
    "remote/connection.py": "the wire format of server-sent events",
    "sandbox/advice.py": "output of commands",
    "stores/postgres/connection.py": "the name that PostgreSQL writes into its error",
    "stores/sqlite/connection.py": "the names of statements in SQL files",
    "stores/sqlite/memory.py": "errors of SQLite, which has no code for a missing function",
    "surfaces/cli/command_line.py": "errors of argparse, which have no class of their own",
    "surfaces/terminal/file_changes.py": "the formats of patches",
    "surfaces/tui/inline.py": "errors of the JSON parser",
    "surfaces/tui/item_view.py": "the last line of a tool's result, which the journal stores as the model read it",
    "system/git_state.py": "the format of references of git",
    "telemetry/exposition.py": "the text format of Prometheus",
    "testing": "texts that test doubles and simulations send themselves",
    "tools/files/folder_overview.py": "the format of references of git",
    "tools/shell": "command lines",
    "tools/signature.py": "errors of msgspec",
    "tools/web/fetch.py": "the first bytes of HTML pages",
    "vault/cipher.py": "the encrypted mark by which a key is checked",
}
"""Modules that read texts which others write, or formats, with what they read. None of them reads our messages."""

SENTENCE = re.compile(r"[A-Za-z]{2,}[^A-Za-z]*\s|\s[^A-Za-z]*[A-Za-z]{2,}")
"""A word with a space next to it."""
TWO_LITERAL_WORDS = re.compile(r"[A-Za-z]{2,}(?: |\\s[+*]?|\\ )+[A-Za-z]{2,}")
METHODS = (
    "startswith", "endswith", "removeprefix", "removesuffix", "find", "rfind", "index", "rindex", "partition",
    "rpartition", "split", "rsplit", "replace", "count",
)  # fmt: skip
MATCHES = ("match", "fullmatch", "search", "findall", "finditer")
EXPLANATIONS = ("reason", "detail", "advice")
"""Fields with sentences of ours. `reason` is also a name of enumerations, so `==` is not a finding."""
ERROR_NAMES = ("error", "raised", "fault")
"""Names of parameters that hold an exception."""

_NAME = r"(?:\w+\.)*_?[A-Z][A-Z_0-9]+\b"
_OPERATOR = r"(?:[=!]=|in|not in)"
CANDIDATE = re.compile(
    rf"""\.(?:{"|".join(METHODS)})\((?!\s*(?:[bfr]?["'](?:[^"'\s]|\\n)*["'],?\s*)*\))"""
    rf"""|(?:[=!]=|\bin|\bcase)\s+(?:[(\[{{]["'\n]|[bfr]{{0,2}}["'][^"'\n]*\s|\(?{_NAME})"""
    rf"""|[\s\w]["']\)?\s+{_OPERATOR}\s|\b_?[A-Z][A-Z_0-9]+(?:\[\w+\])?\s+{_OPERATOR}\s"""
    r"""|\bre\.[a-z]|\bstr\(\w+\)|\.args\["""
)
"""A source without any of these is not parsed."""


def find_comparisons(source: str) -> list[str]:
    """Return the comparisons with sentences, and those of the texts of errors, with their lines."""
    if not CANDIDATE.search(source):
        return []
    tree = ast.parse(source)
    finder = _Finder(tree)
    finder.visit(tree)
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self, tree: ast.Module) -> None:
        self.found: list[str] = []
        self._imported = dict(_list_imports(tree))
        self._bound = [_list_bound(tree.body)]
        """The names that are bound to sentences: in the module, and in the functions around the node."""
        self._errors: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bound.append(_list_bound(node.body))
        self.generic_visit(node)
        self._bound.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._errors.append(node.name or "")
        self.generic_visit(node)
        self._errors.pop()

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = (node.left, *node.comparators)
        if any(isinstance(each, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for each in node.ops) and any(
            self._is_sentence(each) or self._is_error_text(each) for each in operands
        ):
            self._add(node)
        self.generic_visit(node)

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        if self._is_sentence(node.value):
            self._add(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Attribute(ast.Name("re")) if node.args and TWO_LITERAL_WORDS.search(_text(node.args[0])):
                self._add(node)
            case ast.Attribute(value, method) if method in METHODS and node.args:
                explains = isinstance(value, ast.Attribute) and value.attr in EXPLANATIONS
                if explains or self._is_error_text(value) or any(map(self._is_sentence, node.args)):
                    self._add(node)
            case ast.Attribute(_, method) if method in MATCHES and any(map(self._is_error_text, node.args)):
                self._add(node)
            case _:
                pass
        self.generic_visit(node)

    def _add(self, node: ast.Compare | ast.MatchValue | ast.Call) -> None:
        self.found.append(f"{node.lineno}: {ast.unparse(node)[:100]}")

    def _is_sentence(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(name):
                return any(name in names for names in self._bound) or self._is_imported(name)
            case ast.Attribute(ast.Name(module), name) if name.isupper():
                return self._is_imported(module, name)
            case ast.Call(ast.Attribute(value)) | ast.Subscript(value):
                return self._is_sentence(value)
            case ast.Tuple(elements) | ast.List(elements) | ast.Set(elements):
                return any(map(self._is_sentence, elements))
            case _:
                return _is_literal_sentence(node)

    def _is_imported(self, name: str, attribute: str = "") -> bool:
        module, original = self._imported.get(name, ("", ""))
        if not attribute:
            return bool(module) and original in _list_exported(module)
        return bool(module) and attribute in _list_exported(f"{module}.{original}")

    def _is_error_text(self, node: ast.expr) -> bool:
        """Return whether an expression is the text of an exception, or a part of it."""
        match node:
            case ast.Call(ast.Name("str" | "repr"), [ast.Name(name)]) | ast.Attribute(ast.Name(name), "args"):
                return name in self._errors or name in ERROR_NAMES
            case ast.Call(ast.Attribute(value)) | ast.Subscript(value):
                return self._is_error_text(value)
            case _:
                return False


def _is_literal_sentence(node: ast.expr) -> bool:
    match node:
        case ast.Tuple(elements) | ast.List(elements) | ast.Set(elements):
            return any(map(_is_literal_sentence, elements))
        case ast.Dict(keys):
            return any(key is not None and _is_literal_sentence(key) for key in keys)
        case ast.Call(ast.Name("frozenset" | "set" | "tuple"), arguments):
            return any(map(_is_literal_sentence, arguments))
        case ast.Call(ast.Attribute(value)):
            return _is_literal_sentence(value)
        case _:
            return SENTENCE.search(_text(node)) is not None


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(str(value)):
            return value
        case ast.Constant(bytes(value)):
            return value.decode("latin-1")
        case ast.JoinedStr(parts):
            return "".join(_text(part) if isinstance(part, ast.Constant) else "{}" for part in parts)
        case ast.BinOp(left, ast.Add(), right):
            return _text(left) + _text(right)
        case _:
            return ""


def _list_bound(body: Sequence[ast.stmt]) -> frozenset[str]:
    """Return the names that statements bind to sentences."""
    found: set[str] = set()
    for node in _walk_scope(body):
        match node:
            case ast.Assign(targets, value):
                names = [name for target in targets for name in _pair(target, value)]
                found.update(name for name, each in names if _is_literal_sentence(each))
            case ast.AnnAssign(ast.Name(name), _, ast.expr() as value) if _is_literal_sentence(value):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def _pair(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target, value:
        case ast.Name(name), _:
            yield name, value
        case ast.Tuple(targets), ast.Tuple(values):
            for one, other in zip(targets, values, strict=False):
                yield from _pair(one, other)
        case _:
            pass


def _walk_scope(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a scope. Functions and classes in it are scopes of their own."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _walk_scope(getattr(statement, name, ()))


def _list_imports(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the names that a module imports from the package, each with its module and its name there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("treadle"):
            for each in node.names:
                yield each.asname or each.name, (node.module or "", each.name)


@cache
def _list_exported(module: str) -> frozenset[str]:
    """Return the names that a module of the package binds to sentences."""
    path = ROOT.parent / module.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return _list_bound(ast.parse(file.read_text()).body)
    return frozenset()


def is_under(name: str, places: Sequence[str]) -> bool:
    return any(name == place or name.startswith(f"{place}/") for place in places)


def test_no_code_compares_a_text_with_a_sentence() -> None:
    found = {
        name: comparisons
        for path in sorted(ROOT.rglob("*.py"))
        if not is_under(name := str(path.relative_to(ROOT)), tuple(OTHERS))
        and (comparisons := find_comparisons(path.read_text()))
    }
    assert found == {}, "replace the comparison with a fact: a field, an enumeration or a class of errors"


def test_listed_modules_exist_and_read_texts_of_others() -> None:
    for place in OTHERS:
        path = ROOT / place
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        assert any(find_comparisons(file.read_text()) for file in files), f"{place} need not be listed"


@pytest.mark.parametrize(
    "line",
    [
        'if text == "It is gone.": pass',
        'if "is gone" in text: pass',
        'if text not in ("gone", "not here"): pass',
        "if text == GONE: pass",
        "if AGAIN in text: pass",
        "if text != plan.AFTER_A_DENIAL: pass",
        "if text.startswith(AFTER_A_DENIAL): pass",
        "if text == f'{name} is gone': pass",
        'text.removeprefix("It is ").lower()',
        "text.partition(GONE.format(name=1))",
        're.search(r"is\\s+gone", text)',
        "match text:\n    case 'is gone': pass",
        "try: pass\nexcept ValueError as error:\n    if 'gone' in str(error): pass",
        "try: pass\nexcept ValueError as error:\n    if error.args[0] == 'gone': pass",
        "try: pass\nexcept ValueError as error:\n    PATTERN.match(str(error))",
        "def f(error):\n    return str(error).lower() == 'gone'",
        "ruling.reason.endswith(reason)",
    ],
)
def test_comparisons_are_found(line: str) -> None:
    imports = "from treadle.core.tools import plan\nfrom treadle.core.tools.plan import AFTER_A_DENIAL\n"
    source = f'{imports}GONE = "{{name}} is gone"\nA, AGAIN = "a", "once again"\n{line}\n'
    assert len(find_comparisons(source)) == 1


@pytest.mark.parametrize(
    "line",
    [
        'if kind == "gone": pass',
        'print("It is gone.", kind == other)',
        "if wait.reason == 'interrupted': pass",
        "words = text.split()",
        "def f(error): print(str(error).split())",
        'if text.startswith("/"): say("It is a path")',
        "def f(GONE): pass\nif text == HERE: pass",
    ],
)
def test_facts_are_not_found(line: str) -> None:
    assert find_comparisons(f'GONE = "is gone"\nHERE = "here"\n{line}\n') == []
