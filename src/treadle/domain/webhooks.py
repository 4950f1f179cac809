"""Webhooks: inbound ones, whose payloads become messages, and outbound ones, to which events are sent."""

import re
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, Generic, Literal, NewType, cast

import msgspec
from msgspec import Struct

from treadle.domain.ids import EventId, Instant, RunId, SessionId, Time
from treadle.domain.users import LOCAL_USER, UserId

HookId = NewType("HookId", str)
WebhookId = NewType("WebhookId", str)
SignatureScheme = Literal["standard", "github", "gitlab", "stripe", "slack"]
"""How the sender of an inbound webhook signs: as Standard Webhooks defines it, or in its own way."""

_PLACE = re.compile(r"\{\{\s*payload((?:\.[^\s.{}]+)*)\s*\}\}")
_SESSION = re.compile(r"[A-Za-z0-9._-]{1,100}")

FIRST_DELAY_SECONDS = 5.0
MAX_DELAY_SECONDS = 6 * 3600.0
DELAY_FACTOR = 4.0
GIVE_UP_SECONDS = 3 * 86400.0
"""How long sending an event is retried."""
JITTER_SHARE = 0.2
"""The share by which a delay may vary, so that retries do not coincide."""


# ── Inbound ──


class HookFields(Struct, Generic[Time], frozen=True):
    """An inbound webhook as lists show it."""

    hook_id: HookId
    name: str
    agent: str
    message: str
    """With placeholders such as {{payload.issue.title}}."""
    session: str | None
    """A template for the name of the session; null for a new session each time."""
    created_at: Time
    owner: UserId = LOCAL_USER
    """The user of its runs: its creator."""
    scheme: SignatureScheme = "standard"
    """How the sender signs."""


class InboundWebhook(HookFields[Instant], frozen=True):
    """An address to which others send, and the message that each payload becomes."""


def check_template(text: str) -> None:
    """Raise ValueError for a placeholder that can never be filled."""
    rest = _PLACE.sub("", text)
    if "{{" in rest or "}}" in rest:
        at = rest.find("{{") if "{{" in rest else rest.find("}}")
        raise ValueError(
            f"`{rest[at : at + 40]}` is not a valid placeholder; accepted: {{{{payload}}}} and "
            "{{payload.NAME.NAME}}"
        )


def fill_template(template: str, payload: Any) -> str:
    """Return the template with its placeholders filled from the payload. Values are inserted as text; missing ones
    are empty."""
    return _PLACE.sub(lambda place: _to_text(_find_value(payload, place[1])), template)


def _find_value(payload: Any, path: str) -> Any:
    found = payload
    for name in path.split(".")[1:]:
        match found:
            case dict():
                found = cast("dict[str, Any]", found).get(name)
            case list() if name.isascii() and name.isdecimal() and int(name) < len(cast("list[Any]", found)):
                found = cast("list[Any]", found)[int(name)]
            case _:
                return None
    return found


def _to_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return msgspec.json.encode(value).decode()


def derive_session(hook: InboundWebhook, payload: Any) -> SessionId | None:
    """Return the session that a payload belongs to. It is always one of this hook's own, whatever the payload
    says."""
    name = "" if hook.session is None else fill_template(hook.session, payload).strip()
    if not name:
        return None
    suffix = (
        name if _SESSION.fullmatch(name) else blake2b(name.encode("utf-8", "replace"), digest_size=16).hexdigest()
    )
    return SessionId(f"{hook.hook_id}.{suffix}")


# ── Outbound ──


class WebhookFields(Struct, Generic[Time], frozen=True):
    """A webhook as lists show it."""

    webhook_id: WebhookId
    url: str
    events: tuple[str, ...]
    """Names, or globs of names, of types of events."""
    agents: tuple[str, ...] | None
    """Only events of these agents; null for all."""
    most_attempts: int | None
    """Maximum number of attempts for an event; null to retry for three days."""
    created_at: Time
    delivered_at: Time | None
    attempts: int
    """Failed attempts to send the next event."""
    retry_at: Time | None
    problem: str
    """Why the latest attempt failed; empty if it did not."""
    disabled: bool
    """The receiver has answered that it is gone (410); `retry` tries again."""


class Webhook(WebhookFields[Instant], frozen=True, kw_only=True):
    """An address to which events are sent, with its progress."""

    position: int
    """Position of the last event, in commit order, that is done."""
    first_failed_at: Instant | None = None

    def wants(self, type_: str) -> bool:
        return any(fnmatchcase(type_, pattern) for pattern in self.events)

    def gives_up(self, now: Instant) -> bool:
        """Return whether the event that failed repeatedly is given up."""
        if self.most_attempts is not None:
            return self.attempts >= self.most_attempts
        return self.first_failed_at is not None and now - self.first_failed_at >= GIVE_UP_SECONDS


class DeadLetterFields(Struct, Generic[Time], frozen=True):
    """An event that could not be sent, as lists show it."""

    event_id: EventId
    run_id: RunId
    sequence: int
    type: str
    attempts: int
    reason: str
    died_at: Time
    queued: bool
    """Another attempt was requested."""


class DeadLetter(DeadLetterFields[Instant], frozen=True, kw_only=True):
    """An event that could not be sent. It is read from the journal when it is retried."""

    webhook_id: WebhookId


def retry_delay(attempts: int, random: float) -> float:
    """Return the delay in seconds before the next attempt. `random` is a number from 0 to 1."""
    delay = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * DELAY_FACTOR ** min(attempts - 1, 20))
    return min(MAX_DELAY_SECONDS, delay * (1 - JITTER_SHARE + 2 * JITTER_SHARE * random))
