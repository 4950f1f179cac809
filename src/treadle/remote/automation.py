"""Schedules, hooks and webhooks of a home, kept up through the process that owns it."""

from collections.abc import Sequence
from urllib.parse import quote

from msgspec import Struct

from treadle.domain.ids import EventId
from treadle.domain.schedules import ScheduleId
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.webhooks import HookId, WebhookId
from treadle.operations.automation import (
    DeadLetterView,
    HookView,
    NewHook,
    NewHookView,
    NewSchedule,
    NewWebhook,
    NewWebhookView,
    ScheduleView,
    WebhookView,
)
from treadle.operations.schemas import Page
from treadle.remote.connection import Connection


class RemoteSchedules:
    """Implements `service.automating.ScheduleKeeping` over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._ask = connection

    async def add(self, wanted: NewSchedule, owner: UserId = LOCAL_USER) -> ScheduleView:
        """Whoever attaches is the local user."""
        assert owner == LOCAL_USER, "a process of the local user asks for nobody else"
        return await self._ask.post("/v1/schedules", ScheduleView, wanted)

    async def list(self) -> Sequence[ScheduleView]:
        return (await self._ask.get("/v1/schedules", Page[ScheduleView])).items

    async def remove(self, schedule_id: ScheduleId) -> None:
        await self._ask.delete(f"/v1/schedules/{_part(schedule_id)}", object)

    async def pause(self, schedule_id: ScheduleId) -> ScheduleView:
        return await self._ask.post(f"/v1/schedules/{_part(schedule_id)}/pause", ScheduleView)

    async def resume(self, schedule_id: ScheduleId) -> ScheduleView:
        return await self._ask.post(f"/v1/schedules/{_part(schedule_id)}/resume", ScheduleView)


class RemoteHooks:
    """Implements `service.automating.HookKeeping` over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._ask = connection

    async def add(self, wanted: NewHook, owner: UserId = LOCAL_USER) -> NewHookView:
        """Whoever attaches is the local user."""
        assert owner == LOCAL_USER, "a process of the local user asks for nobody else"
        return await self._ask.post("/v1/hooks", NewHookView, wanted)

    async def list(self) -> Sequence[HookView]:
        return (await self._ask.get("/v1/hooks", Page[HookView])).items

    async def remove(self, hook_id: HookId) -> None:
        await self._ask.delete(f"/v1/hooks/{_part(hook_id)}", object)

    async def rotate(self, hook_id: HookId) -> NewHookView:
        return await self._ask.post(f"/v1/hooks/{_part(hook_id)}/rotate", NewHookView)


class _Queued(Struct, frozen=True):
    events: int


class RemoteWebhooks:
    """Implements `service.automating.WebhookKeeping` over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._ask = connection

    async def add(self, wanted: NewWebhook) -> NewWebhookView:
        return await self._ask.post("/v1/webhooks", NewWebhookView, wanted)

    async def list(self) -> Sequence[WebhookView]:
        return (await self._ask.get("/v1/webhooks", Page[WebhookView])).items

    async def remove(self, webhook_id: WebhookId) -> None:
        await self._ask.delete(f"/v1/webhooks/{_part(webhook_id)}", object)

    async def dead(self, webhook_id: WebhookId) -> Sequence[DeadLetterView]:
        return (await self._ask.get(f"/v1/webhooks/{_part(webhook_id)}/dead", Page[DeadLetterView])).items

    async def retry(self, webhook_id: WebhookId, event_id: EventId | None = None) -> int:
        which = "" if event_id is None else f"?event_id={quote(event_id, safe='')}"
        return (await self._ask.post(f"/v1/webhooks/{_part(webhook_id)}/retry{which}", _Queued)).events


def _part(name: str) -> str:
    """One part of a path, whatever was typed."""
    return quote(name, safe="")
