"""Reading and writing of YAML files. Every problem of a file becomes a ConfigError of one line that names the file,
the key, what was found and what is accepted."""

import os
import re
import stat
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import yaml
from msgspec import Struct

from treadle.domain.errors import ConfigError
from treadle.domain.settings import InvalidValue, check_struct

MAX_BYTES = 1_000_000
_Kind = TypeVar("_Kind", bound=Struct)


def read_struct(path: Path, kind: type[_Kind]) -> _Kind:
    """Return the content of a file as a `kind`."""
    try:
        return to_struct(read_plain(path), kind, str(path))
    except InvalidValue as wrong:
        raise ConfigError(f"{path}: {wrong}") from None
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply, or an alias (*) contains itself") from None


def parse_struct(text: str, kind: type[_Kind], source: str) -> _Kind:
    """Return YAML text as a `kind`. `source` says where it is from."""
    try:
        data = yaml.load(text, _Loader)
        return to_struct({} if data is None else data, kind, source)
    except InvalidValue as wrong:
        raise ConfigError(f"{source}: {wrong}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: {_describe_syntax_error(error)}") from None


def to_struct(values: Any, kind: type[_Kind], source: str) -> _Kind:
    """Return plain values as a `kind`, checked as strictly as those of a file. `source` says where they are
    from."""
    try:
        return check_struct(msgspec.to_builtins(values), kind, at="")  # fails if a value contains itself
    except InvalidValue as wrong:
        raise ConfigError(f"{source}: {wrong}") from None


def dump_yaml(values: Any, width: int = 80) -> str:
    """Return plain values as YAML text that reads back as the same values."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)


class _Dumper(yaml.SafeDumper):
    """Writes text with a NEXT LINE character in double quotes, where it is escaped: elsewhere it is read as a
    blank."""

    def analyze_scalar(self, scalar: str) -> Any:
        found = cast("Any", super()).analyze_scalar(scalar)
        if "\x85" in scalar:
            found.allow_single_quoted = found.allow_block = False
        return found


# ── From bytes to plain values ──


class _Loader(yaml.SafeLoader):
    """Loads plain data only: every key is text and unique, and dates stay text."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse anchors and aliases: a few lines of them can stand for gigabytes, or for themselves."""
        event = cast("Any", self).peek_event()
        if getattr(event, "anchor", None) is not None:
            sign, line = "*" if isinstance(event, yaml.AliasEvent) else "&", event.start_mark.line + 1
            what = f"anchors and aliases (`{sign}{event.anchor}`) are not accepted"
            raise InvalidValue(f"line {line}: {what}; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise InvalidValue(f"line {line}: merge keys (`<<`) are not accepted; write the values out")
            if key_node.tag != "tag:yaml.org,2002:str":
                raise InvalidValue(f"line {line}: the key `{_node_text(key_node)}` is not text; put it in quotes")
            if key_node.value in seen:
                raise InvalidValue(f"line {line}: the key `{key_node.value}` is there twice; remove one")
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _node_text(node: yaml.Node) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else "…"


_BOOL = "tag:yaml.org,2002:bool"
_TRUE_OR_FALSE = (_BOOL, re.compile("true|True|TRUE|false|False|FALSE"))
_Loader.yaml_implicit_resolvers = {  # as in YAML 1.2, where `off` is text
    first: [form for form in forms if form[0] != _BOOL] + ([_TRUE_OR_FALSE] if first in "tTfF" else [])
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: _node_text(node))


def read_plain(path: Path, max_bytes: int = MAX_BYTES) -> Any:
    """Return the content of a file as plain values. Raise ConfigError for what is not YAML."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: it is a pipe, not a file; move it away")
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ConfigError(f"{path}: it is larger than {max_bytes // 1_000_000} MB; shorten it")
        data = yaml.load(content.decode("utf-8-sig"), _Loader)
        return {} if data is None else data
    except IsADirectoryError:
        raise ConfigError(f"{path}: it is a folder, not a file; move it away") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check its permissions") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {_describe_syntax_error(error)}") from None
    except (ValueError, RecursionError) as error:  # a number such as 0b2, or too many brackets
        raise ConfigError(f"{path}: it is not valid YAML: {error}") from None


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file. A pipe without a writer does not stop the process."""
    return os.open(path, flags | os.O_NONBLOCK)


def _describe_syntax_error(error: yaml.YAMLError) -> str:
    what, line = "it cannot be parsed", ""
    if isinstance(error, yaml.MarkedYAMLError):
        what = error.problem or error.context or what
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    elif isinstance(error, yaml.reader.ReaderError):
        what = f"{error.reason} (character {error.position + 1})"
    return f"{line}it is not valid YAML: {what}"
