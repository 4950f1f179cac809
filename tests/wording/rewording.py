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

REWORDED = (
    "treadle.core",
    "treadle.engine",
    "treadle.operations",
    "treadle.replay",
    "treadle.models.registry",
    "treadle.ports.tool",
    "treadle.surfaces.cli.activity",
    "treadle.tools.files.approval_path",
    "treadle.tools.toolbox",
)
KEPT = (
    "treadle.core.context",  # the format of transcripts and prompts, which the golden corpus pins byte for byte
    "treadle.core.fold",  # likewise
    "treadle.core.final_marker",
    "treadle.core.guards.claims",  # words that a model may use, not messages
    "treadle.core.guards.sentences",
    "treadle.core.guards.phantom",
    "treadle.operations.openapi",  # names of schemas
)
"""Modules without messages: their texts are formats or patterns."""
_WORD = re.compile(r"\{[^{}]*\}|[A-Za-z]{2,}")
_SENTENCE = re.compile(r"[A-Za-z]{2,}[^A-Za-z]*\s|\s[^A-Za-z]*[A-Za-z]{2,}")


def reword(text: str) -> str:
    """Return a text with other words of another length. Placeholders stay."""
    return _WORD.sub(lambda found: _reword(found[0]), text)


def _reword(word: str) -> str:
    return word if word.startswith("{") else f"{codecs.encode(word, 'rot13')}q"


class _Rewording(ast.NodeTransformer):
    """Rewords the sentences of a module, except its docstrings and patterns."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Attribute(value=ast.Name(id="re")):
                return node
            case _:
                return self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        node.value = self.visit(node.value)
        return node  # the format specification stays

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value: Any = node.value
        if isinstance(value, str) and _SENTENCE.search(value):
            return ast.copy_location(ast.Constant(reword(value)), node)
        return node


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(_Rewording().visit(ast.parse(self.get_data(path))), path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_in(fullname, REWORDED) or _is_in(fullname, KEPT):
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
