"""Descriptions of fields: the string that follows a field in the source of its struct. The description of the API
and docs/reference are made of them."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct


def read_field_docs(struct: type[Struct]) -> Mapping[str, str]:
    """Return the description of each field of a struct that has one, by the field's name. It is empty without the
    source."""
    found: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        found |= _read_module(each.__module__).get(each.__qualname__, {})
    return found


@cache
def _read_module(name: str) -> dict[str, dict[str, str]]:
    """Return the descriptions of all structs of a module."""
    try:
        module = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError, KeyError):
        return {}
    return {each.name: _read_class(each) for each in module.body if isinstance(each, ast.ClassDef)}


def _read_class(body: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(value))):
                found[name] = " ".join(inspect.cleandoc(value).split())
            case _:
                pass
    return found


def describe_fields(components: dict[str, Any]) -> None:
    """Add the descriptions of fields to the schemas of structs, which are named as the structs are. Remove examples
    in Python from the descriptions of structs."""
    for component in components.values():
        if "description" in component:
            component["description"] = remove_examples(component["description"])
    for struct in _list_structs(Struct):
        properties = components.get(struct.__name__, {}).get("properties")
        names = {field.encode_name: field.name for field in msgspec.structs.fields(struct)} if properties else {}
        if not properties or not struct.__module__.startswith("treadle.") or names.keys() != properties.keys():
            continue
        docs = read_field_docs(struct)
        for name, schema in properties.items():
            if names[name] in docs:
                schema.setdefault("description", docs[names[name]])


def remove_examples(description: str) -> str:
    """Return a docstring without its examples in Python, and without the lines that introduce them."""
    paragraphs = description.split("\n\n")
    return "\n\n".join([each for each in paragraphs if not each.startswith("    ") and not each.endswith(":")])


def _list_structs(base: type[Struct]) -> Iterator[type[Struct]]:
    """Yield all structs that are loaded."""
    for each in base.__subclasses__():
        yield each
        yield from _list_structs(each)
