"""Serves a GGUF file over HTTP with llama.cpp, in a process of its own that `helper_process` starts.

It writes its address as one line of JSON, and exits when its standard input is closed, which happens when the
parent process ends."""

import ctypes
import importlib
import json
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def main() -> None:
    path, window = sys.argv[1], int(sys.argv[2])
    _die_with_parent()
    llama: Any = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = path
    params.n_ctx = window
    params.n_parallel = 1
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.verbosity = 0
    threads = max(1, (os.cpu_count() or 2) - 1)  # the threads busy-wait; without a spare core, everything is slow
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = llama.Server(params)
    print(json.dumps({"url": server.listening_address}), flush=True)
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)  # its threads have no state to save


def _die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies. Linux only; elsewhere the closed standard input ends
    it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
