"""Which folders are parts of one workspace, with the real git."""

import os
import subprocess
from pathlib import Path

import pytest

from treadle.system.workspace_identity import identify_workspace


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(("git", "-C", str(folder), *identity, *arguments), check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a commit."""
    folder = tmp_path / "project"
    (folder / "src" / "deep").mkdir(parents=True)
    git(tmp_path, "init", "-q", str(folder))
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_a_folder_without_a_repository_is_its_real_path(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    assert identify_workspace(folder) == identify_workspace(tmp_path / "link") == os.path.realpath(folder)
    assert identify_workspace(tmp_path / "missing") == str(tmp_path / "missing")


def test_folders_and_worktrees_of_a_repository_are_one_workspace(project: Path, tmp_path: Path) -> None:
    git(project, "worktree", "add", "-q", str(tmp_path / "second"))
    (tmp_path / "second" / "inner").mkdir()
    common = str(project / ".git")
    for folder in (project, project / "src" / "deep", tmp_path / "second", tmp_path / "second" / "inner"):
        assert identify_workspace(folder) == common


def test_a_clone_and_a_nested_repository_are_workspaces_of_their_own(project: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(project), "clone")
    git(tmp_path, "init", "-q", str(project / "nested"))
    found = {identify_workspace(each) for each in (project, tmp_path / "clone", project / "nested")}
    assert len(found) == 3


def test_a_submodule_is_a_workspace_of_its_own(project: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(project), "library")
    git(project, "submodule", "add", "-q", str(tmp_path / "library"), "vendored")
    assert identify_workspace(project / "vendored") == str(project / ".git" / "modules" / "vendored")


@pytest.mark.parametrize("claimed", [".git", ".git/worktrees/second", "../project/.git", ".git/modules/vendored"])
def test_a_folder_cannot_claim_to_be_part_of_another_project(project: Path, tmp_path: Path, claimed: str) -> None:
    git(project, "worktree", "add", "-q", str(tmp_path / "second"))
    impostor = tmp_path / "impostor"
    impostor.mkdir()
    (impostor / ".git").write_text(f"gitdir: {project / claimed}\n")
    assert identify_workspace(impostor) == str(impostor)
    (impostor / ".git").unlink()
    (impostor / ".git").symlink_to(project / ".git")
    assert identify_workspace(impostor) == str(impostor)


def test_a_folder_that_describes_itself_as_a_worktree_is_not_one(project: Path, tmp_path: Path) -> None:
    impostor = tmp_path / "impostor"
    (impostor / "x").mkdir(parents=True)
    (impostor / ".git").write_text(f"gitdir: {impostor / 'x'}\n")
    (impostor / "x" / "gitdir").write_text(f"{impostor / '.git'}\n")
    (impostor / "x" / "commondir").write_text(f"{project / '.git'}\n")
    assert identify_workspace(impostor) == str(impostor)
    nested = project / "nested"
    nested.mkdir()
    (nested / ".git").write_text("gitdir: elsewhere\n")
    assert identify_workspace(nested) == str(nested), "nor is it part of the project around it"


def test_odd_entries_named_git_are_not_repositories(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    entry = folder / ".git"
    for content in (b"", b"gitdir: ", b"gitdir: \0\n", b"\xff\xfe", b"gitdir: /dev/stdin\n"):
        entry.write_bytes(content)
        assert identify_workspace(folder) == str(folder)
    entry.unlink()
    os.mkfifo(entry)
    assert identify_workspace(folder) == str(folder)
    entry.unlink()
    entry.mkdir()
    assert identify_workspace(folder) == str(folder), "an empty folder is not a repository"
