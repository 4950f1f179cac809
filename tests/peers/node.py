"""Programs of npm that tests start with the Node.js of `make peers`."""

import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[2] / ".peers" / "node_modules"
NODE = PEERS / ".bin" / "node"


def skip_without(package: str) -> pytest.MarkDecorator:
    is_there = NODE.exists() and (PEERS / package / "package.json").exists()
    return pytest.mark.skipif(not is_there, reason=f"{package} is not installed: make peers")


def write_modules(folder: Path, modules: Mapping[str, str]) -> Path:
    """Write ES modules that can import the packages, for programs that work in another folder. Return the path of
    the last one."""
    (folder / "node_modules").symlink_to(PEERS)
    for name, script in modules.items():
        (folder / f"{name}.mjs").write_text(script)
    return folder / f"{list(modules)[-1]}.mjs"


@contextmanager
def serve_script(script: str, *arguments: str) -> Generator[str, None, None]:
    """Run an ES module that prints its address once it listens. Return the address."""
    command = [str(NODE), "--input-type=module", "--eval", script, *arguments]
    with subprocess.Popen(command, cwd=PEERS.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, "the program ended without an address"
            yield address
        finally:
            process.kill()
