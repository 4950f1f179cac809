"""The direction of the arrows: domain <- ports <- core <- engine <- operations <- surfaces; `bootstrap` wires.

Imports are read from the source, also those inside functions; what is imported for type checkers alone counts."""

import ast
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "treadle"
FILES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))

MAY_IMPORT: dict[str, set[str]] = {
    "domain": set(),
    "system": {"domain"},
    "ports": {"domain"},
    "core": {"domain", "ports"},
    "engine": {"domain", "ports", "core", "system"},
    "replay": {"domain", "ports", "core", "engine", "system"},
    "operations": {"domain", "ports", "core", "engine", "replay"},
    "models": {"domain", "ports", "system"},
    "tools": {"domain", "ports"},
    "stores": {"domain", "ports"},
    "sandbox": {"domain", "ports", "system"},
    "vault": {"domain", "ports"},
    "memory": {"domain", "ports"},
    "skills": {"domain", "ports"},
    "mcp": {"domain", "ports"},
    "dispatch": {"domain", "ports"},
    "remote": {"domain", "ports", "operations", "system"},
    "telemetry": {"domain", "ports"},
    "automation": {"domain", "ports", "operations"},
    "channels": {"domain", "ports", "operations"},
    "config": {"domain"},
    "surfaces": {
        "", "api", "backup", "bootstrap", "config", "doctor", "domain", "operations", "mcp", "ports", "remote",
        "skills", "system", "telemetry", "vault",
    },
    "": {"api", "domain", "ports", "tools"},
}  # fmt: skip
"""Package -> the other packages that it may import; `` is `treadle` itself, which programs import.

A surface opens an engine (`api`, `bootstrap`), or only reads and edits the files of a home, its vault included. Of
the ports it knows the values that operations return."""
WIRES = {"api", "backup", "bootstrap", "doctor", "testing"}
"""The composition root, what programs open with it, what looks at a whole home, and the test doubles."""
DEMO = Path("surfaces/demo.py")
"""Shows a run on the scripted model, and says so."""
ADAPTERS = {
    "models", "tools", "mcp", "stores", "sandbox", "vault", "memory", "skills", "dispatch", "backup", "telemetry",
}  # fmt: skip
IMPURE = {
    "asyncio", "asyncpg", "aiohttp", "apsw", "argparse", "time", "os", "random", "logging", "socket", "ssl",
    "sqlite3", "subprocess", "threading", "pathlib", "secrets", "datetime", "tempfile", "shutil", "signal", "sys",
    "urllib", "http",
}  # fmt: skip
KNOW_THE_CALENDAR = {
    Path("domain/envelope.py"), Path("domain/events/version_1.py"), Path("domain/schedules.py"),
    Path("domain/time_format.py"),
}  # fmt: skip
"""They put a moment that they are given into words; none of them asks what time it is."""
NEEDS_A_NETWORK = {"aiohttp", "apsw", "asyncpg", "yaml"}


def room(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else path.stem.removeprefix("__init__")


@cache
def text_of(path: Path) -> str:
    return (SOURCE / path).read_text()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def imported(path: Path) -> set[str]:
    """The full names of all modules that a file imports, and of what it imports from them."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Import(names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module, names, level):
                assert level == 0, f"{path}:{node.lineno}: imports are absolute"
                found |= {f"{module}.{alias.name}" for alias in names} | {str(module)}
            case _:
                pass
    return found


def rooms_of(path: Path) -> set[str]:
    """The rooms of ours that a file imports from."""
    ours = [name.split(".") for name in imported(path) if name.split(".")[0] == "treadle"]
    known = set(MAY_IMPORT) | WIRES
    return {names[1] if len(names) > 1 and names[1] in known else "" for names in ours}


def third_party(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def of(*rooms: str) -> list[Path]:
    return [path for path in FILES if room(path) in rooms]


def faulty(paths: Iterable[Path], fault: Callable[[Path], object]) -> dict[str, object]:
    """Return what is wrong, by file. One test for all files costs less than one for each."""
    return {str(path): found for path in paths if (found := fault(path))}


def test_a_file_looks_only_where_its_room_may_look() -> None:
    def looks_elsewhere(path: Path) -> set[str]:
        allowed = MAY_IMPORT[room(path)] | {room(path)} | ({"testing"} if path == DEMO else set[str]())
        return rooms_of(path) - allowed

    assert faulty([path for path in FILES if room(path) not in WIRES], looks_elsewhere) == {}


def test_the_pure_parts_touch_nothing_outside() -> None:
    def touches(path: Path) -> set[str]:
        allowed = {"datetime"} if path in KNOW_THE_CALENDAR else set[str]()  # the envelope's way to write a time
        if path == Path("domain/providers.py"):
            allowed = {"urllib"}  # to take a URL apart
        return (third_party(path) & IMPURE) - allowed

    assert faulty(of("domain", "core"), touches) == {}


def test_the_engine_names_no_network_database_or_terminal_library() -> None:
    paths = of("engine", "operations", "ports", "dispatch")
    assert faulty(paths, lambda path: third_party(path) & NEEDS_A_NETWORK) == {}


def test_only_the_composition_root_names_several_adapters() -> None:
    def several(path: Path) -> set[str]:
        found = (rooms_of(path) | {room(path)}) & ADAPTERS
        return found if len(found) > 1 else set()

    assert faulty([path for path in FILES if room(path) not in WIRES], several) == {}


def test_shipped_code_does_not_import_the_test_doubles() -> None:
    ships = [path for path in FILES if room(path) != "testing" and path != DEMO]
    assert faulty(ships, lambda path: "testing" in rooms_of(path)) == {}


def test_a_file_can_be_read_in_one_sitting() -> None:
    def too_long(path: Path) -> int:
        lines = len(text_of(path).splitlines())
        return lines if lines > (300 if path == Path("engine/loop.py") else 400) else 0

    assert faulty(FILES, too_long) == {}


def test_a_module_says_what_lives_in_it() -> None:
    assert faulty(FILES, lambda path: not ast.get_docstring(parsed(path))) == {}


def test_the_rooms_are_those_of_this_page() -> None:
    assert {room(path) for path in FILES} == set(MAY_IMPORT) | WIRES
