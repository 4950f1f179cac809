"""What the runs do: a model that always answers the same request in the same way, and the tools that it calls.

The message of a run has one word for each step: `effect` and `pay` leave a line behind and must not happen twice,
`pay` waits for an approval; `look` only reads; `both` makes two calls at once; `spawn` delegates to a child
run."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from aiohttp import web

EFFECTS_VARIABLE = "CHAOS_LINES"
"""The variable that names the file to which effects are appended."""
EFFECT_TOOLS = ("effect", "pay")
PLUGIN = f"""
import asyncio, os
import treadle


def _append(context):
    line = f"{{context.run_id}} {{context.call_id}}\\n".encode()
    file = os.open(os.environ["{EFFECTS_VARIABLE}"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
        os.fsync(file)
    finally:
        os.close(file)


async def _leave_a_line(context):
    await asyncio.sleep(0.03)
    await asyncio.to_thread(_append, context)
    await asyncio.sleep(0.03)


@treadle.tool(effect="external", repeatable=False)
async def effect(n: int, context: treadle.ToolContext) -> str:
    "Leave a line behind."
    await _leave_a_line(context)
    return f"line {{n}} is there"


@treadle.tool(effect="external", repeatable=False)
async def pay(n: int, context: treadle.ToolContext) -> str:
    "Leave a line behind that somebody must agree to."
    await _leave_a_line(context)
    return f"payment {{n}} is made"


@treadle.tool(effect="read", repeatable=True)
async def look(n: int) -> str:
    "Look at something."
    await asyncio.sleep(0.02)
    return f"sight {{n}}"
"""
FEW_SLOTS = 3
"""How many runs of the agent `few` execute at a time."""
AGENT = """
name: worker
model: fake/m
persona: You do as you are told.
tools: [effect, pay, look, agent_spawn]
limits: {max_steps: 100}
memory: {recall: 0, remember: false}
approvals: {default: auto, via: api, rules: [{tool: pay, do: ask}]}
"""
SUBTASK = "do: effect look effect"
"""The message for a child run, and for a run that waits for another of its session."""
_TASK = re.compile(r"do: ([a-z ]+)")


def install(folder: Path, model_url: str) -> dict[str, str]:
    """Create a home with the agent, and a package with the tools. Return the variables that a process needs to
    find them."""
    home, metadata = folder / "home", folder / "package" / "chaos_tools-1.0.dist-info"
    metadata.mkdir(parents=True)
    few = f"{AGENT.replace('worker', 'few')}concurrency: {FEW_SLOTS}\n"
    for name, text in (("worker", AGENT), ("few", few)):
        (home / "agents" / name).mkdir(parents=True)
        (home / "agents" / name / "config.yaml").write_text(text)
    provider = f"{{base_url: '{model_url}', api_mode: chat_completions, api_key: x}}"
    streams = "streams_per_token: 1000"  # all readers have one token, and one server while the other is away
    (home / "config.yaml").write_text(f"providers: {{fake: {provider}}}\nserver: {{{streams}}}\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: chaos-tools\nVersion: 1.0\n")
    named = "".join(f"{name} = chaos_plugin:{name}\n" for name in ("effect", "pay", "look"))
    (metadata / "entry_points.txt").write_text(f"[treadle.tools]\n{named}")
    (folder / "package" / "chaos_plugin.py").write_text(PLUGIN)
    return {
        "TREADLE_HOME": str(home),
        "PYTHONPATH": str(folder / "package"),
        EFFECTS_VARIABLE: str(folder / "lines.txt"),
    }


class RequestedRun(NamedTuple):
    """What a client requests: a run of an agent, and possibly another run in its session that must wait for it."""

    agent: str
    message: str
    then: str | None = None


def make_requested_run(number: int, steps: int, chance: Random) -> RequestedRun:
    """Return the request of this number: occasionally with an approval, a child run, or an agent with few
    slots."""
    words: list[str] = chance.choices(("effect", "look", "both"), (4, 4, 2), k=steps)
    for word, every in (("pay", 6), ("spawn", 7)):
        if number % every == 0:
            words[chance.randrange(steps)] = word
    waits = "pay" in words or "spawn" in words  # then a message to its session is for the run itself
    agent = "few" if number % 8 == 3 else "worker"
    return RequestedRun(
        agent, f"run {number}, do: {' '.join(words)}", SUBTASK if number % 5 == 1 and not waits else None
    )


def read_effects(folder: Path) -> list[tuple[str, str]]:
    """Return the effects: the run and the call of each."""
    file = folder / "lines.txt"
    found = file.read_text().splitlines() if file.exists() else []
    return [(run_id, call_id) for run_id, call_id in map(str.split, found)]


# ── The endpoint ───────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def serve_model(pace: float) -> AsyncGenerator[str, None]:
    """Serve the model, and yield its URL. An answer takes `pace` seconds."""

    async def complete(request: web.Request) -> web.StreamResponse:
        pieces = make_answer(await request.json())
        await asyncio.sleep(pace)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        with suppress(ConnectionError):  # the client was killed meanwhile
            await response.prepare(request)
            for piece in pieces:
                await response.write(piece)
        return response

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def make_answer(asked: Any) -> list[bytes]:
    """Return what the model says to this conversation: the next step, or the end."""
    messages = asked["messages"]
    wanted = (
        (at, _TASK.search(str(each["content"]))) for at, each in enumerate(messages) if each["role"] == "user"
    )
    begins, words = [(at, found[1].split()) for at, found in wanted if found][-1]
    turn = sum("tool_calls" in each for each in messages[begins:])
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, {"content": "On "}]
    if turn == len(words):
        return _stream([*deltas, {"content": "to the next."}], "stop")
    return _stream([*deltas, {"content": "it."}, {"tool_calls": _calls(words[turn], len(messages))}], "tool_calls")


def _calls(word: str, number: int) -> list[dict[str, Any]]:
    names = ("look", "effect") if word == "both" else ("agent_spawn" if word == "spawn" else word,)
    return [
        {
            "index": index,
            "id": f"call_{number}_{index}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(_arguments(name, number))},
        }
        for index, name in enumerate(names)
    ]


def _arguments(name: str, number: int) -> dict[str, Any]:
    return {"message": SUBTASK} if name == "agent_spawn" else {"n": number}


def _stream(deltas: list[dict[str, Any]], finish: str) -> list[bytes]:
    usage = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
    chunks = [_chunk(delta, None) for delta in deltas]
    return [*chunks, _chunk({}, finish), _data({"id": "c", "choices": [], "usage": usage}), b"data: [DONE]\n\n"]


def _chunk(delta: dict[str, Any], reason: str | None) -> bytes:
    return _data({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def _data(value: Any) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
