"""The direction of the arrows: domain <- ports <- core <- engine <- operations <- surfaces; `bootstrap` wires.

Imports are read from the source, including those inside functions and those for type checkers only."""

import ast
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

from treadle.domain.events import NAMES

SOURCE = Path(__file__).parent.parent / "src" / "treadle"
FILES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
MODULES = {".".join(("treadle", *path.with_suffix("").parts)).removesuffix(".__init__"): path for path in FILES}

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
    "file_versions": {"domain", "ports"},
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
    "home": {
        "config", "core", "domain", "engine", "mcp", "models", "operations", "ports", "sandbox", "skills", "system",
        "tools", "vault",
    },
    "surfaces": {
        "", "api", "backup", "bootstrap", "config", "doctor", "domain", "evaluation", "home", "operations", "mcp",
        "ports", "remote", "skills", "system", "telemetry", "vault",
    },
    "evaluation": {"api", "config", "domain", "operations", "ports"},
    "": {"api", "domain", "ports", "surfaces", "tools"},
}  # fmt: skip
"""Package -> the other packages that it may import; `` is `treadle` itself, which programs import. One of its
names is of a surface: `asgi`.

A surface opens an engine (`api`, `bootstrap`), or only reads and edits the files of a home, its vault included. Of
the ports it knows the values that operations return."""
SURFACES: dict[str, set[str]] = {
    "terminal": set(),
    "markdown": {"terminal"},
    "mcp": set(),
    "http": {"mcp"},
    "home_access": {"http", "terminal"},
    "tui": {"home_access", "markdown", "terminal"},
    "acp": {"home_access", "terminal"},
    "demo": {"terminal"},
    "server": {"home_access", "http", "terminal"},
    "cli": {"acp", "home_access", "http", "markdown", "mcp", "server", "terminal", "tui"},
}
"""Surface, or what several surfaces share -> the others that it may import.

The command line starts the other surfaces. The HTTP server has the MCP server at `/mcp`. The process that owns a
home answers the commands that attach to it over HTTP."""
BOOTSTRAP_MAY_NOT_IMPORT = {"api", "backup", "doctor", "surfaces", "testing"}
"""They use the composition root."""
UNRESTRICTED = {"api", "backup", "bootstrap", "doctor", "testing"}
"""The composition root, the public API, programs for a whole home, and the test doubles."""
DEMO = Path("surfaces/demo.py")
"""The demo runs the scripted model, which is a test double."""
ADAPTERS = {
    "file_versions", "models", "tools", "mcp", "stores", "sandbox", "vault", "memory", "skills", "dispatch",
    "backup", "telemetry",
}  # fmt: skip
IMPURE = {
    "asyncio", "asyncpg", "aiohttp", "apsw", "argparse", "time", "os", "random", "logging", "socket", "ssl",
    "sqlite3", "subprocess", "threading", "pathlib", "secrets", "datetime", "tempfile", "shutil", "signal", "sys",
    "urllib", "http",
}  # fmt: skip
MAY_FORMAT_TIMES = {
    Path("domain/envelope.py"), Path("domain/schedules.py"),
    Path("domain/time_format.py"),
}  # fmt: skip
"""They format times that they are given. None of them reads the clock."""
NEEDS_A_NETWORK = {"aiohttp", "apsw", "asyncpg", "yaml"}


def package_of(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else path.stem.removeprefix("__init__")


@cache
def text_of(path: Path) -> str:
    return (SOURCE / path).read_text()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def imported(path: Path) -> set[str]:
    """Return the full names of all modules and names that a file imports."""
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


def imported_packages(path: Path) -> set[str]:
    """Return the packages of Treadle that a file imports from."""
    ours = [name.split(".") for name in imported(path) if name.split(".")[0] == "treadle"]
    known = set(MAY_IMPORT) | UNRESTRICTED
    return {names[1] if len(names) > 1 and names[1] in known else "" for names in ours}


def third_party(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def files_of(*packages: str) -> list[Path]:
    return [path for path in FILES if package_of(path) in packages]


def find_faults(paths: Iterable[Path], fault: Callable[[Path], object]) -> dict[str, object]:
    """Return the faults by file. One test for all files costs less than one for each."""
    return {str(path): found for path in paths if (found := fault(path))}


def test_a_file_imports_only_what_its_package_may_import() -> None:
    def find_forbidden(path: Path) -> set[str]:
        allowed = MAY_IMPORT[package_of(path)] | {package_of(path)} | ({"testing"} if path == DEMO else set[str]())
        return imported_packages(path) - allowed

    assert find_faults([path for path in FILES if package_of(path) not in UNRESTRICTED], find_forbidden) == {}


def surfaces_imported(path: Path) -> set[str]:
    """Return the surfaces, and the packages they share, that a file imports."""
    names = (name.split(".") for name in imported(path) if name.startswith("treadle.surfaces."))
    return {parts[2] for parts in names}


def test_a_surface_imports_no_other_but_what_they_share() -> None:
    def find_forbidden(path: Path) -> set[str]:
        own = Path(path.parts[1]).stem
        return surfaces_imported(path) - SURFACES[own] - {own}

    files = [path for path in files_of("surfaces") if path.name != "__init__.py" or len(path.parts) > 2]
    assert find_faults(files, find_forbidden) == {}
    others = [path for path in FILES if package_of(path) not in ("surfaces", "")]
    assert find_faults(others, surfaces_imported) == {}
    assert surfaces_imported(Path("__init__.py")) == {"http"}


def test_domain_and_core_import_no_impure_library() -> None:
    def touches(path: Path) -> set[str]:
        allowed = {"datetime"} if path in MAY_FORMAT_TIMES else set[str]()  # the envelope's way to write a time
        if path == Path("domain/providers.py"):
            allowed = {"urllib"}  # to take a URL apart
        return (third_party(path) & IMPURE) - allowed

    assert find_faults(files_of("domain", "core"), touches) == {}


def test_the_engine_names_no_network_database_or_terminal_library() -> None:
    paths = files_of("engine", "operations", "ports", "dispatch")
    assert find_faults(paths, lambda path: third_party(path) & NEEDS_A_NETWORK) == {}


def test_only_the_composition_root_names_several_adapters() -> None:
    def several(path: Path) -> set[str]:
        found = (imported_packages(path) | {package_of(path)}) & ADAPTERS
        return found if len(found) > 1 else set()

    files = [path for path in FILES if package_of(path) not in {*UNRESTRICTED, "home"}]  # the ports of a home
    assert find_faults(files, several) == {}


def test_the_composition_root_imports_none_of_its_users() -> None:
    assert find_faults(files_of("bootstrap"), lambda path: imported_packages(path) & BOOTSTRAP_MAY_NOT_IMPORT) == {}


def imported_modules(path: Path) -> set[str]:
    """Return the modules of Treadle that a file imports. Modules that are loaded by their name, such as those of
    commands, do not count."""
    return imported(path) & MODULES.keys()


def find_circles(imports: Mapping[str, set[str]]) -> list[str]:
    """Return the modules that are part of a circle of imports, or that connect two circles."""
    left = {name: needs - {name} for name, needs in imports.items()}
    while done := [name for name, needs in left.items() if not needs & left.keys()]:
        left = {name: needs for name, needs in left.items() if name not in done}
    while done := left.keys() - set[str]().union(*left.values()):
        left = {name: needs for name, needs in left.items() if name not in done}
    return sorted(left)


def test_modules_do_not_import_each_other_in_circles() -> None:
    """Imports inside functions and imports for type checkers count too."""
    assert find_circles({name: imported_modules(path) for name, path in MODULES.items()}) == []


def test_a_circle_is_found_with_its_members_only() -> None:
    assert find_circles({"leaf": set(), "a": {"b", "leaf"}, "b": {"a"}, "user": {"a"}}) == ["a", "b"]


def list_constructions(name: str) -> set[str]:
    """Return the files that call something by this name, with or without the module before it."""
    found: set[str] = set()
    for path in FILES:
        calls = [node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
        named = {call.id for call in calls if isinstance(call, ast.Name)}
        named |= {call.attr for call in calls if isinstance(call, ast.Attribute)}
        found |= {str(path)} if name in named else set()
    return found


MAX_POSITIONAL = 5


def list_structs() -> set[str]:
    """Return the names of the structs, which are unique."""
    classes = [node for path in FILES for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)]
    bases = {node.name: {ast.unparse(base).partition("[")[0] for base in node.bases} for node in classes}
    found = {"Struct"}
    while more := {name for name, parents in bases.items() if parents & found} - found:
        found |= more
    return found


def test_structs_with_many_fields_are_made_with_keywords() -> None:
    structs = list_structs()
    assert len(structs) > 500
    found = [
        f"{path}:{call.lineno}"
        for path in FILES
        for call in ast.walk(parsed(path))
        if isinstance(call, ast.Call)
        and len(call.args) > MAX_POSITIONAL
        and ast.unparse(call.func).rpartition(".")[2] in structs
        and not any(isinstance(argument, ast.Starred) for argument in call.args)
    ]
    assert found == []


def test_one_module_makes_submissions_so_every_run_starts_in_one_way() -> None:
    assert list_constructions("Submission") == {"operations/run_start.py"}


EVENT_CLASSES = {kind.__name__ for kind in NAMES}
READS_EVENTS = {
    "channels/runner.py": "it passes on the events of deliveries",
    "channels/decisions.py": "an open question is the event that asks it",
    "channels/inbox.py": "it writes events of the channel itself",
    "channels/outbox.py": "it writes events of the channel itself",
    "channels/run_watch.py": "it starts again after a reset of the stream",
    "surfaces/cli/guard_self_test.py": "it proves guards by what is in the journal",
    "surfaces/demo.py": "it prints the counts at the end of its run",
    "surfaces/http/openai": "it maps tokens directly, which is cheaper",
}


def reads_events(path: Path) -> bool:
    """Return whether a file imports all events, or the class of one."""
    names = {name.rpartition(".") for name in imported(path) if name.startswith("treadle.domain.events")}
    return any(name == "events" or name in EVENT_CLASSES for _, _, name in names)


def test_surfaces_show_transcripts_and_interpret_no_event() -> None:
    files = [path for path in FILES if package_of(path) in ("surfaces", "channels") and reads_events(path)]
    assert {str(path) for path in files if not str(path).startswith(tuple(READS_EVENTS))} == set()
    assert all(any(str(path).startswith(place) for path in files) for place in READS_EVENTS), (
        "it need not be listed"
    )


def test_shipped_code_does_not_import_the_test_doubles() -> None:
    ships = [path for path in FILES if package_of(path) != "testing" and path != DEMO]
    assert find_faults(ships, lambda path: "testing" in imported_packages(path)) == {}


def test_every_module_has_a_docstring() -> None:
    assert find_faults(FILES, lambda path: not ast.get_docstring(parsed(path))) == {}


def test_every_package_has_its_imports_listed_here() -> None:
    assert {package_of(path) for path in FILES} == set(MAY_IMPORT) | UNRESTRICTED


def test_only_the_loop_takes_all_parts_of_the_engine() -> None:
    """Other functions take the part that they need (`engine/deps.py`)."""
    takers = {
        str(path)
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.arg)
        and node.annotation is not None
        and "EngineDeps" in ast.unparse(node.annotation)
    }
    assert takers == {"engine/loop.py", "bootstrap/engine.py"}
