"""`treadle serve` as a process of its own, for clients of the OpenAI API. It can be killed and started again on the
same port."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from tests.e2e.scripted_endpoint import ScriptedEndpoint, calls, says, serve, write_home
from tests.fake_endpoint import Behaviour, Policy, Request
from tests.surfaces.shell import COMMAND as TREADLE

AGENT = """\
name: default
model: fake/m
approvals: {default: auto}
sandbox: {mode: off}
memory: {recall: 0, remember: false}
"""


class ServedAgent:
    """The server, and a token for its API."""

    def __init__(self, environment: Mapping[str, str], endpoint: ScriptedEndpoint) -> None:
        self.endpoint = endpoint
        self._environment = {**os.environ, **environment}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        made = subprocess.run(
            [TREADLE, "tokens", "create", "peer", "--scope", "run", "--scope", "read"],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        )
        self.token = made.stdout.strip()
        self._process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def client_environment(self) -> dict[str, str]:
        """The variables that tell a client the address and the token."""
        return {"TREADLE_URL": self.url, "TREADLE_TOKEN": self.token}

    def start(self) -> None:
        self._process = subprocess.Popen(
            [TREADLE, "serve", "--port", str(self._port), "--json"],
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the server ended"

    def kill(self) -> None:
        """End the server as a crash does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


def read_journals(url: str, token: str) -> list[list[dict[str, Any]]]:
    """Return the durable events of each run, the oldest run first. The URL ends with `/v1`."""

    def read(path: str) -> Any:
        request = HttpRequest(f"{url}/{path}", headers={"Authorization": f"Bearer {token}"})
        with urlopen(request, timeout=60) as reply:
            return json.load(reply)

    pages = [read(f"runs/{run['run_id']}/journal?limit=500") for run in reversed(read("runs")["items"])]
    assert not any(page.get("next") for page in pages), "a journal is longer than a page"
    return [page["items"] for page in pages]


def call_thrice(tool: str, *arguments: Mapping[str, object]) -> Policy:
    """Return a model that makes these calls of a client's tool, one after the other, and then answers. A request
    without the tool, such as one for a title, gets a text."""

    def answer(request: Request) -> Behaviour:
        body = request.json
        offered = [each["function"]["name"] for each in body.get("tools", [])]
        done = sum(message["role"] == "tool" for message in body["messages"])
        if tool not in offered or done >= len(arguments):
            return says("All done." if tool in offered else "A title")
        return calls(tool, f"model_{done}", **arguments[done])

    return answer


@contextmanager
def serve_agent(tmp_path: Path, policy: Policy) -> Generator[ServedAgent]:
    """Serve the agent `default` with a scripted model."""
    with serve(policy=policy) as endpoint:
        served = ServedAgent(write_home(tmp_path / "home", endpoint.url, agent=AGENT), endpoint)
        try:
            yield served
        finally:
            served.kill()
