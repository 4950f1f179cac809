"""The real `treadle serve`, in a process that can be killed and started again on the same port."""

import json

from tests.patience import HANG_SECONDS
from tests.surfaces.shell import Process, Shell


class Serving:
    """`start` waits until it listens; the token of its first start is kept."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.port = 0
        self.token = ""
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._process = self.shell.start("serve", "--json", "--port", str(self.port))
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(self._process.communicate()[1].decode())
        told = json.loads(line)
        self.port = int(told["url"].rpartition(":")[2])
        self.token = told["token"] or self.token

    def wait_for_note(self, text: str) -> str:
        """Return the first line on standard error that contains the text."""
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if text in line.decode():
                return line.decode()
        raise AssertionError(f"it has ended without: {text}")

    def kill(self) -> None:
        """As by `kill -9`."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def stop(self) -> str:
        """As by Ctrl-C; what it has said on standard error."""
        assert self._process is not None
        self._process.terminate()
        _, said = self._process.communicate(timeout=HANG_SECONDS)
        assert self._process.returncode == 0, said
        assert b"Traceback" not in said, said.decode()
        return said.decode()
