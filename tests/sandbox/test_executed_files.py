"""Commands in the sandbox see files that other programs execute read-only, and leave no programs in the settings of
git. Ordinary work with the real git goes on."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sandbox.conftest import needs_bubblewrap
from treadle.domain.permissions import SandboxPolicy
from treadle.domain.writable_places import EnginePlaces
from treadle.ports.sandbox import Command, Finished
from treadle.sandbox.commands import ShellCommands
from treadle.sandbox.git_programs import GitSetting, is_program_setting
from treadle.sandbox.git_settings import ALWAYS
from treadle.sandbox.limits import CommandLimits

pytestmark = [needs_bubblewrap, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
Run = Callable[..., Finished]
EXISTING = (
    ".envrc", ".vscode/tasks.json", ".github/workflows/ci.yml", ".husky/pre-push", ".bashrc", "evil.pth",
    "sub/.envrc", ".gitlab-ci.yml", "tools/hooks/pre-commit",
)  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    given = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    line = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(line, env=given, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a file of each kind, and a folder of hooks that its settings name."""
    folder = Path(os.path.realpath(tmp_path)) / "project"
    for name in EXISTING:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine\n")
    git(folder, "init", "-q", ".")
    (folder / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\nexit 0\n")
    (folder / ".git" / "hooks" / "pre-commit").chmod(0o755)
    git(folder, "config", "core.hooksPath", "tools/hooks")
    git(folder, "config", "credential.helper", "store")
    return folder


@pytest.fixture
def run(project: Path) -> Iterator[Run]:
    commands = ShellCommands(engine=EnginePlaces(), limits=CommandLimits(grace=0.2))

    def run(text: str, workspace: Path = project, writable: tuple[str, ...] = ()) -> Finished:
        command = Command(text, workspace, SandboxPolicy("required", writable=writable))
        return asyncio.run(commands.run(command, lambda text: None))

    yield run
    commands.close()


def read_files(project: Path) -> dict[str, str]:
    names = (*EXISTING, ".git/hooks/pre-commit")
    return {name: (project / name).read_text() for name in names if (project / name).exists()}


@pytest.mark.parametrize(
    "attack",
    [
        *(f"echo evil >> {name}" for name in (*EXISTING, ".git/hooks/pre-commit")),
        "rm -rf .github .vscode .husky .envrc .git/hooks",
        "mv .git old; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit",
        "mv .vscode old; mkdir .vscode; echo evil > .vscode/tasks.json",
        "mv .github old; mkdir -p .github/workflows; echo evil > .github/workflows/ci.yml",
        "rm .envrc; echo evil > .envrc",
        "sed -i s/mine/evil/ .envrc .bashrc",
        "python3 -c \"import os; os.rename('evil.pth', 'x')\"",
        "ln -s .envrc alias; echo evil >> alias",
    ],
)
def test_existing_files_stay_as_they_are(run: Run, project: Path, attack: str) -> None:
    before = read_files(project)
    run(attack)
    assert read_files(project) == before


def test_no_hook_can_be_added(run: Run, project: Path) -> None:
    shutil.rmtree(project / ".git" / "hooks")
    ended = run(
        "mkdir -p .git/hooks; echo evil > .git/hooks/post-commit; echo evil > tools/hooks/post-commit; false"
    )
    assert not (project / ".git" / "hooks" / "post-commit").exists()
    assert not (project / "tools" / "hooks" / "post-commit").exists()
    assert "is read-only for commands: other programs execute it later" in ended.advice


def test_new_files_are_reported(run: Run, project: Path) -> None:
    ended = run(
        "mkdir -p new/.vscode && echo x > new/.vscode/tasks.json && echo x > mise.toml && echo x > plain.txt"
    )
    (finding,) = ended.findings
    assert "new/.vscode/tasks.json (an editor or a debugger)" in finding
    assert "mise.toml (a tool that enters the folder)" in finding
    assert "plain.txt" not in finding
    assert run("true").findings == ()


def test_a_replaced_folder_of_the_project_is_reported(run: Run) -> None:
    ended = run("mv sub old && mkdir sub && echo evil > sub/.envrc")
    assert "sub/.envrc" in " ".join(ended.findings)


PROGRAMS = {
    "core.hooksPath": "evil", "core.fsmonitor": "./evil", "core.sshCommand": "evil", "core.pager": "evil",
    "core.editor": "evil", "alias.st": "!evil", "alias.lg": "-c core.pager=evil log", "filter.x.clean": "evil",
    "filter.x.process": "evil", "diff.x.textconv": "evil", "diff.x.command": "evil", "diff.external": "evil",
    "merge.x.driver": "evil", "credential.https://a.b.helper": "!evil", "gpg.program": "evil",
    "gpg.ssh.program": "evil", "include.path": "../evil.cfg", "includeIf.gitdir:/.path": "evil.cfg",
    "remote.origin.uploadpack": "evil", "remote.origin.receivepack": "evil", "remote.origin.vcs": "evil",
    "protocol.ext.allow": "always", "remote.x.url": "ext::sh -c evil", "url.ext::sh.insteadOf": "x",
    "pager.log": "evil", "sequence.editor": "evil", "submodule.x.update": "!evil", "core.askPass": "evil",
    "trailer.x.command": "evil", "mergetool.x.cmd": "evil", "init.templateDir": "evil", "CORE.HooksPath": "evil",
    "interactive.diffFilter": "evil", "uploadpack.packObjectsHook": "evil", "tar.x.command": "evil",
}  # fmt: skip
HARMLESS = {
    "user.name": "Agent", "core.fsmonitor": "true", "alias.st": "status", "branch.main.remote": "origin",
    "remote.origin.url": "https://example.org/a.git", "pull.rebase": "true", "core.autocrlf": "input",
    "pager.log": "false", "protocol.ext.allow": "never", "core.filemode": "true", "submodule.x.url": "../x",
    "submodule.x.update": "merge", "remote.origin.fetch": "+refs/heads/*:refs/remotes/origin/*",
}  # fmt: skip


def test_every_setting_that_names_a_program_is_known() -> None:
    for name, value in PROGRAMS.items():
        assert is_program_setting(GitSetting(name, value)), name
    for name, value in HARMLESS.items():
        assert not is_program_setting(GitSetting(name, value)), name
    named = {name for name, value in ALWAYS if value in ("cat", "ssh", "gpg", "gpgsm", "ssh-keygen")}
    assert all(is_program_setting(GitSetting(name, "evil")) for name in named)


def test_programs_that_a_command_adds_to_the_settings_are_removed_and_reported(run: Run, project: Path) -> None:
    config = project / ".git" / "config"
    before = git(project, "config", "--file", str(config), "--list")
    lines = [f"git config --file .git/config --add '{name}' '{value}'" for name, value in PROGRAMS.items()]
    ended = run("; ".join([*lines, "git config user.name Agent", "git config branch.main.remote origin"]))
    after = git(project, "config", "--file", str(config), "--list")
    assert sorted(after.splitlines()) == sorted(
        [*before.splitlines(), "user.name=Agent", "branch.main.remote=origin"]
    )
    (finding,) = ended.findings
    assert finding.startswith("Removed from .git/config after this command: ")
    for name in ("core.hookspath (evil)", "alias.st (!evil)", "include.path (../evil.cfg)"):
        assert name in finding


@pytest.mark.parametrize(
    "attack",
    [
        "git config core.hooksPath evil; git config --unset credential.helper",
        "git config credential.helper '!evil'",
        "printf '[core\\n' > .git/config",
        "printf '[core]\\n\\thookspath = evil\\n' > x; rm .git/config; ln -s ../x .git/config",
        "git config extensions.worktreeConfig true; git config --worktree core.hooksPath evil",
    ],
)
def test_settings_of_the_user_are_restored(run: Run, project: Path, attack: str) -> None:
    ended = run(attack)
    config = project / ".git" / "config"
    assert not config.is_symlink()
    listed = git(project, "config", "--list")
    assert "evil" not in listed
    assert "core.hookspath=tools/hooks" in listed
    assert ended.findings


def test_a_new_repository_keeps_no_programs_either(run: Run, project: Path) -> None:
    ended = run("git init -q fresh && git -C fresh config core.fsmonitor ./evil && git -C fresh config user.name A")
    listed = git(project / "fresh", "config", "--list")
    assert "evil" not in listed
    assert "user.name=A" in listed
    assert "fresh/.git/config" in " ".join(ended.findings)


def test_settings_of_another_repository_are_not_changed_through_a_link(
    run: Run, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", ".")
    git(other, "config", "core.pager", "less")
    run(f"mkdir nest; ln -s {other}/.git nest/.git; ln -s {other} linked")
    assert "core.pager=less" in git(other, "config", "--list")


def test_ordinary_work_with_git_goes_on(run: Run, project: Path) -> None:
    identity = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b"
    steps = (
        "git config user.name Agent && git config user.email agent@example.org",
        "echo text > file.txt && git add file.txt && git commit -qm first",
        "git branch topic && git checkout -q topic && git mv file.txt moved.txt && git commit -qam second",
        "git checkout -q - && git merge -q topic && git stash list && git tag v1",
        "git remote add origin https://example.org/a.git && git branch --set-upstream-to=topic",
        "git clone -q . copy && git -C copy log --oneline && git -C copy fetch -q",
        "git worktree add -q tree topic && git -C tree status --short && rm -rf copy",
        "git gc -q && git status --short && git diff HEAD~1 --stat && git rebase -q topic",
    )
    for step in steps:
        ended = run(f"{identity}; {step}")
        assert ended.exit_code == 0, (step, ended.output)
        assert ended.findings == () or "tree/.git" in " ".join(ended.findings), (step, ended.findings)
    assert "first" in git(project, "log", "--oneline")


def test_the_hooks_of_a_writable_repository_next_to_the_workspace_stay_as_they_are(
    run: Run, project: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    git(project, "add", ".envrc")
    git(project, "commit", "-qm", "first", "--no-verify")
    git(project, "worktree", "add", "-q", str(tree))
    pointer = (tree / ".git").read_text()
    repository = str(project / ".git")
    ended = run(
        f"echo evil > {repository}/hooks/pre-commit; git config core.pager evil; echo 'gitdir: /tmp' > .git; "
        "echo x > new && git add new && git -c user.name=a -c user.email=a@b commit -qm second --no-verify",
        tree,
        (repository,),
    )
    assert ended.exit_code == 0, ended.output
    assert "exit 0" in (project / ".git" / "hooks" / "pre-commit").read_text()
    assert "core.pager" not in git(project, "config", "--list")
    assert (tree / ".git").read_text() == pointer
