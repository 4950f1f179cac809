"""Telegram, through the Bot API with long polling or a webhook."""

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, NoReturn, cast

import aiohttp
import msgspec
from msgspec import Struct

from treadle.channels.download import download
from treadle.channels.incoming import read_all
from treadle.channels.markdown import TELEGRAM, measure, render
from treadle.channels.tasks import TaskSet
from treadle.ports.channel import (
    ChannelBusy,
    ChannelError,
    ChannelRefused,
    ContentRefused,
    Incoming,
    IncomingFile,
    Outgoing,
    OutgoingFile,
    Receiver,
    Traits,
)

POLL_SECONDS = 50
POLL_PAUSE_SECONDS = 1.0
"""A server that answers at once, without updates, is asked again after this time."""
MAX_DOWNLOAD_BYTES = 20_000_000
"""What the Bot API serves."""
WEBHOOK_CHECK_SECONDS = 600.0
MAX_ALBUMS = 100
MAX_PICTURE_BYTES = 10_000_000
PICTURES = ("image/jpeg", "image/png", "image/webp")
UPDATES = ("message", "edited_message", "callback_query")
ABOUT_CHATS = ("chat", "peer", "user", "rights", "topic", "thread", "not modified", "message to edit", "edited")
"""Words in refusals that are not about the content of a message."""
TRAITS = Traits(
    max_characters=3500,  # of 4096, with room for marks of drafts
    measure=lambda text: measure(text, TELEGRAM),
    can_edit=True,
    has_buttons=True,
    edit_seconds=1.5,
    typing_seconds=4.5,
    max_file_bytes=50_000_000,
)


class TelegramSettings(Struct, frozen=True, forbid_unknown_fields=True):
    token: str
    """The token that @BotFather gave."""
    url: str = "https://api.telegram.org"
    """The Bot API server."""
    webhook: str = ""
    """The public URL of this service. Telegram posts messages there. Empty: they are polled."""

    def __post_init__(self) -> None:
        if self.webhook and not re.match(r"https://|http://(localhost|127\.0\.0\.1)(:|/|\Z)", self.webhook):
            raise ValueError("`webhook` must begin with https://")


class Telegram:
    """Implements `ports.channel.Channel`. A conversation is a chat ID, or `CHAT/TOPIC` for a topic of a forum."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        try:
            self._settings = msgspec.convert(dict(settings), TelegramSettings)
        except msgspec.ValidationError as error:
            raise ValueError(f"settings: {error}") from None
        self._name = name
        self._session: aiohttp.ClientSession | None = None
        self._albums: deque[str] = deque(maxlen=MAX_ALBUMS)
        """Albums of groups in which the bot is mentioned: the caption is on one part only."""
        # Every server derives the same secret, so no other one needs to be stored.
        self._secret = blake2b(b"webhook", key=self._settings.token.encode()[:64], digest_size=32).hexdigest()
        self._background = TaskSet()
        self._bot_id = 0
        self._username = ""
        self.traits = TRAITS

    async def check(self) -> str:
        me = await self._call("getMe")
        self._bot_id, self._username = int(me["id"]), str(me.get("username", ""))
        return f"@{self._username}"

    async def receive(self, receiver: Receiver) -> None:
        if self._settings.webhook:
            await self._maintain_webhook()
        await self._call("deleteWebhook")  # Telegram serves either a webhook or polling
        await self._poll(receiver)

    # ── Webhook ──

    async def _maintain_webhook(self) -> NoReturn:
        """Tell Telegram where to post, and look from time to time whether it still does."""
        url = f"{self._settings.webhook.rstrip('/')}/v1/channels/{self._name}/webhook"
        while True:
            # One connection: with several, messages could overtake each other.
            values = {"url": url, "secret_token": self._secret, "allowed_updates": UPDATES, "max_connections": 1}
            await self._call("setWebhook", values)
            await asyncio.sleep(WEBHOOK_CHECK_SECONDS)

    def verify(self, headers: Mapping[str, str]) -> bool:
        given = headers.get("x-telegram-bot-api-secret-token", "")
        return bool(self._settings.webhook) and compare_digest(given.encode(), self._secret.encode())

    async def read(self, body: bytes) -> Sequence[Incoming]:
        if not self._username:
            await self.check()  # mentions are recognised by the name of the bot
        try:
            update = cast("dict[str, Any]", json.loads(body))
        except ValueError:
            return ()
        self._background.run(f"press/{update.get('update_id')}", partial(self._confirm_presses, (update,)))
        return read_all((update,), self._read)

    # ── Polling ──

    async def _poll(self, receiver: Receiver) -> NoReturn:
        offset = 0
        while True:
            began = time.monotonic()
            updates = await self._call(
                "getUpdates",
                {"offset": offset, "timeout": POLL_SECONDS, "allowed_updates": UPDATES},
                seconds=POLL_SECONDS + 15,
            )
            if found := read_all(updates, self._read):
                await receiver.accept(found)
            await self._confirm_presses(updates)
            if updates:
                offset = int(updates[-1]["update_id"]) + 1  # confirms what was stored
            else:
                await asyncio.sleep(max(0.0, began + POLL_PAUSE_SECONDS - time.monotonic()))

    async def send(self, message: Outgoing) -> str:
        if message.files:
            return await self._send_file(message.conversation, message.files[0])
        values: dict[str, Any] = {**self._make_target(message.conversation), **self._make_body(message)}
        if message.reply_to:
            values["reply_parameters"] = {"message_id": int(message.reply_to), "allow_sending_without_reply": True}
        sent = await self._write("sendMessage", values, message)
        return str(sent["message_id"])

    async def _send_file(self, conversation: str, file: OutgoingFile) -> str:
        """Send a file: a picture where Telegram accepts it as one, else a document."""
        if file.media_type in PICTURES and len(file.data) <= MAX_PICTURE_BYTES:
            with suppress(ChannelRefused):
                return await self._upload("sendPhoto", "photo", conversation, file)
        return await self._upload("sendDocument", "document", conversation, file)

    async def _upload(self, method: str, field: str, conversation: str, file: OutgoingFile) -> str:
        form = aiohttp.FormData(quote_fields=False)
        for name, value in self._make_target(conversation).items():
            form.add_field(name, str(value))
        form.add_field(field, file.data, filename=file.name, content_type=file.media_type)
        return str((await self._call(method, form))["message_id"])

    async def edit(self, message_id: str, message: Outgoing) -> None:
        place = self._make_target(message.conversation)
        values = {"chat_id": place["chat_id"], "message_id": int(message_id), **self._make_body(message)}
        try:
            await self._write("editMessageText", values, message)
        except ChannelRefused as error:
            if "not modified" not in str(error):
                raise

    async def show_typing(self, conversation: str) -> None:
        await self._call("sendChatAction", {**self._make_target(conversation), "action": "typing"})

    async def fetch(self, attachment: IncomingFile, max_bytes: int) -> bytes:
        limit = min(max_bytes, MAX_DOWNLOAD_BYTES)
        found = await self._call("getFile", {"file_id": attachment.file_id})
        if int(found.get("file_size") or 0) > limit:
            raise ChannelRefused(f"it has more than {limit} bytes")
        url = f"{self._settings.url}/file/bot{self._settings.token}/{found['file_path']}"
        try:
            return await download(self._client(), url, limit)
        except ChannelError as error:
            raise type(error)(self._redact(error)) from None

    async def close(self) -> None:
        await self._background.close()
        if self._session is not None:
            await self._session.close()

    # ── Reading ──

    def _read(self, update: dict[str, Any]) -> Incoming | None:
        if (pressed := update.get("callback_query")) is not None:
            return _read_press(pressed)
        edited = update.get("edited_message")
        message = edited or update.get("message")
        if message is None or "from" not in message:
            return None
        chat, sender = message["chat"], message["from"]
        text = str(message.get("text") or message.get("caption") or "")
        message_id = f"{chat['id']}/{message['message_id']}"
        is_direct = chat["type"] == "private"
        album = f"{chat['id']}/{message['media_group_id']}" if "media_group_id" in message else ""
        if album and not is_direct and self._is_addressed(message, text):
            self._albums.append(album)
        return Incoming(
            message_id=f"edit/{update['update_id']}" if edited else message_id,
            conversation=_conversation(message),
            sender=str(sender["id"]),
            sender_name=" ".join(filter(None, (sender.get("first_name"), sender.get("last_name")))),
            text=self._strip_mention(text),
            attachments=_attachments(message),
            is_direct=is_direct,
            is_addressed=is_direct or bool(edited) or self._is_addressed(message, text) or album in self._albums,
            is_bot=bool(sender.get("is_bot")),
            kind="edit" if edited else "message",
            target=message_id if edited else "",
            reply_to=str(_get_object(message, "reply_to_message").get("message_id", "")),
            album=album,
        )

    async def _confirm_presses(self, updates: Sequence[dict[str, Any]]) -> None:
        """Stop the spinners of buttons that were pressed."""
        for update in updates:
            with suppress(ChannelError, KeyError, TypeError):
                if (pressed := update.get("callback_query")) is not None:
                    await self._call("answerCallbackQuery", {"callback_query_id": pressed["id"]}, seconds=5)

    def _is_addressed(self, message: dict[str, Any], text: str) -> bool:
        if _get_object(_get_object(message, "reply_to_message"), "from").get("id") == self._bot_id:
            return True
        units = text.encode("utf-16-le")  # entities count UTF-16 units
        for entity in [*message.get("entities", ()), *message.get("caption_entities", ())]:
            if entity["type"] == "text_mention" and entity["user"]["id"] == self._bot_id:
                return True
            start, end = 2 * entity["offset"], 2 * (entity["offset"] + entity["length"])
            said = units[start:end].decode("utf-16-le", "replace").lower()
            if entity["type"] in ("mention", "bot_command") and said.endswith(f"@{self._username.lower()}"):
                return True
        return False

    def _strip_mention(self, text: str) -> str:
        """Remove the bot's name: from commands such as `/stop@bot`, and at the beginning."""
        mark = f"@{self._username}"
        head, _, rest = text.partition(" ")
        if self._username and head.lower().endswith(mark.lower()):
            return f"{head[: -len(mark)]} {rest}".strip()
        return text

    # ── Writing ──

    @staticmethod
    def _make_target(conversation: str) -> dict[str, Any]:
        chat, _, topic = conversation.partition("/")
        place: dict[str, Any] = {"chat_id": int(chat) if chat.lstrip("-").isdecimal() else chat}
        return {**place, "message_thread_id": int(topic)} if topic.isdecimal() else place

    @staticmethod
    def _make_body(message: Outgoing) -> dict[str, Any]:
        body: dict[str, Any] = {
            "text": render(message.text, TELEGRAM) + (" …" if message.is_draft else ""),
            "parse_mode": "HTML",
            "link_preview_options": {"is_disabled": True},
        }
        if message.buttons:
            rows = [[{"text": each.label, "callback_data": each.value}] for each in message.buttons]
            body["reply_markup"] = {"inline_keyboard": rows}
        return body

    async def _write(self, method: str, values: dict[str, Any], message: Outgoing) -> Any:
        try:
            return await self._call(method, values)
        except ChannelRefused as error:
            if "parse entities" not in str(error):
                raise
        plain = {key: value for key, value in values.items() if key != "parse_mode"}
        return await self._call(method, {**plain, "text": message.text})

    # ── The API ──

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session

    async def _call(self, method: str, values: Any = None, seconds: float = 30.0) -> Any:
        url = f"{self._settings.url}/bot{self._settings.token}/{method}"
        timeout = aiohttp.ClientTimeout(total=seconds)
        is_form = isinstance(values, aiohttp.FormData)
        content: dict[str, Any] = {"data": values} if is_form else {"json": values or {}}
        try:
            async with self._client().post(url, timeout=timeout, **content) as response:
                body = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ChannelError(f"Telegram cannot be reached: {self._redact(error)}") from None
        try:
            answer = cast("dict[str, Any]", json.loads(body))
        except ValueError:
            raise ChannelError(f"Telegram answered {response.status} without JSON") from None
        if answer.get("ok"):
            return answer["result"]
        raise self._explain(response.status, answer)

    def _explain(self, status: int, answer: dict[str, Any]) -> ChannelError:
        said = str(answer.get("description", ""))
        match status:
            case 429:
                seconds = float(_get_object(answer, "parameters").get("retry_after", 5))
                return ChannelBusy(said, seconds)
            case 401 | 404:
                return ChannelError(f"Telegram rejects the token: {said}. Ask @BotFather for a new one.")
            case 409:
                return ChannelError(f"another program receives the messages of this bot: {said}")
            case 400 | 403:
                is_content = status == 400 and not any(each in said.lower() for each in ABOUT_CHATS)
                return ContentRefused(said) if is_content else ChannelRefused(said)
            case _:
                return ChannelError(f"Telegram answered {status}: {said}")

    def _redact(self, error: BaseException) -> str:
        return str(error or type(error).__name__).replace(self._settings.token, "…")


def _get_object(value: dict[str, Any], name: str) -> dict[str, Any]:
    return cast("dict[str, Any]", value.get(name) or {})


def _read_press(pressed: dict[str, Any]) -> Incoming | None:
    message = pressed.get("message")
    if message is None:
        return None
    return Incoming(
        f"press/{pressed['id']}",
        _conversation(message),
        str(pressed["from"]["id"]),
        str(pressed["from"].get("first_name", "")),
        is_direct=message["chat"]["type"] == "private",
        is_bot=bool(pressed["from"].get("is_bot")),
        kind="press",
        value=str(pressed.get("data", "")),
        reply_to=str(message["message_id"]),
    )


def _conversation(message: dict[str, Any]) -> str:
    chat = str(message["chat"]["id"])
    if message.get("is_topic_message") and "message_thread_id" in message:
        return f"{chat}/{message['message_thread_id']}"
    return chat


def _attachments(message: dict[str, Any]) -> tuple[IncomingFile, ...]:
    found: list[IncomingFile] = []
    if sizes := message.get("photo"):
        largest = max(sizes, key=lambda size: size.get("file_size", 0))
        found.append(IncomingFile(largest["file_id"], "photo.jpg", "image/jpeg", largest.get("file_size", 0)))
    for kind in ("document", "audio", "voice", "video", "video_note", "animation", "sticker"):
        if (file := message.get(kind)) is not None:
            name = str(file.get("file_name") or kind)
            found.append(
                IncomingFile(file["file_id"], name, str(file.get("mime_type", "")), int(file.get("file_size") or 0))
            )
    return tuple(found)
