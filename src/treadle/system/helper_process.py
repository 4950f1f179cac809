"""Start the helper processes of this package: its own Python modules, isolated from the caller.

A helper must not run code from the folder or the environment of the command that starts it: both may be under the
control of an agent. So it runs in isolated mode (`-I`), from the folder in which this package is installed, with an
environment that is built from scratch, in the root folder. No other module of the package starts a process of its
own, except those that tests/test_helper_processes.py lists with a reason."""

import asyncio
import site
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = "/"
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
}
"""Everything that a helper finds in its environment. Nothing of the caller's is passed on."""
PACKAGE_ROOT = Path(__file__).resolve().parents[2]

_BOOT = """
import sys
root, user_site, module = sys.argv[1:4]
del sys.argv[1:4]
sys.path += [folder for folder in (root, user_site) if folder and folder not in sys.path]
from importlib import import_module
import_module(module).main()
"""
"""Isolated mode ignores PYTHONPATH and the packages that the user installed without root rights. The folder of this
package is appended, so that it is found there too, but never before the standard library."""


def list_interpreters() -> list[str]:
    """Return the programs that run helpers: the interpreter, and the one that its environment was made from."""
    base: str = getattr(sys, "_base_executable", "")
    return [program for program in (sys.executable, base) if program]


def make_helper_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command line that calls `main()` of a module of this package, isolated, with all installed
    packages importable."""
    user_site = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    return _command("-IX", user_site, module, arguments)


def start_bare_helper(module: str, *arguments: str, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a module that uses the standard library alone, in a session of its own, with no input and no output."""
    return subprocess.Popen(
        _command("-ISX", "", module, arguments),
        env=ENVIRONMENT,
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=pass_fds,
        start_new_session=True,
    )


def start_command_helper(module: str, *arguments: str) -> None:
    """Start a module that continues the work of a command: in a session of its own, in the same folder and with the
    same environment, which holds the user's keys. No module is imported from the folder."""
    subprocess.Popen(
        make_helper_command(module, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


async def start_server_process(module: str, *arguments: str, pass_fds: Sequence[int]) -> Process:
    """Start a module that continues the work of a command, in a session of its own, with a pipe for all that it
    writes. It has the same folder and the same environment."""
    return await asyncio.create_subprocess_exec(
        *make_helper_command(module, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        start_new_session=True,
    )


async def start_piped_helper(module: str, *arguments: str) -> Process:
    """Start a module in a session of its own, with pipes for its input, its output and its errors."""
    return await asyncio.create_subprocess_exec(
        *make_helper_command(module, *arguments),
        env=ENVIRONMENT,
        cwd=FOLDER,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )


def run_helper(module: str, *arguments: str) -> int:
    """Run a module to its end, on the caller's input and output. Return its exit code."""
    return subprocess.run(
        make_helper_command(module, *arguments), env=ENVIRONMENT, cwd=FOLDER, check=False
    ).returncode


def _command(options: str, user_site: str, module: str, arguments: Sequence[str]) -> tuple[str, ...]:
    return (sys.executable, options, "utf8", "-c", _BOOT, str(PACKAGE_ROOT), user_site, module, *arguments)
