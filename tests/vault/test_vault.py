"""The vault in an engine: grants, and changes by other processes."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS, cpu_seconds, processor_seconds
from treadle.domain.ids import RunId, SessionId
from treadle.domain.secret_refs import find_secret_names, resolve_secret_refs
from treadle.ports.tool import ToolContext, ToolError
from treadle.ports.vault import SecretRefused, Vault, VaultError
from treadle.tools.vault_get import make_vault_get
from treadle.vault.keys import KEY
from treadle.vault.store import SecretGrant, VaultStore
from treadle.vault.vault import HomeVault

CANARY = "canary-4f1d0e-in-a-coal-mine"


@pytest.fixture
def store(tmp_path: Path) -> VaultStore:
    return VaultStore(tmp_path, {})


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return HomeVault(tmp_path, {}, poll_interval=0)


# ── Grants ──


def test_a_secret_is_for_the_agents_and_tools_it_was_granted_to(vault: Vault, store: VaultStore) -> None:
    store.put("ALL", CANARY + "1", [SecretGrant("*")])
    store.put("DEPLOY", CANARY + "2", [SecretGrant("dev-*", "bash"), SecretGrant("dev-*", "web_*")])
    store.put("NOBODY", CANARY + "3")
    assert set(vault.names("dev-1")) == {"ALL", "DEPLOY"}
    assert set(vault.names("writer")) == {"ALL"}
    assert vault.read_granted_secrets("dev-1", "bash") == {"ALL": CANARY + "1", "DEPLOY": CANARY + "2"}
    assert vault.read_granted_secrets("dev-1", "read_file") == {"ALL": CANARY + "1"}
    assert vault.reveal("DEPLOY", "dev-1", "web_fetch") == CANARY + "2"
    with pytest.raises(SecretRefused, match="not granted for the tool `grep`, only for: bash, web_"):
        vault.reveal("DEPLOY", "dev-1", "grep")


def test_a_refusal_does_not_reveal_whether_a_secret_exists(vault: Vault, store: VaultStore) -> None:
    store.put("THERE", CANARY, [SecretGrant("somebody-else")])
    store.put("MINE", CANARY + "2", [SecretGrant("a")])
    said: list[SecretRefused] = []
    for name in ("THERE", "ABSENT"):
        with pytest.raises(SecretRefused) as refused:
            vault.reveal(name, "a", "bash")
        said.append(refused.value)
    assert str(said[0]).replace("THERE", "ABSENT") == str(said[1])
    assert "granted are: MINE" in str(said[0])
    assert [refused.reason for refused in said] == ["not granted to the agent a", "there is no such secret"]


def test_the_engine_can_read_a_value_without_a_grant(tmp_path: Path, store: VaultStore) -> None:
    store.put("OPENAI_API_KEY", CANARY)
    vault = HomeVault(tmp_path, {}, poll_interval=0)
    assert vault.value("OPENAI_API_KEY") == CANARY
    assert vault.value("OTHER") is None


# ── Changes from elsewhere ──


def test_a_home_without_a_vault_has_no_secrets_and_costs_nothing(vault: Vault, tmp_path: Path) -> None:
    assert vault.redactor.is_idle
    assert vault.redactor.redact(CANARY).text == CANARY
    assert vault.names("a") == ()
    with pytest.raises(SecretRefused):
        vault.reveal("TOKEN", "a", "bash")
    assert not list(tmp_path.iterdir())


SET = """
import sys
from pathlib import Path
from treadle.vault.store import SecretGrant, VaultStore
VaultStore(Path(sys.argv[1]), {}).put(sys.argv[2], sys.stdin.read(), [SecretGrant("a")])
"""


def set_elsewhere(home: Path, name: str, value: str) -> None:
    subprocess.run([sys.executable, "-c", SET, str(home), name], input=value, text=True, check=True)


def test_changes_by_another_process_are_noticed_before_the_next_use(vault: Vault, tmp_path: Path) -> None:
    assert vault.redactor.is_idle
    set_elsewhere(tmp_path, "TOKEN", CANARY)
    assert vault.redactor.redact(CANARY).text == "[redacted:TOKEN]"
    assert vault.reveal("TOKEN", "a", "bash") == CANARY
    set_elsewhere(tmp_path, "TOKEN", "another value")
    assert vault.reveal("TOKEN", "a", "bash") == "another value"
    assert vault.redactor.redact("another value").names == ("TOKEN",)
    VaultStore(tmp_path, {}).revoke("TOKEN", ["a"])
    assert vault.read_granted_secrets("a", "bash") == {}


def test_a_granted_value_stays_redacted_when_it_is_changed(vault: Vault, store: VaultStore) -> None:
    store.put("USED", CANARY, [SecretGrant("a")])
    store.put("UNUSED", "never-handed-out")
    vault.read_granted_secrets("a", "bash")
    store.put("USED", "another value")
    store.remove("UNUSED")
    assert vault.redactor.redact(f"{CANARY} never-handed-out").text == "[redacted:USED] never-handed-out"


def test_a_rotation_does_not_affect_a_running_engine(vault: Vault, store: VaultStore) -> None:
    store.put("TOKEN", CANARY, [SecretGrant("a")])
    assert vault.reveal("TOKEN", "a", "bash") == CANARY
    store.rotate()
    assert vault.reveal("TOKEN", "a", "bash") == CANARY


def test_a_removed_or_restored_vault_is_noticed(vault: Vault, store: VaultStore, tmp_path: Path) -> None:
    store.put("TOKEN", CANARY, [SecretGrant("a")])
    assert set(vault.names("a")) == {"TOKEN"}
    store.close()
    (tmp_path / "vault.db").rename(tmp_path / "away.db")
    assert set(vault.names("a")) == set()
    (tmp_path / "away.db").rename(tmp_path / "vault.db")
    assert set(vault.names("a")) == {"TOKEN"}


def test_many_processes_can_write_concurrently(tmp_path: Path) -> None:
    """Also the first: one key is made, and all use it."""
    writers = [
        subprocess.Popen([sys.executable, "-c", SET, str(tmp_path), f"S{n}"], stdin=subprocess.PIPE, text=True)
        for n in range(6)
    ]
    for n, writer in enumerate(writers):
        writer.communicate(f"{CANARY}{n}", timeout=HANG_SECONDS)
        assert writer.returncode == 0
    assert VaultStore(tmp_path, {}).read().values == {f"S{n}": f"{CANARY}{n}" for n in range(6)}


def test_a_vault_that_cannot_be_read_fails_at_once(tmp_path: Path, store: VaultStore) -> None:
    store.put("TOKEN", CANARY)
    with pytest.raises(VaultError, match="holds another key"):
        _ = HomeVault(tmp_path, {KEY: base64.b64encode(bytes(32)).decode()}).redactor


def test_an_unreadable_vault_still_redacts_and_reveals_nothing(
    tmp_path: Path, store: VaultStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("TOKEN", CANARY, [SecretGrant("a")])
    vault = HomeVault(tmp_path, {}, poll_interval=0)
    assert vault.reveal("TOKEN", "a", "bash") == CANARY
    store.rotate()
    (tmp_path / "vault.key").unlink()
    for _ in range(3):
        assert vault.redactor.redact(CANARY).text == "[redacted:TOKEN]"
    assert len(caplog.records) == 1
    with pytest.raises(VaultError, match="there is none in the file"):
        vault.reveal("TOKEN", "a", "bash")


def test_polling_for_changes_costs_microseconds(tmp_path: Path, store: VaultStore) -> None:
    store.put("TOKEN", CANARY)
    vault = HomeVault(tmp_path, {}, poll_interval=0)
    assert not vault.redactor.is_idle

    def look() -> None:
        for _ in range(1000):
            _ = vault.redactor

    assert cpu_seconds(look) < 40 * processor_seconds()


# ── Handles ──


async def test_the_tool_returns_a_handle_that_is_resolved_later(vault: Vault, store: VaultStore) -> None:
    value = 'a "quoted" \\ value\nof two lines'
    store.put("TOKEN", value, [SecretGrant("a")])
    tool = make_vault_get(vault)
    context = ToolContext(RunId("run_1"), SessionId("ses_1"), "call_1", "key", lambda line: None, agent="a")
    told = await tool.run(tool.parse('{"name": "TOKEN"}'), context)
    assert isinstance(told, str)
    assert "{{vault:TOKEN}}" in told
    assert value not in told
    arguments = '{"header": "Bearer {{vault:TOKEN}}"}'
    assert find_secret_names(arguments) == ("TOKEN",)
    assert json.loads(resolve_secret_refs(arguments, lambda name: vault.reveal(name, "a", "web_fetch"))) == {
        "header": f"Bearer {value}"
    }
    with pytest.raises(ToolError, match="No secret `OTHER` is granted to you; granted are: TOKEN"):
        await tool.run(tool.parse('{"name": "OTHER"}'), context)
    assert (tool.spec.effect, tool.spec.repeatable) == ("none", True)
