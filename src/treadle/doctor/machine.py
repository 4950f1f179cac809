"""The home folder and this machine: settings, vault, sandbox, embedder and weights."""

import asyncio
import os
from contextlib import closing
from pathlib import Path

from treadle.config.database_url import list_database_files
from treadle.config.home import Home
from treadle.doctor.findings import setting
from treadle.domain.errors import TreadleError, UsageError
from treadle.memory.local_embedder import is_installed
from treadle.models.local.known_weights import WEIGHTS
from treadle.operations.system_facts import DoctorFinding
from treadle.ports.sandbox import CommandError
from treadle.sandbox.commands import ShellCommands
from treadle.system.daemon_thread import run_in_daemon_thread
from treadle.vault.store import VaultStore

VAULT_SECONDS = 5.0
"""A keyring may wait for a password that no one enters."""
GGUF = b"GGUF"
"""The first bytes of a file with weights."""


def describe_home(home: Home) -> DoctorFinding:
    if not home.path.exists():
        return DoctorFinding("home", "note", f"{home.path} does not exist yet", "It is created when needed.")
    if not home.path.is_dir():
        return DoctorFinding("home", "wrong", f"{home.path} is not a folder", "Set TREADLE_HOME to a folder.")
    if home.path.stat().st_mode & 0o077:
        return DoctorFinding("home", "wrong", f"{home.path} is open to other users", f"chmod 700 {home.path}")
    return DoctorFinding("home", "ok", f"{home.path}, closed to other users")


def describe_settings(home: Home) -> DoctorFinding:
    """Return the finding about a config.yaml that was read."""
    path = home.path / "config.yaml"
    if path.exists():
        return DoctorFinding("settings", "ok", f"{path} was read, and its entries are valid")
    return DoctorFinding("settings", "note", f"there is no {path}", "Without it the default settings apply.")


async def describe_vault(home: Home) -> DoctorFinding:
    """Decrypt every secret."""
    if not home.vault.exists():
        return DoctorFinding("vault", "note", "no secrets yet", "treadle vault set NAME stores one.")

    def read() -> str:
        with closing(VaultStore(home.path, os.environ)) as store:
            return f"{len(store.read().secrets)} secrets, decrypted with the key in {store.key_place()}"

    try:
        async with asyncio.timeout(VAULT_SECONDS):
            return DoctorFinding("vault", "ok", await run_in_daemon_thread(read))
    except TimeoutError:
        return DoctorFinding(
            "vault",
            "wrong",
            f"reading its key timed out after {VAULT_SECONDS:g} s",
            "Unlock the keyring, or set a key.",
        )
    except TreadleError as error:
        return DoctorFinding("vault", "wrong", str(error))


async def describe_sandbox(home: Home) -> DoctorFinding:
    """Run a command in the sandbox."""
    try:
        hidden = (home.path, *list_database_files(home.database_url))
    except UsageError:
        hidden = (home.path,)
    commands = ShellCommands(hidden=hidden)
    try:
        found = await commands.confinement()
    except CommandError as error:
        return DoctorFinding("sandbox", "wrong", str(error))
    finally:
        commands.close()
    if found.sandbox:
        filtered = f"; their system calls are not filtered: {found.unfiltered}" if found.unfiltered else ""
        return DoctorFinding("sandbox", "ok", f"bubblewrap works: commands of agents are confined{filtered}")
    advice = "They ask for approval unless a rule allows them; `sandbox: required` in an agent's file refuses them."
    return DoctorFinding("sandbox", "note", f"commands of agents are not confined: {found.reason}", advice)


def describe_embedder() -> DoctorFinding:
    """Return which embedder `auto` stands for. Loading it takes seconds, so it is not tried."""
    if is_installed():
        return setting(
            "embedder", "the local embedder is installed, to find memories by meaning; it was not loaded"
        )
    advice = "To find them by meaning: pip install 'treadle[local]'"
    return setting("embedder", "memories are found by their words alone", advice, "note")


def describe_weights(home: Home) -> DoctorFinding:
    """Look at the first bytes of every file with weights."""
    files = sorted(home.weights.glob("*.gguf"))
    if not files:
        known = next(iter(WEIGHTS))
        return DoctorFinding("local weights", "note", "none", f"treadle models pull {known} fetches a small model.")
    broken = [file.name for file in files if not _is_gguf(file)]
    if broken:
        return DoctorFinding("local weights", "wrong", f"not GGUF files: {', '.join(broken)}", "Fetch them again.")
    sizes = ", ".join(f"{file.name} ({file.stat().st_size / 1e6:.0f} MB)" for file in files)
    return DoctorFinding("local weights", "ok", f"{sizes}; no model was started")


def _is_gguf(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(GGUF)) == GGUF
    except OSError:
        return False
