"""The arguments of bubblewrap: which folders a command sees, and how.

The root of a sandbox is empty. The system is mounted read-only and the workspace at its own path. Everything else
(homes, sockets of other programs, the engine's own folder) is not hidden but absent."""

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from treadle.domain.permissions import SandboxPolicy, WorkspaceAccess
from treadle.domain.private_paths import CREDENTIALS, PROJECT_NAMES, find_private_place
from treadle.domain.writable_places import EnginePlaces, is_within
from treadle.ports.sandbox import CommandError
from treadle.sandbox.executed_scan import NOTHING_EXECUTED, ExecutedScan
from treadle.sandbox.limits import CommandLimits
from treadle.sandbox.mounts import (
    ExposedFolder,
    Mount,
    list_protected,
    mount_executed,
    mount_read_only,
    pin_parents,
    select_writable,
)
from treadle.sandbox.seccomp import build_sandbox_filter

HOME = "/run/home"
START_FOLDER = f"{HOME}/start"
"""The private start folder of a program. It is empty."""
ARGUMENTS_FROM, STATE_TO, WORKSPACE_FROM = "3", "4", "5"
FIRST_FILE = 6
"""The first descriptor of the files that are copied into the sandbox. The broker passes the descriptors above
first."""
SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/run/current-system",
)  # fmt: skip
ETC_FOLDERS = (
    "alternatives",
    "crypto-policies",
    "fonts",
    "java*",
    "perl",
    "pki",
    "profile.d",
    "ssl",
    "static",
    "xdg",
)
ETC_FILES = (
    "bash.bashrc", "bashrc", "debian_version", "gitconfig", "group", "host.conf", "hosts", "inputrc", "ld.so.cache",
    "ld-musl*", "localtime", "lsb-release", "mime.types", "nsswitch.conf", "os-release", "passwd", "profile",
    "protocols", "resolv.conf", "services", "timezone",
)  # fmt: skip
"""The files of /etc that programs need, without keys, password hashes or settings of services. They are copied,
which takes a third of the time of bind mounts."""
KEYS = ("/etc/ssl/private", "/etc/pki/tls/private")
KERNEL = (
    "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/asound",
    "/proc/driver", "/proc/mtrr", "/proc/pressure", "/proc/scsi", "/proc/tty", "/proc/dynamic_debug",
    "/proc/latency_stats", "/proc/timer_stats",
)  # fmt: skip
"""Kernel settings that root could write without any capability; one of them names a program that the kernel starts
outside of any sandbox. Bubblewrap does not always protect /proc/sys."""
NO_NAMESPACES = (
    "uid map", "new namespace", "user namespace", "Operation not permitted", "Permission denied", "No permissions",
)  # fmt: skip


class BubblewrapFeatures(Struct, frozen=True):
    """Optional features of the installed bubblewrap."""

    by_descriptor: bool = False
    """Bind an open folder, so that it cannot be replaced meanwhile."""
    sizes: bool = False
    no_nested: bool = False
    """Forbid user namespaces inside the sandbox."""
    filters: bool = False
    """Apply a seccomp filter."""

    @classmethod
    def read(cls, help_text: str) -> "BubblewrapFeatures":
        options = ("--bind-fd", "--size", "--disable-userns", "--seccomp")
        return cls(*(option in help_text for option in options))


class SandboxView(Struct, frozen=True):
    """What a program sees of its workspace, and where it starts."""

    access: WorkspaceAccess = "write"
    folder: str = ""
    """The start folder; empty for the workspace."""
    copies: Mapping[str, str] = {}
    """Copies to mount read-only, by place."""


DEFAULT_VIEW = SandboxView()


class Bubblewrap:
    """The bubblewrap of this machine, and what every sandbox contains."""

    def __init__(
        self,
        features: BubblewrapFeatures,
        limits: CommandLimits,
        hidden: Sequence[Path],
        private: Sequence[str],
        engine: EnginePlaces,
    ) -> None:
        """`hidden` is never exposed, `private` only if a policy names it; the places of the engine are never
        writable."""
        self._features = features
        self._hidden = hidden
        self._private = private
        self._engine = engine
        self.copied = tuple(place for place in _list_etc(ETC_FILES) if os.path.isfile(place))
        """The files that the broker opens."""
        self.filter = (build_sandbox_filter() or b"") if features.filters else b""
        self._always = (*_mount_system(), *_mount_private(features, limits), *_copy_files(self.copied, features))

    def binds_workspace(self, view: SandboxView) -> bool:
        """Return whether the arguments use the descriptor of the workspace. A command inherits an unused one."""
        return self._features.by_descriptor and view.access != "none"

    def arguments(
        self,
        workspace: Path,
        policy: SandboxPolicy,
        variables: Mapping[str, str],
        toolchains: Sequence[Path] = (),
        executed: ExecutedScan = NOTHING_EXECUTED,
        view: SandboxView = DEFAULT_VIEW,
    ) -> tuple[str, ...]:
        """Return all arguments except the command. The workspace and the toolchain folders must be resolved.
        `executed` are the files in writable folders that other programs execute.

        Raise CommandError if a policy exposes a hidden path or makes a place of the engine writable."""
        named = resolve_exposed(workspace, policy, self._hidden, view.access)
        known = {folder.place for folder in named}
        shown = [*(ExposedFolder(place, writable=False) for place in toolchains if place not in known), *named]
        protected = list_protected(shown, self._engine)
        masked = [*self._hidden, *self._list_unnamed_private(shown)]
        mounts = [
            *self._always,
            *_mount_exposed(shown, workspace, self._features),
            *pin_parents([*protected, *map(str, self._hidden)], shown),
            *mount_executed(select_writable(executed, shown), [*protected, *map(str, masked)]),
            *mount_read_only(protected),
            *_mask(shown, masked),
            *_mount_view(view),
        ]
        mounts.sort(key=lambda mount: mount.depth)
        return (
            *_isolation_arguments(policy, self._features),
            *(("--seccomp", str(FIRST_FILE + len(self.copied))) if self.filter else ()),
            *(argument for mount in mounts for argument in mount.arguments),
            *(argument for place in ("/dev", "/") for argument in ("--remount-ro", place)),
            *(argument for name, value in variables.items() for argument in ("--setenv", name, value)),
            "--chdir",
            view.folder or str(workspace),
        )

    def _list_unnamed_private(self, shown: Sequence[ExposedFolder]) -> list[Path]:
        """Return the private paths in exposed folders that the policy does not name itself."""
        roots = [str(folder.place) for folder in shown]
        named = [root for root in roots if find_private_place(root) is not None]
        of_user = [place for place in self._private if any(is_within(place, root) for root in roots)]
        of_roots = [f"{root.rstrip('/')}/{place}" for root in roots for place in CREDENTIALS]
        return [
            Path(place)
            for place in dict.fromkeys((*of_user, *of_roots))
            if os.path.lexists(place)
            and os.path.realpath(place) == place  # the target of a link is masked itself, or is not private
            and not any(is_within(place, name) for name in named)
        ]


def _isolation_arguments(policy: SandboxPolicy, features: BubblewrapFeatures) -> tuple[str, ...]:
    return (
        "--unshare-user",
        "--unshare-all",
        *(("--disable-userns",) if features.no_nested else ()),
        *(("--share-net",) if policy.network else ()),
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        "--hostname",
        "sandbox",
        "--json-status-fd",
        STATE_TO,
        "--clearenv",
    )


# ── Mounts of every sandbox ──


def _mount_system() -> list[Mount]:
    mounts: list[Mount] = []
    for place in SYSTEM:
        if os.path.islink(place):
            mounts.append(Mount(place, ("--symlink", os.readlink(place), place)))
        elif os.path.isdir(place):
            mounts.append(Mount(place, ("--ro-bind", place, place)))
    folders = [place for place in _list_etc(ETC_FOLDERS) if os.path.isdir(place)]
    mounts += [Mount(place, ("--ro-bind-try", place, place)) for place in folders]
    mounts += [Mount(place, ("--tmpfs", place)) for place in KEYS if os.path.isdir(place)]
    return mounts


def _list_etc(patterns: Sequence[str]) -> list[str]:
    names = sorted(os.listdir("/etc"))
    return [f"/etc/{name}" for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _copy_files(places: Sequence[str], features: BubblewrapFeatures) -> list[Mount]:
    readable = ("--perms", "0644") if features.sizes else ()  # both were added in the same version
    return [
        Mount(place, (*readable, "--file", str(FIRST_FILE + index), place)) for index, place in enumerate(places)
    ]


def _mount_private(features: BubblewrapFeatures, limits: CommandLimits) -> list[Mount]:
    return [
        Mount("/proc", ("--proc", "/proc")),
        *(Mount(place, ("--ro-bind", place, place)) for place in KERNEL if os.path.exists(place)),
        Mount("/dev", ("--dev", "/dev")),
        Mount("/dev/shm", _mount_tmpfs("/dev/shm", features, limits.shared_memory)),
        Mount("/tmp", _mount_tmpfs("/tmp", features, limits.temporary)),
        Mount("/var/tmp", ("--symlink", "/tmp", "/var/tmp")),
        Mount(HOME, _mount_tmpfs(HOME, features, limits.temporary)),
    ]


def _mount_tmpfs(place: str, features: BubblewrapFeatures, size: int) -> tuple[str, ...]:
    return ("--size", str(size), "--perms", "1777", "--tmpfs", place) if features.sizes else ("--tmpfs", place)


# ── Mounts of a policy ──


def resolve_exposed(
    workspace: Path, policy: SandboxPolicy, hidden: Sequence[Path], access: WorkspaceAccess = "write"
) -> list[ExposedFolder]:
    """Return the folders exposed in addition to the system, resolved and checked. The workspace is the last."""
    shown = [ExposedFolder(_resolve_folder(name, "readable"), writable=False) for name in policy.readable]
    shown += [ExposedFolder(_resolve_folder(name, "writable"), writable=True) for name in policy.writable]
    for folder in shown:
        for secret in hidden:
            if folder.place.is_relative_to(secret):
                raise CommandError(
                    f"The sandbox must not show {folder.place}: commands must not see {secret}. "
                    f"Remove it from the agent's `sandbox`."
                )
    if workspace in hidden:
        raise CommandError(f"{workspace} cannot be a workspace: commands must not see it. Choose another folder.")
    if access != "none":
        shown.append(ExposedFolder(workspace, writable=access == "write"))
    for folder in shown:
        if folder.writable and any(Path(place).is_relative_to(folder.place) for place in (*SYSTEM, "/etc")):
            raise CommandError(
                f"Commands must not write to {folder.place}: it holds the system. Choose another folder."
            )
    return shown


def _resolve_folder(name: str, setting: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_absolute():
        raise CommandError(f"`sandbox.{setting}` has {name!r}; give the whole path, from / or ~.")
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise CommandError(
            f"`sandbox.{setting}` has {name!r}, which does not exist. Create it, or remove it from the setting."
        ) from None


def _mount_exposed(shown: Sequence[ExposedFolder], workspace: Path, features: BubblewrapFeatures) -> list[Mount]:
    mounts: list[Mount] = []
    for folder in shown:
        place = str(folder.place)
        how = "--bind" if folder.writable else "--ro-bind"
        if folder is shown[-1] and folder.place == workspace and features.by_descriptor:
            mounts.append(Mount(place, (f"{how}-fd", WORKSPACE_FROM, place)))
        else:
            mounts.append(Mount(place, (how, place, place)))
    return mounts


def _mount_view(view: SandboxView) -> list[Mount]:
    mounts = [Mount(place, ("--ro-bind", copy, place)) for place, copy in view.copies.items()]
    if view.folder == START_FOLDER:
        mounts.append(Mount(START_FOLDER, ("--dir", START_FOLDER)))
    return mounts


def _mask(shown: Sequence[ExposedFolder], hidden: Sequence[Path]) -> list[Mount]:
    """Return empty mounts over each hidden path inside an exposed folder."""
    mounts: list[Mount] = []
    for secret in hidden:
        if not any(secret.is_relative_to(folder.place) for folder in shown):
            continue
        place = str(secret)
        if secret.is_dir():
            mounts.append(Mount(place, ("--tmpfs", place)))
        elif secret.exists():
            mounts.append(Mount(place, ("--ro-bind", os.devnull, place)))
    return mounts


def list_private_paths() -> tuple[str, ...]:
    """Return the resolved paths of the user's private files, whether they exist or not."""
    home = os.path.expanduser("~")
    return tuple(os.path.realpath(os.path.join(home, place)) for place in (*CREDENTIALS, *PROJECT_NAMES))


def is_within_system(place: str) -> bool:
    """Return whether a path is in a folder of the system, which every sandbox shows read-only."""
    return any(is_within(place, folder) for folder in SYSTEM)


def explain_failure(output: str) -> str:
    """Return why bubblewrap does not work although it is installed, and what to do."""
    lines = [line for line in output.splitlines() if line.strip()]
    message = next((line for line in lines if line.startswith("bwrap:")), lines[0] if lines else "it said nothing")
    if "proc" in message:
        return (
            f"bubblewrap cannot mount /proc ({message}): this container forbids it; run it with fewer restrictions"
        )
    if any(words in message for words in NO_NAMESPACES):
        return (
            f"bubblewrap cannot make a namespace ({message}): allow user namespaces, with "
            f"`sysctl kernel.unprivileged_userns_clone=1` or an AppArmor profile for bwrap"
        )
    return f"bubblewrap does not work here ({message})"
