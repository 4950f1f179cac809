"""A fake of Slack on loopback: the parts of the Web API that bots use, and Socket Mode."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web

BOT_USER = "UBOT"
TOKEN, APP_TOKEN = "xoxb-fake", "xapp-fake"
MAX_PAGE = 15
"""Messages of one page of a history, as for apps that Slack limits most."""
MAX_CHARACTERS, MAX_EDITED_CHARACTERS = 40_000, 4_000


class FakeSlack:
    """The server. Tests write as people with `write`, and read `sent`."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        """The bot's messages as they are now, oldest first."""
        self.unacknowledged: dict[str, dict[str, Any]] = {}
        """Envelopes without an answer. They are delivered again on the next connection."""
        self.errors: dict[str, list[tuple[int, dict[str, Any], dict[str, str]]]] = {}
        """Answers to give instead, by method: status, body and headers, each once."""
        self.files: dict[str, dict[str, Any]] = {}
        """Files that the bot has uploaded: name and data."""
        self.history: list[dict[str, Any]] = []
        """What people have written, oldest first."""
        self.url = ""
        self._number = 0
        self._began = int(time.time())
        self._socket: web.WebSocketResponse | None = None
        self._changed = asyncio.Condition()

    # ── People ──

    async def write(self, user: str, text: str, channel: str = "", is_lost: bool = False, **more: Any) -> str:
        """Send a message as a person, by default as a direct message. Return its timestamp. `is_lost`: no server
        was connected for so long that Slack delivers no event."""
        ts = self._next()
        place = {"channel": channel or f"D{user}", "channel_type": "channel" if channel else "im"}
        message = {"type": "message", "user": user, "text": text, "ts": ts, **more}
        self.history.append({**message, "channel": place["channel"]})
        if not is_lost:
            await self.deliver({**message, **place})
        return ts

    async def deliver(self, event: dict[str, Any]) -> None:
        await self._send({"type": "events_api", "payload": {"event": event}})

    async def press(self, user: str, message: dict[str, Any], value: str) -> None:
        """Press a button of a message of the bot."""
        payload = {
            "type": "block_actions",
            "user": {"id": user, "username": user},
            "channel": {"id": message["channel"]},
            "message": message,
            "actions": [{"value": value, "action_ts": self._next()}],
        }
        await self._send({"type": "interactive", "payload": payload})

    async def refresh(self) -> None:
        """End the connection, as Slack does from time to time."""
        assert self._socket is not None
        old, self._socket = self._socket, None
        await old.send_json({"type": "disconnect", "reason": "refresh_requested"})
        await self.wait_for(lambda: self._socket is not None)

    def texts(self, channel: str) -> list[str]:
        return [each["text"] for each in self.sent if each["channel"] == channel]

    async def wait_for(self, condition: Any, seconds: float = 60.0) -> Any:
        """Wait until a condition on this server is true, and return its value."""
        async with asyncio.timeout(seconds), self._changed:
            return await self._changed.wait_for(condition)

    def _next(self) -> str:
        self._number += 1
        return f"{self._began}.{self._number:06d}"

    async def _send(self, envelope: dict[str, Any]) -> None:
        envelope_id = f"env-{self._next()}"
        self.unacknowledged[envelope_id] = {"envelope_id": envelope_id, **envelope}
        if self._socket is not None and not self._socket.closed:
            with suppress(ConnectionError):  # it is sent again on the next connection
                await self._socket.send_json(self.unacknowledged[envelope_id])

    # ── The API ──

    async def answer(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        wanted = APP_TOKEN if method == "apps.connections.open" else TOKEN
        if request.headers.get("Authorization") != f"Bearer {wanted}":
            return web.json_response({"ok": False, "error": "invalid_auth"})
        if planned := self.errors.get(method):
            status, body, headers = planned.pop(0)
            return web.json_response(body, status=status, headers=headers)
        is_json = request.content_type == "application/json"
        body: dict[str, Any] = await request.json() if is_json else dict(await request.post())
        values: dict[str, Any] = {**request.query, **body}
        async with self._changed:
            result = self._perform(method, values)
            self._changed.notify_all()
        return web.json_response({"ok": "error" not in result, **result})

    def _perform(self, method: str, values: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "auth.test":
                return {"user_id": BOT_USER, "user": "treadle", "team": "Testers"}
            case "apps.connections.open":
                return {"url": self.url.replace("http", "ws").replace("/api/", "/socket")}
            case "chat.postMessage":
                return self._post(values)
            case "conversations.history" | "conversations.replies":
                return self._read_history(values)
            case "users.conversations":
                return self._list_conversations(values)
            case "conversations.open":
                return {"channel": {"id": f"D{values['users']}"}}
            case "chat.update":
                for message in self.sent:
                    if len(values["text"]) > MAX_EDITED_CHARACTERS:
                        return {"error": "msg_too_long"}
                    if (message["ts"], message["channel"]) == (values["ts"], values["channel"]):
                        message |= {"text": values["text"], "blocks": values.get("blocks")}
                        return {"ts": message["ts"]}
                return {"error": "message_not_found"}
            case "files.getUploadURLExternal":
                file_id = f"F{self._next()}"
                self.files[file_id] = {"name": values["filename"], "data": b"", "length": int(values["length"])}
                return {"upload_url": self.url.replace("/api/", f"/upload/{file_id}"), "file_id": file_id}
            case "files.completeUploadExternal":
                return self._complete(values)
            case "files.info":
                file = self.files.get(values["file"], {})
                found = {"id": values["file"], "channels": [file["channel"]]} if "channel" in file else None
                return {"error": "file_not_found"} if found is None else {"file": found}
            case _:
                return {"error": "unknown_method"}

    def _read_history(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return messages after a time: of a thread, oldest first, or those that are in no thread, newest first."""
        thread = values.get("ts")
        found = [
            {name: value for name, value in (each | self._describe_thread(each)).items() if name != "channel"}
            for each in self.history
            if each["channel"] == values["channel"]
            and each["ts"] > values.get("oldest", "")
            and (each.get("thread_ts") == thread if thread else "thread_ts" not in each)
        ]
        start, count = int(values.get("cursor") or 0), min(int(values.get("limit", 100)), MAX_PAGE)
        page = (found if thread else found[::-1])[start : start + count]
        following = str(start + count) if start + count < len(found) else ""
        return {"messages": page, "response_metadata": {"next_cursor": following}}

    def _describe_thread(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return what a history adds to the first message of a thread."""
        replies = [each["ts"] for each in self.history if each.get("thread_ts") == message["ts"]]
        return {"thread_ts": message["ts"], "latest_reply": max(replies)} if replies else {}

    def _list_conversations(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the conversations of one kind in which people have written."""
        forms = {"im": "D.*", "public_channel": "C.*", "private_channel": "G(?!M).*", "mpim": "GM.*"}
        form = forms[values["types"]]
        found = sorted({each["channel"] for each in self.history if re.fullmatch(form, each["channel"])})
        start, count = int(values.get("cursor") or 0), min(int(values.get("limit", 100)), MAX_PAGE)
        following = str(start + count) if start + count < len(found) else ""
        page = [{"id": each} for each in found[start : start + count]]
        return {"channels": page, "response_metadata": {"next_cursor": following}}

    def _complete(self, values: dict[str, Any]) -> dict[str, Any]:
        given = values["files"]
        files: list[dict[str, Any]] = json.loads(given) if isinstance(given, str) else given
        if not all(self._is_uploaded(file["id"]) for file in files):
            return {"error": "file_not_found"}
        channel = values["channel_id"]
        if not channel.startswith(("C", "D", "G")):
            return {"error": "channel_not_found"}
        for file in files:
            stored = self.files[file["id"]]
            stored["channel"] = channel
            place = {"channel": channel, "thread_ts": values.get("thread_ts")}
            self.sent.append({**place, "text": f"[file {stored['name']}]", "ts": self._next(), "client_msg_id": ""})
        return {"files": [{"id": file["id"], "title": file.get("title", "")} for file in files]}

    def _is_uploaded(self, file_id: str) -> bool:
        """Return whether a file can be completed: it was uploaded as announced, and was not completed before."""
        file = self.files.get(file_id)
        return file is not None and "channel" not in file and len(file["data"]) == file["length"]

    async def upload(self, request: web.Request) -> web.Response:
        self.files[request.match_info["file_id"]]["data"] = await request.read()
        return web.Response(text="OK")

    def _post(self, values: dict[str, Any]) -> dict[str, Any]:
        if not values["channel"].startswith(("C", "D", "G", "U")):
            return {"error": "channel_not_found"}
        if not values["text"].strip():
            return {"error": "no_text"}
        if len(values["text"]) > MAX_CHARACTERS:
            return {"error": "msg_too_long"}
        for message in self.sent:
            if message["client_msg_id"] == values["client_msg_id"]:
                return {"ts": message["ts"]}
        place = values["channel"]
        message = {**values, "channel": f"D{place}" if place.startswith("U") else place, "ts": self._next()}
        self.sent.append(message)
        return {"ts": message["ts"], "channel": message["channel"]}

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello"})
        async with self._changed:
            self._socket = socket
            self._changed.notify_all()
        for envelope in list(self.unacknowledged.values()):
            await socket.send_json(envelope)
        async for frame in socket:
            async with self._changed:
                self.unacknowledged.pop(frame.json()["envelope_id"], None)
                self._changed.notify_all()
        return socket


@asynccontextmanager
async def serve_fake_slack(fake: FakeSlack, port: int = 0) -> AsyncGenerator[FakeSlack, None]:
    """Serve the fake on loopback. Its address is in `url`."""
    app = web.Application(client_max_size=32 * 2**20)
    app.router.add_post("/api/{method}", fake.answer)
    app.router.add_get("/socket", fake.socket)
    app.router.add_post("/upload/{file_id}", fake.upload)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/"
    try:
        yield fake
    finally:
        await runner.cleanup()
