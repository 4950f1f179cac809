"""The accounts of a run have ends. What it wants is reserved with the intent that wants it; here is how much that
is, and what becomes of the run where it is refused: it waits where time or others will make room, and else ends."""

from math import inf, isfinite

from msgspec import Struct

from treadle.core.accounts import child_run_accounts
from treadle.core.state import RunState
from treadle.core.steps import Finish, Wait
from treadle.domain.events import BudgetExhausted, BudgetReserved, EventData, QuotaExceeded, QuotaWarning
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome
from treadle.domain.time_format import minute
from treadle.ports.accounts import Ceilings, Reserve, Short

RETRY_SECONDS = 1.0
"""Seconds until a run looks again whether calls of others have been settled."""


class Intent(Struct, frozen=True, gc=False):
    """Events that are about to be committed, and what must be reserved with them."""

    events: tuple[EventData, ...]
    reserve: Reserve | None = None


def reserve_model_call(state: RunState, step: int, attempt: int, tokens: int, cost: float | None) -> Reserve | None:
    """The most that a model call may use. Where it costs money, which has an end, and nobody knows how much, it may
    cost any amount."""
    accounts = tuple([each for each in state.accounts if _counts_model_calls(each)])
    if not accounts:
        return None
    if cost is None:
        cost = inf if any((each.credits, each.cost) != (None, None) for each in accounts) else 0.0
    steps = 1 if attempt == 1 else 0
    return Reserve(accounts, step, attempt, tokens, cost, cost * state.credits_per_dollar, steps=steps)


def _counts_model_calls(account: Ceilings) -> bool:
    return (account.tokens, account.credits, account.cost, account.steps) != (None, None, None, None)


def reserve_calls(state: RunState, tools: int, runs: int) -> Reserve | None:
    """What so many calls of tools use, and so many runs that are begun under this one."""
    accounts = [each for each in state.accounts if each.calls is not None] if tools + runs else []
    grown = child_run_accounts(state.trees) if runs else ()
    return Reserve((*accounts, *grown), calls=tools + runs, runs=runs) if accounts or grown else None


def make_reserved_intent(before: tuple[EventData, ...], request: EventData, reserve: Reserve | None) -> Intent:
    """The intent to ask a model, with what is reserved for it on record."""
    if reserve is None:
        return Intent((*before, request))
    if not isfinite(reserve.cost):  # it will be refused
        return Intent((*before, request), reserve)
    names = tuple([each.account for each in reserve.accounts])
    reserved = BudgetReserved(reserve.step, reserve.attempt, names, reserve.tokens, reserve.cost, reserve.credits)
    return Intent((*before, reserved, request), reserve)


def max_concurrent_calls(state: RunState) -> int | None:
    """How many calls of tools can be run at once: more would never be let through."""
    return min((each.calls for each in state.accounts if each.calls is not None), default=None)


def make_warning(short: Short) -> QuotaWarning:
    used = short.used + short.wanted if short.kind == "calls" else short.used
    return QuotaWarning(short.account, short.kind, short.ceiling, used, short.resets_at)


def judge(state: RunState, short: Short, now: Instant) -> Wait | Finish:
    """What becomes of a run that was refused what it wanted."""
    if short.kind == "calls":
        return _cap_wait(state, Wait("quota", describe_shortage(short), short.resets_at or now + RETRY_SECONDS))
    if short.used + short.wanted <= short.ceiling:
        detail = f"{describe_shortage(short)} Calls under way have set the rest aside."
        return _cap_wait(state, Wait("budget", detail, now + RETRY_SECONDS))
    return _finish(state, short)


def _cap_wait(state: RunState, wait: Wait) -> Wait:
    if state.deadline is None or wait.wake_at is None:
        return wait
    return Wait(wait.reason, wait.detail, min(wait.wake_at, state.deadline))


def _finish(state: RunState, short: Short) -> Finish:
    wanted = short.wanted if isfinite(short.wanted) else 0.0
    account, said, reason, go_on = short.account, state.answer_so_far, describe_shortage(short), advise(short)
    if short.kind == "steps":
        return Finish(Outcome("max_steps", said, reason, go_on))
    if short.kind == "cost":
        outcome = Outcome("budget_exhausted", said, reason, go_on)
        return Finish(outcome, (BudgetExhausted(account, short.ceiling, short.used, wanted),))
    event = QuotaExceeded(account, short.kind, short.ceiling, short.used, wanted, short.resets_at)
    kind = "insufficient_credits" if short.kind == "credits" else "quota_exceeded"
    return Finish(Outcome(kind, said, reason, go_on), (event,))


# ── In words ───────────────────────────────────────────────────────────────────────────────────────


def describe_account(account: str) -> str:
    kind, _, name = account.partition("/")
    return {"agent": f"Agent `{name}`", "token": f"The access token {name}"}.get(kind, "The run")


def describe_shortage(short: Short) -> str:
    """What is lacking, of what, and when it is there again."""
    who, wanted = describe_account(short.account), short.wanted
    match short.kind:
        case "tokens":
            said = (
                f"{who} may use {short.ceiling:,.0f} model tokens in an hour; {short.used:,.0f} are used, and the "
                f"next call may take {wanted:,.0f}."
            )
        case "calls":
            said = (
                f"{who} may call tools {short.ceiling:,.0f} times in a minute; it has {short.used:,.0f} times, and "
                f"{wanted:,.0f} more are wanted."
            )
        case "credits" if not isfinite(wanted):
            said = f"{who} may spend {short.ceiling:g} credits, and no price is known of the model to be asked."
        case "credits":
            said = (
                f"{who} may spend {short.ceiling:g} credits; {short.used:.6g} are spent, and the next call may "
                f"take {wanted:.6g}."
            )
        case "cost" if not isfinite(wanted):
            said = f"{who} may cost {short.ceiling:g} dollars, and no price is known of the model to be asked."
        case "steps":
            said = f"{who} and those under it may take {short.ceiling:g} steps together, and all are used."
        case "runs":
            said = (
                f"{who} may have {short.ceiling:g} runs under it; {short.used:g} were begun, and {wanted:g} more "
                "are wanted."
            )
        case "cost":
            said = (
                f"{who} may cost {short.ceiling:g} dollars; it has cost {short.used:.6g}, and the next call may "
                f"cost {wanted:.6g}."
            )
    return said if short.resets_at is None else f"{said} There is room again on {minute(short.resets_at)}."


def advise(short: Short) -> str:
    """What to do about it."""
    if not isfinite(short.wanted):
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
