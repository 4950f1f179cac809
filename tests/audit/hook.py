"""Records every import, execution and start of a program from a place that a run can write.

This file is executed by path in each process of the engine that the suite starts (see `plugin.py`, `site/` and
`BOOT`), so it uses the standard library alone and imports nothing of the project. The engine itself says which
places runs can write: `ImportGuard.exclude` is observed, and the places are appended to a file that all processes
share."""

import os
import sys
from typing import Any

VARIABLE = "TREADLE_EXECUTION_AUDIT"
HOOK_FILE = os.path.realpath(__file__)
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(HOOK_FILE)))
PACKAGE = os.path.join(PROJECT, "src", "treadle")
ENGINE = (f"{os.path.realpath(sys.prefix)}/", f"{os.path.realpath(sys.base_prefix)}/", f"{PACKAGE}/")
"""Places that runs cannot write, which are by far the most frequent."""
TESTS = (os.path.join(PROJECT, "tests") + os.sep, os.path.join(PROJECT, "bench") + os.sep)
OBSERVED = ("treadle.system.helper_process", "treadle.system.import_guard")
BOOT = """
from importlib.machinery import SourceFileLoader
SourceFileLoader("audit", {hook!r}).load_module().install({log!r})
"""
"""The beginning of a helper process, which inherits nothing."""


def find_path(event: str, arguments: Any) -> str | None:
    """Return the file that an event executes, or None."""
    if event == "exec":
        return getattr(arguments[0], "co_filename", None)
    if event == "import":
        return arguments[1]
    if event in ("ctypes.dlopen", "os.exec", "os.posix_spawn"):
        return arguments[0]
    if event == "subprocess.Popen":
        return arguments[0] or (arguments[1] if isinstance(arguments[1], str) else arguments[1][0])
    return None


EVENTS = frozenset({"exec", "import", "ctypes.dlopen", "os.exec", "os.posix_spawn", "subprocess.Popen"})


class Audit:
    """The audit of one process."""

    def __init__(self, log: str) -> None:
        self.log = log
        self._is_busy = False

    def __call__(self, event: str, arguments: Any) -> None:
        if event not in EVENTS or self._is_busy:
            return
        path = find_path(event, arguments)
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.fsdecode(path)
        if not name.startswith("/") or name.startswith((*ENGINE, *TESTS)):
            return
        self._is_busy = True  # what follows opens files
        try:
            self._check(event, name)
        finally:
            self._is_busy = False

    def _check(self, event: str, name: str) -> None:
        folders, protected = self._read_places()
        for place in {name, os.path.realpath(name)}:
            inside = [folder for folder in folders if is_within(place, folder)]
            kept = [each for each in protected if is_within(place, each)]
            if any(not any(is_within(each, folder) for each in kept) for folder in inside) and is_engine():
                write_line(self.log, f"{os.getpid()} {event} {name} by {str(sys.orig_argv)[:300]}")
                return

    def _read_places(self) -> tuple[list[str], list[str]]:
        try:
            with open(f"{self.log}.places", encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            return [], []
        return [line[2:] for line in lines if line[:1] == "w"], [line[2:] for line in lines if line[:1] == "p"]


def is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_engine() -> bool:
    """Return whether the nearest code is the engine's and not a test's. A process without tests is the engine's."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] -- there is no public way
    while frame is not None:
        file = os.path.realpath(frame.f_code.co_filename)
        if file != HOOK_FILE and file.startswith(TESTS):
            return False
        if is_within(file, PACKAGE):
            return True
        frame = frame.f_back
    return True


def write_line(path: str, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode("utf-8", "surrogateescape") + b"\n")
    finally:
        os.close(descriptor)


class Observer:
    """Changes the two modules of the engine that the audit needs, after they are imported."""

    def __init__(self, log: str) -> None:
        self._log = log

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in OBSERVED:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                observe(module, self._log)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def observe(module: Any, log: str) -> None:
    if module.__name__ == OBSERVED[0]:
        module._BOOT = BOOT.format(hook=HOOK_FILE, log=log) + module._BOOT
        return
    guard = module.ImportGuard
    exclude = guard.exclude

    def exclude_and_share(self: Any, places: Any) -> None:
        for kind, names in (("w", places.folders), ("p", places.protected)):
            for name in names:
                write_line(f"{log}.places", f"{kind} {name}")
        exclude(self, places)

    guard.exclude = exclude_and_share


def install(log: str) -> None:
    """Audit this process and the helpers that it starts. Violations are appended to the file."""
    for name in OBSERVED:
        if name in sys.modules:
            observe(sys.modules[name], log)
    sys.meta_path.insert(0, Observer(log))  # pyright: ignore[reportArgumentType] -- it has what a finder needs
    sys.addaudithook(Audit(log))
