"""Suites as files: reading `evals/NAME.yaml`, with errors that name file, line and cure, and adding a case."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml
from msgspec import Struct

from treadle.config.yaml_files import dump_yaml, read_plain
from treadle.domain.errors import ConfigError, UsageError
from treadle.domain.settings import InvalidValue, check_struct
from treadle.domain.suggestions import find_closest
from treadle.domain.suites import CHECKS, Case, Check, Suite

FOLDER = "evals"
SUFFIX = ".yaml"
MAX_BYTES = 50_000_000
"""Recorded results may be long."""
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_LOCATION = re.compile(r"[\w.\[\]-]+")


class SuiteFile(Struct, frozen=True):
    """A suite and where it was read."""

    name: str
    path: Path
    suite: Suite


def find_suite_path(name: str, folder: Path) -> Path:
    """Return the path of a suite: a path as it is, or `evals/NAME.yaml` below a folder."""
    if name.endswith((SUFFIX, ".yml")) or "/" in name:
        return folder / name
    return folder / FOLDER / f"{name}{SUFFIX}"


def read_suite(name: str, *folders: Path) -> SuiteFile:
    """Return a suite from the first of the folders that has it. Raise ConfigError with file, line and cure."""
    paths = [find_suite_path(name, folder) for folder in folders]
    path = next((each for each in paths if each.is_file()), paths[0])
    if not path.is_file():
        known = sorted({each.stem for folder in folders for each in (folder / FOLDER).glob(f"*{SUFFIX}")})
        near = find_closest(name, known)
        hint = f"Did you mean `{near}`?" if near else f"Suites: {', '.join(known) or 'none yet'}."
        raise UsageError(f"There is no suite {path}. {hint} `treadle eval add RUN` makes one.")
    data = read_plain(path, MAX_BYTES)
    try:
        suite = parse_suite(data)
    except InvalidValue as error:
        line = find_line(path.read_text(encoding="utf-8-sig"), str(error))
        raise ConfigError(f"{path}:{line}: {error}") from None
    return SuiteFile(path.stem, path, suite)


def parse_suite(data: Any) -> Suite:
    """Return plain values as a suite. Raise InvalidValue that begins with the place of what is wrong."""
    if not isinstance(data, dict):
        raise InvalidValue("found no mapping; accepted: the keys agent, targets, checks and cases")
    values = dict(cast("dict[str, Any]", data))
    checks = tuple(_parse_checks(values.pop("checks", []), "checks"))
    raw_cases: Any = values.pop("cases", [])
    suite = check_struct(values, Suite)
    if not isinstance(raw_cases, list):
        raise InvalidValue("cases: found no list; accepted: a list of cases")
    cases = [_parse_case(each, f"cases[{place}]") for place, each in enumerate(cast("list[Any]", raw_cases))]
    seen: set[str] = set()
    for place, case in enumerate(cases):
        if case.name in seen:
            raise InvalidValue(
                f"cases[{place}].name: `{case.name}` is there twice; give each case a name of its own"
            )
        seen.add(case.name)
    return msgspec.structs.replace(suite, checks=checks, cases=tuple(cases))


def _parse_case(data: Any, at: str) -> Case:
    if not isinstance(data, dict):
        raise InvalidValue(f"{at}: found no mapping; accepted: a case with name, message and checks")
    values = dict(cast("dict[str, Any]", data))
    checks = tuple(_parse_checks(values.pop("checks", []), f"{at}.checks"))
    return msgspec.structs.replace(check_struct(values, Case, at), checks=checks)


def _parse_checks(data: Any, at: str) -> list[Check]:
    if not isinstance(data, list):
        raise InvalidValue(f"{at}: found no list; accepted: a list of checks")
    return [_parse_check(each, f"{at}[{place}]") for place, each in enumerate(cast("list[Any]", data))]


def _parse_check(data: Any, at: str) -> Check:
    kinds = {str(kind.__struct_config__.tag): kind for kind in CHECKS}
    if not isinstance(data, dict) or not isinstance(tag := cast("dict[str, Any]", data).get("check"), str):
        raise InvalidValue(f"{at}.check is missing; accepted: {', '.join(kinds)}")
    if tag not in kinds:
        near = find_closest(tag, list(kinds))
        hint = f"did you mean `{near}`? " if near else ""
        raise InvalidValue(f"{at}.check: found `{tag}`; {hint}accepted: {', '.join(kinds)}")
    values = {name: value for name, value in cast("dict[str, Any]", data).items() if name != "check"}
    return cast("Check", _check_untagged(values, kinds[tag], at))


def _check_untagged(values: dict[str, Any], kind: type[Struct], at: str) -> Struct:
    """Return a tagged struct from values without the tag, which `check_struct` does not know."""
    fields = [
        (field.name, field.type)
        if field.required
        else (field.name, field.type, field.default)
        if field.default is not msgspec.NODEFAULT
        else (field.name, field.type, msgspec.field(default_factory=field.default_factory))
        for field in msgspec.structs.fields(kind)
    ]
    plain = msgspec.defstruct(kind.__name__, fields, frozen=True, kw_only=True)
    return kind(**msgspec.structs.asdict(check_struct(values, plain, at)))


def find_line(text: str, error: str) -> int:
    """Return the line of the place that an error begins with, or of the nearest one around it."""
    found = _LOCATION.match(error)
    node: Any = cast("Any", yaml).compose(text, yaml.SafeLoader)
    line = 1
    for name, index in _STEP.findall(found[0] if found else ""):
        if isinstance(node, yaml.MappingNode) and name:
            inner = [(key, value) for key, value in node.value if key.value == name]
            if not inner:
                return line
            line, node = inner[0][0].start_mark.line + 1, inner[0][1]
        elif isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
            node = node.value[int(index)]
            line = node.start_mark.line + 1
        else:
            return line
    return line


# ── Writing ──


def add_case(path: Path, agent: str, case: Case) -> str:
    """Add a case to a suite, which is created if it is missing. Return the name that the case has there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Run it with: treadle eval run {path.stem}\n{dump_yaml({'agent': agent})}cases:\n")
    text = path.read_text(encoding="utf-8-sig")
    known = _read_names(path)
    named = msgspec.structs.replace(case, name=_make_unique(case.name, known))
    entry = dump_yaml([_plain_case(named)], width=110)
    if not _ends_with_cases(text):
        raise UsageError(f"{path} does not end with the list `cases`. Move it to the end, then add the case again.")
    path.write_text(text.rstrip("\n") + "\n" + "".join(f"  {line}" for line in entry.splitlines(keepends=True)))
    return named.name


def _plain_case(case: Case) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(case)
    for call in values.get("calls") or ():
        call.setdefault("arguments", {})
    return values


def _read_names(path: Path) -> set[str]:
    data = read_plain(path, MAX_BYTES)
    cases: Any = cast("dict[str, Any]", data).get("cases") if isinstance(data, dict) else None
    found = [cast("dict[str, Any]", each) for each in cases or () if isinstance(each, dict)]
    return {str(each.get("name")) for each in found}


def _make_unique(name: str, known: set[str]) -> str:
    number, found = 1, name
    while found in known:
        number += 1
        found = f"{name}-{number}"
    return found


def _ends_with_cases(text: str) -> bool:
    keys: Sequence[str] = re.findall(r"^([A-Za-z_]+):", text, flags=re.MULTILINE)
    return bool(keys) and keys[-1] == "cases"
