"""A reviewer's terminal follows a run after a decision. Leaving it does not interrupt the run."""

import asyncio
import json
import signal
from pathlib import Path
from subprocess import DEVNULL, run

import pytest

from tests.fake_endpoint import Behaviour, FakeEndpoint, Request
from tests.patience import HANG_SECONDS, until
from tests.remote.test_attached_commands import slow, until_noted
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import wants_a_file
from tests.surfaces.shell import COMMAND, Shell, finish

REMOTE = "{name: remote, model: fake/m, tools: [write_file], approvals: {default: ask, via: api}}"


async def list_types(shell: Shell, run_id: str) -> list[str]:
    return [event["type"] for event in (await shell("runs", "events", run_id, "--json")).json]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("is_served", [True, False])
async def test_a_run_continues_when_its_reviewer_leaves(
    tmp_path: Path, is_served: bool, number: signal.Signals
) -> None:
    if number == signal.SIGHUP and is_served:
        pytest.skip("the server is not affected by the terminal of a reviewer")

    def reply(request: Request) -> Behaviour:
        return slow("All", " done.") if request.json["messages"][-1]["role"] == "tool" else wants_a_file()

    endpoint = FakeEndpoint(policy=reply)
    async with endpoint:
        shell = Shell(tmp_path / "home", endpoint.url).configure()
        shell.write("agents/remote/config.yaml", REMOTE)
        shell.cwd = tmp_path
        serving = Serving(shell)
        if is_served:
            await asyncio.to_thread(serving.start)
        asked = await shell("run", "--json", "-a", "remote", "Write.")
        run_id = asked.json[0]["run_id"]
        assert asked.code == 4
        reviewing = shell.start("approvals", "approve", "last")
        await until(lambda: len(endpoint.requests) == 2)
        reviewing.send_signal(number)
        assert f"Left {run_id}, which continues." in await until_noted(reviewing, "Left ")
        if number == signal.SIGINT:
            endpoint.go_on.set()  # it hands over at the safe point; otherwise it ends after 30 s without one
        assert (await finish(reviewing)).code == 128 + number
        endpoint.go_on.set()
        async with asyncio.timeout(HANG_SECONDS):
            while (types := await list_types(shell, run_id))[-1] != "run_end":  # noqa: ASYNC110 -- read anew
                await asyncio.sleep(0.1)
        assert "run_interrupted" not in types
        if is_served:
            await asyncio.to_thread(serving.stop)


def test_serving_an_editor_ends_with_an_empty_input(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    done = run([COMMAND, "acp"], stdin=DEVNULL, capture_output=True, env=shell.environment, timeout=HANG_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_an_editor_that_is_a_file_is_answered(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    sent = tmp_path / "sent"
    sent.write_text(json.dumps(hello) + "\n")
    with sent.open() as source:
        done = run([COMMAND, "acp"], stdin=source, capture_output=True, env=shell.environment, timeout=HANG_SECONDS)
    assert json.loads(done.stdout)["result"]["protocolVersion"] == 1
