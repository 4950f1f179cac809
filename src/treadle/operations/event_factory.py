"""Prepares events that callers deliver for the journal: redacted and validated. An event that cannot be decoded
again would block its run permanently."""

import msgspec

from treadle.domain.envelope import Draft, decode_data, make_draft
from treadle.domain.errors import UsageError
from treadle.domain.events import EventData
from treadle.engine.redaction import redact_event
from treadle.ports.clock import Clock, Ids
from treadle.ports.vault import Vault


class DraftFactory:
    def __init__(self, vault: Vault, clock: Clock, ids: Ids) -> None:
        self._vault = vault
        self._clock = clock
        self._ids = ids

    def make(self, data: EventData) -> Draft:
        """Return a draft. Raise UsageError for a value of the wrong type."""
        redactor = self._vault.redactor
        try:
            made = make_draft(self._ids("evt"), self._clock.now(), redact_event(data, redactor))
            decode_data(made.type, made.raw)
        except (msgspec.ValidationError, TypeError, UnicodeError) as error:
            raise UsageError(f"The event cannot be stored: {error}.") from None
        return made
