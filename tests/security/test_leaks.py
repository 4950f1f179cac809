"""Ways in which a secret could bypass the redactor: hooks, adapters, reviewers, split texts and unusual
spellings."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import agent, opened, until
from treadle.domain.envelope import Event
from treadle.domain.events import ApprovalRequested
from treadle.domain.messages import Text, ToolUse
from treadle.domain.runs import Usage
from treadle.ports.hooks import Block, HookedCall, Rewrite
from treadle.ports.model import Completed, Failed, Model, ModelRequest, Show
from treadle.ports.tool import Observation
from treadle.testing.models import FunctionModel, ScriptedModel, ask, call, say
from treadle.vault.store import SecretGrant, VaultStore

VALUE = "sk-live-0123456789abcdef"
HANDLE = "{{vault:TOKEN}}"


@treadle.tool(effect="read")
async def use(text: str) -> str:
    """Use it."""
    return f"used {text}"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with closing(VaultStore(tmp_path / "home", {})) as vault:
        vault.put("TOKEN", VALUE, (SecretGrant("hero"),))
    return tmp_path / "home"


def read_database(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("t.db*"))


async def run(folder: Path, model: Model, *hooks: treadle.Hook, message: str = "go", **more: Any) -> list[Event]:
    """All events of a run; the value is in none of them, nor in the database."""
    told: list[Event] = []

    async with opened(folder, model, home=folder / "home") as engine:
        engine.add_hooks(*hooks)
        hero = agent(**{"tools": [use], **more})
        told.extend([event async for event in engine.stream(hero, message)])
    assert not [event for event in told if VALUE in event.raw.decode()]
    assert VALUE.encode() not in read_database(folder)
    return told


class LeakingHook(treadle.Hook):
    """A hook that knows the value and is careless with it."""

    def __init__(self, where: str) -> None:
        self._where = where

    async def before(self, call: HookedCall) -> Block | Rewrite | None:
        match self._where:
            case "block":
                return Block(f"not with {VALUE}")
            case "rewrite":
                return Rewrite({"text": VALUE})
            case "raise":
                raise ValueError(VALUE)
            case _:
                return None

    async def after(self, call: HookedCall, result: Observation) -> None:
        if self._where == "after":
            raise ValueError(result.content)


@pytest.mark.parametrize("where", ["block", "rewrite", "raise", "after"])
async def test_secrets_in_the_output_of_a_hook_are_redacted(
    tmp_path: Path, home: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    await run(tmp_path, ScriptedModel(ask(call("use", "c1", text=HANDLE)), say("done")), LeakingHook(where))
    assert VALUE not in caplog.text


class Replies:
    """Implements `ports.model.Model`: with whatever it is told to."""

    def __init__(self, reply: Callable[[], Completed | Failed]) -> None:
        self._reply = reply

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        return self._reply()


def raise_with_key() -> Completed | Failed:
    raise RuntimeError(f"401 for the key {VALUE}")


async def test_a_secret_in_the_error_of_an_adapter_is_redacted(
    tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await run(tmp_path, Replies(raise_with_key))
    assert VALUE not in caplog.text


@pytest.mark.parametrize(
    "parts",
    [
        (Text(f"a {VALUE[:10]}"), Text(f"{VALUE[10:]} b")),
        (Text("hm"), ToolUse("c1", VALUE, "{}")),
        (ToolUse(VALUE, "use", '{"text": "x"}'),),
    ],
    ids=["over two parts", "as the name of a tool", "as the id of a call"],
)
async def test_secrets_in_odd_places_of_a_reply_are_redacted(tmp_path: Path, home: Path, parts: Any) -> None:
    replies = iter([Completed(parts, "end_turn", Usage(1, 1)), Completed((Text("ok"),), "end_turn", Usage(1, 1))])
    await run(tmp_path, Replies(lambda: next(replies)))


async def test_a_secret_split_over_a_continuation_is_redacted(tmp_path: Path, home: Path) -> None:
    first, second = say(f"it is {VALUE[:12]}", stop="max_tokens"), say(VALUE[12:])
    await run(tmp_path, ScriptedModel(first, second))


@pytest.mark.parametrize("spelled", [VALUE, "".join(f"\\u{ord(c):04x}" for c in VALUE)], ids=["plain", "escaped"])
async def test_a_raw_value_in_arguments_is_refused_in_any_spelling(
    tmp_path: Path, home: Path, spelled: str
) -> None:
    used: list[str] = []

    @treadle.tool(effect="read")
    async def keep(text: str) -> str:
        used.append(text)
        return "kept"

    reply = ask(ToolUse("c1", "keep", f'{{"text": "{spelled}"}}'))
    told = await run(tmp_path, ScriptedModel(reply, say("done")), tools=[keep])
    assert used == []
    assert "tool_call_error" in [event.type for event in told]


async def test_the_mark_of_a_redaction_is_not_a_secret(tmp_path: Path) -> None:
    used: list[str] = []

    @treadle.tool(effect="read")
    async def keep(text: str) -> str:
        used.append(text)
        return "kept"

    await run(tmp_path, ScriptedModel(ask(call("keep", "c1", text="[redacted:TOKEN]")), say("done")), tools=[keep])
    assert used == ["[redacted:TOKEN]"]


async def test_a_secret_that_is_set_during_a_reply_is_redacted(tmp_path: Path) -> None:
    def reply(_: ModelRequest) -> Any:
        with closing(VaultStore(tmp_path / "home", {})) as vault:
            vault.put("TOKEN", VALUE, (SecretGrant("hero"),))
        return say(f"it is {VALUE}", seconds=0.3)

    told: list[Event] = []

    async with opened(tmp_path, FunctionModel(reply), home=tmp_path / "home") as engine:
        run_id = await engine.submit(agent(), "go")
        told.extend([event async for event in engine.events(run_id)])
    durable = [event.raw.decode() for event in told if event.durable]
    assert not [raw for raw in durable if VALUE in raw]


async def test_a_secret_in_the_note_of_a_decision_is_redacted(tmp_path: Path, home: Path) -> None:
    model = ScriptedModel(ask(call("use", "c1", text="x")), say("done"))

    async with opened(tmp_path, model, home=home) as engine:
        hero = agent(tools=[use], approvals={"default": "ask"})
        run_id = await engine.submit(hero, "go", asker="terminal")
        asked = await until(engine, run_id, "approval_requested")
        assert isinstance(asked.data, ApprovalRequested)
        await engine.decide(asked.data.approval_id, "deny", note=f"my key is {VALUE}", by=VALUE)
        await engine.wait(run_id)
    assert VALUE.encode() not in read_database(tmp_path)
    assert VALUE not in str(model.requests[-1].conversation.messages)


async def test_a_killed_command_is_reported_with_its_secret_handle(tmp_path: Path, home: Path) -> None:
    line = f"echo {HANDLE} > /dev/null; sleep 30"
    told = await run(
        tmp_path,
        ScriptedModel(ask(call("bash", "c1", command=line, timeout=0.3)), say("done")),
        tools=["bash"],
        workspace=tmp_path,
        sandbox="off",
    )
    assert "process_killed" in [event.type for event in told]
