"""Hostile repositories: no line that a rule allows runs a program that the repository names."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.core.tools.permissions import apply_rules
from treadle.domain.permissions import ApprovalRule, ApprovalRules, SandboxPolicy
from treadle.ports.sandbox import Command, GitUse
from treadle.sandbox import git_settings
from treadle.sandbox.commands import ShellCommands
from treadle.sandbox.git_settings import ALWAYS, build_git_variables
from treadle.tools.bash import Bash, BashArguments
from treadle.tools.shell.git import find_git_use
from treadle.tools.shell.parser import parse_commands

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed: apt-get install git"),
]

PROGRAMS = (
    "core.fsmonitor", "core.pager", "core.sshCommand", "core.askPass", "core.editor", "core.alternateRefsCommand",
    "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "diff.evil.command",
    "diff.external", "gpg.program", "gpg.ssh.program", "pager.status", "pager.log", "alias.statusx", "alias.stat",
    "credential.helper", "uploadpack.packObjectsHook", "remote.origin.uploadpack", "sequence.editor",
    "merge.evil.driver", "interactive.diffFilter", "gc.recentObjectsHook", "tar.tgz.command",
)  # fmt: skip
HOOKS = ("post-index-change", "reference-transaction", "post-checkout", "pre-commit", "fsmonitor-watchman")
ALLOWED = ApprovalRules(
    default="ask",
    rules=(
        ApprovalRule("bash", do="auto", match="git *"),
        ApprovalRule("bash", do="auto", match="git push"),
        ApprovalRule("bash", do="auto", match="git config user.name *"),
        ApprovalRule("bash", do="auto", match="cd *"),
        ApprovalRule("bash", do="auto", match="env *"),
        ApprovalRule("bash", do="auto", match="sudo *"),
        ApprovalRule("bash", do="auto", match="cp *"),
        ApprovalRule("bash", do="auto", match="head *"),
    ),
)
"""As generous as a rule for git can be."""


class Repository:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.canaries = self.folder / "canaries"
        self.canaries.mkdir(parents=True)
        self._make(self.folder, "root")
        self._make(self.folder / "sub", "sub")
        (self.folder / ".gitmodules").write_text('[submodule "odd.name"]\npath = sub\nurl = ./x\nignore = none\n')
        self.git("add", "sub", ".gitmodules")
        self.git("commit", "-qm", "with a submodule")
        for folder_, name in ((self.folder, "root"), (self.folder / "sub", "sub")):
            self._arm(folder_, name)
        (self.folder / "file").write_text("changed\n")
        (self.folder / "sub" / "file").write_text("changed\n")

    def git(self, *arguments: str, folder: Path | None = None) -> None:
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main")
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}
        subprocess.run(
            ("git", *identity, *arguments),
            cwd=folder or self.folder,
            check=True,
            env=environment,
            capture_output=True,
        )

    def ran(self) -> list[str]:
        return sorted(canary.name for canary in self.canaries.iterdir())

    def forget(self) -> None:
        for canary in self.canaries.iterdir():
            canary.unlink()

    def _make(self, folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        self.git("init", "-q", folder=folder)
        (folder / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
        (folder / "file").write_text(f"{name}\n")
        self.git("add", "file", ".gitattributes", folder=folder)
        self.git("commit", "-qm", "one", folder=folder)

    def _arm(self, folder: Path, name: str) -> None:
        for setting in PROGRAMS:
            program = f"touch {self.canaries}/{name}-{setting}; cat"
            bang = "!" if setting.startswith("alias.") else ""
            self.git("config", setting, bang + program, folder=folder)
        for setting, value in (
            ("log.showSignature", "true"), ("status.submoduleSummary", "true"), ("diff.submodule", "diff"),
            ("submodule.recurse", "true"), ("protocol.ext.allow", "always"), ("submodule.odd.name.ignore", "none"),
            ("remote.origin.url", "ext::touch canaries/ext"), ("filter.evil.required", "true"),
        ):  # fmt: skip
            self.git("config", setting, value, folder=folder)
        for hook in HOOKS:
            file = folder / ".git" / "hooks" / hook
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"#!/bin/sh\ntouch {self.canaries}/{name}-hook-{hook}\n")
            file.chmod(0o755)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def commands() -> Iterator[ShellCommands]:
    opened = ShellCommands()
    yield opened
    opened.close()


def is_allowed(line: str, commands: ShellCommands) -> bool:
    tool = Bash(commands)
    return apply_rules(ALLOWED, tool.spec, tool.subjects(BashArguments(line))).verdict == "auto"


async def run(line: str, folder: Path, commands: ShellCommands) -> str:
    use = find_git_use(parse_commands(line).calls)
    finished = await commands.run(Command(line, folder, SandboxPolicy(mode="off"), git=use), lambda text: None)
    return finished.output


LOOKING = (
    "git status", "git status -s", "git diff", "git diff --stat", "git log -p", "git log -5 --format=%G?",
    "git show", "git ls-files -m", "git blame file", "git describe --always", "git log -p | head -5",
    "git grep root", "cd sub && git status", "git -C sub diff", "git diff HEAD", "git shortlog HEAD",
    "git reflog", "git cat-file --textconv HEAD:file", "git cat-file --filters HEAD:file",
    "git status && git diff", "git rev-parse HEAD", "git log --show-signature", "git log -Sroot",
    "git diff --textconv", "git log --stat -p sub",
)  # fmt: skip


async def test_a_reading_verb_is_allowed_and_runs_no_program(
    repository: Repository, commands: ShellCommands
) -> None:
    ran: dict[str, list[str]] = {}
    for line in LOOKING:
        assert is_allowed(line, commands), line
        await run(line, repository.folder, commands)
        if found := repository.ran():
            ran[line] = found
            repository.forget()
    assert ran == {}


ASKED = (
    "git statusx", "git stat", "git status-evil", "git -c core.fsmonitor=x status",
    "git --config-env=a=B status", "GIT_CONFIG_COUNT=0 git status", "env -i git status",
    "env -u GIT_CONFIG_COUNT git status", "env -i bash -c 'git status'", "unset GIT_CONFIG_COUNT; git status",
    "exec -c git status", "sudo git status", "export GIT_CONFIG_COUNT=0; git status", "git --git-dir=x status",
    "git --work-tree x status", "git -C a -C b status", "cd a; cd b; git status", "cd $x && git status",
    "cd && git status", "cp evil .git/config && git status", "find . -execdir git status \\;",
    "git submodule update", "git gc-evil", "git diff --ext-diff", "git diff --submodule=diff",
    "git status --ignore-submodules=none", "git grep --recurse-submodules x", "git describe --dirty",
    "git help status", "git status --help", "git whatchanged", "git diff-files", "git diff-index HEAD",
    "git rebase --continue", "git archive HEAD", "git clone . /tmp/x; git status",
    "git checkout other; git status", "git-status", "git lfs status", "/usr/lib/git-core/git-status",
    "git interpret-trailers", "pushd sub; git status",
)  # fmt: skip


@pytest.mark.parametrize("line", ASKED)
def test_a_line_that_the_overrides_do_not_cover_needs_approval(line: str, commands: ShellCommands) -> None:
    assert not is_allowed(line, commands)


@pytest.mark.parametrize(
    "line", ["git add -A && git commit -m x && git log -1", "git branch x", "git push", "git config user.name x"]
)
def test_changing_verbs_can_be_allowed(line: str, commands: ShellCommands) -> None:
    assert is_allowed(line, commands)


async def test_every_git_process_gets_the_overrides(repository: Repository, commands: ShellCommands) -> None:
    (repository.folder / "build.sh").write_text("git config --get core.fsmonitor\n")
    assert await run("sh build.sh", repository.folder, commands) == "false\n"
    assert "root-core.fsmonitor" not in repository.ran()


@pytest.mark.parametrize("line", ["git fetch here", "git push here HEAD:refs/heads/x"])
async def test_no_program_of_a_remote_runs(line: str, repository: Repository, commands: ShellCommands) -> None:
    repository.git("config", "remote.here.url", str(repository.folder))
    for setting in ("uploadpack", "receivepack"):
        program = f"touch {repository.canaries}/{setting}; false"
        repository.git("config", f"remote.here.{setting}", program)
    await run(line, repository.folder, commands)
    assert not {"uploadpack", "receivepack"} & set(repository.ran())


async def test_the_hooks_of_a_commit_run(tmp_path: Path, commands: ShellCommands) -> None:
    """The user who allows commits expects them."""
    await run("git init -q && git config user.name x && git config user.email x@example.org", tmp_path, commands)
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    await run("git commit -qm x --allow-empty", tmp_path, commands)
    assert (tmp_path / "ran").exists()


async def test_a_repository_without_a_git_folder_is_not_used(tmp_path: Path, commands: ShellCommands) -> None:
    """Its files would be settings that were checked out with the rest."""
    Repository(tmp_path / "a").git("clone", "-q", "--bare", ".", str(tmp_path / "bare"))
    assert "cannot use bare repository" in await run("git log -1", tmp_path / "bare", commands)


async def test_reading_verbs_return_the_output_of_git(tmp_path: Path, commands: ShellCommands) -> None:
    await run("git init -q", tmp_path, commands)
    (tmp_path / "new").write_text("x")
    assert await run("git status -s", tmp_path, commands) == "?? new\n"


def test_the_git_variables_contain_their_number_of_entries() -> None:
    variables = build_git_variables([("filter.x.clean", "")], None)
    assert variables["GIT_CONFIG_COUNT"] == str(len(ALWAYS) + 1)
    assert variables[f"GIT_CONFIG_KEY_{len(ALWAYS)}"] == "filter.x.clean"


async def test_reading_a_partial_clone_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git may fetch a missing `.gitmodules` with the program that the repository names. Older versions do not know
    GIT_NO_LAZY_FETCH."""
    environment = getattr(git_settings, "_READ_ONLY_ENVIRONMENT")  # noqa: B009 -- as an older git takes it
    monkeypatch.delitem(environment, "GIT_NO_LAZY_FETCH")
    canary, source, clone = tmp_path / "canary", tmp_path / "source", tmp_path / "clone"
    quiet = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}

    def git(folder: Path, *arguments: str) -> None:
        subprocess.run(["git", "-C", str(folder), *arguments], check=True, env=quiet, capture_output=True)

    source.mkdir()
    git(source, "init", "-q")
    (source / ".gitmodules").write_text('[submodule "s"]\n\tpath = s\n\turl = ./s\n')
    git(source, "add", ".")
    git(source, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "x")
    git(source, "config", "uploadpack.allowFilter", "true")
    git(source, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{source}", str(clone))
    git(clone, "config", "remote.origin.url", str(source))
    git(clone, "config", "remote.origin.uploadpack", f"touch {canary}; git-upload-pack")
    await git_settings.read_git_overrides(GitUse(reads_only=True), clone, os.environ["PATH"])
    assert not canary.exists()
