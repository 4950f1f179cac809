"""AG-UI with its own client, `@ag-ui/client` 1.0.0 from npm, which checks every event against the specification.
`make peers` installs it; without it the tests are skipped."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

from tests.fake_endpoint import DONE, Answer, Behaviour, FakeEndpoint, calls, delta, fragment, says, usage
from tests.peers.interrupted_client import CITIES, check_journals
from tests.peers.node import NODE, PEERS, skip_without
from tests.peers.served_agent import read_journals
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import write_home
from tests.surfaces.shell import Shell

pytestmark = skip_without("@ag-ui/client")
CLIENT = """
import { HttpAgent } from "@ag-ui/client";
import { createInterface } from "node:readline";

const [url, token, threadId] = process.argv.slice(1);
const agent = new HttpAgent({ url, threadId, headers: { Authorization: `Bearer ${token}` } });
console.warn = (...words) => console.log(JSON.stringify({ warning: words.join(" ") }));
for await (const line of createInterface({ input: process.stdin })) {
  const { say, results, tools, resume } = JSON.parse(line);
  if (say) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: say });
  for (const result of results ?? []) agent.addMessage({ id: crypto.randomUUID(), role: "tool", ...result });
  const told = { types: [] };
  const listener = {
    onEvent: ({ event }) => void told.types.push(event.type),
    onRunFinishedEvent: ({ event }) => void (told.outcome = event.outcome),
    onRunErrorEvent: ({ event }) => void (told.error = event),
    onRunFailed: ({ error }) => void (told.failure = String(error)),
  };
  try {
    await agent.runAgent({ tools: tools ?? [], ...(resume ? { resume } : {}) }, listener);
  } catch (error) {
    told.failure = String(error);
  }
  console.log(JSON.stringify({ ...told, messages: agent.messages, interrupts: agent.pendingInterrupts }));
}
"""
WEATHER = {
    "name": "weather",
    "description": "Look up the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
RESULTS = [f"sun in {city}" for city in CITIES]


class UiClient:
    """The client of AG-UI, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request. Return what the client has seen: no warning and no failure."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        told = json.loads(await self._process.stdout.readline())
        assert "warning" not in told, told
        assert "failure" not in told, told
        return told


@asynccontextmanager
async def serve(tmp_path: Path, script: Sequence[Behaviour], settings: str) -> AsyncGenerator[Serving]:
    async with FakeEndpoint(*script) as endpoint:
        home = tmp_path / "home"
        write_home(home, endpoint.url)
        file = home / "agents" / "one" / "config.yaml"
        file.write_text(f"{file.read_text()}{settings}\n")
        serving = Serving(Shell(home))
        await asyncio.to_thread(serving.start)
        try:
            yield serving
        finally:
            await asyncio.to_thread(serving.stop)


@asynccontextmanager
async def open_client(serving: Serving, thread_id: str = "thread-1") -> AsyncGenerator[UiClient]:
    url = f"{serving.url}/v1/agents/one/ag-ui"
    command = (str(NODE), "--input-type=module", "--eval", CLIENT, "--", url, serving.token, thread_id)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=PEERS.parent, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=2**20
    )
    try:
        yield UiClient(process)
    finally:
        process.kill()
        await process.wait()


def look_up(number: int, city: str) -> Behaviour:
    return calls(fragment(0, f"call_{number}", "weather", json.dumps({"city": city})))


async def test_a_conversation_with_three_calls_of_the_clients_tools_over_a_killed_server(tmp_path: Path) -> None:
    thinks = Answer(
        [
            delta(role="assistant", reasoning_content="Hm."),
            delta(content="Hello."),
            delta(finish="stop"),
            usage(),
            DONE,
        ]
    )
    script = [
        thinks,
        *(look_up(number, city) for number, city in enumerate(CITIES)),
        says("All are sunny."),
        says("Bye."),
    ]
    async with serve(tmp_path, script, "") as serving, open_client(serving) as client:
        hello = await client.ask(say="Hello.", tools=[WEATHER])
        assert [each["role"] for each in hello["messages"]] == ["user", "reasoning", "assistant"]
        told = await client.ask(say="How is the weather?", tools=[WEATHER])
        for number, city in enumerate(CITIES):
            [call_id] = told["outcome"]["pendingToolCallIds"]
            [call] = [
                call for each in told["messages"] for call in each.get("toolCalls", ()) if call["id"] == call_id
            ]
            assert json.loads(call["function"]["arguments"]) == {"city": city}
            if number == 1:
                serving.kill()
                await asyncio.to_thread(serving.start)
            results = [{"toolCallId": call_id, "content": f"sun in {city}"}]
            told = await client.ask(results=results, tools=[WEATHER])
        assert told["outcome"] == {"type": "success"}
        assert told["messages"][-1]["content"] == "All are sunny."
        assert [each["content"] for each in told["messages"] if each["role"] == "tool"] == RESULTS
        journals = await asyncio.to_thread(read_journals, f"{serving.url}/v1", serving.token)
        check_journals(journals, "weather", RESULTS)
        bye = await client.ask(say="Bye.", tools=[WEATHER])
        assert [each["content"] for each in bye["messages"] if each["role"] == "user"] == [
            "Hello.",
            "How is the weather?",
            "Bye.",
        ]
        assert len(bye["messages"]) == len({each["id"] for each in bye["messages"]})
        async with open_client(serving) as fresh:
            again = await fresh.ask()
            shown = [(each["role"], each.get("content")) for each in again["messages"]]
            assert shown == [(each["role"], each.get("content")) for each in bye["messages"]]


async def test_an_approval_and_a_question_are_interrupts_of_the_client(tmp_path: Path) -> None:
    writes = calls(fragment(0, "call_1", "write_file", '{"path": "x.txt", "content": "hello"}'))
    asks = calls(fragment(0, "call_2", "clarify", '{"question": "Which?", "options": ["red", "blue"]}'))
    settings = "tools: [write_file, clarify]\napprovals: {default: ask, via: api}"
    async with serve(tmp_path, [writes, asks, says("Done.")], settings) as serving, open_client(serving) as client:
        told = await client.ask(say="Go.")
        [approval] = told["interrupts"]
        assert approval["reason"] == "tool_call"
        serving.kill()
        await asyncio.to_thread(serving.start)
        payload = {"approved": True, "editedArgs": {"path": "x.txt", "content": "edited"}}
        entry = {"interruptId": approval["id"], "status": "resolved", "payload": payload}
        told = await client.ask(resume=[entry])
        [question] = told["interrupts"]
        assert question["message"] == "Which?"
        wrong = await client.ask(
            resume=[{"interruptId": question["id"], "status": "resolved", "payload": {"x": 1}}]
        )
        assert wrong["error"]["code"] == "invalid_payload"
        entry = {"interruptId": question["id"], "status": "resolved", "payload": {"answer": "blue"}}
        told = await client.ask(resume=[entry])
        assert told["outcome"] == {"type": "success"}
        assert told["interrupts"] == []
        assert [file.read_text() for file in tmp_path.rglob("x.txt")] == ["edited"]


async def test_text_that_is_taken_back_is_gone_for_the_client(tmp_path: Path) -> None:
    breaks = Answer([delta(role="assistant", content="Wrong sta")])
    script = [breaks, says("Right.")]
    async with serve(tmp_path, script, "") as serving:
        file = tmp_path / "home" / "agents" / "one" / "config.yaml"
        file.write_text(file.read_text().replace("attempts: 0", "attempts: 1, base_ms: 0"))
        async with open_client(serving) as client:
            told = await client.ask(say="Go.")
            assert "MESSAGES_SNAPSHOT" in told["types"]
            assert [each["content"] for each in told["messages"]] == ["Go.", "Right."]
