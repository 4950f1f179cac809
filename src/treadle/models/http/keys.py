"""The API keys of one provider, used in turn: a refused key cools down while another is used."""

import math
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

DEFAULT_RATE_COOLDOWN_SECONDS = 60.0
"""How long a rate-limited key rests if the provider does not say how long."""


class ProviderKey(Struct, frozen=True):
    value: str
    setting: str
    """The setting that it comes from, for messages."""


class KeyRing:
    """Selects the first key that is not resting. If all are resting, the one that is available first."""

    def __init__(self, keys: Sequence[ProviderKey] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = list(keys)
        self._clock = clock
        self._cooldown_until = [-math.inf] * len(self._keys)

    def __iter__(self) -> Iterator[ProviderKey]:
        return iter(self._keys)

    def current(self) -> ProviderKey | None:
        if not self._keys:
            return None
        if len(self._keys) == 1:
            return self._keys[0]
        now = self._clock()
        for key, until in zip(self._keys, self._cooldown_until, strict=True):
            if until <= now:
                return key
        return self._keys[self._cooldown_until.index(min(self._cooldown_until))]

    def cool_down(self, key: ProviderKey, seconds: float) -> bool:
        """Do not use a key for some time. Return whether another key is available."""
        now = self._clock()
        place = self._keys.index(key)
        self._cooldown_until[place] = max(self._cooldown_until[place], now + seconds)
        return any(until <= now for until in self._cooldown_until)
