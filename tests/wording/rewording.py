"""An import hook that rewords the messages of the engine.

Every sentence in the modules below gets other words of another length. Code that reads a fact out of a sentence
fails under this hook. Call `install()` before anything imports `treadle`."""

import ast
import codecs
import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any
from zlib import crc32

REWORDED = ("treadle",)
KEPT = {
    "treadle.channels.telegram": "error texts of the Bot API",
    "treadle.core.context": "the format of transcripts and prompts, which the golden corpus pins byte for byte",
    "treadle.core.final_marker": "likewise",
    "treadle.core.fold": "likewise",
    "treadle.core.guards.claims": "words that a model may use",
    "treadle.core.guards.phantom": "likewise",
    "treadle.core.guards.sentences": "likewise",
    "treadle.domain.attachments": "the format of attached files in stored messages",
    "treadle.mcp.connection": "error texts of the MCP library",
    "treadle.memory.stop_words": "lists of words in several languages",
    "treadle.models.finish": "words of providers for the end of a reply",
    "treadle.models.http.error_rule": "patterns for error texts of providers",
    "treadle.models.http.error_rules": "likewise",
    "treadle.models.http.error_status": "likewise",
    "treadle.models.http.overflow": "likewise",
    "treadle.models.http.overflow_words": "likewise",
    "treadle.models.http.quota_errors": "likewise",
    "treadle.models.http.reasoning_errors": "likewise",
    "treadle.models.http.retry_after": "likewise",
    "treadle.models.http.structure_errors": "likewise",
    "treadle.operations.openapi": "names of schemas",
    "treadle.sandbox.commands": "shell scripts",
    "treadle.stores.migrate.tables": "names of columns",
    "treadle.stores.sqlite.memory": "an error text of SQLite",
    "treadle.surfaces.cli.command_line": "error texts of argparse",
    "treadle.surfaces.cli.guard_self_test": "settings and scripts of its trials",
    "treadle.surfaces.tui.inline": "an error text of the JSON parser",
    "treadle.system.helper_process": "the Python program that a helper process starts with",
    "treadle.telemetry.exposition": "the format of metrics",
    "treadle.testing": "test doubles",
    "treadle.tools.shell": "command lines and patterns for them",
    "treadle.tools.signature": "error texts of msgspec",
}
"""Modules whose texts are formats or patterns, with what they are."""
_LETTERS = str.maketrans("0123456789", "ghijklmnop")
_WORD = re.compile(r"\{[^{}]*\}|%\(\w+\)[a-z]|[A-Za-z]{2,}")
_SENTENCE = re.compile(r"[A-Za-z]{2,}[^A-Za-z]*\s|\s[^A-Za-z]*[A-Za-z]{2,}")
_SQL = (
    "ALTER", "AND", "ATTACH", "BEGIN", "COMMIT", "COPY", "CREATE", "DELETE", "DETACH", "DROP", "EXPLAIN", "FROM",
    "INSERT", "LISTEN", "LOCK", "NOTIFY", "ON", "ORDER", "PRAGMA", "RELEASE", "RETURNING", "ROLLBACK", "SAVEPOINT",
    "SELECT", "SET", "TRUNCATE", "UNION", "UPDATE", "VACUUM", "VALUES", "WHERE", "WITH",
)  # fmt: skip
_FORMAT = re.compile(
    rf"\s*(?:{'|'.join(_SQL)}) |[a-z_]+ = [-\w]*$|(?:data|event|id|retry): |Bearer |HTTP/1|(?:GET|POST) "
    r"|[A-Za-z]+(?:-[A-Za-z]+)+: "
)
"""How SQL, server-sent events, requests and headers begin."""


def reword(text: str, module: str) -> str:
    """Return a text of a module with other words of another length. Placeholders stay. Each module has words of its
    own, so that a comparison with a text of another module fails."""
    ending = f"q{crc32(module.encode()):x}".translate(_LETTERS)
    return _WORD.sub(lambda found: _reword(found[0], ending), text)


def _reword(word: str, ending: str) -> str:
    return word if word[0] in "{%" else f"{codecs.encode(word, 'rot13')}{ending}"


class _Rewording(ast.NodeTransformer):
    """Rewords the sentences of a module, except its docstrings and patterns."""

    def __init__(self, module: str) -> None:
        self._module = module

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Attribute(value=ast.Name(id="re")):
                return node
            case _:
                return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = None if node.value is None else self.visit(node.value)
        return node  # the annotation stays

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        node.defaults = [self.visit(each) for each in node.defaults]
        node.kw_defaults = [None if each is None else self.visit(each) for each in node.kw_defaults]
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        first = node.values[0] if node.values else None
        is_format = isinstance(first, ast.Constant) and _FORMAT.match(str(first.value)) is not None
        return node if is_format else self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        node.value = self.visit(node.value)
        return node  # the format specification stays

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value: Any = node.value
        if isinstance(value, str) and _SENTENCE.search(value) and not _FORMAT.match(value):
            return ast.copy_location(ast.Constant(reword(value, self._module)), node)
        return node


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(_Rewording(fullname).visit(ast.parse(self.get_data(path))), path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_in(fullname, REWORDED) or _is_in(fullname, tuple(KEPT)):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


def _is_in(name: str, packages: Sequence[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in packages)


def install() -> None:
    """Reword every module that is imported from now on."""
    assert not any(name.startswith("treadle.core") for name in sys.modules), "treadle is imported already"
    sys.meta_path.insert(0, _Finder())
