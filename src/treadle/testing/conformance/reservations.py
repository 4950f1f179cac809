"""Helpers of the account checks: a run with ceilings, its reservations, and the state of an account."""

from treadle.domain.agents import AgentSpec, Limits
from treadle.domain.events import LlmError, LlmRequest, LlmResponse, RunQueued, UserMessage
from treadle.domain.messages import Text, user
from treadle.domain.quotas import Quotas, Shortage
from treadle.domain.runs import Usage
from treadle.ports.accounts import Ceilings, Reserve
from treadle.ports.journal import Claim
from treadle.testing.conformance.store import StoreProcess

AGENT = AgentSpec("bound", "none", limits=Limits(cost=1.0), quotas=Quotas(1000, 5, 100.0))
"""An agent with ceilings. Each reservation names the ceilings that count."""
REQUEST = LlmRequest(1, 1, "p", "m", 1)
FAILED = LlmError(1, 1, "server", "broke off", True, usage=Usage(20, 10), cost=0.1)
A_LOT = 1e9


def make_reply(tokens: int, cost: float) -> LlmResponse:
    return LlmResponse(
        step=1, attempt=1, parts=(Text("hello"),), stop="end_turn", usage=Usage(tokens), duration_ms=0, cost=cost
    )


def make_reservation(cost: float, tokens: int = 100, ceiling: float = 1.0, account: str = "tree/one") -> Reserve:
    """Return a reservation of dollars in an account with this ceiling."""
    return Reserve(
        accounts=(Ceilings(account, cost=ceiling),), step=1, attempt=1, tokens=tokens, cost=cost, credits=cost * 10
    )


async def claim_new_run(process: StoreProcess) -> Claim:
    """Return a new run with ceilings, owned by this process."""
    opening = (process.draft(RunQueued(AGENT)), process.draft(UserMessage(user("hello"))))
    return await process.claim(await process.store.submit(process.origin(), opening))


async def try_to_reserve(process: StoreProcess, claim: Claim, reserve: Reserve, seen: int = 2) -> Shortage | None:
    """Append the intent to call a model. Return the shortage, if any."""
    advanced = await process.advance(claim, seen, [], [REQUEST], reserve=reserve)
    assert advanced.accepted is (advanced.refused is None)
    return advanced.refused


async def read_standing(process: StoreProcess, ceilings: Ceilings) -> Shortage:
    """Return the state of an account, as reported by a refusal."""
    claim = await claim_new_run(process)
    calls = 0 if ceilings.calls is None else 10**9
    wanted = Reserve(
        accounts=(ceilings,),
        step=1,
        attempt=1,
        tokens=0 if calls else 10**9,
        cost=A_LOT,
        credits=A_LOT,
        calls=calls,
    )
    short = await try_to_reserve(process, claim, wanted)
    assert short is not None
    return short


async def read_money(process: StoreProcess, account: str = "tree/one") -> tuple[float, float]:
    """Return the dollars that an account has used and reserved."""
    short = await read_standing(process, Ceilings(account, cost=1.0))
    return round(short.used, 9), round(short.reserved, 9)
