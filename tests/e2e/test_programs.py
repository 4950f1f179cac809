"""Programs that people write first, as they write them: each runs as it stands against a scripted model, and passes
the strict type checker."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, calls, fragment, refuses, says
from tests.patience import HANG_SECONDS

PROGRAMS = Path(__file__).parents[1] / "programs"
MAX_LINES = 40
TREADLE = Path(sys.executable).with_name("treadle")
TWICE = ("approve_later", "survive_crash")
"""Programs that are started twice."""


def asks(*wanted: tuple[str, dict[str, Any]]) -> Answer:
    """Return a reply with these calls."""
    return calls(*(fragment(n, f"call_{n}", name, json.dumps(given)) for n, (name, given) in enumerate(wanted)))


SCRIPTS: dict[str, tuple[Sequence[Behaviour], Sequence[str]]] = {
    "hello": ([says("Paris")], ["Paris"]),
    "weather_tool": (
        [asks(("get_weather", {"city": "Lyon"})), says("Sunny in Lyon.")],
        ["Sunny in Lyon."],
    ),
    "async_tool": (
        [asks(("convert", {"amount": 10, "unit": "km"})), says("6.2 miles.")],
        ["completed 6.2 miles.", "20 tokens in"],
    ),
    "stream_text": ([says("Threads cross.")], ["Threads cross."]),
    "match_events": (
        [asks(("search", {"query": "wool"})), says("Two pages.")],
        ['call search {"query": "wool"}', "token Two pages.", "end completed"],
    ),
    "render_items": (
        [asks(("look_up", {"name": "Ada"})), says("In Ghent.")],
        ["user: Where does Ada live?", "tool: look_up", "agent: In Ghent."],
    ),
    "dataclass_output": (
        [says('{"number": "A-7", "total": 12.5, "items": ["thread", "thread"]}')],
        ["A-7 13.5 ['thread', 'thread']"],
    ),
    "list_output": (
        [
            says('[{"name": "Ghent", "people": 260000}, {"name": "Lyon", "people": 520000}]'),
            says('{"kind": "missing", "reason": "not in the book"}'),
        ],
        ["780000", "kind='missing' reason='not in the book'"],
    ),
    "chat_loop": (
        [says("Hello, Ada."), says("Ada.")],
        ["agent: Hello, Ada.", "agent: Ada.", "MessageItem My name is Ada.", "AnswerItem Ada."],
    ),
    "approve_in_code": (
        [
            asks(("delete_file", {"path": "/tmp/a"}), ("delete_file", {"path": "/etc/passwd"})),
            says("One is deleted."),
        ],
        ['asked: delete_file {"path": "/tmp/a"}', 'asked: delete_file {"path": "/etc/passwd"}', "One is deleted."],
    ),
    "approve_later": (
        [asks(("send_mail", {"to": "Ada"})), says("It is sent.")],
        ["waiting ['send_mail']", "completed It is sent."],
    ),
    "answer_question": (
        [asks(("clarify", {"question": "Which colour?"})), says("A blue shirt.")],
        ["question: Which colour?", "A blue shirt."],
    ),
    "survive_crash": (
        [asks(("charge", {"amount": 5})), asks(("check", {"order": "7"})), says("Charged and checked.")],
        ["Charged and checked. - charged 5"],
    ),
    "two_agents": (
        [asks(("invoke_agent", {"agent": "writer", "message": "A poem."})), says("Roses."), says("Here: Roses.")],
        ["Here: Roses.", "boss completed", "writer completed"],
    ),
    "many_at_once": ([says("One.")] * 50, ["50 completed", "counter 50 runs"]),
    "limits": ([asks(("roll", {}))] * 3, ["max_steps"]),
    "raise_on_failure": (
        [refuses(404, {"error": {"message": "The model does not exist"}})],
        ["failed", "error:"],
    ),
    "cancel_a_run": ([asks(("wait_long", {}))], ["cancelled"]),
    "steer_a_run": (
        [asks(("paint", {"colour": "red"})), asks(("paint", {"colour": "blue"})), says("It is blue.")],
        ["It is blue."],
    ),
    "fallback_model": (
        [refuses(500, {"error": {"message": "down"}}), says("Hello.")],
        ["Hello. by ['gpt-5-mini']"],
    ),
    "attach_image": ([says("One pixel.")], ["One pixel."]),
    "fork_and_compare": (
        [says("Rain."), says("Snow.")],
        ["Rain. | Snow.", "same steps:", "replays the same: True"],
    ),
    "block_with_hook": ([asks(("query", {"sql": "DROP TABLE a"})), says("I may not.")], ["I may not."]),
    "tool_errors": (
        [asks(("divide", {"a": 1, "b": 0}), ("find_user", {"name": "bob"})), says("Both failed.")],
        ["Both failed.", "divide", "find_user"],
    ),
    "sessions_of_users": ([says("Hello, Ada."), says("Hello, Bob.")], ["True", "refused:"]),
    "background_run": ([says("Threads.")], ["queued", "Threads.", "completed 1"]),
    "own_model": ([], ["passed"]),
    "toolset": (
        [asks(("add_note", {"text": "The loom is blue."})), asks(("list_notes", {})), says("Noted.")],
        ["Noted.", "['The loom is blue.']"],
    ),
    "named_session": (
        [says("Hello, Ada."), says("Ada.")],
        ["user: My name is Ada.", "assistant: Hello, Ada.", "user: What is my name?", "assistant: Ada."],
    ),
    "validated_answer": (
        [
            says('{"number": "7", "lines": []}'),
            says('{"number": "INV-7", "lines": [{"item": "loom", "price": 420}]}'),
        ],
        ["INV-7 EUR 420.0"],
    ),
    "batch_with_limit": (
        [refuses(400, "no"), *[says(f"Label {number}.") for number in range(7)]],
        ["7 of 8", "8 in the usage of the batch"],
    ),
    "own_threads": ([says(f"Answer {number}.") for number in range(4)], ["['Answer 0.', 'Answer 1.', 'Answer 2.'"]),
    "notebook_cells": (
        [says("One."), says("Two."), says("Three.")],
        ["One.\nTwo.\nThree.\n4 messages\n"],
    ),
    "progress": ([asks(("index", {"folder": "docs"})), says("Done.")], ["progress 50 %", "progress 100 %"]),
}
"""What the model replies to each program, and what the program prints."""


async def start(path: Path, folder: Path, url: str) -> str:
    """Run a program in a folder, and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(path),
        cwd=folder,
        env=make_environment(folder, url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), HANG_SECONDS)
    return output.decode()


def make_environment(folder: Path, url: str) -> dict[str, str]:
    """Write a home whose provider is the scripted model, and return the variables of a process that uses it."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    provider = f"{{base_url: '{url}', api_key: test, api_mode: chat_completions}}"
    (home / "config.yaml").write_text(f"providers: {{openai: {provider}}}\n")
    return {**os.environ, "HOME": str(folder), "TREADLE_HOME": str(home)}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_first_program_works_as_typed(name: str, tmp_path: Path) -> None:
    replies, printed = SCRIPTS[name]
    async with FakeEndpoint(*replies) as endpoint:
        output = await start(PROGRAMS / f"{name}.py", tmp_path, endpoint.url)
        if name in TWICE:
            output += await start(PROGRAMS / f"{name}.py", tmp_path, endpoint.url)
        assert "Traceback" not in output, output
        for line in printed:
            assert line in output, output


async def test_the_same_calls_work_on_a_server_of_this_user(tmp_path: Path) -> None:
    async with FakeEndpoint(says("Hello."), says("Hello again.")) as endpoint:
        environment = make_environment(tmp_path, endpoint.url)
        assert "Start one with `treadle serve`" in await start(
            PROGRAMS / "remote_client.py", tmp_path, endpoint.url
        )
        agent = tmp_path / "home" / "agents" / "helper"
        agent.mkdir(parents=True)
        (agent / "config.yaml").write_text("name: helper\nmodel: openai/gpt-5\n")
        server = await asyncio.create_subprocess_exec(
            TREADLE, "serve", "--port", "0", "--json", cwd=tmp_path, env=environment, stdout=subprocess.PIPE
        )
        assert server.stdout is not None
        await asyncio.wait_for(server.stdout.readline(), HANG_SECONDS)
        output = await start(PROGRAMS / "remote_client.py", tmp_path, endpoint.url)
        server.terminate()
        await asyncio.wait_for(server.wait(), HANG_SECONDS)
    assert output == "completed Hello.\nHello again.\n2 runs\n"


def test_every_program_is_short_and_runs() -> None:
    programs = sorted(PROGRAMS.glob("*.py"))
    assert {path.stem for path in programs} == {*SCRIPTS, "remote_client"}
    for path in programs:
        assert len(path.read_text().splitlines()) < MAX_LINES, path.name
