"""A fake of a Matrix homeserver on loopback: the parts of the client-server API that bots use. It has rooms, a
timeline with positions, transaction IDs that it remembers, edits, files, the exchange of encryption keys, and the
errors that bots must handle. Every account has the same password."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.channels.fake_matrix_keys import FakeKeys

BOT = "@bot:fake.example"
LOGIN = web.RequestKey("login", tuple[str, str])
"""The user and the device of a request."""
PASSWORD, TOKEN = "fake-password", "fake-access-token"
MAX_EVENT_BYTES = 65_536
MAX_DEVICE_MESSAGES = 100
"""Messages to a device in one synchronisation."""
TIMELINE_EVENTS = 10
"""Events of a room in one synchronisation. Further ones must be asked for, as with real homeservers."""


class FakeMatrix:
    """The server. Tests make rooms with `add_room`, write as people with `write`, and read `texts`. People can also
    log in with clients of their own."""

    def __init__(self) -> None:
        self.rooms: dict[str, dict[str, str]] = {}
        """The members of each room, and their membership."""
        self.log: list[dict[str, Any]] = []
        """All that happened, in order: events of rooms, messages to devices, and new keys of users."""
        self.media: dict[str, tuple[str, bytes]] = {}
        """Files: media type and content."""
        self.errors: list[tuple[int, dict[str, Any]]] = []
        """Answers to give instead of storing a message: status and body, each once."""
        self.keys = FakeKeys()
        self.relabel: tuple[str, str] | None = None
        """Whose messages the server stores as those of another user, as one that lies would."""
        self.url = ""
        self.account_data: dict[str, Any] = {}
        """What clients of the bot's account have stored, by type."""
        self._logins = {TOKEN: (BOT, "DEVICE")}
        self._transactions: dict[tuple[str, str], str] = {}
        self._changed = asyncio.Condition()

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events of rooms, in the order in which they happened."""
        return [each for each in self.log if "room_id" in each]

    # ── People ──

    def add_room(self, room_id: str, *members: str, is_encrypted: bool = False, has_bot: bool = True) -> str:
        """Make a room with the bot and others, who have joined it."""
        self.rooms[room_id] = {}
        for member in (BOT, *members) if has_bot else members:
            self._set_membership(room_id, member, "join")
        if is_encrypted:
            content = {"algorithm": "m.megolm.v1.aes-sha2"}
            self._add(room_id, BOT, "m.room.encryption", content, state_key="")
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

    async def redact(self, sender: str, room_id: str, event_id: str) -> None:
        """Delete a message as a person."""
        async with self._changed:
            self._add(room_id, sender, "m.room.redaction", {"redacts": event_id}, redacts=event_id)
            self._changed.notify_all()

    async def write_to_device(self, sender: str, user: str, device: str, count: int) -> None:
        """Send messages without meaning to a device."""
        event: dict[str, Any] = {"sender": sender, "type": "m.dummy", "content": {}}
        await self._note(*({"to": (user, device), "event": event} for _ in range(count)))

    async def replay(self, event: dict[str, Any]) -> None:
        """Deliver an event again as a new one, as a homeserver that lies would."""
        async with self._changed:
            self._add(event["room_id"], event["sender"], event["type"], event["content"])
            self._changed.notify_all()

    async def invite(self, room_id: str, member: str, sender: str = "") -> None:
        """Invite a user, by default as the first member of the room."""
        async with self._changed:
            self._set_membership(room_id, member, "invite", sender or next(iter(self.rooms[room_id])))
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

    def _set_membership(self, room_id: str, member: str, membership: str, sender: str = "") -> None:
        self.rooms[room_id][member] = membership
        content = {"membership": membership, "displayname": member.partition(":")[0].lstrip("@")}
        self._add(room_id, sender or member, "m.room.member", content, state_key=member)

    def _add(self, room_id: str, sender: str, kind: str, content: dict[str, Any], **more: Any) -> str:
        event_id = f"$event{len(self.log)}"
        event = {"event_id": event_id, "type": kind, "sender": sender, "content": content, "origin_server_ts": 1}
        self.log.append({**event, "room_id": room_id, **more})
        return event_id

    async def _note(self, *entries: dict[str, Any]) -> None:
        async with self._changed:
            self.log += entries
            self._changed.notify_all()

    # ── The API ──

    async def log_in(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body.get("password") != PASSWORD:
            return _refuse(403, "M_FORBIDDEN", "Invalid password")
        user, device = body["identifier"]["user"], body.get("device_id") or "DEVICE"
        token = TOKEN if user == BOT else f"token-of-{user}-{device}"
        self._logins[token] = (user, device)
        return web.json_response({"user_id": user, "access_token": token, "device_id": device})

    def find_login(self, request: web.Request) -> tuple[str, str] | None:
        """Return the user and the device of a request."""
        return self._logins.get(request.headers.get("Authorization", "").removeprefix("Bearer "))

    async def who_am_i(self, request: web.Request) -> web.Response:
        user, device = request[LOGIN]
        return web.json_response({"user_id": user, "device_id": device})

    async def sync(self, request: web.Request) -> web.Response:
        user, device = request[LOGIN]
        since, is_full = int(request.query.get("since", "0")), request.query.get("full_state") == "true"
        async with self._changed:
            try:
                async with asyncio.timeout(float(request.query.get("timeout", "0")) / 1000):
                    await self._changed.wait_for(lambda: len(self.log) > since)
            except TimeoutError:
                pass
        end = self._find_end(since, (user, device))
        fresh = self.log[since:end]
        joined = {
            room_id: self._describe(room_id, since, end, is_full or not since)
            for room_id, members in self.rooms.items()
            if members.get(user) == "join"
            and "filter" not in request.query  # the only filter that bots use wants no rooms
            and (is_full or any(each.get("room_id") == room_id for each in fresh))
        }
        invited = {
            room_id: {"invite_state": {"events": [each for each in self.events if _is_member(each, room_id, user)]}}
            for room_id, members in self.rooms.items()
            if members.get(user) == "invite" and (is_full or any(_is_member(each, room_id, user) for each in fresh))
        }
        answer = {
            "next_batch": str(end),
            "rooms": {"join": joined, "invite": invited, "leave": {}},
            "to_device": {"events": [each["event"] for each in fresh if each.get("to") == (user, device)]},
            "device_lists": {"changed": [each["keys_of"] for each in fresh if "keys_of" in each], "left": []},
            "device_one_time_keys_count": self.keys.count(user, device),
        }
        return web.json_response(answer)

    def _find_end(self, since: int, login: tuple[str, str]) -> int:
        """Return where a synchronisation ends: at the last messages to the device that fit in it."""
        mine = [at for at in range(since, len(self.log)) if self.log[at].get("to") == login]
        return mine[MAX_DEVICE_MESSAGES - 1] + 1 if len(mine) > MAX_DEVICE_MESSAGES else len(self.log)

    def _describe(self, room_id: str, since: int, end: int, is_full: bool) -> dict[str, Any]:
        events = [each for each in self.events if each["room_id"] == room_id]
        state = (
            {(each["type"], each["state_key"]): each for each in events if "state_key" in each} if is_full else {}
        )
        fresh = self._find_events(room_id, since, end)
        shown = fresh[-TIMELINE_EVENTS:]
        begin = shown[0][0] if len(fresh) > len(shown) else since
        timeline = {
            "events": [event for _, event in shown],
            "limited": len(fresh) > len(shown),
            "prev_batch": str(begin),
        }
        return {
            "timeline": timeline,
            "state": {"events": list(state.values())},
            "ephemeral": {"events": []},
            "account_data": {"events": []},
            "summary": {},
            "unread_notifications": {},
        }

    def _find_events(self, room_id: str, start: int, end: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the events of a room between two positions, each with its own."""
        return [(at, self.log[at]) for at in range(start, end) if self.log[at].get("room_id") == room_id]

    async def list_messages(self, request: web.Request) -> web.Response:
        room_id, (user, _) = request.match_info["room"], request[LOGIN]
        if self.rooms.get(room_id, {}).get(user) != "join":
            return _refuse(403, "M_FORBIDDEN", "You are not in the room")
        query = request.query
        bounds = int(query["from"]), int(query.get("to") or (len(self.log) if query["dir"] == "f" else 0))
        found = self._find_events(room_id, min(bounds), max(bounds))
        page = (found if query["dir"] == "f" else found[::-1])[: int(query.get("limit", "10"))]
        answer: dict[str, Any] = {"start": query["from"], "chunk": [event for _, event in page]}
        if len(page) < len(found):
            answer["end"] = str(page[-1][0] + (query["dir"] == "f"))
        return web.json_response(answer)

    async def send(self, request: web.Request) -> web.Response:
        if self.errors:
            status, body = self.errors.pop(0)
            return web.json_response(body, status=status)
        room_id, (user, device) = request.match_info["room"], request[LOGIN]
        if self.rooms.get(room_id, {}).get(user) != "join":
            return _refuse(403, "M_FORBIDDEN", "You are not in the room")
        content, transaction = await request.json(), (device, request.match_info["transaction"])
        if len(json.dumps(content)) > MAX_EVENT_BYTES:
            return _refuse(413, "M_TOO_LARGE", "event too large")
        if self.relabel is not None and self.relabel[0] == user:
            user = self.relabel[1]
        async with self._changed:
            if transaction not in self._transactions:
                self._transactions[transaction] = self._add(room_id, user, request.match_info["type"], content)
            self._changed.notify_all()
        return web.json_response({"event_id": self._transactions[transaction]})

    async def read_state(self, request: web.Request) -> web.Response:
        room_id, (user, _) = request.match_info["room"], request[LOGIN]
        if self.rooms.get(room_id, {}).get(user) != "join":
            return _refuse(403, "M_FORBIDDEN", "You are not in the room")
        kind = request.match_info["type"]
        found = [each for each in self.events if (each["room_id"], each["type"]) == (room_id, kind)]
        if not found:
            return _refuse(404, "M_NOT_FOUND", "Event not found")
        return web.json_response(found[-1]["content"])

    async def list_members(self, request: web.Request) -> web.Response:
        members = self.rooms[request.match_info["room"]]
        return web.json_response({"joined": {each: {} for each, kind in members.items() if kind == "join"}})

    # ── Keys ──

    async def upload_keys(self, request: web.Request) -> web.Response:
        user, device = request[LOGIN]
        if self.keys.upload(user, device, await request.json()):
            await self._note({"keys_of": user})
        return web.json_response({"one_time_key_counts": self.keys.count(user, device)})

    async def query_keys(self, request: web.Request) -> web.Response:
        return web.json_response(self.keys.query(await request.json()))

    async def claim_keys(self, request: web.Request) -> web.Response:
        return web.json_response(self.keys.claim(await request.json()))

    async def upload_identity(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body.get("auth", {}).get("password") != PASSWORD:
            flows = [{"stages": ["m.login.password"]}]
            return web.json_response({"session": "s", "flows": flows, "params": {}}, status=401)
        self.keys.identities[request[LOGIN][0]] = body
        return web.json_response({})

    async def upload_signatures(self, request: web.Request) -> web.Response:
        self.keys.sign(await request.json())
        await self._note({"keys_of": request[LOGIN][0]})
        return web.json_response({"failures": {}})

    async def read_account_data(self, request: web.Request) -> web.Response:
        found = self.account_data.get(request.match_info["type"])
        return _refuse(404, "M_NOT_FOUND", "Not found") if found is None else web.json_response(found)

    async def send_to_devices(self, request: web.Request) -> web.Response:
        sender, kind = request[LOGIN][0], request.match_info["type"]
        messages = (await request.json())["messages"]
        await self._note(
            *(
                {"to": (user, device), "event": {"sender": sender, "type": kind, "content": content}}
                for user, devices in messages.items()
                for device, content in devices.items()
            )
        )
        return web.json_response({})

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


def _is_member(event: dict[str, Any], room_id: str, user: str) -> bool:
    """Return whether an event is about the membership of a user."""
    return (event.get("room_id"), event.get("type"), event.get("state_key")) == (room_id, "m.room.member", user)


def _refuse(status: int, code: str, said: str) -> web.Response:
    return web.json_response({"errcode": code, "error": said}, status=status)


@asynccontextmanager
async def serve_fake_matrix(fake: FakeMatrix, port: int = 0) -> AsyncGenerator[FakeMatrix, None]:
    """Serve the fake on loopback. Its address is in `url`."""

    @web.middleware
    async def authorize(request: web.Request, handler: Any) -> web.StreamResponse:
        login = fake.find_login(request)
        if login is not None:
            request[LOGIN] = login
        elif not request.path.endswith("/login"):
            return _refuse(401, "M_UNKNOWN_TOKEN", "Invalid access token")
        return await handler(request)

    app = web.Application(client_max_size=64 * 2**20, middlewares=[authorize])
    client = "/_matrix/client/v3"
    app.router.add_post(f"{client}/login", fake.log_in)
    app.router.add_get(f"{client}/account/whoami", fake.who_am_i)
    app.router.add_get(f"{client}/sync", fake.sync)
    app.router.add_put(f"{client}/rooms/{{room}}/send/{{type}}/{{transaction}}", fake.send)
    app.router.add_put(f"{client}/rooms/{{room}}/typing/{{user}}", fake.do_nothing)
    app.router.add_get(f"{client}/rooms/{{room}}/state/{{type}}", fake.read_state)
    app.router.add_get(f"{client}/rooms/{{room}}/state/{{type}}/", fake.read_state)
    app.router.add_get(f"{client}/rooms/{{room}}/messages", fake.list_messages)
    app.router.add_get(f"{client}/rooms/{{room}}/joined_members", fake.list_members)
    app.router.add_post(f"{client}/keys/upload", fake.upload_keys)
    app.router.add_post(f"{client}/keys/query", fake.query_keys)
    app.router.add_post(f"{client}/keys/claim", fake.claim_keys)
    app.router.add_post(f"{client}/keys/device_signing/upload", fake.upload_identity)
    app.router.add_post(f"{client}/keys/signatures/upload", fake.upload_signatures)
    app.router.add_get(f"{client}/user/{{user}}/account_data/{{type}}", fake.read_account_data)
    app.router.add_put(f"{client}/sendToDevice/{{type}}/{{transaction}}", fake.send_to_devices)
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
