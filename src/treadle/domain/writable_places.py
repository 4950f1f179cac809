"""The places that a run can write, and the places from which the engine runs code outside of any sandbox.

Code of the second kind never comes from the first. Paths are absolute and have no links."""

from collections.abc import Iterable

from msgspec import Struct


class EnginePlaces(Struct, frozen=True):
    """The places from which this process and its helpers load code. No run may write to one."""

    code: tuple[str, ...] = ()
    """The virtual environment, the standard library, the installed packages, the package of Treadle and the
    interpreter. A workspace cannot be inside one."""
    roots: tuple[str, ...] = ()
    """Folders that contain code of the engine and may contain other things: prefixes of interpreters, and the
    folder of an editable installation. A workspace can be inside one."""
    link_folders: tuple[str, ...] = ()
    """Folders with links that lead to a place. A link cannot be protected alone, so its folder is. A workspace
    cannot be such a folder."""

    def list_inside(self, folder: str) -> tuple[str, ...]:
        """Return the places inside a folder, without those that are in another one."""
        places = {*self.code, *self.roots, *self.link_folders}
        found = sorted(place for place in places if place != folder and is_within(place, folder))
        return tuple(place for place in found if not any(is_within(place, each) for each in found if each != place))

    def find_enclosing(self, folder: str) -> str | None:
        """Return the place that a folder is, or that it is inside of, if no workspace may be there."""
        if folder in self.link_folders:
            return folder
        return next((place for place in self.code if is_within(folder, place)), None)


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
