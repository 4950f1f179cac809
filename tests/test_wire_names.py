"""Names that others store or send: a renaming in the code must not change them.

Change `wire_names.json` on purpose only, in a commit of its own with a changelog entry:
`python -m tests.test_wire_names`."""

import importlib
import json
import pkgutil
import re
from pathlib import Path
from typing import get_type_hints

import msgspec
from msgspec.structs import StructConfig

import treadle
from treadle.domain.errors import TreadleError

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "treadle"
RECORDED = Path(__file__).with_name("wire_names.json")


def import_everything() -> None:
    for module in pkgutil.walk_packages(treadle.__path__, "treadle."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def all_subclasses(kind: type) -> set[type]:
    below = set(kind.__subclasses__())
    return below.union(*(all_subclasses(each) for each in below))


def list_own_subclasses(kind: type) -> set[type]:
    return {each for each in all_subclasses(kind) if each.__module__.startswith("treadle.")}


def struct_config(kind: type) -> StructConfig:
    config = getattr(kind, "__struct_config__", None)
    assert isinstance(config, StructConfig)
    return config


def find_all_matches(pattern: str, *suffixes: str) -> list[str]:
    """Return what a pattern finds in the source, each once."""
    files = [path for suffix in suffixes for path in SOURCE.rglob(f"*{suffix}")]
    return sorted({match for path in files for match in re.findall(pattern, path.read_text())})


def served_paths() -> set[str]:
    """Return the paths below /v1 that the server has routes for."""
    from treadle.surfaces.http.application import all_routes

    return {route.path for route in all_routes() if route.path.startswith("/v1/")}


def wire_names() -> dict[str, object]:
    import_everything()
    from treadle.domain.events import VOCABULARY

    tagged = [
        config for config in map(struct_config, list_own_subclasses(msgspec.Struct)) if config.tag is not None
    ]
    return {
        "problems": sorted({each.__name__ for each in list_own_subclasses(TreadleError)}),
        "struct tags": sorted([str(config.tag_field), str(config.tag)] for config in tagged),
        "events": {
            name: {"durable": kind.durable, "stream": kind.stream, "fields": sorted(get_type_hints(kind.data))}
            for name, kind in sorted(VOCABULARY.items())
        },
        "sql functions": find_all_matches(r"(?i)CREATE (?:OR REPLACE )?FUNCTION (\w+)", ".sql"),
        "tables": find_all_matches(r"(?i)CREATE (?:UNLOGGED |VIRTUAL )?TABLE (?:IF NOT EXISTS )?(\w+)", ".sql"),
        "notify channels": find_all_matches(r"pg_notify\('(\w+)'", ".sql"),
        "advisory locks": find_all_matches(r"\((\d+)::BIGINT << 48\)", ".sql")
        + find_all_matches(r"\n(?:MIGRATION_)?LOCK_ID = (\w+)", ".py"),
        "queue entrypoints": find_all_matches(r'\nJOB = "(\w+)"', ".py"),
        "metrics": find_all_matches(r'"(treadle_\w+)"', ".py"),
        "entry points": find_all_matches(r'GROUP = "([\w.]+)"', ".py"),
        "routes": sorted(served_paths()),
    }


def test_names_on_the_wire_match_the_record() -> None:
    assert wire_names() == json.loads(RECORDED.read_text())


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(wire_names(), indent=1, ensure_ascii=False) + "\n")
