"""The editor, as sessions see it: it is sent updates, and asked for permissions and answers."""

import asyncio
from contextlib import suppress
from typing import Any, cast

from acp.schema import ClientCapabilities
from pydantic import BaseModel

from treadle.surfaces.acp.stdio import SentRequest, StdioTransport

UPDATE, PERMISSION, ELICITATION = "session/update", "session/request_permission", "elicitation/create"


class EditorClient:
    """One connection to an editor."""

    def __init__(self, transport: StdioTransport) -> None:
        self._transport = transport
        self.capabilities = ClientCapabilities()
        """What the editor supports, from `initialize`."""

    @property
    def can_elicit(self) -> bool:
        elicitation = self.capabilities.elicitation
        return elicitation is not None and elicitation.form is not None

    async def update(self, session_id: str, update: BaseModel) -> None:
        """Send an update of a session. Raise ConnectionError if the editor is gone."""
        await self._transport.notify(UPDATE, {"sessionId": session_id, "update": dump(update)})

    async def send_text(self, session_id: str, kind: str, message_id: str, text: str) -> None:
        """Send a piece of a message. It is made without the SDK's models, which cost more than the rest."""
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": kind, "content": content, "messageId": message_id}
        await self._transport.notify(UPDATE, {"sessionId": session_id, "update": update})

    async def ask(self, method: str, params: BaseModel) -> dict[str, Any] | None:
        """Send a request and return its result; None if the editor refused it. When the caller is cancelled, the
        request is withdrawn."""
        sent: SentRequest = await self._transport.request(method, dump(params))
        try:
            message = await sent.answer
        except asyncio.CancelledError:
            with suppress(ConnectionError):
                await self._transport.cancel_request(sent)
            raise
        result = message.get("result")
        return cast("dict[str, Any]", result) if isinstance(result, dict) else None


def dump(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
