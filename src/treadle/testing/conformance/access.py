"""Checks for implementers of `ports.access`: tokens, sign-ins and idempotent requests."""

import asyncio
from typing import Final

import msgspec

from treadle.domain.ids import TokenId
from treadle.domain.quotas import Quotas
from treadle.ports.access import IdempotentRequest, SignIn, StoredResponse, TokenRecord
from treadle.testing.conformance.store_harness import (
    FullStoreCheck,
    FullStoreHarness,
    open_full_store,
    open_full_store_twice,
)

DIGEST = b"\x00digest\xff"


async def a_token_is_found_by_its_digest(harness: FullStoreHarness) -> None:
    """It is returned as it was added, valid or not. The oldest are listed first."""
    async with open_full_store_twice(harness) as (one, two):
        plain = TokenRecord(TokenId("tok_b"), "n\x00me", ("read",), None, 1.5)
        bound = TokenRecord(
            token_id=TokenId("tok_a"),
            name="two",
            scopes=("read", "run"),
            agents=("ada", "a'\"b"),
            created_at=2.5,
            expires_at=9.5,
            revoked_at=None,
            quotas=Quotas(credits=5.5),
        )
        await one.kept.tokens.add(plain, DIGEST)
        await one.kept.tokens.add(bound, b"other")
        assert await two.kept.tokens.find(DIGEST) == plain
        assert await two.kept.tokens.find(b"other") == bound
        assert await two.kept.tokens.find(b"nobody's") is None
        assert list(await two.kept.tokens.list()) == [plain, bound]


async def a_token_is_revoked_once(harness: FullStoreHarness) -> None:
    """It stays in the list with the time of revocation. Every process sees the change at once."""
    async with open_full_store_twice(harness) as (one, two):
        await one.kept.tokens.add(TokenRecord(TokenId("tok_1"), "one", (), None, 1.0), DIGEST)
        assert not await one.kept.tokens.revoke(TokenId("tok_2"), 5.0)
        assert await one.kept.tokens.revoke(TokenId("tok_1"), 5.0)
        assert not await two.kept.tokens.revoke(TokenId("tok_1"), 6.0)
        found = await two.kept.tokens.find(DIGEST)
        assert found is not None
        assert (found.revoked_at, found.is_valid(4.0)) == (5.0, False)


async def the_latest_use_of_a_token_is_stored(harness: FullStoreHarness) -> None:
    """Processes may record uses in any order."""
    async with open_full_store_twice(harness) as (one, two):
        await one.kept.tokens.add(TokenRecord(TokenId("tok_1"), "one", (), None, 1.0), DIGEST)
        await one.kept.tokens.touch(TokenId("tok_1"), 7.0)
        await two.kept.tokens.touch(TokenId("tok_1"), 5.0)
        found = await one.kept.tokens.find(DIGEST)
        assert found is not None
        assert found.last_used_at == 7.0


async def a_sign_in_comes_with_its_token(harness: FullStoreHarness) -> None:
    """It is found by the digest of its cookie, with the token as it is now, in every process."""
    async with open_full_store_twice(harness) as (one, two):
        token = TokenRecord(TokenId("tok_1"), "one", ("read",), None, 1.0)
        await one.kept.tokens.add(token, b"token")
        bound, owner = SignIn("sgn_1", token.token_id, 1.0, 2.0), SignIn("sgn_2", None, 1.0, 2.0)
        await one.kept.sign_ins.add(bound, DIGEST)
        await one.kept.sign_ins.add(owner, b"owner")
        assert await two.kept.sign_ins.find(DIGEST) == msgspec.structs.replace(bound, token=token)
        assert await two.kept.sign_ins.find(b"owner") == owner
        assert await two.kept.sign_ins.find(b"nobody's") is None
        await two.kept.tokens.revoke(token.token_id, 5.0)
        await two.kept.sign_ins.touch("sgn_1", 9.0)
        found = await one.kept.sign_ins.find(DIGEST)
        assert found is not None
        assert found.token is not None
        assert (found.used_at, found.token.revoked_at) == (9.0, 5.0)
        assert await one.kept.sign_ins.remove_all(None) == 1
        await one.kept.sign_ins.remove_old(10.0, 0.0)
        assert await two.kept.sign_ins.find(DIGEST) is None


async def a_code_is_taken_once(harness: FullStoreHarness) -> None:
    """A code that was taken or has expired is refused, in every process."""
    async with open_full_store_twice(harness) as (one, two):
        for code in (b"one", b"two"):
            await one.kept.sign_ins.add_code(code, 100.0)
        assert await two.kept.sign_ins.take_code(b"one", 50.0)
        assert not await one.kept.sign_ins.take_code(b"one", 50.0)
        assert not await one.kept.sign_ins.take_code(b"two", 100.0)
        assert not await one.kept.sign_ins.take_code(b"two", 50.0), "it is removed with the others"


async def a_repeated_request_returns_the_stored_response(harness: FullStoreHarness) -> None:
    """A request is identified by its token, route and key until it is forgotten."""
    async with open_full_store(harness) as desk:
        requests = desk.kept.requests
        asked = IdempotentRequest(None, "POST /v1/x", "k")
        others = [
            IdempotentRequest(TokenId("tok_1"), asked.route, "k"),
            IdempotentRequest(None, "POST /v1/y", "k"),
            IdempotentRequest(None, asked.route, ""),
        ]
        assert await requests.begin(asked, DIGEST, 10.0) == StoredResponse(DIGEST)
        assert await requests.begin(asked, b"another body", 11.0) == StoredResponse(DIGEST), "the first request"
        for other in others:
            assert await requests.begin(other, b"", 20.0) == StoredResponse(b"")
        await requests.answer(asked, StoredResponse(DIGEST, 202, b"\x00{}\xff"))
        assert await requests.begin(asked, DIGEST, 12.0) == StoredResponse(DIGEST, 202, b"\x00{}\xff")
        await requests.forget(10.0)
        assert (await requests.begin(asked, b"another body", 13.0)).status == 202
        await requests.forget(10.5)
        assert await requests.begin(asked, b"another body", 14.0) == StoredResponse(b"another body")
        assert await requests.begin(others[0], b"later", 21.0) == StoredResponse(b""), (
            "which was asked later, and is kept"
        )


async def only_one_of_concurrent_requests_is_first(harness: FullStoreHarness) -> None:
    """In whichever process: all others get the first request."""
    async with open_full_store_twice(harness) as (one, two):
        for number in range(5):
            asked = IdempotentRequest(None, "POST /v1/x", f"k{number}")
            told = await asyncio.gather(
                *(desk.kept.requests.begin(asked, bytes((n,)), 1.0) for n in range(3) for desk in (one, two))
            )
            assert len({answered.digest for answered in told}) == 1


CHECKS: Final[tuple[FullStoreCheck, ...]] = (
    a_token_is_found_by_its_digest,
    a_token_is_revoked_once,
    the_latest_use_of_a_token_is_stored,
    a_sign_in_comes_with_its_token,
    a_code_is_taken_once,
    a_repeated_request_returns_the_stored_response,
    only_one_of_concurrent_requests_is_first,
)
