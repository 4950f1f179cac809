"""Fails each test in which a process of the engine executes something from a place that a run can write."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.audit import hook
from treadle.system.import_guard import ImportGuard

SITE = str(Path(hook.HOOK_FILE).with_name("site"))
BINARIES = f"{Path(sys.executable).parent}/"
SHELLS = frozenset({"bash", "sh", "env", "tmux"})
"""Programs with which tests start commands of the engine."""


class ExecutionAudit:
    """The audit of one process of the suite, and of the processes that it starts."""

    def __init__(self) -> None:
        self.log = Path(tempfile.mkdtemp(prefix="treadle-audit-")) / "violations"
        self._seen = 0

    def start(self) -> None:
        hook.install(str(self.log))
        original = subprocess.Popen.__init__

        def init(self_: Any, args: Any, *more: Any, **options: Any) -> None:
            if options.get("env") is not None and _is_engine_process(args):
                options["env"] = self.extend(options["env"])
            original(self_, args, *more, **options)

        subprocess.Popen.__init__ = init  # pyright: ignore[reportAttributeAccessIssue] -- it accepts everything
        os.environ.update(self.extend(os.environ))

    def extend(self, environment: Any) -> dict[str, str]:
        """Return the environment of a process with what installs the audit there."""
        others = [entry for entry in environment.get("PYTHONPATH", "").split(":") if entry and entry != SITE]
        path = ":".join([SITE, *others])
        return {hook.VARIABLE: str(self.log), **environment, "PYTHONPATH": path}

    def begin_test(self) -> None:
        """Forget what runs of earlier tests could write."""
        Path(f"{self.log}.places").unlink(missing_ok=True)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, ImportGuard)]

    def list_new_violations(self) -> list[str]:
        try:
            if os.stat(self.log).st_size == self._seen:
                return []
        except OSError:
            return []
        with self.log.open("rb") as file:
            file.seek(self._seen)
            text = file.read()
        self._seen += len(text)
        return text.decode(errors="replace").splitlines()


def _is_engine_process(arguments: Any) -> bool:
    """Return whether a test starts this Python or a command of this environment, perhaps in a shell or a terminal.
    Helpers of the engine start isolated, and are audited in another way."""
    words = [str(word) for word in (arguments if isinstance(arguments, list | tuple) else [arguments])]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] -- whatever a test gives
    if Path(words[0]).name in SHELLS:
        return True
    return words[0].startswith(BINARIES) and not any(word.startswith("-I") for word in words[1:2])


AUDIT = ExecutionAudit()


@pytest.fixture(autouse=True)
def no_execution_from_writable_places() -> Iterator[None]:
    AUDIT.begin_test()
    yield
    violations = AUDIT.list_new_violations()
    assert not violations, f"code outside the sandbox came from a place that a run can write: {violations}"
