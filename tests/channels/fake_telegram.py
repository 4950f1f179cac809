"""A fake of the Telegram Bot API on loopback, as its documentation describes it. It has users, chats, updates with
offsets, edits, buttons, files, and the errors that bots must handle."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

import aiohttp
from aiohttp import web

BOT = {"id": 7_000_000_001, "is_bot": True, "first_name": "Treadle", "username": "treadle_test_bot"}
TOKEN = "7000000001:AAfake-token-of-the-fake-server"
MAX_CHARACTERS = 4096
TAGS = frozenset(("b", "i", "s", "u", "code", "pre", "a", "blockquote"))


class WebhookActive(Exception):
    """Updates are posted to a webhook, and cannot be polled."""


class FakeTelegram:
    """The server. Tests write as people with `write`, `press` and `edit`, and read `sent`."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        """The bot's messages as they are now, oldest first."""
        self.calls: list[tuple[str, Any]] = []
        """Every call of the bot: method and parameters."""
        self.files: dict[str, bytes] = {}
        self.errors: dict[str, list[dict[str, Any]]] = {}
        """Answers to give instead, by method: each once."""
        self.confirmed = 0
        self.webhook: dict[str, Any] | None = None
        """What the bot gave to setWebhook."""
        self.posted: list[tuple[int, int]] = []
        """Every request to the webhook: the update, and the status of the answer (0: none)."""
        self._posting: asyncio.Task[None] | None = None
        self.url = ""
        self._updates: list[dict[str, Any]] = []
        self._next_update = 1
        self._next_message = 1
        self._changed = asyncio.Condition()

    # ── People ──

    async def write(self, sender: int, text: str = "", chat: int | None = None, **more: Any) -> int:
        """Send a message as a person, by default in the private chat with the bot. Return its ID."""
        message = self._message(sender, text, chat, more)
        await self._add({"message": message})
        return int(message["message_id"])

    async def edit(self, sender: int, message_id: int, text: str, chat: int | None = None) -> None:
        message = self._message(sender, text, chat, {"message_id": message_id, "edit_date": 1})
        await self._add({"edited_message": message})

    async def press(self, sender: int, message: dict[str, Any], data: str) -> None:
        """Press a button of a message of the bot."""
        query = {"id": f"q{self._next_update}", "from": _person(sender), "message": message, "data": data}
        await self._add({"callback_query": query})

    async def repeat(self, update: dict[str, Any]) -> None:
        """Deliver an update again under a new update ID."""
        await self._add({key: value for key, value in update.items() if key != "update_id"})

    def texts(self, chat: int) -> list[str]:
        """Return the texts of the bot's messages in a chat."""
        return [each["text"] for each in self.sent if each["chat"]["id"] == chat]

    async def wait_for(self, condition: Any, seconds: float = 60.0) -> Any:
        """Wait until a condition on this server is true, and return its value."""
        async with asyncio.timeout(seconds), self._changed:
            return await self._changed.wait_for(condition)

    def _message(self, sender: int, text: str, chat: int | None, more: dict[str, Any]) -> dict[str, Any]:
        number = self._next_message
        self._next_message += 1
        group = {"id": chat, "type": "supergroup", "title": "Group"}
        place = {"id": sender, "type": "private"} if chat is None else group
        message: dict[str, Any] = {"message_id": number, "date": 1, "chat": place, "from": _person(sender)}
        return {**message, **({"text": text} if text else {}), **more}

    async def _add(self, update: dict[str, Any]) -> None:
        async with self._changed:
            self._updates.append({"update_id": self._next_update, **update})
            self._next_update += 1
            self._changed.notify_all()

    # ── The API ──

    async def answer(self, request: web.Request) -> web.Response:
        if request.match_info["token"] != TOKEN:
            return _refuse(401, "Unauthorized")
        method = request.match_info["method"]
        is_json = request.content_type == "application/json"
        values: dict[str, Any] = await request.json() if is_json else dict(await request.post())
        if method != "getUpdates":
            self.calls.append((method, values))
        if planned := self.errors.get(method):
            async with self._changed:
                error = planned.pop(0)
                self._changed.notify_all()
            return web.json_response({"ok": False, **error}, status=int(error["error_code"]))
        handler = getattr(self, f"_on_{method}", None)
        if handler is None:
            return _refuse(404, "Not Found: method not found")
        try:
            result = await handler(values)
        except WebhookActive:
            return _refuse(409, "Conflict: can't use getUpdates method while webhook is active")
        except ValueError as error:
            return _refuse(400, f"Bad Request: {error}")
        async with self._changed:
            self._changed.notify_all()
        return web.json_response({"ok": True, "result": result})

    async def download(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["path"]])

    async def _on_getMe(self, values: dict[str, Any]) -> Any:
        return BOT

    async def _on_setWebhook(self, values: dict[str, Any]) -> Any:
        self.webhook = values
        if self._posting is None or self._posting.done():
            self._posting = asyncio.create_task(self._post_updates())
        return True

    async def _on_deleteWebhook(self, values: dict[str, Any]) -> Any:
        self.webhook = None
        return True

    async def _post_updates(self) -> None:
        """Post updates to the webhook, one at a time, each again until it is accepted."""
        async with aiohttp.ClientSession() as session:
            while True:
                async with self._changed:
                    await self._changed.wait_for(lambda: self._updates and self.webhook is not None)
                    update, webhook = self._updates[0], self.webhook
                status = await _post(session, webhook or {}, update)
                self.posted.append((update["update_id"], status))
                if status != 200:
                    await asyncio.sleep(0.1)
                    continue
                async with self._changed:
                    self._updates.remove(update)
                    self.confirmed = update["update_id"]
                    self._changed.notify_all()

    async def stop(self) -> None:
        """Stop posting to the webhook."""
        if self._posting is not None:
            self._posting.cancel()
            await asyncio.wait({self._posting})

    async def _on_getUpdates(self, values: dict[str, Any]) -> Any:
        if self.webhook is not None:
            raise WebhookActive
        offset = int(values.get("offset", 0))
        self.confirmed = max(self.confirmed, offset - 1)
        self._updates = [update for update in self._updates if update["update_id"] >= offset]
        async with self._changed:
            try:
                async with asyncio.timeout(float(values.get("timeout", 0))):
                    await self._changed.wait_for(lambda: self._updates)
            except TimeoutError:
                return []
        return self._updates[: int(values.get("limit", 100))]

    async def _on_sendMessage(self, values: dict[str, Any]) -> Any:
        text = _check_text(values)
        chat = values["chat_id"]
        kind = "private" if int(chat) > 0 else "supergroup"
        message = {
            "message_id": self._next_message,
            "chat": {"id": chat, "type": kind},
            "from": BOT,
            "date": 1,
            "text": text,
            "markup": values.get("reply_markup"),
        }
        if "message_thread_id" in values:
            message |= {"message_thread_id": values["message_thread_id"], "is_topic_message": True}
        self._next_message += 1
        self.sent.append(message)
        return message

    async def _on_editMessageText(self, values: dict[str, Any]) -> Any:
        text = _check_text(values)
        for message in self.sent:
            if message["message_id"] == values["message_id"] and message["chat"]["id"] == values["chat_id"]:
                if message["text"] == text and message["markup"] == values.get("reply_markup"):
                    raise ValueError("message is not modified")
                message |= {"text": text, "markup": values.get("reply_markup")}
                return message
        raise ValueError("message to edit not found")

    async def _on_sendChatAction(self, values: dict[str, Any]) -> Any:
        return True

    async def _on_answerCallbackQuery(self, values: dict[str, Any]) -> Any:
        return True

    async def _on_getFile(self, values: dict[str, Any]) -> Any:
        name = values["file_id"]
        if name not in self.files:
            raise ValueError("invalid file_id")
        return {"file_id": name, "file_path": name, "file_size": len(self.files[name])}

    async def _on_sendDocument(self, values: dict[str, Any]) -> Any:
        return self._add_file(values, "document")

    async def _on_sendPhoto(self, values: dict[str, Any]) -> Any:
        return self._add_file(values, "photo")

    def _add_file(self, values: dict[str, Any], kind: str) -> dict[str, Any]:
        field, chat = values[kind], int(values["chat_id"])
        data = field.file.read()
        if not data:
            raise ValueError("file must be non-empty")
        message = {
            "message_id": self._next_message,
            "chat": {"id": chat, "type": "private" if chat > 0 else "supergroup"},
            "from": BOT,
            "date": 1,
            "text": f"[{kind} {field.filename}]",
            "markup": None,
            "data": data,
        }
        self._next_message += 1
        self.sent.append(message)
        return {key: value for key, value in message.items() if key != "data"}


@asynccontextmanager
async def serve_fake_telegram(fake: FakeTelegram, port: int = 0) -> AsyncGenerator[FakeTelegram, None]:
    """Serve the fake on loopback. Its address is in `url`."""
    app = web.Application(client_max_size=32 * 2**20)
    app.router.add_post("/bot{token}/{method}", fake.answer)
    app.router.add_get("/file/bot{token}/{path}", fake.download)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await fake.stop()
        await runner.cleanup()


async def _post(session: aiohttp.ClientSession, webhook: dict[str, Any], update: dict[str, Any]) -> int:
    headers = {"X-Telegram-Bot-Api-Secret-Token": str(webhook.get("secret_token", ""))}
    try:
        async with session.post(webhook.get("url", ""), json=update, headers=headers) as response:
            return response.status
    except (aiohttp.ClientError, OSError):
        return 0


def _person(sender: int) -> dict[str, Any]:
    return {"id": sender, "is_bot": False, "first_name": f"Person {sender}"}


def _refuse(status: int, said: str) -> web.Response:
    return web.json_response({"ok": False, "error_code": status, "description": said}, status=status)


def _check_text(values: dict[str, Any]) -> str:
    """Return the text as people see it. Raise ValueError as the server does."""
    text = str(values.get("text", ""))
    if values.get("parse_mode") == "HTML":
        reader = _Reader()
        reader.feed(text)
        reader.close()
        if reader.open or reader.problem:
            raise ValueError(f"can't parse entities: {reader.problem or 'a tag is not closed'}")
        text = reader.text
    if not text.strip():
        raise ValueError("message text is empty")
    if len(text) > MAX_CHARACTERS:
        raise ValueError("message is too long")
    return text


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.open: list[str] = []
        self.problem = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.problem = f'unsupported start tag "{tag}"'
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problem = f'unexpected end tag "{tag}"'

    def handle_data(self, data: str) -> None:
        self.text += data
