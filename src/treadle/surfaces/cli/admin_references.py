"""Ids of schedules, webhooks and tokens as people type them: whole, a unique beginning, `last`, or a name."""

from treadle.domain.errors import UsageError
from treadle.domain.ids import EventId
from treadle.domain.schedules import ScheduleId
from treadle.domain.webhooks import HookId, WebhookId
from treadle.operations import inbound_webhooks, schedules, tokens, webhooks
from treadle.operations.operation import Caller, NoParameters
from treadle.surfaces.home_access.references import find_listed, find_only


async def find_schedule(caller: Caller, reference: str) -> ScheduleId:
    """Return the id of the schedule that a reference names."""
    known = [each.schedule_id for each in (await caller.call(schedules.LIST, NoParameters())).items]
    return ScheduleId(find_listed(reference, "sch", known, "schedule", "schedules"))


async def find_webhook(caller: Caller, reference: str) -> WebhookId:
    """Return the id of the webhook that a reference names."""
    known = [each.webhook_id for each in (await caller.call(webhooks.LIST, NoParameters())).items]
    return WebhookId(find_listed(reference, "whk", known, "webhook", "webhooks"))


async def find_dead_event(caller: Caller, webhook_id: WebhookId, reference: str) -> EventId:
    """Return the id of the undeliverable event that a reference names."""
    dead = (await caller.call(webhooks.DEAD, webhooks.OneWebhook(webhook_id))).items
    return EventId(find_listed(reference, "evt", [each.event_id for each in dead], "event", "events"))


async def find_hook(caller: Caller, reference: str) -> HookId:
    """Return the id of the inbound webhook that a reference names: also its name, if it is unique."""
    known = (await caller.call(inbound_webhooks.LIST, NoParameters())).items
    named = [each.hook_id for each in known if each.name == reference]
    if named:
        return HookId(find_only(reference, named, "inbound webhooks"))
    ids = [each.hook_id for each in known]
    return HookId(find_listed(reference, "hok", ids, "inbound webhook", "inbound webhooks"))


async def find_token(caller: Caller, reference: str) -> tokens.TokenView:
    """Return the token that a reference names: also its name, if one valid token has it. Raises UsageError."""
    known = (await caller.call(tokens.LIST, NoParameters())).items
    named = [each.token_id for each in known if each.name == reference and each.revoked_at is None]
    ids = [each.token_id for each in known]
    if named and reference not in ids:
        wanted = find_only(reference, named, "tokens")
    else:
        wanted = find_listed(reference, "tok", ids, "token", "tokens")
    for each in known:
        if each.token_id == wanted:
            return each
    raise UsageError(f"There is no token `{reference}`. `treadle tokens list` shows the tokens.")
