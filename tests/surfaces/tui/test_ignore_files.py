"""Which files `@` offers: those that the ignore files of the folder, and of the folders below and above, leave."""

import shutil
import subprocess
from pathlib import Path

import pytest

from treadle.surfaces.tui.ignore_files import list_files


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


FILES = {
    ".gitignore": "*.log\n!keep.log\n/build/\ndocs/*.tmp\n# note\n\\#odd\ncache/\n"
    "**/deep/x.txt\na/**/z.txt\nq?.c\n[ab].h\n",
    "sub/.gitignore": "!*.log\nsecret.txt\n/only.txt\n",
    "sub/.ignore": "loud.log\n",
    "sub/deep/.gitignore": "*\n!.gitignore\n!kept.py\n",
    "listed/.gitignore": "*\n!*/\n!*.py\n", "listed/a.py": "", "listed/a.txt": "", "listed/in/b.py": "",
    "listed/in/b.txt": "", "inner/.gitignore": "x/**\n!x/kept\n", "inner/x/gone": "", "inner/x/kept": "",
    "one.log": "", "keep.log": "", "build/out.o": "", "sub/build/out.o": "", "docs/a.tmp": "", "docs/b/a.tmp": "",
    "#odd": "", "cache/data": "", "sub/cache": "", "sub/two.log": "", "sub/loud.log": "", "secret.txt": "",
    "sub/secret.txt": "", "sub/only.txt": "", "sub/more/only.txt": "", "sub/deep/x.txt": "", "sub/deep/kept.py": "",
    "deep/x.txt": "", "a/z.txt": "", "a/b/c/z.txt": "", "q1.c": "", "q12.c": "", "a.h": "", "c.h": "",
    "plain.txt": "",
}  # fmt: skip


def test_nested_files_negation_and_anchors_are_respected(tmp_path: Path) -> None:
    write(tmp_path, **FILES)
    found = set(list_files(tmp_path))
    hidden = {
        "one.log", "build/out.o", "docs/a.tmp", "#odd", "cache/data", "sub/loud.log", "sub/secret.txt",
        "sub/only.txt",
        "listed/.gitignore", "listed/a.txt", "listed/in/b.txt", "inner/x/gone",
        "sub/deep/x.txt", "deep/x.txt", "a/z.txt", "a/b/c/z.txt", "q1.c", "a.h",
    }  # fmt: skip
    assert set(FILES) - found == hidden
    assert found - set(FILES) == set()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_ignores_the_same_files(tmp_path: Path) -> None:
    write(tmp_path, **{name: text for name, text in FILES.items() if not name.endswith("/.ignore")})
    (tmp_path / "sub" / ".ignore").unlink(missing_ok=True)
    subprocess.run(["git", "init", "-q", tmp_path], check=True, capture_output=True)
    listed = subprocess.run(
        ["git", "-c", "core.quotepath=off", "ls-files", "--others", "--exclude-standard"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert set(list_files(tmp_path)) == set(listed.stdout.splitlines())


def test_rules_of_the_folders_above_apply_up_to_the_repository(tmp_path: Path) -> None:
    write(tmp_path, **{".gitignore": "*.txt\n", "repo/.gitignore": "*.log\nwork/*.o\nother/*.c\n**/gen/*.h\n"})
    (tmp_path / "repo" / ".git").mkdir()
    work = tmp_path / "repo" / "work"
    write(work, **dict.fromkeys(("a.log", "b.o", "c.c", "d.txt", "gen/e.h", "gen/f.o"), ""))
    assert list_files(work) == ["c.c", "d.txt", "gen/f.o"]


def test_links_and_unreadable_folders_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path, **{"inside/a.txt": ""})
    (tmp_path / "inside" / "loop").symlink_to(tmp_path)
    assert list_files(tmp_path) == ["inside/a.txt", "inside/loop"]
    assert list_files(tmp_path / "missing") == []
