"""Quotas. What a step needs is reserved together with its intent; this module says how much that is, and what a
refused run does: it waits if time or other runs will make room, and ends otherwise."""

from math import inf, isfinite
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from treadle.core.accounts import describe_account, list_child_run_accounts
from treadle.core.state import RunState
from treadle.core.steps import Finish
from treadle.domain.events import (
    BudgetExhausted,
    BudgetReserved,
    EventData,
    QuotaExceeded,
    QuotaWarning,
    RunWaiting,
)
from treadle.domain.ids import Instant
from treadle.domain.quotas import QuotaKind, Shortage
from treadle.domain.runs import Outcome, OutcomeKind
from treadle.domain.time_format import format_minute
from treadle.ports.accounts import Ceilings, Reserve

_OUTCOMES: Final[dict[QuotaKind, OutcomeKind]] = {
    "tokens": "quota_exceeded",
    "calls": "quota_exceeded",
    "credits": "insufficient_credits",
    "cost": "budget_exhausted",
    "steps": "max_steps",
    "runs": "quota_exceeded",
}
RETRY_SECONDS = 1.0
"""Interval at which a run checks whether calls of other runs have been settled."""


class Intent(Struct, frozen=True, gc=False):
    """Events that are about to be committed, and the reservation that goes with them."""

    events: tuple[EventData, ...]
    reserve: Reserve | None = None


def reserve_model_call(state: RunState, step: int, attempt: int, tokens: int, cost: float | None) -> Reserve | None:
    """Return the maximum that a model call may use.

    If an account limits money and no price is known, the cost is unlimited."""
    accounts = tuple([each for each in state.accounts if _counts_model_calls(each)])
    if not accounts:
        return None
    if cost is None:
        cost = inf if any((each.credits, each.cost) != (None, None) for each in accounts) else 0.0
    steps = 1 if attempt == 1 else 0
    return Reserve(
        accounts=accounts,
        step=step,
        attempt=attempt,
        tokens=tokens,
        cost=cost,
        credits=cost * state.credits_per_dollar,
        steps=steps,
    )


def _counts_model_calls(account: Ceilings) -> bool:
    return (account.tokens, account.credits, account.cost, account.steps) != (None, None, None, None)


def reserve_calls(state: RunState, tools: int, runs: int) -> Reserve | None:
    """Return the reservation for this many tool calls and child runs."""
    accounts = [each for each in state.accounts if each.calls is not None] if tools + runs else []
    tree_accounts = list_child_run_accounts(state.tree.ceilings) if runs else ()
    return (
        Reserve((*accounts, *tree_accounts), calls=tools + runs, runs=runs) if accounts or tree_accounts else None
    )


def make_reserved_intent(before: tuple[EventData, ...], request: EventData, reserve: Reserve | None) -> Intent:
    """Return the intent to call a model, with its reservation on record."""
    if reserve is None:
        return Intent((*before, request))
    if not isfinite(reserve.cost):  # it will be refused
        return Intent((*before, request), reserve)
    names = tuple([each.account for each in reserve.accounts])
    reserved = BudgetReserved(
        step=reserve.step,
        attempt=reserve.attempt,
        accounts=names,
        tokens=reserve.tokens,
        cost=reserve.cost,
        credits=reserve.credits,
    )
    return Intent((*before, reserved, request), reserve)


def max_concurrent_calls(state: RunState) -> int | None:
    """Return the maximum number of tool calls at once. More would never be accepted."""
    return min((each.calls for each in state.accounts if each.calls is not None), default=None)


def make_warning(short: Shortage) -> QuotaWarning:
    used = short.used + short.wanted_amount if short.kind == "calls" else short.used
    return QuotaWarning(short.account, short.kind, short.ceiling, used, short.resets_at)


def judge(state: RunState, short: Shortage, now: Instant) -> RunWaiting | Finish:
    """Return what a run does whose reservation was refused."""
    if short.kind == "calls":
        wait = RunWaiting("quota", describe_shortage(short), short.resets_at or now + RETRY_SECONDS)
        return _cap_wait(state, wait, short)
    if short.used + short.wanted_amount <= short.ceiling:
        detail = f"{describe_shortage(short)} Calls in progress have reserved the rest."
        return _cap_wait(state, RunWaiting("budget", detail, now + RETRY_SECONDS), short)
    return _finish(state, short)


def _cap_wait(state: RunState, wait: RunWaiting, short: Shortage) -> RunWaiting:
    wake_at = wait.wake_at
    if state.deadline is not None and wake_at is not None:
        wake_at = min(wake_at, state.deadline)
    return replace(wait, wake_at=wake_at, shortage=short)


def _finish(state: RunState, short: Shortage) -> Finish:
    unpriced, wanted = short.wanted is None, short.wanted or 0.0
    outcome = Outcome(
        _OUTCOMES[short.kind], state.turn.answer_so_far, describe_shortage(short), advise(short), shortage=short
    )
    if short.kind == "steps":
        return Finish(outcome)
    if short.kind == "cost":
        return Finish(outcome, (BudgetExhausted(short.account, short.ceiling, short.used, wanted, unpriced),))
    event = QuotaExceeded(
        account=short.account,
        kind=short.kind,
        ceiling=short.ceiling,
        used=short.used,
        wanted=wanted,
        resets_at=short.resets_at,
        unpriced=unpriced,
    )
    return Finish(outcome, (event,))


# ── Descriptions ──


def describe_shortage(short: Shortage) -> str:
    """Return what is lacking, from which account, and when there is room again."""
    who, wanted = describe_account(short.account), short.wanted_amount
    match short.kind:
        case "tokens":
            text = (
                f"{who} may use {short.ceiling:,.0f} model tokens in an hour; {short.used:,.0f} are used, and the "
                f"next call may take {wanted:,.0f}."
            )
        case "calls":
            text = (
                f"{who} may call tools {short.ceiling:,.0f} times in a minute; it has {short.used:,.0f} times, and "
                f"{wanted:,.0f} more are wanted."
            )
        case "credits" if short.wanted is None:
            text = f"{who} may spend {short.ceiling:g} credits, and no price is known of the model to be asked."
        case "credits":
            text = (
                f"{who} may spend {short.ceiling:g} credits; {short.used:.6g} are spent, and the next call may "
                f"take {wanted:.6g}."
            )
        case "cost" if short.wanted is None:
            text = f"{who} may cost {short.ceiling:g} dollars, and no price is known of the model to be asked."
        case "steps":
            text = f"{who} and those under it may take {short.ceiling:g} steps together, and all are used."
        case "runs":
            text = (
                f"{who} may have {short.ceiling:g} runs under it; {short.used:g} were begun, and {wanted:g} more "
                "are wanted."
            )
        case "cost":
            text = (
                f"{who} may cost {short.ceiling:g} dollars; it has cost {short.used:.6g}, and the next call may "
                f"cost {wanted:.6g}."
            )
    return text if short.resets_at is None else f"{text} There is room again on {format_minute(short.resets_at)}."


def advise(short: Shortage) -> str:
    """Return advice for the user."""
    if short.wanted is None:
        return "Give its prices under `models` in config.yaml, or ask another model."
    setting = {
        "tokens": "quotas.max_llm_tokens_per_hour",
        "calls": "quotas.max_tool_calls_per_minute",
        "credits": "quotas.credits",
        "cost": "limits.cost",
        "steps": "limits.max_steps",
        "runs": "limits.max_tree",
    }[short.kind]
    if short.kind in ("steps", "runs"):
        return f"Raise {setting}, and send its session a message to go on."
    then = "then" if short.resets_at is not None else "after that"
    lower = "lower model_settings.max_tokens"
    return f"Raise {setting} or {lower}, and send its session a message {then} to go on."
