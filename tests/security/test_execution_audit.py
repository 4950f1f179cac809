"""The audit of the suite finds what it is there to find, in every kind of process of the engine."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit import hook
from tests.audit.plugin import AUDIT

ATTACK = """
import sys
from treadle.domain.writable_places import WritablePlaces
from treadle.system import helper_process
from treadle.system.engine_places import list_engine_places
from treadle.system.import_guard import guard_imports

work = sys.argv[1]
guard_imports(list_engine_places()).exclude(WritablePlaces((work,), (work + "/kept",)))
"""
ATTACKS = {
    "exec": "exec(compile(open(work + '/evil.py').read(), work + '/evil.py', 'exec'))",
    "import": "sys.path.insert(0, work); sys.meta_path.pop(0); import evil",
    "subprocess.Popen": "import subprocess; subprocess.run([work + '/program'])",
    "os.posix_spawn": "import os; os.waitpid(os.posix_spawn(work + '/program', ['program'], {}), 0)",
    "os.exec": "import os; os.execv(work + '/program', ['program'])",
    "ctypes.dlopen": "import ctypes\ntry: ctypes.CDLL(work + '/library.so')\nexcept OSError: pass",
    "link": "exec(compile('', work + '/../link/evil.py', 'exec'))",
    "helper": "import pathlib; helper_process.PACKAGE_ROOT = pathlib.Path(work); "
    "helper_process.run_helper('evil_helper')",
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "kept").mkdir(parents=True)
    (tmp_path / "link").symlink_to("work")
    for name in ("evil.py", "evil_helper.py", "kept/evil.py", "library.so"):
        (folder / name).write_text("def main(): pass\n")
    (folder / "program").write_text("#!/bin/sh\n")
    (folder / "program").chmod(0o755)
    return folder


def list_violations(tmp_path: Path, work: Path, source: str) -> str:
    log = tmp_path / "log"
    given = {**AUDIT.extend({"PATH": os.environ["PATH"]}), hook.VARIABLE: str(log)}
    run = [sys.executable, "-c", ATTACK + source, os.path.realpath(work)]
    subprocess.Popen(run, env=given, executable=sys.executable).wait()
    return log.read_text() if log.exists() else ""


@pytest.mark.parametrize("kind", ATTACKS)
def test_each_way_to_execute_a_file_of_a_workspace_is_recorded(tmp_path: Path, work: Path, kind: str) -> None:
    recorded = list_violations(tmp_path, work, ATTACKS[kind])
    assert f"{'exec' if kind in ('helper', 'import', 'link') else kind} {tmp_path}/" in recorded


def test_what_is_protected_in_a_workspace_is_not_recorded(tmp_path: Path, work: Path) -> None:
    assert list_violations(tmp_path, work, "exec(compile('', work + '/kept/evil.py', 'exec'))") == ""


def test_a_process_of_a_shell_is_audited(tmp_path: Path, work: Path) -> None:
    log, words = tmp_path / "log", (sys.executable, "-c", ATTACK + ATTACKS["exec"], os.path.realpath(work))
    given = {"PATH": os.environ["PATH"], hook.VARIABLE: str(log)}
    subprocess.run(["bash", "-c", shlex.join(words)], env=given, check=True)
    assert f"exec {tmp_path}/" in log.read_text()


def test_this_process_is_audited() -> None:
    assert str(AUDIT.log) == os.environ[hook.VARIABLE]
    assert any(isinstance(finder, hook.Observer) for finder in sys.meta_path)
