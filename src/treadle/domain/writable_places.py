"""The places that a run can write, and the places from which the engine runs code outside of any sandbox.

Code of the second kind never comes from the first. Paths are absolute and have no links."""

from collections.abc import Iterable

from msgspec import Struct


class EnginePlaces(Struct, frozen=True):
    """The places from which this process and its helpers load code. No run may write to one."""

    code: tuple[str, ...] = ()
    """The virtual environment, the standard library, the installed packages, the package of Treadle and the
    interpreter. A workspace cannot be inside one."""
    holders: tuple[str, ...] = ()
    """Folders that hold code of the engine among other things: prefixes of interpreters, and folders with links
    that lead to code (a link cannot be protected alone). A workspace can be inside one, but cannot be one."""
    roots: tuple[str, ...] = ()
    """Folders from which code is imported by name, such as that of an editable installation. A workspace can be
    one: then only the code in it is protected, and the engine imports nothing else from there."""

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.code, *self.holders, *self.roots)

    def list_inside(self, folder: str) -> tuple[str, ...]:
        """Return the places inside a folder, without those that are in another one."""
        found = sorted({place for place in self.all if place != folder and is_within(place, folder)})
        return tuple(place for place in found if not any(is_within(place, each) for each in found if each != place))

    def find_enclosing(self, folder: str) -> str | None:
        """Return the place because of which a folder cannot be written by a run, or None."""
        if folder in self.holders:
            return folder
        return next((place for place in self.code if is_within(folder, place)), None)


def explain_protection(place: str) -> str:
    """Return why no run may change a place of the engine, and what to do."""
    return (
        f"Treadle runs from {place}, and an agent must not change code that runs outside its sandbox. To let "
        f"agents change it, run Treadle from an environment of its own: `uv tool install treadle` or "
        f"`pipx install treadle`."
    )


class WritablePlaces(Struct, frozen=True):
    """The folders that a run can write, except what is protected in them."""

    folders: tuple[str, ...] = ()
    """The workspace, and the folders of `sandbox.writable`."""
    protected: tuple[str, ...] = ()
    """Places inside these folders that stay as they are: those of the engine and its home."""

    def includes(self, path: str) -> bool:
        """Return whether a run can change what is at a path. A link counts where it is, not where it leads; ask for
        each step of a path (`system.engine_places.list_path_steps`)."""
        return any(is_within(path, folder) and not self._is_protected(path, folder) for folder in self.folders)

    def _is_protected(self, path: str, folder: str) -> bool:
        return any(is_within(path, place) and is_within(place, folder) for place in self.protected)

    def join(self, others: Iterable["WritablePlaces"]) -> "WritablePlaces":
        """Return what any of several runs can write."""
        every = (self, *others)
        return WritablePlaces(
            tuple(dict.fromkeys(folder for each in every for folder in each.folders)),
            tuple(dict.fromkeys(place for each in every for place in each.protected)),
        )


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder or inside of it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
