"""A fake of a Matrix homeserver on loopback: the parts of the client-server API that bots use. It has rooms, a
timeline with positions, transaction IDs that it remembers, edits, files and the errors that bots must handle."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

BOT = "@bot:fake.example"
PASSWORD, TOKEN = "fake-password", "fake-access-token"


class FakeMatrix:
    """The server. Tests make rooms with `add_room`, write as people with `write`, and read `texts`."""

    def __init__(self) -> None:
        self.rooms: dict[str, dict[str, str]] = {}
        """The members of each room, and their membership."""
        self.events: list[dict[str, Any]] = []
        """All events, in the order in which they happened."""
        self.media: dict[str, tuple[str, bytes]] = {}
        """Files: media type and content."""
        self.errors: list[tuple[int, dict[str, Any]]] = []
        """Answers to give instead of storing a message: status and body, each once."""
        self.url = ""
        self._transactions: dict[str, str] = {}
        self._changed = asyncio.Condition()

    # ── People ──

    def add_room(self, room_id: str, *members: str) -> str:
        """Make a room with the bot and others, who have joined it."""
        self.rooms[room_id] = {}
        for member in (BOT, *members):
            self._set_membership(room_id, member, "join")
        return room_id

    async def write(self, sender: str, room_id: str, text: str, **content: Any) -> str:
        """Send a message as a person. Return its event ID."""
        async with self._changed:
            event_id = self._add(room_id, sender, "m.room.message", {"msgtype": "m.text", "body": text, **content})
            self._changed.notify_all()
        return event_id

    async def write_encrypted(self, sender: str, room_id: str) -> None:
        """Send a message that only the devices of the room's members can read."""
        content = {
            "algorithm": "m.megolm.v1.aes-sha2",
            "ciphertext": "AwgAEnACgAkLmt6qF84IK",
            "sender_key": "IlRMeOPX2e0MurIyfWEucYBRVOEEUMrOHqn/8mLqMjA",
            "session_id": "X3lUlvLELLYxeTx4yOVu6UDpasGEVO0Jbu+QFnm0cKQ",
            "device_id": "PHONE",
        }
        async with self._changed:
            self._add(room_id, sender, "m.room.encrypted", content)
            self._changed.notify_all()

    async def invite(self, room_id: str, member: str) -> None:
        async with self._changed:
            self._set_membership(room_id, member, "invite")
            self._changed.notify_all()

    def texts(self, room_id: str) -> list[str]:
        """Return what the bot has said in a room, with edits applied, oldest first."""
        found: dict[str, str] = {}
        for event in self.events:
            content: dict[str, Any] = event["content"]
            if (event["room_id"], event["sender"], event["type"]) != (room_id, BOT, "m.room.message"):
                continue
            relation: dict[str, Any] = content.get("m.relates_to", {})
            is_edit = relation.get("rel_type") == "m.replace"
            found[relation["event_id"] if is_edit else event["event_id"]] = (
                content["m.new_content"]["body"] if is_edit else content["body"]
            )
        return list(found.values())

    async def wait_for(self, condition: Any, seconds: float = 60.0) -> Any:
        """Wait until a condition on this server is true, and return its value."""
        async with asyncio.timeout(seconds), self._changed:
            return await self._changed.wait_for(condition)

    def _set_membership(self, room_id: str, member: str, membership: str) -> None:
        self.rooms[room_id][member] = membership
        content = {"membership": membership, "displayname": member.partition(":")[0].lstrip("@")}
        self._add(room_id, member, "m.room.member", content, state_key=member)

    def _add(self, room_id: str, sender: str, kind: str, content: dict[str, Any], **more: Any) -> str:
        event_id = f"$event{len(self.events)}"
        event = {"event_id": event_id, "type": kind, "sender": sender, "content": content, "origin_server_ts": 1}
        self.events.append({**event, "room_id": room_id, **more})
        return event_id

    # ── The API ──

    async def log_in(self, request: web.Request) -> web.Response:
        if (await request.json()).get("password") != PASSWORD:
            return _refuse(403, "M_FORBIDDEN", "Invalid password")
        device = (await request.json()).get("device_id", "DEVICE")
        return web.json_response({"user_id": BOT, "access_token": TOKEN, "device_id": device})

    async def who_am_i(self, request: web.Request) -> web.Response:
        return web.json_response({"user_id": BOT, "device_id": "DEVICE"})

    async def sync(self, request: web.Request) -> web.Response:
        since, is_full = int(request.query.get("since", "0")), request.query.get("full_state") == "true"
        async with self._changed:
            try:
                async with asyncio.timeout(float(request.query.get("timeout", "0")) / 1000):
                    await self._changed.wait_for(lambda: len(self.events) > since)
            except TimeoutError:
                pass
        joined = {
            room_id: self._describe(room_id, since, is_full or not since)
            for room_id, members in self.rooms.items()
            if members.get(BOT) == "join"
            and (is_full or any(each["room_id"] == room_id for each in self.events[since:]))
        }
        rooms = {"join": joined, "invite": {}, "leave": {}}
        return web.json_response({"next_batch": str(len(self.events)), "rooms": rooms})

    def _describe(self, room_id: str, since: int, is_full: bool) -> dict[str, Any]:
        events = [each for each in self.events if each["room_id"] == room_id]
        state = {each["state_key"]: each for each in events if "state_key" in each} if is_full else {}
        fresh = [each for each in self.events[since:] if each["room_id"] == room_id]
        timeline = {"events": fresh, "limited": False, "prev_batch": str(since)}
        return {
            "timeline": timeline,
            "state": {"events": list(state.values())},
            "ephemeral": {"events": []},
            "account_data": {"events": []},
            "summary": {},
            "unread_notifications": {},
        }

    async def send(self, request: web.Request) -> web.Response:
        if self.errors:
            status, body = self.errors.pop(0)
            return web.json_response(body, status=status)
        room_id, transaction = request.match_info["room"], request.match_info["transaction"]
        if self.rooms.get(room_id, {}).get(BOT) != "join":
            return _refuse(403, "M_FORBIDDEN", "You are not in the room")
        content = await request.json()
        async with self._changed:
            if transaction not in self._transactions:
                self._transactions[transaction] = self._add(room_id, BOT, request.match_info["type"], content)
            self._changed.notify_all()
        return web.json_response({"event_id": self._transactions[transaction]})

    async def join(self, request: web.Request) -> web.Response:
        room_id = request.match_info["room"]
        async with self._changed:
            self._set_membership(room_id, BOT, "join")
            self._changed.notify_all()
        return web.json_response({"room_id": room_id})

    async def do_nothing(self, request: web.Request) -> web.Response:
        return web.json_response({})

    async def upload(self, request: web.Request) -> web.Response:
        media = f"media{len(self.media)}"
        self.media[media] = (request.content_type, await request.read())
        return web.json_response({"content_uri": f"mxc://fake.example/{media}"})

    async def download(self, request: web.Request) -> web.Response:
        kind, data = self.media[request.match_info["media"]]
        return web.Response(body=data, content_type=kind)


@web.middleware
async def _authorize(request: web.Request, handler: Any) -> web.StreamResponse:
    if not request.path.endswith("/login") and request.headers.get("Authorization") != f"Bearer {TOKEN}":
        return _refuse(401, "M_UNKNOWN_TOKEN", "Invalid access token")
    return await handler(request)


def _refuse(status: int, code: str, said: str) -> web.Response:
    return web.json_response({"errcode": code, "error": said}, status=status)


@asynccontextmanager
async def serve_fake_matrix(fake: FakeMatrix, port: int = 0) -> AsyncGenerator[FakeMatrix, None]:
    """Serve the fake on loopback. Its address is in `url`."""
    app = web.Application(client_max_size=64 * 2**20, middlewares=[_authorize])
    client = "/_matrix/client/v3"
    app.router.add_post(f"{client}/login", fake.log_in)
    app.router.add_get(f"{client}/account/whoami", fake.who_am_i)
    app.router.add_get(f"{client}/sync", fake.sync)
    app.router.add_put(f"{client}/rooms/{{room}}/send/{{type}}/{{transaction}}", fake.send)
    app.router.add_put(f"{client}/rooms/{{room}}/typing/{{user}}", fake.do_nothing)
    app.router.add_post(f"{client}/join/{{room}}", fake.join)
    app.router.add_post(f"{client}/rooms/{{room}}/join", fake.join)
    app.router.add_post("/_matrix/media/v3/upload", fake.upload)
    app.router.add_get("/_matrix/client/v1/media/download/fake.example/{media}", fake.download)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()
