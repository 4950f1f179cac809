"""The broker process: it starts a supervisor for each command, and makes sure that no command outlives the engine.

There is one broker per engine, with an empty environment and no third-party packages. It is not dumpable, because
secrets granted to commands pass through it."""

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
    list_children,
    list_tree,
    open_child_wakeup,
    prctl,
    reap_children,
    send_signal,
    wait_for_child,
)
from treadle.sandbox.supervisor import Supervisor, home_prefix


class Broker:
    def __init__(self, channel: socket.socket, engine: int | None) -> None:
        self._channel = channel
        self._engine = engine
        self._supervisors: set[int] = set()
        self._wake = open_child_wakeup()

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._channel, self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._clean_up()
            if self._channel in ready and not self._accept():
                break
        while self._clean_up():
            wait_for_child(self._wake, 1)

    def _accept(self) -> bool:
        """Start the command that was handed over. Return False when the engine has closed the channel."""
        word, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1 + 3)
        if not word:
            return False
        control, *streams = descriptors
        pid = os.fork()
        if pid == 0:
            self._supervise(control, streams)
        self._supervisors.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _supervise(self, control: int, streams: list[int]) -> NoReturn:
        """Become the supervisor of a command, which has one stream for its output, or of a program, which has
        three."""
        code = 1
        try:
            self._channel.close()
            Supervisor(socket.socket(fileno=control), streams, self._engine).serve()
            code = 0
        except BaseException as error:
            with suppress(OSError):
                os.write(streams[-1], f"{error}\n".encode())
        finally:
            os._exit(code)

    def _clean_up(self) -> bool:
        """Reap supervisors, and kill what a killed supervisor left behind. Return False when none is left."""
        ended: dict[int, int] = {}
        reap_children(ended)
        killed = [pid for pid in self._supervisors & ended.keys() if ended[pid] != 0]
        self._supervisors -= ended.keys()
        strays = [child for child in list_children(os.getpid()) if child not in self._supervisors]
        send_signal(list_tree(strays), signal.SIGKILL)
        for pid in killed:
            remove_home(pid)
        return bool(self._supervisors) or bool(strays)


def remove_home(supervisor: int) -> None:
    """Remove the private home that a killed supervisor left behind."""
    folder = tempfile.gettempdir()
    for name in os.listdir(folder):
        if name.startswith(home_prefix(supervisor)):
            path = os.path.join(folder, name)
            if os.lstat(path).st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    channel, engine = int(sys.argv[1]), int(sys.argv[2])
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("900")  # when memory runs out, the kernel kills a command, not the engine
    gc.disable()
    gc.freeze()  # a collection would unshare the memory of forks
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    engine_pidfd = None
    with suppress(OSError, AttributeError):  # old kernels lack it; there the closed channel is the only sign
        engine_pidfd = os.pidfd_open(engine)
    if os.getppid() == engine:
        Broker(socket.socket(fileno=channel), engine_pidfd).serve()
