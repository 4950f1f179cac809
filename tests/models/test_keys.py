"""Several keys of one provider: used in turn, and one that was refused rests."""

import pytest

from tests.fake_endpoint import Answer, FakeEndpoint, refuses, says
from tests.models.chat import HELLO
from treadle.domain.errors import MissingKey
from treadle.domain.providers import ProviderConfig
from treadle.models.http.keys import DEFAULT_RATE_COOLDOWN_SECONDS, KeyRing, ProviderKey
from treadle.models.registry import ModelRegistry
from treadle.ports.model import Completed, Failed, Resolved

ONE, TWO, THREE = (ProviderKey(f"sk-{name}-1234", f"api_keys[{name}]") for name in ("one", "two", "three"))
LIMITED = refuses(429, {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}})
WRONG = refuses(401, {"error": {"message": "Incorrect API key provided"}})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_key_ring_without_keys_returns_none() -> None:
    assert KeyRing().current() is None


def test_the_first_available_key_is_used() -> None:
    clock = Clock()
    keys = KeyRing([ONE, TWO, THREE], clock)
    assert keys.current() is ONE
    assert keys.cool_down(ONE, 10.0)
    assert keys.current() is TWO
    assert keys.cool_down(TWO, 20.0)
    assert keys.current() is THREE
    clock.now = 10.0
    assert keys.current() is ONE


def test_the_key_that_is_available_first_is_used_when_all_rest() -> None:
    keys = KeyRing([ONE, TWO], Clock())
    assert keys.cool_down(ONE, 20.0)
    assert not keys.cool_down(TWO, 10.0)
    assert keys.current() is TWO


def test_a_longer_rest_is_not_cut_short() -> None:
    clock = Clock()
    keys = KeyRing([ONE, TWO], clock)
    keys.cool_down(ONE, 100.0)
    keys.cool_down(ONE, 1.0)
    clock.now = 50.0
    assert keys.current() is TWO


# ── Over the wire ──────────────────────────────────────────────────────────────────────────────────


async def ask(model: Resolved, times: int) -> list[Completed | Failed]:
    return [await model.client.reply(HELLO, lambda _: None) for _ in range(times)]


async def exchange(
    *script: Answer, keys: tuple[str, ...] = ("sk-one-1234", "sk-two-1234")
) -> tuple[list[str], list[Completed | Failed]]:
    """The keys that were sent and the ends that came of them, for a provider that follows the script."""

    async with FakeEndpoint(*script) as server:
        registry = ModelRegistry({})
        registry.add("mine", ProviderConfig(server.url, api_keys=keys))
        try:
            ends = await ask(registry.resolve("mine/m", None), len(script))
        finally:
            await registry.close()
        return [request.headers["authorization"].removeprefix("Bearer ") for request in server.requests], ends


@pytest.mark.parametrize("refusal", [LIMITED, WRONG], ids=["rate", "auth"])
async def test_the_next_key_is_used_when_one_is_refused(refusal: Answer) -> None:
    sent, ends = await exchange(refusal, says("hi"), says("and again"))
    assert sent == ["sk-one-1234", "sk-two-1234", "sk-two-1234"]
    first = ends[0]
    assert isinstance(first, Failed)
    assert (first.next_key, first.retryable, first.retry_after) == (True, True, 0.0)
    assert "sk-one" not in first.message


async def test_a_rate_limit_of_the_only_key_is_waited_for() -> None:
    _, ends = await exchange(LIMITED, keys=("sk-one-1234",))
    assert isinstance(ends[0], Failed)
    assert (ends[0].next_key, ends[0].retryable, ends[0].retry_after) == (False, True, None)


async def test_the_last_key_is_named_when_all_are_refused() -> None:
    sent, ends = await exchange(WRONG, WRONG)
    assert sent == ["sk-one-1234", "sk-two-1234"]
    last = ends[-1]
    assert isinstance(last, Failed)
    assert (last.next_key, last.retryable) == (False, False)
    assert "api_keys[1] of provider mine" in last.message


async def test_a_key_that_reached_its_rate_rests_as_long_as_the_provider_says() -> None:
    clock = Clock()

    async def run() -> list[str]:
        limited = refuses(429, b"{}", retry_after="7")
        async with FakeEndpoint(limited, says("two"), says("one again")) as server:
            registry = ModelRegistry({}, clock=clock)
            registry.add("mine", ProviderConfig(server.url, api_keys=("sk-one-1234", "sk-two-1234")))
            model = registry.resolve("mine/m", None)
            await ask(model, 2)
            clock.now = 7.0
            await ask(model, 1)
            await registry.close()
            return [request.headers["authorization"] for request in server.requests]

    assert await run() == [f"Bearer {key}" for key in ("sk-one-1234", "sk-two-1234", "sk-one-1234")]
    assert DEFAULT_RATE_COOLDOWN_SECONDS > 7


@pytest.mark.parametrize("key", ["", "  ", "sk-\n1", "schlüssel"])
def test_an_invalid_key_is_named(key: str) -> None:
    registry = ModelRegistry({})
    registry.add("mine", ProviderConfig("https://host/v1", api_keys=("sk-fine", key)))
    with pytest.raises(MissingKey, match=r"api_keys\[1\] of provider mine"):
        registry.resolve("mine/m", None)
