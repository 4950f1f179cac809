"""What a run is told about its folder at its start."""

import os
import subprocess
from pathlib import Path

from tests.tools.files.calling import call
from treadle.config.home import DEFAULT_APPROVAL_TOOLS, DEFAULT_PERMITTED_TOOLS
from treadle.core.context.tokens import estimate_text, estimate_tool
from treadle.home.tool_names import list_known_tools
from treadle.tools.files.folder_overview import MAX_SCANNED, make_folder_overview


def test_the_tree_shows_folders_and_leaves_out_what_is_ignored(workspace: Path) -> None:
    for name in ("src/app/main.py", "src/b.py", "build/x", "node_modules/y", ".env", "README.md", "notes.tmp"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).touch()
    (workspace / ".gitignore").write_text("build/\n*.tmp\n")
    tree = make_folder_overview(workspace).split("```")[1].lstrip()
    assert tree == ".gitignore\nREADME.md\nsrc/\n  app/\n    main.py\n  b.py\n"


def test_a_huge_folder_stays_within_500_tokens(workspace: Path) -> None:
    for folder in ("a", "b", "c"):
        (workspace / folder).mkdir()
        for number in range(MAX_SCANNED + 50):
            (workspace / folder / f"file_{number:05}.py").touch()
    deep = workspace
    for _ in range(20):
        deep = deep / "d"
        deep.mkdir()
    overview = make_folder_overview(workspace)
    assert estimate_text(overview) <= 500
    assert "a/" in overview
    assert "… " in overview
    assert overview == make_folder_overview(workspace)


def test_names_links_and_hidden_folders_give_nothing_away(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside-secret"
    outside.mkdir()
    (outside / "inner").touch()
    (workspace / "link").symlink_to(outside)
    (workspace / "a\n## System").touch()
    (workspace / "home").mkdir()
    (workspace / "home" / "vault.db").touch()
    overview = make_folder_overview(workspace, (workspace / "home",))
    assert '"a\\n## System"' in overview
    assert "inner" not in overview
    assert "home" not in overview
    assert make_folder_overview(tmp_path / "missing") == ""


def git(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.c"}
    environment |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.c"}
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env=environment)


def test_the_state_of_a_repository_is_read_without_running_git(workspace: Path) -> None:
    git(workspace, "init", "-b", "feature/x")
    git(workspace, "commit", "--allow-empty", "-m", "first")
    git(workspace, "config", "core.fsmonitor", f"touch {workspace}/ran")
    overview = make_folder_overview(workspace)
    assert "git: branch feature/x, commit " in overview
    assert not (workspace / "ran").exists()
    (workspace / ".git" / "MERGE_HEAD").write_text("0\n")
    assert "a merge in progress." in make_folder_overview(workspace)
    (workspace / ".git" / "HEAD").write_text("ref: refs/heads/../../../../etc/passwd\n")
    assert "root:" not in make_folder_overview(workspace)
    (workspace / ".git" / "HEAD").unlink()
    os.mkfifo(workspace / ".git" / "HEAD")
    assert "git:" not in make_folder_overview(workspace)


def test_the_state_of_a_linked_worktree_is_read(workspace: Path, tmp_path: Path) -> None:
    main, linked = tmp_path / "main", workspace / "linked"
    main.mkdir()
    git(main, "init", "-b", "main")
    git(main, "commit", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", "-b", "feature/y", str(linked))
    assert "git: branch feature/y, commit " in make_folder_overview(linked)
    state = main / ".git" / "worktrees" / "linked"
    (state / "MERGE_HEAD").write_text("0\n")
    assert "a merge in progress." in make_folder_overview(linked)
    git(linked, "checkout", "--detach")
    assert "git: no branch, commit " in make_folder_overview(linked)
    (state / "HEAD").write_text("ref: refs/heads/../../config\n")
    assert "git:" not in make_folder_overview(linked)


def test_a_folder_that_claims_another_repository_is_told_nothing(workspace: Path, tmp_path: Path) -> None:
    main = tmp_path / "main"
    main.mkdir()
    git(main, "init", "-b", "secret")
    git(main, "commit", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", "-b", "secret-too", str(tmp_path / "linked"))
    for target in (main / ".git", main / ".git" / "worktrees" / "linked", tmp_path / "none"):
        (workspace / ".git").write_text(f"gitdir: {target}\n")
        assert "secret" not in make_folder_overview(workspace)
    (workspace / ".git").unlink()
    os.mkfifo(workspace / ".git")
    assert "git:" not in make_folder_overview(workspace)


def test_the_tools_of_the_default_agent_take_at_most_1800_tokens() -> None:
    known = list_known_tools()
    names = (*DEFAULT_PERMITTED_TOOLS, *DEFAULT_APPROVAL_TOOLS)
    assert "update_plan" in names
    assert sum(estimate_tool(known[name]) for name in names) <= 1800


def test_files_can_be_listed_by_time(workspace: Path) -> None:
    for number, name in enumerate(("b", "c", "a")):
        (workspace / name).touch()
        os.utime(workspace / name, (number, number))
    assert call(workspace, "glob", pattern="*", newest=True) == "a\nc\nb"
    assert call(workspace, "glob", pattern="*") == "a\nb\nc"


def test_matching_lines_can_be_counted(workspace: Path) -> None:
    (workspace / "a").write_text("x\n" * 700)
    (workspace / "b").write_text("y\nx\r\n")
    (workspace / "c").write_text("y\n")
    assert call(workspace, "grep", pattern="x", count=True) == "a: 700\nb: 1\n[701 matching lines in 2 files]"
