"""Our streams read by a third-party client: the npm package `eventsource`, with servers that are killed. `make
peers` installs it and runs this; without it the tests are skipped."""

import asyncio
import json
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from tests.fake_endpoint import FakeEndpoint
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import write_home
from tests.surfaces.http.test_restarts import BUSY, submit
from tests.surfaces.http.test_streams import steps_and_words
from tests.surfaces.shell import Shell
from treadle.domain.events import VOCABULARY

PEERS = Path(__file__).parents[2] / ".peers"
READER = """
import {EventSource} from 'eventsource'
const [url, token, ...names] = process.argv.slice(2)
const named = (input, init) =>
  fetch(input, {...init, headers: {...init.headers, Authorization: `Bearer ${token}`}})
const source = new EventSource(url, {fetch: named})
const show = (message) => {
  const event = JSON.parse(message.data)
  const {type, sequence, data} = event
  console.log(JSON.stringify({id: message.lastEventId, type, sequence, data}))
  if (event.type === 'run_end') { source.close(); process.exit(0) }
}
for (const type of names) source.addEventListener(type, show)
"""
LIVE = ("token", "thinking", "tool_call_delta", "tool_call_progress", "attempt_reset", "stream_reset")

pytestmark = pytest.mark.skipif(
    not (PEERS / "node_modules" / "eventsource").exists(),
    reason="eventsource is not installed; `make peers` does that",
)


def read(script: Path, serving: Serving, run_id: str) -> "Popen[bytes]":
    return Popen(
        ["node", script, f"{serving.url}/v1/runs/{run_id}/events", serving.token, *VOCABULARY], stdout=PIPE
    )


async def test_the_client_reads_every_event_once_while_servers_are_killed(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=steps_and_words) as endpoint:
        home = tmp_path / "home"
        write_home(home, endpoint.url)
        (home / "agents" / "busy").mkdir()
        (home / "agents" / "busy" / "config.yaml").write_text(BUSY)
        serving = Serving(Shell(home))
        await asyncio.to_thread(serving.start)
        accepted: dict[str, str] = {}
        for number in range(4):
            await submit(serving, number, accepted)
        script = PEERS / "reader.mjs"
        script.write_text(READER)
        readers = [read(script, serving, run_id) for run_id in accepted.values()]
        for _ in range(2):
            await asyncio.sleep(0.3)
            serving.kill()
            await asyncio.to_thread(serving.start)
        for reader in readers:
            out, _ = await asyncio.to_thread(reader.communicate, timeout=60)
            heard = [json.loads(line) for line in out.splitlines()]
            durable = [each for each in heard if each["type"] not in LIVE]
            assert [each["sequence"] for each in durable] == list(range(1, len(durable) + 1))
            assert [int(each["id"]) for each in durable] == [each["sequence"] for each in durable]
            assert heard[-1]["data"]["outcome"] == "completed"
        await asyncio.to_thread(serving.stop)
