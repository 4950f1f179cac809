"""An agent on a Matrix homeserver, and a person who writes in its encrypted rooms with a client that we did not
write."""

import asyncio
import io
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nio import (  # pyright: ignore[reportMissingTypeStubs]
    AsyncClient,
    AsyncClientConfig,
    RoomMessage,
    RoomSendResponse,
)
from nio.crypto.attachments import decrypt_attachment  # pyright: ignore[reportMissingTypeStubs]

from tests.channels.home import write_home
from tests.channels.test_sent_files import READER
from tests.channels.test_telegram import echo
from tests.engine.running import opened
from tests.patience import HANG_SECONDS
from treadle.domain.channels import Person


class EncryptedPerson:
    """One device of a person."""

    def __init__(self, client: AsyncClient, bot: str) -> None:
        self._client: Any = client  # its types are incomplete
        self._bot = bot
        self._texts: dict[str, dict[str, str]] = {}
        self._news = asyncio.Event()
        self.files: list[dict[str, Any]] = []
        """The content of the files that the bot has sent."""
        client.add_event_callback(self._hear, RoomMessage)

    async def _hear(self, room: Any, event: Any) -> None:
        content: dict[str, Any] = event.source["content"]
        if event.sender != self._bot:
            return
        assert event.decrypted, "the bot wrote in clear text in an encrypted room"
        if "file" in content:
            self.files.append(content)
        relation: dict[str, Any] = content.get("m.relates_to", {})
        is_edit = relation.get("rel_type") == "m.replace"
        shown = content["m.new_content"] if is_edit else content
        said = self._texts.setdefault(room.room_id, {})
        said[relation["event_id"] if is_edit else event.event_id] = shown["body"]
        self._news.set()

    def texts(self, room_id: str) -> list[str]:
        """Return what the bot has said in a room, with edits applied, oldest first."""
        return list(self._texts.get(room_id, {}).values())

    async def write(self, room_id: str, text: str, **content: Any) -> str:
        answer = await self._client.room_send(
            room_id,
            "m.room.message",
            {"msgtype": "m.text", "body": text, **content},
            ignore_unverified_devices=True,
        )
        assert isinstance(answer, RoomSendResponse), answer
        return str(answer.event_id)

    async def write_file(self, room_id: str, name: str, data: bytes) -> None:
        answer, keys = await self._client.upload(io.BytesIO(data), "text/plain", name, True, filesize=len(data))
        where = {**keys, "url": answer.content_uri}
        info = {"mimetype": "text/plain", "size": len(data)}
        await self.write(room_id, name, msgtype="m.file", file=where, info=info)

    async def read_file(self, content: dict[str, Any]) -> bytes:
        """Return the content of a file that the bot has sent."""
        file: dict[str, Any] = content["file"]
        answer: Any = await self._client.download(file["url"])
        return decrypt_attachment(answer.body, file["key"]["k"], file["hashes"]["sha256"], file["iv"])

    async def wait_for(self, room_id: str, is_seen: Callable[[list[str]], bool]) -> list[str]:
        """Wait until what the bot has said in a room fulfils a condition."""
        async with asyncio.timeout(HANG_SECONDS):
            while not is_seen(self.texts(room_id)):
                self._news.clear()
                await self._news.wait()
        return self.texts(room_id)

    async def wait_for_text(self, room_id: str, text: str) -> list[str]:
        return await self.wait_for(room_id, lambda texts: text in texts)


@asynccontextmanager
async def open_person(
    url: str, user: str, password: str, bot: str, folder: Path
) -> AsyncGenerator[EncryptedPerson, None]:
    """Log in, and follow all rooms."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    config = AsyncClientConfig(encryption_enabled=True, store_sync_tokens=True)
    client = AsyncClient(url, user, "PHONE", str(folder), config)
    await client.login(password)
    person = EncryptedPerson(client, bot)
    following = asyncio.create_task(client.sync_forever(1000, full_state=True))
    await client.synced.wait()
    # `synced` is set before the first keys are exchanged
    while client.should_upload_keys or client.should_query_keys:  # noqa: ASYNC110 -- of a library
        await asyncio.sleep(0.01)
    try:
        yield person
    finally:
        following.cancel()
        await asyncio.wait([following])
        await client.close()


@asynccontextmanager
async def serve_matrix(
    folder: Path, channel: Mapping[str, Any], password: str, *people: str, cursor: str | None = None
) -> AsyncGenerator[Any, None]:
    """Open an engine whose agent repeats what people write, and yield it once it follows its rooms. `cursor` is the
    position that another server has stored."""
    write_home(folder, {"matrix": channel}, {"MATRIX": password}, READER)
    async with opened(folder, echo()) as engine:
        manager: Any = engine.context.channels()
        for user in people:
            name = user[1:].partition(":")[0]
            await manager.store.save_person(
                Person(
                    channel="matrix", sender=user, name=name, user=name, grants=("direct", "groups"), added_at=0.0
                )
            )
        if cursor is not None:
            await manager.store.receive("matrix", [], cursor, 0.0)
        async with manager.run_in_background():
            while await manager.store.cursor("matrix") is None:  # noqa: ASYNC110 -- a row of a database
                await asyncio.sleep(0.01)
            yield engine
