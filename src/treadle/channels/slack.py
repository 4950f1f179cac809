"""Slack: Socket Mode for what arrives, the Web API with slack_sdk for what is sent."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

import aiohttp
import msgspec
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from treadle.channels.download import download
from treadle.channels.incoming import read_all
from treadle.channels.markdown import SLACK, measure, render
from treadle.channels.slack_events import (
    COMMAND_PREFIX,
    is_direct_event,
    list_files,
    read_command,
    read_press,
    unescape,
)
from treadle.channels.slack_history import CatchUp, MissingScope, SlackPosition
from treadle.channels.slack_settings import SlackSettings
from treadle.ports.channel import (
    ChannelBusy,
    ChannelError,
    ChannelRefused,
    ContentRefused,
    Incoming,
    IncomingFile,
    Outgoing,
    Receiver,
    Traits,
)

REFUSALS = frozenset(
    (
        "channel_not_found",
        "not_in_channel",
        "is_archived",
        "user_not_found",
        "message_not_found",
        "cant_update_message",
        "edit_window_closed",
        "restricted_action",
        "user_is_bot",
        "users_not_found",
        "user_disabled",
        "user_not_visible",
        "cannot_dm_bot",
        "thread_not_found",
    )
)
CONTENT_REFUSALS = frozenset(("msg_too_long", "no_text", "invalid_blocks", "msg_blocks_too_long"))
TRAITS = Traits(
    max_characters=2900,
    measure=lambda text: measure(text, SLACK),
    can_edit=True,
    has_buttons=True,
    deduplicates=True,
    edit_seconds=1.5,
    max_file_bytes=100_000_000,
    command_prefix=COMMAND_PREFIX,
)
SLACKBOT = "USLACKBOT"
MAX_SECTION = 3000
"""Characters of one section of a message."""
SHARE_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""How long a file that is being shared is waited for."""
MAX_PAUSE_SECONDS = 60.0
MIN_CONNECTED_SECONDS = 10.0
"""A connection that ends earlier is opened again with a growing pause."""
SILENT_SECONDS = 60.0
"""Slack pings more often. A connection that is silent for longer is lost."""


class _FileError(ChannelError):
    """A file is not there."""

    def __init__(self, said: str) -> None:
        super().__init__(f"Slack answered: {said}")
        self.is_deleted = said == "file_deleted"


class Slack:
    """Implements `ports.channel.UploadChannel`. A conversation is a channel, a direct message or a person, or
    `CHANNEL/THREAD`. In channels, each mention begins a thread."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        try:
            self._settings = msgspec.convert(dict(settings), SlackSettings)
        except msgspec.ValidationError as error:
            raise ValueError(f"settings: {error}") from None
        self._web: Any = AsyncWebClient(self._settings.token, base_url=self._settings.url)
        self._session: aiohttp.ClientSession | None = None
        self._bot_user = ""
        self._direct: dict[str, str] = {}
        """The direct messages with people."""
        self.traits = TRAITS

    async def check(self) -> str:
        found = await self._call("auth.test", {})
        self._bot_user = str(found.get("user_id", ""))
        return f"{found.get('user', '')} in {found.get('team', '')}"

    async def receive(self, receiver: Receiver) -> None:
        position = SlackPosition(await receiver.cursor())
        position.open_gap(time.time())
        await receiver.accept((), position.encode())  # before a new message moves the position
        call = partial(self._call_patiently, form="data")
        catch_up = CatchUp(call, receiver, position, partial(self._deliver_missed, receiver, position))
        try:
            while True:
                began = time.monotonic()
                await self._follow(receiver, position, catch_up)
                if time.monotonic() - began < MIN_CONNECTED_SECONDS:
                    return
        finally:
            await catch_up.close()

    async def _follow(self, receiver: Receiver, position: SlackPosition, catch_up: CatchUp) -> None:
        """Pass on messages until Slack ends the connection, which it does from time to time."""
        headers = {"Authorization": f"Bearer {self._settings.app_token}"}
        opened = await self._request("apps.connections.open", headers=headers)
        try:
            async with self._client().ws_connect(
                str(opened["url"]), heartbeat=20, max_msg_size=32 * 2**20
            ) as socket:
                while True:
                    frame = await socket.receive(timeout=SILENT_SECONDS)
                    if frame.type is not aiohttp.WSMsgType.TEXT:
                        raise ChannelError("Slack closed the connection")
                    envelope = cast("dict[str, Any]", json.loads(frame.data))
                    if envelope.get("type") == "disconnect":
                        return
                    found = read_all((envelope,), self._read)
                    store = partial(self._store, receiver, position, found, envelope.get("envelope_id"), socket)
                    if found and not catch_up.is_over:
                        catch_up.hold(found[0], store)
                    else:
                        await store()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise ChannelError(f"the connection was lost: {error or type(error).__name__}") from None

    async def _store(
        self,
        receiver: Receiver,
        position: SlackPosition,
        found: list[Incoming],
        envelope_id: str | None,
        socket: aiohttp.ClientWebSocketResponse,
    ) -> None:
        """Store messages, and acknowledge them after that. Slack repeats them on another connection otherwise."""
        try:
            if found:
                await self._accept(receiver, found, position, position.encode())
            if envelope_id is not None and not socket.closed:
                await socket.send_json({"envelope_id": envelope_id})
        except Exception:
            await socket.close()
            raise

    async def _deliver_missed(
        self, receiver: Receiver, position: SlackPosition, events: Sequence[dict[str, Any]]
    ) -> None:
        envelopes = [{"type": "events_api", "payload": {"event": each}} for each in events]
        await self._accept(receiver, read_all(envelopes, self._read), position, "")

    async def _accept(
        self, receiver: Receiver, found: list[Incoming], position: SlackPosition, before: str
    ) -> None:
        for message in found:
            position.note(message)
        cursor = position.encode()
        await receiver.accept(found, None if cursor == before else cursor)

    async def send(self, message: Outgoing) -> str:
        if message.files:
            file_id = await self.upload(message)
            await self.share(file_id, message)
            return file_id
        channel, thread = await self._find_place(message.conversation)
        values = {"channel": channel, **self._make_body(message)}
        values["client_msg_id"] = str(uuid5(NAMESPACE_URL, f"treadle/{message.key}"))
        if thread:
            values["thread_ts"] = thread
        return str((await self._call("chat.postMessage", values))["ts"])

    async def edit(self, message_id: str, message: Outgoing) -> None:
        channel, _ = await self._find_place(message.conversation)
        await self._call("chat.update", {"channel": channel, "ts": message_id, **self._make_body(message)})

    async def show_typing(self, conversation: str) -> None:
        """Do nothing: bots cannot show that they type."""

    async def fetch(self, attachment: IncomingFile, max_bytes: int) -> bytes:
        """Return a file of Slack. The token is sent to Slack's own servers only: a file can be a link elsewhere."""
        if not self._is_own(attachment.file_id):
            raise ChannelRefused("it is stored outside of Slack")
        headers = {"Authorization": f"Bearer {self._settings.token}"}
        return await download(self._client(), attachment.file_id, max_bytes, headers)

    def _is_own(self, url: str) -> bool:
        found, own = urlsplit(url), urlsplit(self._settings.url)
        if (found.scheme, found.netloc) == (own.scheme, own.netloc):
            return True
        host = found.hostname or ""
        return found.scheme == "https" and (host == "slack.com" or host.endswith(".slack.com"))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        if self._web.session is not None:
            await self._web.session.close()

    # ── Reading ──

    def _read(self, envelope: dict[str, Any]) -> Incoming | None:
        payload = cast("dict[str, Any]", envelope.get("payload") or {})
        if envelope.get("type") == "interactive":
            return read_press(payload)
        if envelope.get("type") != "events_api":
            return None
        event = cast("dict[str, Any]", payload.get("event") or {})
        if event.get("type") not in ("message", "app_mention"):
            return None
        match event.get("subtype"):
            case "message_changed":
                return self._read_change(event, "edit")
            case "message_deleted":
                return self._read_change(event, "delete")
            case None | "bot_message" | "file_share" | "thread_broadcast":
                return self._read_message(event)
            case _:
                return None

    def _read_message(self, event: dict[str, Any]) -> Incoming | None:
        sender = str(event.get("user") or event.get("bot_id") or "")
        if not sender or sender == self._bot_user:
            return None
        text, channel, ts = str(event.get("text", "")), str(event["channel"]), str(event["ts"])
        is_direct = is_direct_event(event)
        thread = str(event.get("thread_ts") or ("" if is_direct else ts))
        mention = f"<@{self._bot_user}>"
        is_reply = event.get("parent_user_id") == self._bot_user
        return Incoming(
            message_id=f"{channel}/{ts}",
            conversation=f"{channel}/{thread}" if thread else channel,
            sender=sender,
            sender_name=str(event.get("username") or sender),
            text=read_command(unescape(text.replace(mention, "").strip())),
            attachments=list_files(event),
            is_direct=is_direct,
            is_addressed=is_direct or mention in text or is_reply,
            is_bot=bool(event.get("bot_id")) or sender == SLACKBOT,
            reply_to=str(event.get("thread_ts") or ""),
            parent=channel if thread else "",
        )

    def _read_change(self, event: dict[str, Any], kind: Any) -> Incoming | None:
        fresh = cast("dict[str, Any]", event.get("message") or {})
        old = cast("dict[str, Any]", event.get("previous_message") or fresh)
        author = str(old.get("user", ""))
        editor = cast("dict[str, Any]", fresh.get("edited") or {}).get("user")
        sender = str(editor or author) if kind == "edit" else author
        if not sender or sender == self._bot_user or (kind == "edit" and fresh.get("text") == old.get("text")):
            return None  # also when Slack only unfurls a link
        channel = str(event["channel"])
        target = str(event.get("deleted_ts") or fresh.get("ts") or old.get("ts"))
        is_direct = is_direct_event(event)
        thread = str(old.get("thread_ts") or ("" if is_direct else target))
        return Incoming(
            f"{kind}/{channel}/{event.get('event_ts') or event.get('ts')}",
            f"{channel}/{thread}" if thread else channel,
            sender,
            text=unescape(str(fresh.get("text", "")).replace(f"<@{self._bot_user}>", "").strip()),
            is_direct=is_direct,
            is_bot=bool(old.get("bot_id")),
            kind=kind,
            target=f"{channel}/{target}",
        )

    # ── Writing ──

    @staticmethod
    def _make_body(message: Outgoing) -> dict[str, Any]:
        text = render(message.text, SLACK) + (" …" if message.is_draft else "")
        body: dict[str, Any] = {"text": text, "unfurl_links": False, "unfurl_media": False}
        if message.buttons:
            buttons = [
                {
                    "type": "button",
                    "action_id": f"treadle-{number}",
                    "text": {"type": "plain_text", "text": each.label},
                    "value": each.value,
                }
                for number, each in enumerate(message.buttons)
            ]
            sections = [
                {"type": "section", "text": {"type": "mrkdwn", "text": text[start : start + MAX_SECTION]}}
                for start in range(0, len(text), MAX_SECTION)
            ]
            body["blocks"] = [*sections, {"type": "actions", "elements": buttons}]
        else:
            body["blocks"] = []
        return body

    async def _find_place(self, conversation: str) -> tuple[str, str]:
        """Return the channel and the thread of a conversation. With a person, it is the direct message: Slack edits
        messages and shares files only there."""
        channel, _, thread = conversation.partition("/")
        if not channel.startswith(("U", "W")):
            return channel, thread
        if channel not in self._direct:
            opened = await self._call("conversations.open", {"users": channel})
            self._direct[channel] = str(opened["channel"]["id"])
        return self._direct[channel], thread

    # ── Files ──

    async def upload(self, message: Outgoing) -> str:
        file = message.files[0]
        values = {"filename": file.name, "length": str(len(file.data))}
        place = await self._call("files.getUploadURLExternal", values, "data")
        try:
            async with self._client().post(str(place["upload_url"]), data=file.data) as response:
                status = response.status
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ChannelError(f"the file was not uploaded: {error or type(error).__name__}") from None
        if status != 200:
            raise ChannelError(f"the file was not uploaded: status {status}")
        return str(place["file_id"])

    async def share(self, file_id: str, message: Outgoing) -> None:
        channel, thread = await self._find_place(message.conversation)
        values: dict[str, Any] = {"files": [{"id": file_id, "title": message.files[0].name}], "channel_id": channel}
        await self._call("files.completeUploadExternal", {**values, "thread_ts": thread} if thread else values)

    async def is_shared(self, file_id: str) -> bool:
        """Return whether an uploaded file is in a conversation. Slack shares files some time after it was asked to,
        so a file that is known but in no conversation is looked up again."""
        for pause in SHARE_PAUSES_SECONDS:
            try:
                found = cast("dict[str, Any]", (await self._call("files.info", {"file": file_id}, "data"))["file"])
            except _FileError as error:
                return error.is_deleted  # by a person; a file that was not completed is unknown
            if any(found.get(name) for name in ("shares", "channels", "groups", "ims")):
                return True
            await asyncio.sleep(pause)
        return False

    async def _call(self, method: str, values: dict[str, Any], form: Literal["json", "data"] = "json") -> Any:
        """Call a method of the Web API. Some methods accept form data only."""
        return await self._request(method, **{form: values})

    async def _call_patiently(self, method: str, values: dict[str, Any], form: Literal["json", "data"]) -> Any:
        """Call a method, again if Slack asks for a pause."""
        while True:
            try:
                return await self._call(method, values, form)
            except ChannelBusy as error:
                await asyncio.sleep(min(error.seconds, MAX_PAUSE_SECONDS))

    async def _request(self, method: str, **options: Any) -> Any:
        try:
            return (await self._web.api_call(method, **options)).data
        except SlackApiError as error:
            raise _explain(cast("Any", error.response)) from None
        except (TimeoutError, SlackClientError, aiohttp.ClientError, OSError) as error:
            raise ChannelError(f"Slack cannot be reached: {error or type(error).__name__}") from None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session


def _explain(response: Any) -> ChannelError:
    said = str(response.get("error", "")) if response.status_code == 200 else f"status {response.status_code}"
    if response.status_code == 429 or said == "ratelimited":
        return ChannelBusy(said, float(response.headers.get("Retry-After", 5)))
    if said in CONTENT_REFUSALS:
        return ContentRefused(f"Slack refuses the message: {said}")
    if said in REFUSALS:
        return ChannelRefused(f"Slack refuses the message: {said}")
    if said == "missing_scope":
        needed = response.get("needed", "")
        return MissingScope(f"the Slack app lacks the scope {needed}. Add it, and install the app again.")
    if said in ("file_not_found", "file_deleted"):
        return _FileError(said)
    return ChannelError(f"Slack answered: {said}")
