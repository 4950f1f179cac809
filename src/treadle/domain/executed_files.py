"""The list of files that other programs execute later: git, editors, shells, continuous integration and the like.

A run that writes one gets its commands executed outside of its sandbox, by another program or another user. Writing
one needs the approval of a reviewer, whatever the rules of the agent say, and commands in the sandbox see existing
ones read-only. Paths are compared after links are resolved and without case, as some file systems do. Ordinary code
of a project (tests, scripts, Makefiles) is not in the list."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

EXECUTED: Mapping[str, tuple[str, ...]] = {
    "git": (
        ".git", ".git/hooks", ".git/config", ".git/config.worktree", ".gitconfig", ".config/git/config",
        ".gitmodules", ".husky", ".githooks", ".pre-commit-config.yaml", ".pre-commit-config.yml",
        ".pre-commit-hooks.yaml", "lefthook.yml", "lefthook.yaml", "lefthook.toml", "lefthook.json",
        "lefthook-local.yml", ".lefthook.yml", ".lefthook.yaml", ".lefthook.toml", ".lefthook.json",
        ".lefthook-local.yml", ".lefthook", ".lefthook-local", ".overcommit.yml", ".git-hooks", ".lintstagedrc",
        ".lintstagedrc.json", ".lintstagedrc.yml", ".lintstagedrc.yaml",
    ),
    "a shell at its start": (
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bashrc.d", ".profile",
        ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".oh-my-zsh", ".kshrc", ".mkshrc", ".cshrc",
        ".tcshrc", ".login", ".logout", ".config/fish", ".config/nushell/config.nu", ".config/nushell/env.nu",
        ".config/powershell", ".local/bin",
    ),
    "a tool that enters the folder": (
        ".envrc", ".direnvrc", ".config/direnv", ".mise.toml", "mise.toml", ".mise.local.toml",
        "mise.local.toml", ".mise", ".config/mise", ".autoenv.zsh", "devenv.nix",
    ),
    "an editor or a debugger": (
        ".vscode/tasks.json", ".vscode/launch.json", ".vscode/settings.json", "*.code-workspace",
        ".idea/runConfigurations", ".idea/workspace.xml", ".idea/watcherTasks.xml", ".idea/externalTools.xml",
        "*.run.xml", ".run", ".fleet/run.json", ".zed/tasks.json", ".zed/settings.json", ".zed/debug.json",
        ".helix", ".theia/tasks.json", "*.sublime-project", ".vimrc", ".nvimrc", ".exrc", ".nvim.lua", ".vim",
        ".config/nvim", ".dir-locals.el", ".emacs", ".emacs.d", ".config/emacs", ".devcontainer",
        ".devcontainer.json", ".gitpod.yml", ".gdbinit", ".lldbinit", ".pdbrc",
        ".ipython/profile_default/startup", ".rprofile", ".irbrc", ".pryrc", ".psqlrc", ".sqliterc",
        ".tmux.conf", ".config/tmux", ".screenrc",
    ),
    "continuous integration": (
        ".github/workflows", ".github/actions", ".gitea/workflows", ".forgejo/workflows", ".gitlab-ci.yml",
        ".gitlab/ci", ".circleci", ".travis.yml", "azure-pipelines.yml", "azure-pipelines.yaml",
        ".azure-pipelines", "Jenkinsfile", "bitbucket-pipelines.yml", ".drone.yml", ".woodpecker",
        ".woodpecker.yml", ".woodpecker.yaml", ".buildkite", "appveyor.yml", ".appveyor.yml", ".cirrus.yml",
        ".semaphore", "cloudbuild.yaml", "cloudbuild.yml", "buildspec.yml", ".teamcity", ".tekton",
        ".build.yml", ".builds",
    ),
    "Python at its start": (
        "*.pth", "sitecustomize.py", "usercustomize.py", "a package manager or a build tool", ".npmrc",
        ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".cargo/config", ".cargo/config.toml", ".gradle/init.gradle",
        ".gradle/init.d", ".mvn/extensions.xml", ".mvn/jvm.config", ".mvn/maven.config",
    ),
    "another agent": (
        ".mcp.json", ".claude/settings.json", ".claude/settings.local.json", ".claude/hooks",
        ".claude/commands", ".claude/agents", ".claude/plugins", ".cursor/mcp.json", ".cursor/hooks.json",
        ".cursor/hooks", ".cursor/environment.json", ".codex/config.toml", ".codex/hooks.json", ".codex/hooks",
        ".gemini/settings.json", ".gemini/extensions", ".qwen/settings.json", ".windsurf/mcp_config.json",
        ".windsurf/hooks.json", ".codeium/windsurf", ".vscode/mcp.json", ".continue/config.yaml",
        ".continue/config.json", ".continue/mcpServers", ".roo/mcp.json", ".kiro/settings/mcp.json",
        ".kiro/hooks", ".amazonq/mcp.json", ".amazonq/cli-agents", ".opencode", "opencode.json",
        "opencode.jsonc", ".aider.conf.yml", ".factory/mcp.json", ".factory/hooks", ".junie/mcp", ".crush.json",
        "crush.json",
    ),
    "the desktop or the system": (
        ".config/systemd/user", ".local/share/systemd/user", ".config/autostart", ".local/share/applications",
        ".local/share/dbus-1/services", ".config/environment.d", ".config/plasma-workspace", ".xprofile",
        ".xinitrc", ".xsession", ".xsessionrc", ".pam_environment", ".ssh/rc", ".ssh/config",
        ".ssh/environment", ".ssh/authorized_keys", ".crontab", "crontab", "Library/LaunchAgents",
    ),
}  # fmt: skip
"""Paths by what executes them, relative to any folder. A folder stands for everything in it, except `.git`: there
only the pointer file of a worktree counts, and what is listed inside."""
SYSTEM = (
    "/etc/cron.d", "/etc/cron.daily", "/etc/cron.hourly", "/etc/crontab", "/etc/profile.d", "/etc/systemd",
    "/var/spool/cron", "/etc/ld.so.preload",
)  # fmt: skip
"""Absolute paths that the system executes."""
GIT_FOLDER = ".git"
_GIT_SETTINGS = ("config", "config.worktree")
_INERT_SUFFIX = ".sample"
"""Hooks of git's template, which git does not run."""


class ExecutedFile(Struct, frozen=True):
    """The entry of the list that a path is in."""

    name: str
    """The name in the list."""
    path: str
    """The path up to and including the entry."""
    by: str
    """What executes it."""


def find_executed_file(path: str) -> ExecutedFile | None:
    """Return the entry of the list that an absolute path without links is in, or None."""
    folded = path.casefold()
    for place in SYSTEM:
        if folded == place or folded.startswith(f"{place}/"):
            return ExecutedFile(place, path[: len(place)], "the desktop or the system")
    names, whole = folded.split("/"), path.split("/")
    if names[-1].endswith(_INERT_SUFFIX):
        return None
    for end in range(1, len(names) + 1):
        if (found := _match_at(names, end)) is not None:
            return ExecutedFile(found[0], "/".join(whole[:end]), found[1])
    return None


def may_be_executed(name: str) -> bool:
    """Return whether an entry of the list can end with this name. It is quick, since scans call it for every
    file."""
    folded = name.casefold()
    return folded in _BY_LAST_NAME or folded.endswith(_SUFFIXES)


def _match_at(names: list[str], end: int) -> tuple[str, str] | None:
    last = names[end - 1]
    if _is_in_git_folder(names, end) and (last == "hooks" or (last in _GIT_SETTINGS and end == len(names))):
        return last, "git"
    for entry, by in _BY_LAST_NAME.get(last, ()):
        is_pointer = entry == (GIT_FOLDER,)
        if tuple(names[max(0, end - len(entry)) : end]) == entry and (not is_pointer or end == len(names)):
            return "/".join(entry), by
    return next(((glob, by) for glob, by in _GLOBS if fnmatchcase(last, glob)), None)


def _is_in_git_folder(names: list[str], end: int) -> bool:
    """Return whether a path is in the folder of a repository, of one of its submodules, or of a bare repository."""
    return any(name.endswith(GIT_FOLDER) for name in names[: end - 1])


def _list_entries() -> Iterator[tuple[str, str]]:
    for by, entries in EXECUTED.items():
        for entry in entries:
            yield entry.casefold(), by


def _by_last_name() -> dict[str, list[tuple[tuple[str, ...], str]]]:
    found: dict[str, list[tuple[tuple[str, ...], str]]] = {name: [] for name in ("hooks", *_GIT_SETTINGS)}
    for entry, by in _list_entries():
        if "*" not in entry:
            names = tuple(entry.split("/"))
            found.setdefault(names[-1], []).append((names, by))
    return found


_BY_LAST_NAME = _by_last_name()
_GLOBS = tuple((entry, by) for entry, by in _list_entries() if "*" in entry)
_SUFFIXES = tuple(glob.removeprefix("*") for glob, _ in _GLOBS)
