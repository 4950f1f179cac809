"""Inbound webhooks: endpoints that others POST to. A signed request becomes a message to an agent, exactly once."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

from treadle.automation.signature_schemes import decode_payload, find_challenge, verify_message
from treadle.automation.signing import generate_secret, is_standard_secret
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UnknownHook, UsageError
from treadle.domain.events import WebhookReceived
from treadle.domain.messages import user
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.webhooks import (
    HookId,
    InboundWebhook,
    SignatureScheme,
    check_template,
    derive_session,
    fill_template,
)
from treadle.operations.automation import Challenge, HookView, NewHook, NewHookView, SignedMessage
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_start import start_here
from treadle.operations.schemas import Ticket, make_view
from treadle.operations.service import LocalService
from treadle.ports.automation import InboundWebhooks, WebhookSecrets
from treadle.ports.clock import Clock, Ids
from treadle.ports.journal import Runs

logger = logging.getLogger(__name__)

DUMMY_SECRET = generate_secret()
"""Compared with if there is no such webhook, so that the response takes the same time."""


class InboundWebhookRegistry:
    """Implements `operations.automation.InboundWebhookManager`."""

    def __init__(
        self,
        hooks: InboundWebhooks,
        secrets: WebhookSecrets,
        agents: Callable[[str], AgentSpec],
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._hooks = hooks
        self._secrets = secrets
        self._agents = agents
        self._clock = clock
        self._ids = ids

    async def add(self, request: NewHook, owner: UserId = LOCAL_USER) -> NewHookView:
        """Add an inbound webhook. Raise UsageError if its templates can never be filled in."""
        self._agents(request.agent)
        for template in (request.message, request.session or ""):
            try:
                check_template(template)
            except ValueError as error:
                raise UsageError(f"The hook is invalid: {error}.") from None
        if not request.message.strip() or not request.name.strip():
            raise UsageError("An inbound webhook needs a name, and a message for the agent such as {{payload}}.")
        hook = InboundWebhook(
            hook_id=HookId(self._ids("hok")),
            name=request.name.strip(),
            agent=request.agent,
            message=request.message,
            session=request.session,
            created_at=self._clock.now(),
            owner=owner,
            scheme=request.scheme,
        )
        secret = _choose_secret(request.scheme, request.secret)
        await self._secrets.put(secret_name(hook.hook_id), secret)
        await self._hooks.add(hook)
        return _to_new_hook_view(hook, secret)

    async def list(self) -> Sequence[HookView]:
        return [to_hook_view(hook) for hook in await self._hooks.list()]

    async def remove(self, hook_id: HookId) -> None:
        if not await self._hooks.remove(hook_id):
            raise _explain_unknown(hook_id)
        await self._secrets.remove(secret_name(hook_id))

    async def rotate(self, hook_id: HookId, secret: str | None = None) -> NewHookView:
        hook = await self._hooks.find(hook_id)
        if hook is None:
            raise _explain_unknown(hook_id)
        chosen = _choose_secret(hook.scheme, secret)
        await self._secrets.put(secret_name(hook_id), chosen)
        return _to_new_hook_view(hook, chosen)


class InboundWebhookReceiver:
    """Implements `operations.automation.InboundWebhookHandler`."""

    def __init__(
        self,
        hooks: InboundWebhooks,
        secrets: WebhookSecrets,
        service: LocalService,
        runs: Runs,
        agents: Callable[[str], AgentSpec],
        clock: Clock,
    ) -> None:
        self._hooks = hooks
        self._secrets = secrets
        self._service = service
        self._runs = runs
        self._agents = agents
        self._clock = clock
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def receive(self, hook_id: HookId, signed: SignedMessage) -> Ticket | Challenge | None:
        hook = await self._hooks.find(hook_id)
        secret = self._secrets.value(secret_name(hook_id if hook is None else hook.hook_id))
        scheme = "standard" if hook is None else hook.scheme
        if scheme == "standard" and secret is not None and not is_standard_secret(secret):
            logger.warning("the secret of the inbound webhook %s was changed in the vault: rotate it", hook_id)
            secret = None
        message_id = verify_message(scheme, secret or DUMMY_SECRET, self._clock.now(), signed)
        if hook is None or secret is None or message_id is None:
            return None
        if (challenge := find_challenge(hook.scheme, signed)) is not None:
            return Challenge(challenge)
        key = f"hook/{hook.hook_id}/{message_id}"
        async with self._locks.setdefault(key, asyncio.Lock()):
            if (known := await self._runs.find_submitted(key)) is not None:
                return Ticket(known.run_id, (await self._runs.record(known.run_id)).origin.session_id)
            return await self._submit(hook, signed, message_id, key)

    async def _submit(self, hook: InboundWebhook, signed: SignedMessage, message_id: str, key: str) -> Ticket:
        payload = decode_payload(signed)
        run = RequestedRun(
            agent=self._agents(hook.agent),
            message=user(fill_template(hook.message, payload)),
            session_id=derive_session(hook, payload),
            plain=True,
            user=hook.owner,
            metadata={"webhook": hook.hook_id},
        )
        because = WebhookReceived(hook.hook_id, message_id, len(signed.body))
        return await start_here(self._service, run, key, because)


def secret_name(hook_id: str) -> str:
    """Return the vault name of the secret of an inbound or outbound webhook, even for an unknown id."""
    prefix, _, rest = hook_id.partition("_")
    kind = "WEBHOOK" if prefix == "whk" else "HOOK"
    is_ours = len(rest) == 32 and rest.isascii() and rest.isalnum()
    return f"{kind}_{rest if is_ours else hashlib.blake2b(hook_id.encode(), digest_size=16).hexdigest()}"


def _choose_secret(scheme: SignatureScheme, given: str | None) -> str:
    """Return the secret that the sender chose, or a new one. Raise UsageError if the scheme cannot use it."""
    if given is None:
        return generate_secret()
    if not given.isascii() or not given.isprintable() or given != given.strip():
        raise UsageError("The secret is invalid: it must be printable ASCII without spaces around it.")
    if scheme == "standard" and not is_standard_secret(given):
        raise UsageError(
            "The secret is invalid: one of Standard Webhooks is `whsec_` and at least 24 bytes in base64."
        )
    return given


def _explain_unknown(hook_id: HookId) -> UnknownHook:
    return UnknownHook(f"There is no inbound webhook {hook_id}. `treadle hooks list` shows all.")


def to_hook_view(hook: InboundWebhook) -> HookView:
    return make_view(HookView, hook, path=find_hook_path(hook))


def _to_new_hook_view(hook: InboundWebhook, secret: str) -> NewHookView:
    return make_view(NewHookView, hook, path=find_hook_path(hook), secret=secret)


def find_hook_path(hook: InboundWebhook) -> str:
    """Return where senders send to, on this server."""
    return f"/v1/hooks/{hook.hook_id}"
