"""SKILL.md: the description of a skill, checked by the rules of the Agent Skills format.

Deliberately stricter than the format's own validator where readers differ: `---` may occur in the frontmatter only
as the line that ends it; `...` and control characters are not accepted; the folder must be spelled in NFKC like the
name; allowed-tools must be text or a list of texts; and sizes are limited."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, cast

import yaml
from msgspec import Struct

from treadle.domain.inert_text import has_hidden, make_one_line

MAX_BYTES = 256 * 1024
MAX_FRONTMATTER_CHARACTERS = 16_000
_MAX_NAME_CHARACTERS = 64
_MAX_DESCRIPTION_CHARACTERS = 1024
_MAX_COMPATIBILITY_CHARACTERS = 500
_MAX_DEPTH = 8
_FENCE = "---"
_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_TOOL = re.compile(r"[^\s()]+(?:\([^()]*\))?")
"""A name, optionally followed by parentheses."""
_YAML: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_parse = cast(
    "Callable[[str, Any], Iterable[yaml.Event]]",
    yaml.parse,  # pyright: ignore[reportUnknownMemberType] -- its stub leaves types out
)


class InvalidSkill(Exception):
    """Something cannot be used as a skill. The message gives the reason, for users."""


class SkillManifest(Struct, frozen=True):
    name: str
    description: str
    """On one line."""
    tools: tuple[str, ...] = ()


def is_name(name: str) -> bool:
    return find_name_error(name) is None


def find_name_error(name: str) -> str | None:
    """Return what is wrong with the name of a skill, or None."""
    if not name:
        return "the name is empty"
    if len(name) > _MAX_NAME_CHARACTERS:
        return f"the name has {len(name)} characters; at most {_MAX_NAME_CHARACTERS} are accepted"
    if has_hidden(name) or not all(character.isalnum() or character == "-" for character in name):
        return f"the name {name!a} may have letters, digits and hyphens only"
    if name != name.lower():
        return f"the name `{name}` must be in lower case"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        return f"the name `{name}` must not begin or end with a hyphen or have two in a row"
    return None


def parse_manifest(content: bytes, folder: str) -> SkillManifest:
    """Return the manifest of a SKILL.md in this folder. Raise InvalidSkill."""
    front, _ = _split_frontmatter(content)
    fields = _parse_fields(front)
    for key in fields:
        if key not in _KEYS:
            raise InvalidSkill(f"SKILL.md: the key {key[:50]!a} is not known; known are {', '.join(_KEYS)}")
    return SkillManifest(
        _read_name(fields, folder), _read_description(fields), _read_tools(fields.get("allowed-tools", ""))
    )


def parse_body(content: bytes) -> str:
    """Return the instructions of a SKILL.md. Raise InvalidSkill."""
    return _split_frontmatter(content)[1].strip()


# ── The fields ──


def _read_name(fields: dict[str, Any], folder: str) -> str:
    name = unicodedata.normalize("NFKC", _read_text(fields, "name", required=True).strip())
    if (wrong := find_name_error(name)) is not None:
        raise InvalidSkill(f"SKILL.md: {wrong}")
    if name != folder:
        raise InvalidSkill(f"SKILL.md: the name is `{name}`, and the folder is {folder!a}; they must be the same")
    return name


def _read_description(fields: dict[str, Any]) -> str:
    text = _read_text(fields, "description", required=True)
    if len(text) > _MAX_DESCRIPTION_CHARACTERS:
        raise InvalidSkill(
            f"SKILL.md: the description has {len(text)} characters; "
            f"at most {_MAX_DESCRIPTION_CHARACTERS} are accepted"
        )
    compatibility = _read_text(fields, "compatibility")
    if len(compatibility) > _MAX_COMPATIBILITY_CHARACTERS:
        raise InvalidSkill(f"SKILL.md: compatibility has more than {_MAX_COMPATIBILITY_CHARACTERS} characters")
    return make_one_line(text)


def _read_text(fields: dict[str, Any], key: str, required: bool = False) -> str:
    value = fields.get(key, "")
    if not isinstance(value, str):
        raise InvalidSkill(f"SKILL.md: {key} must be text")
    if required and not value.strip():
        raise InvalidSkill(f"SKILL.md: {key} is {'empty' if key in fields else 'missing'}; it must be text")
    return value


def _read_tools(value: Any) -> tuple[str, ...]:
    texts = cast("list[Any]", value) if isinstance(value, list) else [value]
    named: list[str] = []
    for text in texts:
        if not isinstance(text, str):
            raise InvalidSkill("SKILL.md: allowed-tools must be names of tools with spaces between them")
        if has_hidden(text.replace("\n", " ").replace("\t", " ")):
            raise InvalidSkill("SKILL.md: allowed-tools has characters that cannot be seen")
        named += _TOOL.findall(text)
    return tuple(dict.fromkeys(tool.rstrip(",") for tool in named if tool != ","))


# ── From bytes to plain values ──


def _split_frontmatter(content: bytes) -> tuple[str, str]:
    """Return the frontmatter and the text after it."""
    if len(content) > MAX_BYTES:
        raise InvalidSkill(f"SKILL.md is {len(content)} bytes long; at most {MAX_BYTES} are accepted")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InvalidSkill(f"SKILL.md: byte {error.start + 1} is not UTF-8; save it as UTF-8") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    first, _, rest = text.partition("\n")
    if first.rstrip() != _FENCE:
        raise InvalidSkill("SKILL.md must begin with a line `---`, then name and description, then a line `---`")
    front, fence, after = rest.partition(_FENCE)
    line_end, _, instructions = after.partition("\n")
    if not fence:
        raise InvalidSkill("SKILL.md: no line `---` ends the frontmatter")
    if (front and not front.endswith("\n")) or line_end.strip():
        raise InvalidSkill("SKILL.md: `---` may occur in the frontmatter only as the line that ends it")
    if len(front) > MAX_FRONTMATTER_CHARACTERS:
        raise InvalidSkill(f"SKILL.md: the frontmatter has more than {MAX_FRONTMATTER_CHARACTERS} characters")
    return front, instructions


def _parse_fields(front: str) -> dict[str, Any]:
    try:
        events: list[yaml.Event] = list(_parse(front, _YAML))
    except (yaml.YAMLError, ValueError) as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        where = "" if mark is None else f", line {mark.line + 2}"
        raise InvalidSkill(f"SKILL.md{where}: the frontmatter is not valid YAML") from None
    reader = _PlainReader(events)
    value = reader.document()
    if not isinstance(value, dict):
        raise InvalidSkill("SKILL.md: the frontmatter must be keys with values, one on each line")
    return cast("dict[str, Any]", value)


class _PlainReader:
    """Builds texts, lists and mappings from the events of a YAML parser. Nothing is resolved and nothing refers to
    anything else, so a small input stays small."""

    def __init__(self, events: list[yaml.Event]) -> None:
        self._events = iter(events)
        self._documents = 0

    def document(self) -> Any:
        value: Any = None
        for event in self._events:
            if isinstance(event, yaml.DocumentEndEvent) and event.explicit:
                raise InvalidSkill("SKILL.md: the line that ends the frontmatter is `---`, not `...`")
            if isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise InvalidSkill("SKILL.md: the frontmatter must be one YAML document")
                value = self._value(next(self._events), 0)
        return value

    def _value(self, event: yaml.Event, depth: int) -> Any:
        line = event.start_mark.line + 2
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise InvalidSkill(f"SKILL.md, line {line}: anchors (&) and aliases (*) are not accepted")
        if getattr(event, "tag", None) is not None:
            raise InvalidSkill(f"SKILL.md, line {line}: tags (!) are not accepted")
        if getattr(event, "flow_style", False):
            raise InvalidSkill(
                f"SKILL.md, line {line}: {{…}} and […] are not accepted; write each value on its own line"
            )
        if depth > _MAX_DEPTH:
            raise InvalidSkill(f"SKILL.md, line {line}: it is nested too deeply")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(depth + 1)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(depth + 1)
        return str(event.value) if isinstance(event, yaml.ScalarEvent) else ""

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            found.append(self._value(event, depth))
        return found

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._value(event, depth)
            if not isinstance(key, str):
                raise InvalidSkill("SKILL.md: a key of the frontmatter is not text")
            if key in found:
                raise InvalidSkill(f"SKILL.md: the key {key[:50]!a} is there twice; remove one")
            found[key] = self._value(next(self._events), depth)
        return found
