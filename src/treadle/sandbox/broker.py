"""The process that keeps commands: it starts a supervisor for each, and nothing of them outlives the engine.

One for an engine, on its own, with an empty environment and no packages. It is not dumpable, as the secrets that
commands are granted pass through it."""

import gc
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from typing import NoReturn

from treadle.sandbox.process_tree import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    below,
    children_of,
    prctl,
    reap,
    send,
    wait_for_an_end,
    wakeups,
)
from treadle.sandbox.supervisor import Supervisor, home_prefix


class Nursery:
    def __init__(self, channel: socket.socket, engine: int | None) -> None:
        self._channel = channel
        self._engine = engine
        self._supervisors: set[int] = set()
        self._wake = wakeups()

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._channel, self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._tidy()
            if self._channel in ready and not self._take():
                break
        while self._tidy():
            wait_for_an_end(self._wake, 1)

    def _take(self) -> bool:
        """Start what was handed over. False when the engine has closed the channel."""
        word, descriptors, _, _ = socket.recv_fds(self._channel, 1, 2)
        if not word:
            return False
        control, output = descriptors
        pid = os.fork()
        if pid == 0:
            self._supervise(control, output)
        self._supervisors.add(pid)
        os.close(control)
        os.close(output)
        return True

    def _supervise(self, control: int, output: int) -> NoReturn:
        code = 1
        try:
            self._channel.close()
            Supervisor(socket.socket(fileno=control), output, self._engine).serve()
            code = 0
        except BaseException as error:
            with suppress(OSError):
                os.write(output, f"{error}\n".encode())
        finally:
            os._exit(code)

    def _tidy(self) -> bool:
        """Forget supervisors that ended, and end what one that was killed has left. False when none is left."""
        ended: dict[int, int] = {}
        reap(ended)
        killed = [pid for pid in self._supervisors & ended.keys() if ended[pid] != 0]
        self._supervisors -= ended.keys()
        strays = [child for child in children_of(os.getpid()) if child not in self._supervisors]
        send(below(strays), signal.SIGKILL)
        for pid in killed:
            remove_home(pid)
        return bool(self._supervisors) or bool(strays)


def remove_home(supervisor: int) -> None:
    """What a supervisor that was killed could not remove itself."""
    folder = tempfile.gettempdir()
    for name in os.listdir(folder):
        if name.startswith(home_prefix(supervisor)):
            path = os.path.join(folder, name)
            if os.lstat(path).st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    channel, engine = int(sys.argv[1]), int(sys.argv[2])
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("900")  # when memory runs out, a command goes and not the engine
    gc.disable()
    gc.freeze()  # a collection would copy the memory that forks share
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    watched = None
    with suppress(OSError, AttributeError):  # not on old kernels: there the closed channel alone tells
        watched = os.pidfd_open(engine)
    if os.getppid() == engine:
        Nursery(socket.socket(fileno=channel), watched).serve()
