"""What bubblewrap is told: which folders a command sees, and how.

The root of a sandbox is empty. The system is put into it read-only, the workspace at its own path, and nothing
else: homes, other programs' sockets and the engine's own folder are not hidden but absent."""

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from treadle.domain.permissions import SandboxPolicy
from treadle.domain.private_paths import CREDENTIALS, PROJECT_NAMES, private_place
from treadle.ports.sandbox import CommandError
from treadle.sandbox.limits import CommandLimits
from treadle.sandbox.seccomp import sandbox_filter

HOME = "/run/home"
ARGUMENTS_FROM, STATE_TO, WORKSPACE_FROM = "3", "4", "5"
FIRST_FILE = 6
"""The descriptors that the keeper passes: after these come the files that are copied into the sandbox."""
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
"""What programs need of /etc. Keys, hashes of passwords and the settings of services are not among it. Files are
copied, which takes a third of the time of binding them."""
KEYS = ("/etc/ssl/private", "/etc/pki/tls/private")
KERNEL = (
    "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/asound",
    "/proc/driver", "/proc/mtrr", "/proc/pressure", "/proc/scsi", "/proc/tty", "/proc/dynamic_debug",
    "/proc/latency_stats", "/proc/timer_stats",
)  # fmt: skip
"""Settings of the kernel itself, which whoever runs as root could write to without any capability: one of them
names a program that it starts outside of any sandbox. Bubblewrap leaves out /proc/sys where it cannot tell."""
NO_NAMESPACES = (
    "uid map", "new namespace", "user namespace", "Operation not permitted", "Permission denied", "No permissions",
)  # fmt: skip


class Features(Struct, frozen=True):
    """What the bubblewrap of this machine can do beside the old and common."""

    by_descriptor: bool = False
    """Bind an open folder, so that nobody can put another in its place meanwhile."""
    sizes: bool = False
    no_nested: bool = False
    """Forbid user namespaces inside."""
    filters: bool = False
    """Hold a command to a seccomp filter."""

    @classmethod
    def read(cls, help_text: str) -> "Features":
        options = ("--bind-fd", "--size", "--disable-userns", "--seccomp")
        return cls(*(option in help_text for option in options))


class _Mount(Struct, frozen=True):
    place: str
    arguments: tuple[str, ...]

    @property
    def depth(self) -> int:
        """What lies in another folder is put there after it."""
        return len(Path(self.place).parts)


class Bubblewrap:
    """The bubblewrap of one machine, and what it always shows of that machine."""

    def __init__(
        self,
        features: Features,
        limits: CommandLimits,
        hidden: Sequence[Path],
        private: Sequence[str] = (),
    ) -> None:
        """`hidden` is never shown, `private` only where a policy names it."""
        self._features = features
        self._hidden = hidden
        self._private = private
        self.copied = tuple(place for place in _in_etc(ETC_FILES) if os.path.isfile(place))
        """The files that the keeper opens."""
        self.filter = (sandbox_filter() or b"") if features.filters else b""
        self._always = (*_system(), *_own(features, limits), *_copies(self.copied, features))

    def arguments(
        self, workspace: Path, policy: SandboxPolicy, variables: Mapping[str, str], toolchains: Sequence[Path] = ()
    ) -> tuple[str, ...]:
        """All but the command. The workspace and the folders with the user's programs are given as they really are,
        without symbolic links.

        Raises CommandError where a policy shows what must not be shown."""
        named = exposed(workspace, policy, self._hidden)
        known = {folder.place for folder in named}
        shown = [*(Exposed(place, writable=False) for place in toolchains if place not in known), *named]
        mounts = [
            *self._always,
            *_exposed(shown, workspace, self._features),
            *_masked(shown, self._hidden),
            *_masked(shown, self._unnamed(shown)),
        ]
        mounts.sort(key=lambda mount: mount.depth)
        return (
            *_isolation(policy, self._features),
            *(("--seccomp", str(FIRST_FILE + len(self.copied))) if self.filter else ()),
            *(argument for mount in mounts for argument in mount.arguments),
            *(argument for place in ("/dev", "/") for argument in ("--remount-ro", place)),
            *(argument for name, value in variables.items() for argument in ("--setenv", name, value)),
            "--chdir",
            str(workspace),
        )

    def _unnamed(self, shown: "Sequence[Exposed]") -> list[Path]:
        """Return the private places in what is shown that the policy does not name itself."""
        roots = [str(folder.place) for folder in shown]
        named = [root for root in roots if private_place(root) is not None]
        of_user = [place for place in self._private if any(_within(place, root) for root in roots)]
        of_roots = [f"{root.rstrip('/')}/{place}" for root in roots for place in CREDENTIALS]
        return [
            Path(place)
            for place in dict.fromkeys((*of_user, *of_roots))
            if os.path.lexists(place)
            and os.path.realpath(place) == place  # a link leads to what is masked itself, or to nothing private
            and not any(_within(place, name) for name in named)
        ]


def _isolation(policy: SandboxPolicy, features: Features) -> tuple[str, ...]:
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


# ── What is always there ──


def _system() -> list[_Mount]:
    mounts: list[_Mount] = []
    for place in SYSTEM:
        if os.path.islink(place):
            mounts.append(_Mount(place, ("--symlink", os.readlink(place), place)))
        elif os.path.isdir(place):
            mounts.append(_Mount(place, ("--ro-bind", place, place)))
    folders = [place for place in _in_etc(ETC_FOLDERS) if os.path.isdir(place)]
    mounts += [_Mount(place, ("--ro-bind-try", place, place)) for place in folders]
    mounts += [_Mount(place, ("--tmpfs", place)) for place in KEYS if os.path.isdir(place)]
    return mounts


def _in_etc(patterns: Sequence[str]) -> list[str]:
    names = sorted(os.listdir("/etc"))
    return [f"/etc/{name}" for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _copies(places: Sequence[str], features: Features) -> list[_Mount]:
    readable = ("--perms", "0644") if features.sizes else ()  # both came with the same version
    return [
        _Mount(place, (*readable, "--file", str(FIRST_FILE + index), place)) for index, place in enumerate(places)
    ]


def _own(features: Features, limits: CommandLimits) -> list[_Mount]:
    return [
        _Mount("/proc", ("--proc", "/proc")),
        *(_Mount(place, ("--ro-bind", place, place)) for place in KERNEL if os.path.exists(place)),
        _Mount("/dev", ("--dev", "/dev")),
        _Mount("/dev/shm", _room("/dev/shm", features, limits.shared_memory)),
        _Mount("/tmp", _room("/tmp", features, limits.temporary)),
        _Mount("/var/tmp", ("--symlink", "/tmp", "/var/tmp")),
        _Mount(HOME, _room(HOME, features, limits.temporary)),
    ]


def _room(place: str, features: Features, size: int) -> tuple[str, ...]:
    return ("--size", str(size), "--perms", "1777", "--tmpfs", place) if features.sizes else ("--tmpfs", place)


# ── What a policy shows ──


class Exposed(Struct, frozen=True):
    place: Path
    writable: bool


def exposed(workspace: Path, policy: SandboxPolicy, hidden: Sequence[Path]) -> list[Exposed]:
    """The folders beside the system, resolved and vetted; the workspace is the last."""
    shown = [Exposed(_resolved(name, "readable"), writable=False) for name in policy.readable]
    shown += [Exposed(_resolved(name, "writable"), writable=True) for name in policy.writable]
    for folder in shown:
        for secret in hidden:
            if folder.place.is_relative_to(secret):
                raise CommandError(
                    f"The sandbox must not show {folder.place}: {secret} is kept from commands. "
                    f"Take it out of the agent's `sandbox`."
                )
    if workspace in hidden:
        raise CommandError(f"{workspace} cannot be a workspace: it is kept from commands. Choose another folder.")
    shown.append(Exposed(workspace, writable=True))
    for folder in shown:
        if folder.writable and any(Path(place).is_relative_to(folder.place) for place in (*SYSTEM, "/etc")):
            raise CommandError(
                f"Commands cannot be let write to {folder.place}: the system itself lies there. "
                f"Choose a folder of its own."
            )
    return shown


def _resolved(name: str, setting: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_absolute():
        raise CommandError(f"`sandbox.{setting}` has {name!r}; give the whole path, from / or ~.")
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise CommandError(
            f"`sandbox.{setting}` has {name!r}, which is not there. Make it or take it out."
        ) from None


def _exposed(shown: Sequence[Exposed], workspace: Path, features: Features) -> list[_Mount]:
    mounts: list[_Mount] = []
    for folder in shown:
        place = str(folder.place)
        how = "--bind" if folder.writable else "--ro-bind"
        if folder.place == workspace and folder.writable and features.by_descriptor:
            mounts.append(_Mount(place, ("--bind-fd", WORKSPACE_FROM, place)))
        else:
            mounts.append(_Mount(place, (how, place, place)))
    return mounts


def _masked(shown: Sequence[Exposed], hidden: Sequence[Path]) -> list[_Mount]:
    """Something empty over each hidden place that lies in a folder that is shown."""
    mounts: list[_Mount] = []
    for secret in hidden:
        if not any(secret.is_relative_to(folder.place) for folder in shown):
            continue
        place = str(secret)
        if secret.is_dir():
            mounts.append(_Mount(place, ("--tmpfs", place)))
        elif secret.exists():
            mounts.append(_Mount(place, ("--ro-bind", os.devnull, place)))
    return mounts


def private_places_of_user() -> tuple[str, ...]:
    """Return where the private places of the engine's user are or would be, without links."""
    home = os.path.expanduser("~")
    return tuple(os.path.realpath(os.path.join(home, place)) for place in (*CREDENTIALS, *PROJECT_NAMES))


def _within(place: str, folder: str) -> bool:
    return place == folder or place.startswith(f"{folder.rstrip('/')}/")


def why_not(output: str) -> str:
    """What to do where bubblewrap is there and does not work."""
    lines = [line for line in output.splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("bwrap:")), lines[0] if lines else "it said nothing")
    if "proc" in said:
        return f"bubblewrap cannot mount /proc ({said}): this container forbids it; run it with fewer restrictions"
    if any(words in said for words in NO_NAMESPACES):
        return (
            f"bubblewrap cannot make a namespace ({said}): allow user namespaces, with "
            f"`sysctl kernel.unprivileged_userns_clone=1` or an AppArmor profile for bwrap"
        )
    return f"bubblewrap does not work here ({said})"
