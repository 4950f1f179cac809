"""A key that is typed at the first start of the terminal UI: it is used, and it is in no file and no process."""

from pathlib import Path

import pytest

from tests.e2e.scripted_endpoint import says
from tests.e2e.terminal_stage import READY, MakeStage, send
from tests.e2e.tmux import Terminal, needs_tmux
from tests.fake_endpoint import Behaviour, Request, refuses

pytestmark = needs_tmux
RIGHT, WRONG = "sk-right-key-123", "sk-wrong-key-456"


def _serve(request: Request) -> Behaviour:
    """Behave like a provider with a key, which repeats a wrong one in its refusal."""
    given = request.headers.get("authorization")
    if given != f"Bearer {RIGHT}":
        return refuses(401, {"error": {"message": f"Incorrect API key provided: {given}"}})
    if request.path.endswith("/models"):
        return refuses(200, {"object": "list", "data": [{"id": "m"}]})
    return says("Hello with the typed key.")


def _enter_key(terminal: Terminal, address: str, key: str) -> None:
    terminal.type("address of a server")
    terminal.wait_for("any OpenAI-compatible API")
    terminal.send("Enter")
    terminal.wait_for("Address, for example")
    terminal.type(address)
    terminal.send("Enter")
    terminal.wait_for("Key of the server")
    terminal.type(key)
    terminal.wait_for("••••")
    terminal.send("Enter")


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
def test_a_typed_key_is_used_and_is_in_no_file_and_no_process(
    stage: MakeStage, tmp_path: Path, columns: int, rows: int
) -> None:
    made = stage(policy=_serve)
    home = tmp_path / "home"
    (home / "agents" / "default" / "config.yaml").unlink()
    (home / "config.yaml").unlink()
    with made.open(ready="Choose a model", columns=columns, rows=rows) as terminal:
        _enter_key(terminal, made.endpoint.url, WRONG)
        screen = terminal.wait_for("refused the key (401)")
        assert "[hidden]" in screen
        terminal.wait_for("No model is set yet.")
        _enter_key(terminal, made.endpoint.url, RIGHT)
        terminal.wait_for(READY)
        send(terminal, "hello")
        terminal.wait_for("Hello with the typed key.")
        for key in (RIGHT, WRONG):
            assert key not in terminal.read_screen()
            assert _list_processes_with(key) == []
        terminal.send("C-d")
        terminal.wait_for("treadle chat --session", history=True)
    for key in (RIGHT, WRONG):
        found = [path for path in tmp_path.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
        assert found == []


def _list_processes_with(text: str) -> list[str]:
    """Return the processes with a text in their arguments."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:  # the process has ended
            continue
        if text.encode() in words:
            found.append(str(path))
    return found
