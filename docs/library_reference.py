"""The page of docs/reference about the library: every public name, read from the source."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import groupby
from types import ModuleType
from typing import Any

import treadle
from treadle import testing
from treadle.api import agent as agents

HEAD = """
What a program imports: the names of `treadle` and of `treadle.testing`. They are public and stable: from 0.1.0 on,
a change that can break a program comes only in a release that raises the second number, and the changelog says what
to do. What is imported from a module below `treadle`, such as `treadle.engine`, may change in any release, except
the ports that adapters implement (`treadle.ports`) and the operations of the API (`treadle.operations`).
The [library](../library.md) page explains how the names are used together.
"""
GROUPS = {
    "Engine": ("treadle.api.engine", "treadle.api.streams"),
    "Clients of a server": ("treadle.api.client", "treadle.api.sync_client"),
    "Results": ("treadle.api.result", "treadle.operations"),
    "Events": ("treadle.domain.envelope", "treadle.domain.events"),
    "Items of a transcript": ("treadle.domain.transcript",),
    "Errors": ("treadle.domain.errors",),
}
"""The modules whose names each section has. All other names belong to `Agents and tools`."""
MADE_BY_THE_ENGINE = {"RunStream"}
"""Classes that programs do not call."""
QUOTED_TYPE = re.compile(r"(?<=\[)'([A-Z]\w+)'(?=[,\]])")
OPTIONAL_KEY = re.compile(r"^NotRequired\[(.*)\]$")
OPTIONS = {
    "Options of a run": agents.RunOptions,
    "Options of a fork": agents.ForkOptions,
    "Options of an agent": agents.AgentOptions,
}


def library_page(head: str) -> str:
    page = [head, HEAD]
    for group, names in _group_names().items():
        page.append(f"\n## {group}\n")
        for name in names:
            page += describe_name(f"treadle.{name}", getattr(treadle, name))
    page.append("\n## Options\n")
    for title, options in OPTIONS.items():
        page += (f"\n### {title}\n\n{_first_line(options)}\n", _fields_table([_definition(options)]))
    page.append("\n## Tests\n\nThe page about [testing](../testing.md) shows their use.\n")
    for name in testing.__all__:
        if name != "ScriptStep":  # a type alias: what `ScriptedModel` takes
            page += describe_name(f"treadle.testing.{name}", getattr(testing, name))
    return "".join(page)


def _group_names() -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {"Agents and tools": [], **{group: [] for group in GROUPS}}
    for name in treadle.__all__:
        module: str = getattr(treadle, name).__module__
        groups[_find_group(module)].append(name)
    return groups


def _find_group(module: str) -> str:
    return next((group for group, modules in GROUPS.items() if module.startswith(modules)), "Agents and tools")


def describe_name(path: str, value: Any) -> Iterator[str]:
    yield f"\n### `{path}`\n\n"
    if not inspect.isclass(value):
        yield from _signature_lines(_find_functions(inspect.getmodule(value), value.__name__))
        yield f"\n{_docstring(value)}"
        return
    definitions = [_definition(each) for each in value.__mro__ if each.__module__.startswith("treadle.")]
    yield _docstring(value)
    if value.__name__ not in MADE_BY_THE_ENGINE and (makers := _find_makers(definitions)):
        yield "\n"
        yield from _signature_lines(makers, value.__name__)
    if not issubclass(value, BaseException):
        yield _fields_table(definitions)
    yield _methods_list(definitions)


def _definition(value: type) -> ast.ClassDef:
    """Return the source of a class."""
    match ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]:
        case ast.ClassDef() as definition:
            return definition
        case other:
            raise TypeError(f"{value} is defined by {type(other).__name__}")


def _docstring(value: Any) -> str:
    """Return a docstring as Markdown, with its examples as blocks of code."""
    blocks = re.split(r"\n{2,}", inspect.getdoc(value) or "")
    text: list[str] = []
    for is_code, group in groupby(blocks, key=lambda block: block.startswith("    ")):
        if is_code:
            code = textwrap.dedent("\n\n".join(group)).replace("'''", '"""')
            text.append(f"```python\n{code}\n```")
        else:
            text += (" ".join(block.split()) for block in group)
    return "\n\n".join(text) + "\n"


def _first_line(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _find_functions(module: ModuleType | None, name: str) -> list[ast.FunctionDef]:
    """Return a function of a module, or its overloads."""
    if module is None:
        return []
    return _choose_overloads(ast.parse(inspect.getsource(module)).body, name)


def _find_makers(definitions: list[ast.ClassDef]) -> list[ast.FunctionDef]:
    """Return how the class is called, if it is not by its fields."""
    found = (_choose_overloads(each.body, "__init__") for each in definitions)
    return next(filter(None, found), list[ast.FunctionDef]())


def _choose_overloads(body: list[ast.stmt], name: str) -> list[ast.FunctionDef]:
    found = [each for each in body if isinstance(each, ast.FunctionDef) and each.name == name]
    return list(filter(_is_overload, found)) or found


def _signature_lines(functions: list[ast.FunctionDef], class_name: str = "") -> Iterator[str]:
    for each in functions:
        yield f"- `{_signature(each, class_name)}`\n"


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef, class_name: str = "") -> str:
    returned = "" if function.returns is None or class_name else f" -> {_type(function.returns)}"
    return f"{class_name or function.name}({', '.join(_parameters(function.args))}){returned}"


def _parameters(given: ast.arguments) -> Iterator[str]:
    positional = [*given.posonlyargs, *given.args]
    missing = [None] * (len(positional) - len(given.defaults))
    for index, (each, default) in enumerate(zip(positional, [*missing, *given.defaults], strict=True), start=1):
        if each.arg not in ("self", "cls"):
            yield _parameter(each, default)
        if index == len(given.posonlyargs):
            yield "/"
    if given.vararg is not None:
        yield f"*{_parameter(given.vararg, None)}"
    elif given.kwonlyargs:
        yield "*"
    yield from map(_parameter, given.kwonlyargs, given.kw_defaults)
    if given.kwarg is not None:
        yield f"**{_parameter(given.kwarg, None)}"


def _parameter(each: ast.arg, default: ast.expr | None) -> str:
    kind = "" if each.annotation is None else f": {_type(each.annotation)}"
    return f"{each.arg}{kind}{'' if default is None else f' = {ast.unparse(default)}'}"


def _type(node: ast.expr) -> str:
    """Return a type as code, without quotes around what is written as text."""
    match node:
        case ast.Constant(str(text)):
            return text
        case _:
            return QUOTED_TYPE.sub(r"\1", ast.unparse(node))


def _fields_table(definitions: list[ast.ClassDef]) -> str:
    rows: dict[str, str] = {}
    for definition in reversed(definitions):
        for statement, following in zip(definition.body, [*definition.body[1:], None], strict=True):
            match statement:
                case ast.AnnAssign(ast.Name(name), annotation) if not name.startswith("_"):
                    described = _text_of(following)
                    kind = OPTIONAL_KEY.sub(r"\1", _type(annotation))
                    rows[name] = f"| `{name}` | `{_cell(kind)}` | {_cell(described)} |\n"
                case _:
                    pass
    return f"\n| field | type | |\n|---|---|---|\n{''.join(rows.values())}" if rows else ""


def _text_of(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(ast.Constant(str(text))):
            return " ".join(inspect.cleandoc(text).split())
        case _:
            return ""


def _methods_list(definitions: list[ast.ClassDef]) -> str:
    lines: dict[str, str] = {}
    for definition in definitions:
        for each in definition.body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(each):
                lines.setdefault(each.name, _method_line(each))
    return f"\n{''.join(lines.values())}" if lines else ""


def _is_public(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return not method.name.startswith("_") and not _is_overload(method)


def _is_overload(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("overload" in ast.unparse(mark) for mark in method.decorator_list)


def _method_line(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    text = " ".join((ast.get_docstring(method) or "").split("\n\n")[0].split())
    if any(ast.unparse(mark) == "property" for mark in method.decorator_list):
        signature = method.name + ("" if method.returns is None else f": {_type(method.returns)}")
    else:
        signature = f"{'await ' if _is_awaited(method) else ''}{_signature(method)}"
    return f"- `{signature}`{': ' if text else ''}{text}\n"


def _is_awaited(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether calls are awaited: a coroutine, and not an asynchronous generator."""
    is_generator = any(isinstance(each, ast.Yield) for each in ast.walk(method))
    return isinstance(method, ast.AsyncFunctionDef) and not is_generator


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
