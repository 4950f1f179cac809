"""The real `treadle serve` with several processes on one database."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from tests.patience import HANG_SECONDS
from tests.surfaces.shell import COMMAND, READY_AT_ONCE


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ServedGroup:
    """A server, and clients that open a connection for each request."""

    def __init__(self, home: Path, url: str, endpoint: str, *options: str) -> None:
        self.home = home
        self._options = options
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home.parent),
            "TREADLE_HOME": str(home),
            "TREADLE_DATABASE_URL": url,
            "OPENAI_API_KEY": "x",
        }
        self.write(
            "config.yaml", f"{{providers: {{fake: {{base_url: '{endpoint}'}}}}, server: {{streams_per_token: 32}}}}"
        )
        self.write("agents/default/config.yaml", f"name: default\nmodel: fake/m\n{READY_AT_ONCE}\n")
        self.process: asyncio.subprocess.Process | None = None
        self.url = ""
        self.token = ""

    def write(self, name: str, text: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    async def launch(self, *options: str) -> asyncio.subprocess.Process:
        self.process = await asyncio.create_subprocess_exec(
            str(COMMAND),
            *("serve", "--json", "--port", "0", "--processes", "2", *self._options, *options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environment,
            cwd=self.home,
        )
        return self.process

    async def start(self, *options: str) -> None:
        process = await self.launch(*options)
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise AssertionError((await process.communicate())[1].decode())
        told = json.loads(line)
        assert told["processes"] == 2
        self.url, self.token = told["url"], told["token"] or self.token

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def wait_for_note(self, text: str) -> str:
        assert self.process is not None
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if text in line.decode():
                return line.decode()
        raise AssertionError(f"it has ended without: {text}")

    async def stop(self) -> str:
        """As by an administrator; what it has said."""
        assert self.process is not None
        self.process.terminate()
        said = (await self.process.communicate())[1].decode()
        assert self.process.returncode == 0, said
        assert "Traceback" not in said, said
        return said

    async def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str
    ) -> Reply:
        """Send a request over a connection of its own."""
        token = self.token if token is None else token
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"Connection": "close"} | ({"Authorization": f"Bearer {token}"} if token else {})
        async with (
            aiohttp.ClientSession() as http,
            http.request(method, self.url + path, json=body, headers=named) as response,
        ):
            return Reply(response.status, dict(response.headers), await response.read())

    async def ask_both(self, method: str, path: str, body: Any = None, **headers: str) -> list[Reply]:
        """Send a request over many connections. With 24 of them, chance leaves out one of two processes once in
        eight million times."""
        return await asyncio.gather(*(self.ask(method, path, body, **headers) for _ in range(24)))

    async def run(self, *arguments: str) -> str:
        """Return the output of another command on the home, which uses the port of the server."""
        settings = (self.home / "config.yaml").read_text()
        self.write("config.yaml", settings.replace("server: {", f"server: {{port: {self.port}, "))
        process = await asyncio.create_subprocess_exec(
            str(COMMAND),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            env=self.environment,
            cwd=self.home,
        )
        return (await process.communicate())[0].decode()

    async def processes(self) -> list[dict[str, Any]]:
        return (await self.ask("GET", "/v1/system")).json["processes"]

    async def wait_for_processes(self, *numbers: int) -> list[dict[str, Any]]:
        """Wait until exactly these processes exist, and all are ready."""
        while True:
            found = await self.processes()
            if [(each["number"], each["state"]) for each in found] == [(number, "ready") for number in numbers]:
                return found
            await asyncio.sleep(0.05)


@asynccontextmanager
async def serve_group(home: Path, url: str, endpoint: str, *options: str) -> AsyncGenerator[ServedGroup]:
    """Start a server with two processes, and stop it at the end of the block."""
    group = ServedGroup(home, url, endpoint, *options)
    async with asyncio.timeout(HANG_SECONDS):
        try:
            await group.start()
            yield group
        finally:
            if group.process is not None and group.process.returncode is None:
                await group.stop()


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
