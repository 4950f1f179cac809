"""A secret is swept for everywhere it could have gone: the database, the events, live and stored, what the model
was sent, the log, the environment and the command lines of every process that was started. It is found nowhere."""

import base64
import logging
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

import treadle
from tests.engine.running import agent, opened
from treadle.domain.envelope import Event, to_json
from treadle.testing.models import ScriptedFailure, ScriptedModel, ask, call, say
from treadle.vault.store import SecretGrant, VaultStore

CANARY = 'canary-7f3a/9"q+zz 0'
UNGRANTED = "ungranted-51c0ffee-51"


def forms(value: str) -> list[bytes]:
    """A value as it may show."""
    raw = value.encode()
    return [
        raw,
        base64.b64encode(raw),
        raw.hex().encode(),
        quote(value, safe="").encode(),
        msgspec.json.encode(value)[1:-1],
    ]


def everything_under(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("vault"):
            yield str(path), path.read_bytes()


def processes_of(pid: int) -> Iterator[tuple[str, bytes]]:
    """Yield the environment and the command line of all descendants of this process."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                for name in ("environ", "cmdline"):
                    try:
                        yield f"/proc/{child}/{name}", Path(f"/proc/{child}/{name}").read_bytes()
                    except OSError:
                        continue  # it has ended, or access to it is denied
                yield from processes_of(int(child))


def find_leaks(value: str, places: list[tuple[str, bytes]]) -> list[str]:
    return [f"{form!r} in {where}" for where, content in places for form in forms(value) if form in content]


@treadle.tool(effect="read")
async def leak(text: str, context: treadle.ToolContext) -> str:
    """Say it in every way: as progress, and in the result."""
    context.progress(f"half of {text}")
    return f"{text} {base64.b64encode(text.encode()).decode()} {quote(text)} {text.encode().hex()}"


@treadle.tool(effect="read")
async def fail(text: str) -> str:
    raise ValueError(f"cannot use {text}")


@treadle.tool(effect="read")
async def spill(text: str) -> str:
    """Give back a result that is too long, with the secret in its middle."""
    return "x" * 200_000 + text + "y" * 200_000


class RecordingHook(treadle.Hook):
    """A hook that keeps what it is shown."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def before(self, call: object) -> None:
        self.seen.append(str(call))


HANDLE = "{{vault:TOKEN}}"
COMMAND = 'echo "$TOKEN"; env; printf %s "$TOKEN" | base64; cat /proc/self/environ; sleep 0.2'
EXPECTED = {"secret_used", "secret_denied", "redacted", "tool_call_progress", "token", "result_truncated"}
SCRIPT = (
    ask(call("leak", "c1", text=HANDLE), text=f"I think it is {CANARY}", thinking=f"hm, {CANARY}"),
    ask(call("fail", "c2", text=HANDLE), call("spill", "c3", text=f"is {HANDLE}")),
    ask(call("leak", "c4", text=CANARY)),
    ask(call("leak", "c5", text="{{vault:UNGRANTED}}")),
    ask(call("bash", "c6", command=COMMAND)),
    ask(call("write_file", "c7", path="note.txt", content="of no consequence")),
    ScriptedFailure("server", f"the key {CANARY} is wrong", retryable=False),
)


async def test_no_secret_leaves_the_vault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    workspace.mkdir()
    with closing(VaultStore(home, {})) as vault:
        vault.put("TOKEN", CANARY, (SecretGrant("hero"),))
        vault.put("UNGRANTED", UNGRANTED, (SecretGrant("somebody-else"),))
    model, hook, told, shown = ScriptedModel(*SCRIPT), RecordingHook(), list[Event](), list[tuple[str, bytes]]()

    async def scenario() -> treadle.Result:
        async with opened(tmp_path, model, home=home) as engine:
            engine.add_hooks(hook)
            hero = agent(tools=[leak, fail, spill, "bash", "write_file"], workspace=workspace, sandbox="off")
            run_id = await engine.submit(hero, f"The token is {CANARY}, and {UNGRANTED}.")
            async for event in engine.events(run_id):
                told.append(event)
                shown.extend(processes_of(os.getpid()))
            return await engine.wait(run_id)

    result = await scenario()
    assert result.outcome == "model_error"
    assert {event.type for event in told} >= EXPECTED
    requests = [
        (f"request {number}", msgspec.json.encode([message.parts for message in request.conversation.messages]))
        for number, request in enumerate(model.requests)
    ]
    places = [
        *((f"event {event.sequence} {event.type}", to_json(event)) for event in told),
        *requests,
        *((f"hook {number}", text.encode()) for number, text in enumerate(hook.seen)),
        *everything_under(tmp_path),
        ("the log", caplog.text.encode()),
        ("the result", msgspec.json.encode(result)),
        ("our environment", "\0".join(f"{k}={v}" for k, v in os.environ.items()).encode()),
    ]
    assert len(places) > 40
    assert find_leaks(CANARY, places) == []
    assert find_leaks(UNGRANTED, places + shown) == []
    by_command_line = [place for place in shown if place[0].endswith("cmdline")]
    assert find_leaks(CANARY, by_command_line) == [], (
        "it may be in the environment of the command it was granted for only"
    )


async def test_a_call_with_the_raw_value_is_refused_with_advice(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with closing(VaultStore(home, {})) as vault:
        vault.put("TOKEN", CANARY, (SecretGrant("hero"),))
    seen: list[str] = []

    @treadle.tool(effect="read")
    async def use(text: str) -> str:
        seen.append(text)
        return "used"

    model = ScriptedModel(
        ask(call("use", "c1", text=CANARY)), ask(call("use", "c2", text=f"with {HANDLE}")), say("done")
    )

    async with opened(tmp_path, model, home=home) as engine:
        assert (await engine.run(agent(tools=[use]), "go")).text == "done"
    assert seen == [f"with {CANARY}"]
    told = msgspec.json.encode(model.requests[1].conversation.messages[-1].parts).decode()
    assert "Use the handle instead" in told
    assert HANDLE in told
