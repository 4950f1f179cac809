"""The model catalog: aliases, context windows and prices, and how config.yaml changes them."""

from pathlib import Path

import pytest

from treadle.config.home import Home
from treadle.domain.errors import ConfigError, MissingKey
from treadle.domain.models import UNKNOWN_WINDOW, LongPrices, ModelFacts, Prices, Profile
from treadle.domain.providers import ProviderConfig
from treadle.domain.runs import Usage
from treadle.models.breaker import MIN_CALLS
from treadle.models.catalog import ALIASES, Catalog
from treadle.models.registry import ModelRegistry

KEYS = {"ANTHROPIC_API_KEY": "sk-ant", "OPENAI_API_KEY": "sk-oai", "OPENROUTER_API_KEY": "sk-or"}


# ── Prices ─────────────────────────────────────────────────────────────────────────────────────────


def test_cache_reads_and_writes_have_their_own_price() -> None:
    prices = Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
    usage = Usage(
        input_tokens=1_000_000, output_tokens=100_000, cache_read_tokens=600_000, cache_write_tokens=100_000
    )
    assert prices.cost(usage) == pytest.approx(0.3 * 3.0 + 0.6 * 0.3 + 0.1 * 3.75 + 0.1 * 15.0)


def test_a_missing_cache_price_is_the_input_price() -> None:
    usage = Usage(input_tokens=1_000_000, cache_read_tokens=500_000, cache_write_tokens=500_000)
    assert Prices(input=2.0, output=0.0).cost(usage) == pytest.approx(2.0)


def test_a_long_prompt_has_the_higher_price_for_all_its_tokens() -> None:
    prices = Prices(input=1.0, output=2.0, long=(LongPrices(200_000, 2.0, 4.0),))
    assert prices.cost(Usage(200_000, 0)) == pytest.approx(0.2)
    assert prices.cost(Usage(200_001, 1_000_000)) == pytest.approx(0.400002 + 4.0)


def test_an_unknown_model_has_no_cost_and_a_local_model_costs_nothing() -> None:
    assert Profile().cost(Usage(10, 10)) is None
    assert Profile(local=True).cost(Usage(10, 10)) == 0.0


def test_known_models_have_a_price_and_a_window() -> None:
    registry = ModelRegistry(KEYS)
    for alias in ("opus", "sonnet", "haiku", "gpt", "gpt-mini"):
        profile = registry.resolve(alias, None).profile
        assert profile.prices is not None, alias
        assert 0 < profile.prices.input < profile.prices.output, alias
        assert profile.prices.cache_read is not None, alias
        assert profile.context_window >= 100_000, alias


def test_prices_match_genai_prices() -> None:
    """The whole calculation of genai-prices gives the same sum."""
    from genai_prices import Usage as TheirUsage
    from genai_prices import calc_price

    registry, usage = ModelRegistry(KEYS), Usage(300_000, 2_000, 250_000, 10_000)
    for alias in ("opus", "sonnet", "haiku", "gpt"):
        found = registry.resolve(alias, None)
        theirs = calc_price(
            TheirUsage(
                input_tokens=300_000, output_tokens=2_000, cache_read_tokens=250_000, cache_write_tokens=10_000
            ),
            model_ref=found.model,
            provider_id=found.provider,
        )
        ours = found.profile.cost(usage)
        assert ours == pytest.approx(float(theirs.total_price)), alias


def test_an_unknown_model_has_the_default_window_and_no_price() -> None:
    registry = ModelRegistry({})
    registry.add("mine", ProviderConfig("http://127.0.0.1:1/v1"))
    profile = registry.resolve("mine/no-such-model-9", None).profile
    assert (profile.context_window, profile.prices) == (UNKNOWN_WINDOW, None)


# ── Aliases ────────────────────────────────────────────────────────────────────────────────────────


def test_an_alias_resolves_to_the_first_model_with_a_key() -> None:
    found = ModelRegistry({"OPENROUTER_API_KEY": "sk-or"}).resolve("sonnet", None)
    assert (found.provider, found.api_mode) == ("openrouter", "chat_completions")
    assert "`sonnet` stands for it" in found.reason
    found = ModelRegistry(KEYS).resolve("sonnet", None)
    assert (found.provider, found.api_mode) == ("anthropic", "anthropic_messages")


def test_the_provider_of_the_agent_selects_the_model_of_an_alias() -> None:
    assert ModelRegistry(KEYS).resolve("sonnet", "openrouter").provider == "openrouter"


def test_an_alias_is_a_plain_id_for_a_provider_that_it_does_not_list() -> None:
    found = ModelRegistry(KEYS).resolve("sonnet", "ollama")
    assert (found.provider, found.model) == ("ollama", "sonnet")


def test_a_default_provider_is_preferred_among_the_models_of_an_alias() -> None:
    found = ModelRegistry(KEYS, "ollama").resolve("gpt", None)
    assert (found.provider, found.model) == ("openai", "gpt-6-sol")
    found = ModelRegistry(KEYS, "openrouter").resolve("gpt", None)
    assert (found.provider, found.model) == ("openrouter", "openai/gpt-6-sol")
    found = ModelRegistry(KEYS, "ollama", Catalog({"gpt": ("openai/own",)})).resolve("gpt", None)
    assert (found.provider, found.model) == ("openai", "own")


def test_without_any_key_the_first_model_reports_its_missing_key() -> None:
    with pytest.raises(MissingKey, match="ANTHROPIC_API_KEY"):
        ModelRegistry({}).resolve("sonnet", None)


def test_a_model_with_an_open_breaker_is_skipped() -> None:
    clock = [0.0]
    registry = ModelRegistry(KEYS, clock=lambda: clock[0])
    registry.catalog.aliases["it"] = ("openai/left-alone-1", "openrouter/x")
    breaker = registry.resolve("openai/left-alone-1", None).breaker
    for _ in range(MIN_CALLS):
        breaker.record(failed=True, now=0.0)
    found = registry.resolve("it", None)
    assert (found.provider, found.model) == ("openrouter", "x")
    assert "openai/left-alone-1 is left alone" in found.reason
    clock[0] = 31.0
    assert registry.resolve("it", None).provider == "openai", "its probe is due"


def test_the_first_model_is_used_when_all_breakers_are_open() -> None:
    registry = ModelRegistry(KEYS, clock=lambda: 0.0)
    registry.catalog.aliases["both"] = ("openai/down-1", "openai/down-2")
    for name in ("openai/down-1", "openai/down-2"):
        for _ in range(MIN_CALLS):
            registry.resolve(name, None).breaker.record(failed=True, now=0.0)
    assert registry.resolve("both", None).model == "down-1"


# ── config.yaml ────────────────────────────────────────────────────────────────────────────────────


def home(tmp_path: Path, text: str) -> Home:
    (tmp_path / "config.yaml").write_text(text)
    return Home(tmp_path)


def test_config_overrides_the_facts_about_a_model(tmp_path: Path) -> None:
    config = home(
        tmp_path,
        "aliases: {fast: [mine/m]}\n"
        "models:\n  mine/m: {context_window: 32000, prices: {input: 1, output: 2}, tools: schema}\n"
        "providers: {mine: {base_url: 'http://127.0.0.1:1/v1'}}\n",
    ).config()
    catalog = Catalog(config.aliases, config.models)
    registry = ModelRegistry({}, catalog=catalog)
    registry.add("mine", config.providers["mine"])
    profile = registry.resolve("fast", None).profile
    assert (profile.context_window, profile.tools) == (32000, "schema")
    assert profile.cost(Usage(1_000_000, 1_000_000)) == pytest.approx(3.0)
    assert set(catalog.aliases) == {*ALIASES, "fast"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: {m/x: {context_window: 0}}", "context_window must be above 0"),
        ("models: {m/x: {prices: {input: 1}}}", "prices.output is missing"),
        ("models: {m/x: {prices: {input: -1, output: 1}}}", "input must be 0 or more"),
        ("models: {m/x: {colour: red}}", "colour"),
        ("models: {m/x: {tools: magic}}", "tools"),
        ("aliases: {fast: mine/m}", "aliases.fast"),
    ],
)
def test_an_invalid_entry_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        home(tmp_path, text).config()
    assert words in str(caught.value)
    assert "config.yaml" in str(caught.value)


def test_facts_are_looked_up_once() -> None:
    catalog = Catalog(models={"a/b": ModelFacts(max_output=5)})
    assert catalog.profile("a", "b", None) is catalog.profile("a", "b", None)
    assert catalog.profile("a", "b", None).max_output == 5


# ── Modes ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("url", "explicit", "mode"),
    [
        ("https://api.anthropic.com/v1", None, "anthropic_messages"),
        ("https://api.deepseek.com/anthropic", None, "anthropic_messages"),
        ("https://api.openai.com/v1", None, "responses"),
        ("https://api.openai.com/v1", "chat_completions", "chat_completions"),
        ("http://127.0.0.1:8000/v1", None, "chat_completions"),
        ("http://127.0.0.1:8000/v1", "anthropic_messages", "anthropic_messages"),
        ("https://notanthropic.example/v1", None, "chat_completions"),
    ],
)
def test_the_wire_format_is_configured_or_derived_from_the_address(
    url: str, explicit: str | None, mode: str
) -> None:
    assert ProviderConfig(url, explicit).mode == mode  # pyright: ignore[reportArgumentType] -- one of the modes
