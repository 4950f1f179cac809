"""The engine knows from which places it loads code, and what a run can write."""

import os
import sys
import sysconfig
from pathlib import Path

import treadle
from treadle.domain.permissions import SandboxPolicy
from treadle.domain.writable_places import EnginePlaces, WritablePlaces, is_within
from treadle.system.engine_places import find_writable_places, list_engine_places, list_path_steps


def is_covered(path: str, places: EnginePlaces) -> bool:
    return any(is_within(path, place) for place in places.all)


def test_every_loaded_module_is_in_a_place_of_the_engine_or_of_the_tests() -> None:
    places = list_engine_places()
    own = str(Path(__file__).resolve().parents[2])
    loaded = [module for name, module in sys.modules.items() if not name.startswith("tests")]
    files = [os.path.realpath(file) for module in loaded if (file := getattr(module, "__file__", None))]
    stray = [
        file
        for file in files
        if not is_covered(file, places) and not file.startswith((f"{own}/bench", f"{own}/tests"))
    ]
    assert not stray


def test_the_interpreter_the_packages_and_treadle_itself_are_places_of_the_engine() -> None:
    places = list_engine_places()
    assert is_covered(os.path.realpath(sys.executable), places)
    assert os.path.realpath(sysconfig.get_path("purelib")) in places.code
    assert os.path.realpath(Path(treadle.__file__).parent) in places.code


def test_a_workspace_in_a_place_of_the_engine_is_found() -> None:
    places = EnginePlaces(code=("/e/lib", "/src/treadle"), holders=("/e", "/w/bin"), roots=("/src",))
    assert places.find_enclosing("/e/lib/pkg") == "/e/lib"
    assert places.find_enclosing("/e") == "/e"
    assert places.find_enclosing("/e/work") is None
    assert places.find_enclosing("/src") is None
    assert places.list_inside("/") == ("/e", "/src", "/w/bin")
    assert places.list_inside("/e") == ("/e/lib",)
    assert places.list_inside("/src") == ("/src/treadle",)


def test_a_run_can_write_its_workspace_but_not_what_is_protected_in_it() -> None:
    places = WritablePlaces(("/home/work", "/srv/out"), ("/home", "/home/work/.venv"))
    assert places.includes("/home/work/a.py")
    assert places.includes("/srv/out")
    assert not places.includes("/home/work/.venv/lib/a.py")
    assert not places.includes("/home/other")
    assert not places.includes("/srv/outer")


def test_what_several_runs_can_write_is_joined() -> None:
    both = WritablePlaces(("/a",), ("/a/x",)).join([WritablePlaces(("/b",)), WritablePlaces(("/a",))])
    assert both == WritablePlaces(("/a", "/b"), ("/a/x",))


def test_every_link_on_the_way_is_a_step_of_a_path(tmp_path: Path) -> None:
    (tmp_path / "real" / "bin").mkdir(parents=True)
    (tmp_path / "real" / "bin" / "python").touch()
    (tmp_path / "venv").symlink_to("real")
    (tmp_path / "python").symlink_to(tmp_path / "venv" / "bin" / ".." / "bin" / "python")
    base = os.path.realpath(tmp_path)
    assert list_path_steps(tmp_path / "python")[-3:] == (
        f"{base}/python",
        f"{base}/venv",
        f"{base}/real/bin/python",
    )


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert len(list_path_steps(tmp_path / "a")) <= 3


def test_the_folders_of_the_sandbox_are_writable_with_links_resolved(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    found = find_writable_places(tmp_path / "work", SandboxPolicy(writable=(str(tmp_path / "link"),)), ("/p",))
    base = os.path.realpath(tmp_path)
    assert found == WritablePlaces((f"{base}/work", f"{base}/out"), ("/p",))
