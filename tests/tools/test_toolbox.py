"""The registry of tools of a process."""

import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from treadle.domain.errors import UsageError
from treadle.tools.entry_points import find_entry_points
from treadle.tools.function import tool
from treadle.tools.toolbox import PLUGIN_GROUP, ToolRegistry


@tool
def read_file() -> None: ...


@tool
def read_url() -> None: ...


@tool
def write_file() -> None: ...


TOOLS = ToolRegistry([write_file, read_url, read_file])


@pytest.mark.parametrize(
    ("allowlist", "names"),
    [
        ([], []),
        (["write_file", "read_file"], ["read_file", "write_file"]),
        (["read_*", "read_url"], ["read_file", "read_url"]),
        (["*"], ["read_file", "read_url", "write_file"]),
        (["*_fil[e]", "nothing_*"], ["read_file", "write_file"]),
    ],
)
def test_an_allowlist_names_tools_in_a_fixed_order(allowlist: list[str], names: list[str]) -> None:
    assert [selected.spec.name for selected in TOOLS.select(allowlist)] == names


def test_a_tool_is_found_by_its_exact_name() -> None:
    assert TOOLS.find("read_url") is read_url
    assert TOOLS.find("read_*") is None


def test_an_unknown_tool_name_is_refused() -> None:
    with pytest.raises(UsageError, match="no tool is called `raed_file`; did you mean `read_file`"):
        TOOLS.select(["raed_file"])
    with pytest.raises(UsageError, match="no tool is called `x`; known tools: read_file, read_url, write_file"):
        TOOLS.select(["x"])


def test_a_name_belongs_to_one_tool() -> None:
    registry = ToolRegistry([read_file, read_file])
    with pytest.raises(UsageError, match="two tools are called `read_file`"):
        registry.add(tool(name="read_file")(lambda: None))


# ── Plugins ────────────────────────────────────────────────────────────────────────────────────────

PLUGIN = """
from treadle.tools.function import tool

@tool
def one(): ...

@tool
def two(): ...

both = [one, two]
number = 7
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the import path, with a module that a plugin can point to."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "plugin_under_test", raising=False)
    (tmp_path / "plugin_under_test.py").write_text(PLUGIN)
    (tmp_path / "plugin-1.0.dist-info").mkdir()
    (tmp_path / "plugin-1.0.dist-info" / "METADATA").write_text("Name: plugin\nVersion: 1.0\n")
    return tmp_path / "plugin-1.0.dist-info" / "entry_points.txt"


@pytest.mark.parametrize(("value", "names"), [("one", ["one"]), ("both", ["one", "two"])])
def test_plugins_add_one_or_several_tools(install: Path, value: str, names: list[str]) -> None:
    install.write_text(f"[{PLUGIN_GROUP}]\nmine = plugin_under_test:{value}\n")
    registry = ToolRegistry([read_file])
    registry.add_plugins()
    assert [selected.spec.name for selected in registry.select(["*"])] == sorted([*names, "read_file"])


def test_plugins_are_loaded_only_on_request(install: Path) -> None:
    install.write_text(f"[{PLUGIN_GROUP}]\nmine = plugin_under_test:one\n")
    assert ToolRegistry().find("one") is None
    assert "plugin_under_test" not in sys.modules


def test_a_plugin_in_an_archive_is_found(install: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "plugins.zip"
    with ZipFile(archive, "w") as file:
        file.writestr("packed-1.0.dist-info/METADATA", "Name: packed\nVersion: 1.0\n")
        file.writestr("packed-1.0.dist-info/entry_points.txt", f"[{PLUGIN_GROUP}]\nmine = plugin_under_test:one\n")
    assert find_entry_points(PLUGIN_GROUP) == []
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive)])
    assert [point.value for point in find_entry_points(PLUGIN_GROUP)] == ["plugin_under_test:one"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such_module:x", r"plugin `mine` \(no_such_module:x\) cannot be loaded: ModuleNotFoundError"),
        ("plugin_under_test:missing", "cannot be loaded: AttributeError"),
        ("plugin_under_test:number", "has a value of type int, not a Tool"),
    ],
)
def test_a_plugin_that_does_not_work_is_named(install: Path, value: str, words: str) -> None:
    install.write_text(f"[{PLUGIN_GROUP}]\nmine = {value}\n")
    with pytest.raises(UsageError, match=words) as raised:
        ToolRegistry().add_plugins()
    assert "\n" not in str(raised.value)
