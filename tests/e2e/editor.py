"""An editor for tests: the client side of the official SDK, connected to a real `treadle acp` process."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, text_block
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

TREADLE = str(Path(sys.executable).parent / "treadle")
PATIENCE_SECONDS = 120.0
"""Only a hang takes this long."""
Choose = Callable[[ToolCallUpdate, list[PermissionOption]], str | None]


def choose(option_id: str) -> Choose:
    return lambda call, options: option_id


class Editor:
    """Implements the SDK's `Client`, and keeps everything that it is sent."""

    def __init__(self, answer: Choose | None = None) -> None:
        self.updates: list[Any] = []
        self.permissions: list[tuple[Any, list[PermissionOption]]] = []
        self.forms: list[Any] = []
        self.answer = answer
        """None: leave permission requests open."""
        self.form_answer: str | None = None
        self.raw: list[dict[str, Any]] = []
        self._news = asyncio.Event()
        self.conn: ClientSideConnection

    # ── Client ──

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)
        self._news.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **kwargs: Any
    ) -> RequestPermissionResponse:
        self.permissions.append((tool_call, options))
        self._news.set()
        if self.answer is None:
            await asyncio.Event().wait()
        assert self.answer is not None
        chosen = self.answer(tool_call, options)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: Any, **kwargs: Any) -> AcceptElicitationResponse:
        self.forms.append((message, mode))
        return AcceptElicitationResponse(action="accept", content={"answer": self.form_answer})

    def on_connect(self, conn: Any) -> None:
        pass

    # ── What a test does ──

    async def wait_for(self, found: Callable[["Editor"], Any]) -> Any:
        """Wait until something was received."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (result := found(self)):
                self._news.clear()
                await self._news.wait()
        return result

    def observe(self, event: Any) -> None:
        if event.direction.value == "incoming":
            self.raw.append(event.message)
            self._news.set()

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]

    @property
    def text(self) -> str:
        return "".join(update.content.text for update in self.of("agent_message_chunk"))

    @property
    def thoughts(self) -> str:
        return "".join(update.content.text for update in self.of("agent_thought_chunk"))

    @property
    def said(self) -> list[str]:
        """The user messages that were sent to this editor."""
        return [update.content.text for update in self.of("user_message_chunk") if update.content.type == "text"]

    def calls(self) -> dict[str, dict[str, Any]]:
        """Return the calls as the editor shows them, by id."""
        found: dict[str, dict[str, Any]] = {}
        for update in self.updates:
            if update.session_update in ("tool_call", "tool_call_update"):
                values = update.model_dump(by_alias=True, exclude_none=True)
                found.setdefault(update.tool_call_id, {}).update(values)
        return found

    async def send(self, session_id: str, text: str) -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.conn.prompt(session_id=session_id, prompt=[text_block(text)])

    async def new(self, folder: Path) -> str:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return (await self.conn.new_session(cwd=str(folder), mcp_servers=[])).session_id

    async def fails(self, request: Any) -> RequestError:
        """Return the error that answers a request."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await request
        except RequestError as error:
            return error
        raise AssertionError("the request did not fail")


@asynccontextmanager
async def open_editor(
    environment: dict[str, str], *arguments: str, answer: Choose | None = None, capabilities: Any = None
) -> AsyncGenerator[tuple[Editor, asyncio.subprocess.Process]]:
    """Start `treadle acp` and initialize it."""
    editor = Editor(answer)
    process = await asyncio.create_subprocess_exec(
        TREADLE,
        "acp",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environment},
        limit=64 * 1024 * 1024,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    editor.conn = ClientSideConnection(
        editor,  # pyright: ignore[reportArgumentType] -- the parts of a client that are used
        process.stdin,
        process.stdout,
        use_unstable_protocol=True,
        observers=[editor.observe],
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await editor.conn.initialize(
                protocol_version=PROTOCOL_VERSION, client_capabilities=capabilities or ClientCapabilities()
            )
        yield editor, process
    finally:
        await editor.conn.close()
        if process.returncode is None:
            process.stdin.close()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
