"""The engine imports nothing from folders that runs can write, and programs that contain it still import their own
modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit import hook
from treadle.domain.writable_places import WritablePlaces
from treadle.system.engine_places import list_engine_places
from treadle.system.import_guard import ImportGuard

TRACE = "open({!r}, 'a').write(__name__ + '\\n')\n"


@pytest.fixture
def guard() -> ImportGuard:
    return ImportGuard(list_engine_places())


def plant(folder: Path, trace: Path, *names: str) -> None:
    for name in names:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(TRACE.format(str(trace)))


def run_python(source: str, folder: Path, **environment: str) -> str:
    given = {"PATH": os.environ["PATH"], "HOME": str(folder), hook.VARIABLE: "", **environment}  # without the audit
    ended = subprocess.run(
        [sys.executable, "-c", source], cwd=folder, env=given, capture_output=True, text=True, check=False
    )
    return ended.stdout + ended.stderr


IMPORT_AS = """
import sys, types
from treadle.domain.writable_places import WritablePlaces
from treadle.system.engine_places import list_engine_places, PACKAGE_ROOT
from treadle.system.import_guard import guard_imports
guard_imports(list_engine_places()).exclude(WritablePlaces(({folder!r},)))
ATTEMPT = '''
try:
    import {{0}}
    print({{0}}.__name__, "loaded")
except ImportError as error:
    print("{{0}} refused:", error)
'''
def attempt(name, file):
    exec(compile(ATTEMPT.replace("{{0}}", name), file, "exec"), {{"__name__": "x"}})
engine, library = str(PACKAGE_ROOT / "treadle" / "late.py"), sys.modules["msgspec"].__file__
def call_from(file, name, library):
    source = compile(ATTEMPT.replace("{{0}}", name), library, "exec")
    exec(compile("exec(source, {{}})", file, "exec"), {{"__name__": "x", "source": source}})
"""


def test_the_engine_and_its_packages_import_nothing_from_a_workspace_on_the_search_path(tmp_path: Path) -> None:
    work, trace = tmp_path / "work", tmp_path / "trace"
    plant(work, trace, "tomllib", "no_such_package", "wave", "own_module", "colorsys")
    source = IMPORT_AS.format(folder=os.path.realpath(work)) + (
        "attempt('tomllib', engine)\n"
        "attempt('no_such_package', engine)\n"
        "call_from(engine, 'wave', library)\n"
        "import asyncio\n"
        "async def main():\n"
        "    asyncio.get_running_loop().call_soon(exec, compile('import colorsys', library, 'exec'), {})\n"
        "    await asyncio.sleep(0.01)\n"
        "asyncio.run(main())\n"
    )
    shown = run_python(f"import sys; sys.path.insert(0, {str(work)!r})\n{source}", tmp_path)
    assert "tomllib loaded" in shown
    assert "no_such_package refused: No module named 'no_such_package' outside of the folders that runs" in shown
    assert not trace.exists(), trace.read_text()


def test_the_program_imports_its_own_modules_from_there(tmp_path: Path) -> None:
    work, trace = tmp_path / "work", tmp_path / "trace"
    plant(work, trace, "own_module")
    source = IMPORT_AS.format(folder=os.path.realpath(work)) + f"attempt('own_module', {str(work / 'app.py')!r})\n"
    shown = run_python(f"import sys; sys.path.insert(0, {str(work)!r})\n{source}", tmp_path)
    assert "own_module loaded" in shown


def test_a_namespace_in_the_workspace_is_not_imported_from_a_folder_that_contains_it(tmp_path: Path) -> None:
    work, trace = tmp_path / "work", tmp_path / "trace"
    plant(work, trace, "module")
    source = IMPORT_AS.format(folder=os.path.realpath(work)) + "attempt('work.module', engine)\n"
    shown = run_python(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{source}", tmp_path)
    assert "work.module refused" in shown
    assert not trace.exists()


def test_a_link_in_the_workspace_is_followed_as_it_was_at_the_start(tmp_path: Path) -> None:
    work, trace = tmp_path / "work", tmp_path / "trace"
    real = tmp_path / "installed"
    real.mkdir()
    (real / "late_package.py").write_text("")
    plant(work / "evil", trace, "late_package")
    (work / "packages").symlink_to(real)
    source = IMPORT_AS.format(folder=os.path.realpath(work)) + (
        f"import os; os.unlink({str(work / 'packages')!r}); os.symlink('evil', {str(work / 'packages')!r})\n"
        "attempt('late_package', engine)\n"
    )
    shown = run_python(f"import sys; sys.path.insert(0, {str(work / 'packages')!r})\n{source}", tmp_path)
    assert "late_package loaded" in shown
    assert not trace.exists()


def test_a_package_that_links_into_the_workspace_is_not_imported(tmp_path: Path) -> None:
    work, trace = tmp_path / "work", tmp_path / "trace"
    plant(work / "linked_package", trace, "__init__", "part")
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "linked_package").symlink_to(work / "linked_package")
    source = IMPORT_AS.format(folder=os.path.realpath(work)) + "attempt('linked_package', engine)\n"
    shown = run_python(f"import sys; sys.path.insert(0, {str(installed)!r})\n{source}", tmp_path)
    assert "linked_package refused" in shown
    assert not trace.exists()


def test_without_writable_places_the_guard_stays_out_of_the_way(guard: ImportGuard) -> None:
    assert guard.find_spec("json") is None
    guard.exclude(WritablePlaces(("/nowhere",)))
    assert guard.find_spec("json") is None  # a test is the program


def test_the_command_line_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    work, trace = tmp_path / "work", tmp_path / "trace"
    plant(work, trace, "aiohttp", "apsw", "treadle_late", "colorsys")
    shown = subprocess.run(
        [str(Path(sys.executable).with_name("treadle")), "agents", "list"],
        cwd=work,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(work)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert not trace.exists(), trace.read_text()
