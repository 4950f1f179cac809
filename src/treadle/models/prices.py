"""Prices and context windows of public models, from genai-prices. Works offline.

The package is large: it is imported at the first lookup, and each model is looked up once."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from treadle.domain.models import LongPrices, Prices

_RATE_FIELDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}


class PublicFacts(NamedTuple):
    """The known facts about a model. None: unknown."""

    context_window: int | None = None
    prices: Prices | None = None


def find_public_facts(provider: str, url: str, model: str) -> PublicFacts:
    """Return the known facts about a model, looked up by provider name, then by URL."""
    from genai_prices.data_snapshot import get_snapshot

    snapshot: Any = get_snapshot()
    for provider_id, provider_url in ((provider, None), (None, url)):
        try:
            _, info = snapshot.find_provider_model(model, None, provider_id, provider_url)
        except LookupError:
            continue
        return PublicFacts(info.context_window, _build_prices(info.get_prices(datetime.now(UTC))))
    return PublicFacts()


def _build_prices(found: Any) -> Prices | None:
    rates = {ours: getattr(found, theirs, None) for ours, theirs in _RATE_FIELDS.items()}
    if rates["input"] is None or rates["output"] is None:
        return None
    base = {name: _rate_at(rate, 0) for name, rate in rates.items()}
    starts = sorted({tier.start for rate in rates.values() for tier in getattr(rate, "tiers", ())})
    long = tuple(
        LongPrices(start, **{name: _rate_at(rate, start) for name, rate in rates.items()}) for start in starts
    )
    return Prices(**base, long=long)


def _rate_at(rate: Any, tokens: int) -> Any:
    """Return dollars per million tokens for a request whose prompt is just longer than `tokens`."""
    if rate is None:
        return None
    price = getattr(rate, "base", rate)
    for tier in getattr(rate, "tiers", ()):
        if tokens >= tier.start:
            price = tier.price
    return float(price)
