"""Hostile workspaces: nothing outside is read, nothing hangs, no run breaks, and the list reports the fault."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.skills.written import approve, looked_at, of_home, of_workspace, skill
from treadle.domain.errors import UsageError
from treadle.skills.inventory import MAX_SKILLS, SkillInventory
from treadle.skills.run_skills import FolderSkills

SECRET = "canary-5b1f-in-a-coal-mine"
FRONT = "---\nname: one\ndescription: x\n---\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A skill that is none of the workspace's."""
    return skill(tmp_path / "outside", "one", body=SECRET)


def link_agents(place: Path, outside: Path) -> None:
    skill(outside.parent / "skills", "one", body=SECRET)
    place.parent.parent.mkdir(exist_ok=True)
    place.parent.symlink_to(outside.parent)


def link_skills(place: Path, outside: Path) -> None:
    place.parent.mkdir()
    place.symlink_to(outside.parent)


def link_folder(place: Path, outside: Path) -> None:
    place.mkdir(parents=True)
    (place / "one").symlink_to(outside)


def link_file(place: Path, outside: Path) -> None:
    (place / "one").mkdir(parents=True)
    (place / "one" / "SKILL.md").symlink_to(outside / "SKILL.md")


def link_other_file(place: Path, outside: Path) -> None:
    (skill(place, "one") / "notes.md").symlink_to(outside / "SKILL.md")


def link_inner_folder(place: Path, outside: Path) -> None:
    (skill(place, "one") / "references").symlink_to(outside)


def pipe(place: Path, outside: Path) -> None:
    (place / "one").mkdir(parents=True)
    os.mkfifo(place / "one" / "SKILL.md")


def pipe_for_a_folder(place: Path, outside: Path) -> None:
    place.mkdir(parents=True)
    os.mkfifo(place / "one")


def pipe_for_the_place(place: Path, outside: Path) -> None:
    place.parent.mkdir(parents=True)
    os.mkfifo(place)


def endless_device(place: Path, outside: Path) -> None:
    (place / "one").mkdir(parents=True)
    (place / "one" / "SKILL.md").symlink_to("/dev/zero")


def circle(place: Path, outside: Path) -> None:
    (skill(place, "one") / "again").symlink_to(place / "one")


def folder_for_a_file(place: Path, outside: Path) -> None:
    (place / "one" / "SKILL.md").mkdir(parents=True)


def sparse_terabyte(place: Path, outside: Path) -> None:
    with (skill(place, "one") / "big").open("wb") as file:
        file.truncate(1 << 40)


TRICKS: list[Callable[[Path, Path], None]] = [
    link_agents, link_skills, link_folder, link_file, link_other_file, link_inner_folder, pipe, pipe_for_a_folder,
    pipe_for_the_place, endless_device, circle, folder_for_a_file, sparse_terabyte,
]  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_is_refused_with_its_reason(
    home: Path, workspace: Path, outside: Path, trick: Callable[[Path, Path], None]
) -> None:
    trick(of_workspace(workspace), outside)
    shelf = SkillInventory(home)
    [found] = looked_at(home, workspace).values()
    assert found.state == "broken"
    assert found.reason
    assert SECRET not in str(found)
    try:
        found, content = shelf.find("one", workspace)
    except UsageError:
        return
    assert found.state == "broken"
    assert SECRET not in str(content)


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_after_the_approval_disables_the_skill(
    home: Path, workspace: Path, outside: Path, trick: Callable[[Path, Path], None]
) -> None:
    place = of_workspace(workspace)
    skill(place, "one", body=SECRET)  # even what leads to the very bytes that were approved does not count
    approve(home, "one", workspace)
    skills = FolderSkills(home)
    assert len(skills.list_offered(("*",), workspace)) == 1
    place.parent.rename(workspace / "before")
    trick(place, outside)
    assert skills.list_offered(("*",), workspace) == ()
    with pytest.raises(LookupError, match="no longer as a person approved it"):
        skills.load("one", ("*",), workspace)


def test_a_socket_in_a_skill_is_refused(home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = skill(of_workspace(workspace), "one")
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("talk")
        assert looked_at(home, workspace)["workspace", "one"].reason.startswith(
            "talk is a link or another special file"
        )


@pytest.mark.parametrize("name", ["o\nne", "o\x1b[2Jne", "o\u202ene", os.fsdecode(b"o\xffne"), "One", "o ne", "-"])
def test_a_folder_with_an_invalid_name_is_refused_and_shown_safely(home: Path, workspace: Path, name: str) -> None:
    folder = of_workspace(workspace) / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(FRONT)
    [found] = looked_at(home, workspace).values()
    assert found.state == "broken"
    assert (found.name + found.path + found.reason).isprintable()
    with pytest.raises(UsageError):
        SkillInventory(home).find(name, workspace)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"\0" * 1000,
        b"---\n" * 1000,
        f"---\nname: one\ndescription: {'x' * 1_000_000}\n---\n".encode(),
        b"---\nname: one\ndescription: x\nmetadata: " + b"[" * 10_000 + b"\n---\n",
        b"---\nname: one\ndescription: !!python/object/apply:os.system ['true']\n---\n",
        b"---\nname: one\ndescription: x\n? a\n: b\n? [c]\n: d\n---\n",
    ],
    ids=range(7),
)
def test_hostile_content_is_refused(home: Path, workspace: Path, content: bytes) -> None:
    folder = of_workspace(workspace) / "one"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(content)
    [found] = looked_at(home, workspace).values()
    assert found.state == "broken"
    assert found.reason.startswith("SKILL.md")


def test_ten_thousand_skills_cost_a_run_nothing(home: Path, workspace: Path) -> None:
    place = of_workspace(workspace)
    skill(place, "one")
    for number in range(10_000):
        (place / f"s{number}").mkdir()
    approve(home, "one", workspace)
    skills = FolderSkills(home)
    assert [each.name for each in skills.list_offered(("*",), workspace)] == ["one"]
    survey = SkillInventory(home).survey(workspace)
    listed = [each for each in survey.found if each.origin == "workspace"]
    assert len(listed) == MAX_SKILLS
    assert survey.left_out == 10_001 - MAX_SKILLS


def test_a_workspace_cannot_replace_approvals_or_skills_of_the_home(home: Path, workspace: Path) -> None:
    """Neither an approval file of its own, nor a skill under the name of one that is approved in the home."""
    mine = skill(of_home(home), "one", body="mine")
    approve(home, "one")
    skill(of_workspace(workspace), "one", body="theirs")
    approved = (of_home(home) / "approved.yaml").read_text()
    (of_workspace(workspace) / "approved.yaml").write_text(approved)
    skills = FolderSkills(home)
    assert skills.load("one", ("*",), workspace) == "mine"
    mine.rename(home / "gone")
    assert skills.list_offered(("*",), workspace) == ()
