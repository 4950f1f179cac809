"""Webhooks: what comes in and becomes a message, and where events are sent to."""

import re
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, NewType, cast

import msgspec
from msgspec import Struct

from treadle.domain.ids import EventId, Instant, RunId, SessionId
from treadle.domain.users import LOCAL_USER, UserId

HookId = NewType("HookId", str)
WebhookId = NewType("WebhookId", str)

_PLACE = re.compile(r"\{\{\s*payload((?:\.[^\s.{}]+)*)\s*\}\}")
_SESSION = re.compile(r"[A-Za-z0-9._-]{1,100}")

FIRST_DELAY_SECONDS = 5.0
MAX_DELAY_SECONDS = 6 * 3600.0
DELAY_FACTOR = 4.0
GIVE_UP_SECONDS = 3 * 86400.0
"""How long an event is tried to be sent."""
JITTER_SHARE = 0.2
"""The share by which a delay may be shorter or longer, so that not all come back together."""


# ── What comes in ──────────────────────────────────────────────────────────────────────────────────


class InboundWebhook(Struct, frozen=True):
    """An address that others send to, and what becomes of what they send."""

    hook_id: HookId
    name: str
    agent: str
    message: str
    """With places such as {{payload.issue.title}}."""
    session: str | None
    """The same, for the name of the session; None: each begins one of its own."""
    created_at: Instant
    owner: UserId = LOCAL_USER
    """The user its runs are for: who made it."""


def check_template(text: str) -> None:
    """Raise ValueError for a place that would never be filled."""
    rest = _PLACE.sub("", text)
    if "{{" in rest or "}}" in rest:
        at = rest.find("{{") if "{{" in rest else rest.find("}}")
        raise ValueError(
            f"`{rest[at : at + 40]}` is no place that can be filled; accepted: {{{{payload}}}} and "
            "{{payload.NAME.NAME}}"
        )


def fill_template(template: str, payload: Any) -> str:
    """The template with what the payload has in its places. What is filled in is text, whatever it looks like; what
    the payload does not have is empty."""
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
    """The session that a payload belongs to: always one of this hook's own, whatever the payload says."""
    name = "" if hook.session is None else fill_template(hook.session, payload).strip()
    if not name:
        return None
    kept = (
        name if _SESSION.fullmatch(name) else blake2b(name.encode("utf-8", "replace"), digest_size=16).hexdigest()
    )
    return SessionId(f"{hook.hook_id}.{kept}")


# ── What goes out ──────────────────────────────────────────────────────────────────────────────────


class Webhook(Struct, frozen=True):
    """An address that events are sent to, and how far that has come."""

    webhook_id: WebhookId
    url: str
    events: tuple[str, ...]
    """Names, or globs of names, of types of events."""
    agents: tuple[str, ...] | None
    """Only of runs of these; None: of all."""
    created_at: Instant
    position: int
    """Of the last event, in the order of commits, that is done with."""
    most_attempts: int | None = None
    """After so many an event is given up; None: after three days."""
    attempts: int = 0
    """Of the event that comes next; those that failed."""
    first_failed_at: Instant | None = None
    retry_at: Instant | None = None
    delivered_at: Instant | None = None
    problem: str = ""
    """Why the latest attempt failed; empty: it did not."""
    disabled: bool = False
    """The receiver has said that it wants no more."""

    def wants(self, type_: str) -> bool:
        return any(fnmatchcase(type_, pattern) for pattern in self.events)

    def gives_up(self, now: Instant) -> bool:
        """Whether the event that failed so often is not to be sent again."""
        if self.most_attempts is not None:
            return self.attempts >= self.most_attempts
        return self.first_failed_at is not None and now - self.first_failed_at >= GIVE_UP_SECONDS


class DeadLetter(Struct, frozen=True):
    """An event that could not be sent. It is read from the journal when it is tried again."""

    webhook_id: WebhookId
    event_id: EventId
    run_id: RunId
    sequence: int
    type: str
    attempts: int
    reason: str
    died_at: Instant
    queued: bool = False
    """Somebody has asked for another try."""


def retry_delay(attempts: int, chance: float) -> float:
    """Seconds before the next attempt, after so many that failed; `chance` is from 0 to 1."""
    delay = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * DELAY_FACTOR ** min(attempts - 1, 20))
    return min(MAX_DELAY_SECONDS, delay * (1 - JITTER_SHARE + 2 * JITTER_SHARE * chance))
