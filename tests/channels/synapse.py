"""A real Synapse on loopback, from a virtual environment that has it."""

import asyncio
import hashlib
import hmac
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

PYTHON = Path(os.environ.get("TREADLE_SYNAPSE_PYTHON", ".peers/synapse/bin/python")).absolute()
SECRET = "shared-secret-of-tests"
CONFIG = """
server_name: localhost
pid_file: {folder}/pid
listeners:
  - {{port: {port}, bind_addresses: [127.0.0.1], type: http, tls: false, resources: [{{names: [client]}}]}}
database: {{name: sqlite3, args: {{database: {folder}/db}}}}
media_store_path: {folder}/media
signing_key_path: {folder}/key
registration_shared_secret: {secret}
report_stats: false
suppress_key_server_warning: true
trusted_key_servers: []
rc_message: {{per_second: {rate}, burst_count: {rate}}}
rc_login: {{address: {{per_second: 1000, burst_count: 1000}}, account: {{per_second: 1000, burst_count: 1000}}}}
rc_invites: {{per_room: {{per_second: 1000, burst_count: 1000}}, per_user: {{per_second: 1000, burst_count: 1000}}}}
rc_joins: {{local: {{per_second: 1000, burst_count: 1000}}}}
"""


class Synapse:
    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def call(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._session.request(method, self.url + path, json=body, headers=headers) as response:
            answer = await response.json()
            assert response.status == 200, (path, answer)
            return answer

    async def register(self, name: str) -> str:
        """Create a user, and return an access token."""
        path = "/_synapse/admin/v1/register"
        nonce = (await self.call("GET", path))["nonce"]
        parts = "\0".join((nonce, name, "password", "notadmin")).encode()
        mac = hmac.new(SECRET.encode(), parts, hashlib.sha1).hexdigest()
        body = {"nonce": nonce, "username": name, "password": "password", "mac": mac, "admin": False}
        return str((await self.call("POST", path, body))["access_token"])

    async def make_room(self, token: str, *invited: str, is_encrypted: bool = False) -> str:
        body: dict[str, Any] = {"invite": list(invited), "is_direct": True, "preset": "trusted_private_chat"}
        if is_encrypted:
            content = {"algorithm": "m.megolm.v1.aes-sha2"}
            body["initial_state"] = [{"type": "m.room.encryption", "state_key": "", "content": content}]
        return str((await self.call("POST", "/_matrix/client/v3/createRoom", body, token))["room_id"])

    async def write(self, token: str, room: str, key: str, **content: Any) -> str:
        path = f"/_matrix/client/v3/rooms/{room}/send/m.room.message/{key}"
        return str((await self.call("PUT", path, {"msgtype": "m.text", **content}, token))["event_id"])

    async def texts(self, token: str, room: str, sender: str) -> list[str]:
        """Return what a user has said in a room, with edits applied, oldest first."""
        path = f"/_matrix/client/v3/rooms/{room}/messages?dir=b&limit=1000"
        found: dict[str, str] = {}
        for event in reversed((await self.call("GET", path, token=token))["chunk"]):
            content = event.get("content", {})
            if event["type"] != "m.room.message" or event["sender"] != sender:
                continue
            relation = content.get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                found[relation["event_id"]] = content["m.new_content"]["body"]
            elif "body" in content:
                found.setdefault(event["event_id"], content["body"])
        return list(found.values())

    async def wait_for_text(self, token: str, room: str, sender: str, text: str) -> list[str]:
        async with asyncio.timeout(60):
            while text not in (said := await self.texts(token, room, sender)):  # noqa: ASYNC110 -- another process
                await asyncio.sleep(0.1)
        return said


@asynccontextmanager
async def serve_synapse(folder: Path, rate: int = 1000) -> AsyncGenerator[Synapse, None]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "synapse.yaml"
    config.write_text(CONFIG.format(folder=folder, port=port, secret=SECRET, rate=rate))
    arguments = ("-m", "synapse.app.homeserver", "-c", str(config))
    make = await asyncio.create_subprocess_exec(str(PYTHON), *arguments, "--generate-keys", stderr=sys.stderr)
    assert await make.wait() == 0
    log = (folder / "synapse.log").open("wb")
    server = await asyncio.create_subprocess_exec(str(PYTHON), *arguments, stdout=log, stderr=log, cwd=folder)
    try:
        async with aiohttp.ClientSession() as session:
            synapse = Synapse(f"http://127.0.0.1:{port}", session)
            async with asyncio.timeout(120):
                while True:
                    try:
                        await synapse.call("GET", "/_matrix/client/versions")
                        break
                    except (aiohttp.ClientError, OSError):
                        await asyncio.sleep(0.1)
            yield synapse
    finally:
        log.close()
        server.terminate()
        await server.wait()
