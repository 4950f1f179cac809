"""Edits and patches as tables: each has a file, a change, and the file after it or the error."""

import resource
import stat
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import Struct

from tests.patience import LINEAR, growth
from tests.tools.files.calling import call, refused
from treadle.domain.edits.patch_format import BEGIN, END
from treadle.domain.edits.text_edits import EditFault, TextEdit, apply_edits
from treadle.ports.tool import ToolError
from treadle.surfaces.terminal.file_changes import find_change

HERE = Path(__file__).parent


class EditCase(Struct, frozen=True, forbid_unknown_fields=True):
    before: str
    old: str = ""
    new: str = ""
    all: bool = False
    edits: tuple[tuple[str, str], ...] | None = None
    after: str | None = None
    error: str | None = None
    told: str = ""
    encoding: str = msgspec.field(default="utf-8", name="as")

    @property
    def arguments(self) -> dict[str, Any]:
        several = [{"old": old, "new": new} for old, new in self.edits or ()]
        given = {"path": "f", "old": self.old, "new": self.new, "all": self.all, "edits": several}
        return {name: value for name, value in given.items() if value}


class PatchCase(Struct, frozen=True, forbid_unknown_fields=True):
    files: dict[str, str]
    patch: str = ""
    whole: str | None = None
    after: dict[str, str] | None = None
    error: str | None = None
    told: str = ""

    @property
    def text(self) -> str:
        return f"{BEGIN}\n{self.patch}{END}\n" if self.whole is None else self.whole


def load(name: str) -> Any:
    return yaml.safe_load((HERE / name).read_text())


EDITS = msgspec.convert(load("edits.yaml"), list[EditCase])
PATCHES = msgspec.convert(load("patches.yaml"), list[PatchCase])


def test_the_tables_are_large_enough() -> None:
    assert len(EDITS) >= 150
    assert len(PATCHES) >= 60
    assert len({msgspec.json.encode(case) for case in (*EDITS, *PATCHES)}) == len(EDITS) + len(PATCHES)


@pytest.mark.parametrize("case", EDITS, ids=map(str, range(len(EDITS))))
def test_an_edit_has_the_expected_result(workspace: Path, case: EditCase) -> None:
    file = workspace / "f"
    file.write_bytes(case.before.encode(case.encoding))
    if case.error is not None:
        assert case.error in refused(workspace, "edit_file", **case.arguments)
        assert file.read_bytes() == case.before.encode(case.encoding)
        return
    assert case.after is not None
    told = call(workspace, "edit_file", **case.arguments)
    assert file.read_bytes().decode(case.encoding) == case.after
    assert file.read_bytes() == case.after.encode(case.encoding)
    assert case.told in told


@pytest.mark.parametrize("case", PATCHES, ids=map(str, range(len(PATCHES))))
def test_a_patch_has_the_expected_result(workspace: Path, case: PatchCase) -> None:
    for name, text in case.files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_bytes(text.encode())
    if case.error is not None:
        assert case.error in refused(workspace, "apply_patch", input=case.text)
        assert read_files(workspace) == case.files
        return
    told = call(workspace, "apply_patch", input=case.text)
    assert read_files(workspace) == case.after
    assert case.told in told


def read_files(folder: Path) -> dict[str, str]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes().decode() for path in found}


def test_a_patch_is_undone_if_one_of_its_files_cannot_be_written(workspace: Path) -> None:
    """The system refuses the second file for its size."""
    (workspace / "f").write_text("a\n")
    (workspace / "g").write_text("b\n")
    patch = "*** Update File: f\n@@\n-a\n+x\n*** Delete File: g\n*** Add File: h\n+" + "y" * 100_000 + "\n"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        assert "too large" in refused(workspace, "apply_patch", input=f"{BEGIN}\n{patch}{END}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_files(workspace) == {"f": "a\n", "g": "b\n"}


def test_a_moved_file_keeps_its_permissions(workspace: Path) -> None:
    (workspace / "f").write_text("a\n")
    (workspace / "f").chmod(0o750)
    call(workspace, "apply_patch", input=f"{BEGIN}\n*** Update File: f\n*** Move to: g\n@@\n-a\n+b\n{END}")
    assert stat.S_IMODE((workspace / "g").stat().st_mode) == 0o750


def test_tolerance_takes_linear_time() -> None:
    def edit(lines: int) -> None:
        text = "".join(f"  value {number % 7}  \n" for number in range(lines))
        with pytest.raises(EditFault):
            apply_edits(text, [TextEdit("value 1\nvalue 2\nvalue 6\n", "x")])

    assert growth(edit, 4000) < LINEAR


@pytest.mark.parametrize("line", ["\n", "\r\n", " \n", "}\n", "\u2026\n"], ids=ascii)
def test_a_text_that_is_not_in_two_megabytes_of_equal_lines_is_reported_at_once(workspace: Path, line: str) -> None:
    """The lines of the text are in the file, but in another order."""
    content = line * (2_000_000 // len(line.encode())) + "foo\nbar\n"
    (workspace / "f").write_bytes(content.encode())
    began = time.process_time()
    assert "was not found" in refused(workspace, "edit_file", path="f", old="bar\nfoo\n", new="x")
    assert time.process_time() - began < 3, "a search for each line takes minutes"


@pytest.mark.parametrize("case", [case for case in EDITS if case.encoding == "utf-8"][::3], ids=str)
def test_a_reviewer_sees_the_change_that_the_tool_makes(workspace: Path, case: EditCase) -> None:
    (workspace / "f").write_bytes(case.before.encode())
    change = find_change("edit_file", case.arguments, workspace)
    if case.error is None:
        assert change is not None
        call(workspace, "edit_file", **case.arguments)
        shown = [line[1:] for line in change.lines if line.startswith("+")]
        after = (workspace / "f").read_bytes().decode().split("\n")
        after += [line.removesuffix("\r") for line in after]
        assert all(line in after for line in shown)
        assert any(line.startswith("@@ -") for line in change.lines)


def test_a_reviewer_sees_each_file_of_a_patch(workspace: Path) -> None:
    (workspace / "f").write_bytes("a  \nb\n".encode("utf-16"))
    (workspace / "g").write_text("c\n")
    patch = "*** Update File: f\n*** Move to: h\n@@\n a\n-b\n+x\n*** Delete File: g\n*** Add File: i\n+y\n"
    change = find_change("apply_patch", {"input": f"{BEGIN}\n{patch}{END}"}, workspace)
    assert change is not None
    assert change.lines == [
        "*** Update File: f", "*** Move to: h", "@@ -1,2 +1,2 @@", " a  ", "-b", "+x",
        "*** Delete File: g", "@@ -1 +0,0 @@", "-c",
        "*** Add File: i", "@@ -0,0 +1 @@", "+y",
    ]  # fmt: skip


def test_a_patch_that_does_not_apply_is_shown_as_it_is(workspace: Path) -> None:
    patch = f"{BEGIN}\n*** Delete File: g\n*** Update File: f\n@@\n-a\n+x\n{END}"
    change = find_change("apply_patch", {"input": patch}, workspace)
    assert change is not None
    assert change.lines == patch.split("\n")


def test_a_patch_with_two_names_of_one_file_does_not_wait_for_itself(workspace: Path) -> None:
    (workspace / "f").write_text("a\nb\n")
    (workspace / "link").symlink_to("f")
    sections = "*** Update File: f\n@@\n-a\n+x\n*** Update File: link\n@@\n-b\n+y\n"
    assert "are the same file" in refused(workspace, "apply_patch", input=f"{BEGIN}\n{sections}{END}")
    assert (workspace / "f").read_text() == "a\nb\n"


def test_a_file_that_is_not_text_can_be_moved(workspace: Path) -> None:
    (workspace / "f").write_bytes(b"\0\1")
    call(workspace, "apply_patch", input=f"{BEGIN}\n*** Update File: f\n*** Move to: g\n{END}")
    assert (workspace / "g").read_bytes() == b"\0\1"


def test_edits_that_end_where_they_began_are_an_error(workspace: Path) -> None:
    (workspace / "f").write_text("a\nb\n")
    edits = [{"old": "a", "new": "c"}, {"old": "c", "new": "a"}]
    assert "has the new text already" in refused(workspace, "edit_file", path="f", edits=edits)


@pytest.mark.parametrize(
    ("text", "old"),
    [("\u201c" * 200_000, '"' * 3000), ("    a\n" * 100_000, "a\n" * 1000), ("e\u0301" * 200_000, "\u00e9" * 1000)],
    ids=["quotes", "lines", "accents"],
)
def test_a_text_that_matches_everywhere_is_counted_up_to_a_limit(workspace: Path, text: str, old: str) -> None:
    (workspace / "f").write_text(text)
    assert "occurs at least 100 times" in refused(workspace, "edit_file", path="f", old=old, new="x")


# ── Links ──


@pytest.fixture
def linked(workspace: Path) -> Path:
    (workspace / "a.txt").write_text("one\ntwo\n")
    (workspace / "sub").mkdir()
    (workspace / "link.txt").symlink_to("a.txt")
    (workspace / "new.txt").symlink_to("sub/made.txt")
    (workspace / "folder").symlink_to("sub")
    (workspace / "out.txt").symlink_to("../secret.txt")
    (workspace.parent / "secret.txt").write_text("one\ntwo\n")
    return workspace


def apply(workspace: Path, *lines: str) -> str:
    return call(workspace, "apply_patch", input="\n".join([BEGIN, *lines, END]))


def test_a_patch_follows_links_like_other_changes(linked: Path) -> None:
    assert call(linked, "edit_file", path="link.txt", old="one", new="1").startswith("a.txt changed.")
    assert apply(linked, "*** Update File: link.txt", "@@", "-two", "+2").endswith("\nM a.txt")
    assert (linked / "a.txt").read_text() == "1\n2\n"
    assert apply(linked, "*** Add File: new.txt", "+made").endswith("\nA sub/made.txt")
    assert apply(linked, "*** Update File: folder/made.txt", "@@", "-made", "+kept").endswith("\nM sub/made.txt")
    assert call(linked, "write_file", path="new.txt", content="kept\n").startswith("sub/made.txt replaced")
    assert apply(linked, "*** Delete File: folder/made.txt").endswith("\nD sub/made.txt")
    assert (linked / "link.txt").is_symlink()


@pytest.mark.parametrize(
    "lines",
    [
        ("*** Update File: out.txt", "@@", "-one", "+1"),
        ("*** Delete File: out.txt",),
        ("*** Update File: out.txt", "*** Move to: mine.txt"),
        ("*** Update File: a.txt", "*** Move to: out.txt"),
    ],
)
def test_no_patch_follows_a_link_out_of_the_workspace(linked: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(ToolError, match="leads out of the workspace"):
        apply(linked, *lines)
    assert (linked.parent / "secret.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("path", ["link.txt", "./link.txt", "sub/../link.txt"])
@pytest.mark.parametrize("section", ["*** Delete File: {}", "*** Update File: {}\n*** Move to: b.txt"])
def test_a_link_is_not_deleted_or_moved_in_place_of_its_file(linked: Path, path: str, section: str) -> None:
    with pytest.raises(ToolError, match=r"link.txt is a link to a.txt. Name that file to delete or move it."):
        apply(linked, section.format(path))
    assert (linked / "a.txt").read_text() == "one\ntwo\n"
    assert (linked / "link.txt").is_symlink()
