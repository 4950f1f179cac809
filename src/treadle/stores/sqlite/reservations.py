"""Reservations and settlements on SQLite, made in the transaction of an append."""

from collections.abc import Iterator

from treadle.domain.envelope import Draft
from treadle.domain.events import CompactionFailed, ContextCompacted, LlmError, LlmResponse
from treadle.domain.ids import Instant
from treadle.domain.quotas import WARN_SHARE, Shortage, find_known_amount
from treadle.ports.accounts import HOUR_SECONDS, MINUTE_SECONDS, Ceilings, Reserve
from treadle.stores.reservations import (
    CALL_BUCKET_SECONDS,
    TOKEN_BUCKET_SECONDS,
    find_oldest_bucket,
    find_reset_time,
)
from treadle.stores.sqlite.connection import SQL, SqliteDatabase

PERMANENT_BUCKET = 0
"""The single bucket of usage that never expires."""


def reserve(
    db: SqliteDatabase, run: int, wanted: Reserve, now: Instant
) -> tuple[Shortage | None, tuple[Shortage, ...]]:
    """Reserve the request in every account or in none. Return the account that lacks the amount, or the accounts
    that are close to a ceiling and were not warned yet."""
    found = [short for ceilings in wanted.accounts for short in list_standings(db, ceilings, wanted, now)]
    lacking = [short for short in found if short.used + short.reserved + short.wanted_amount > short.ceiling]
    if lacking:
        for short in lacking:
            if short.used + short.wanted_amount > short.ceiling:
                return short, ()  # settling other calls will not free enough
        return lacking[0], ()
    for ceilings in wanted.accounts:
        account = ceilings.account
        if wanted.calls and ceilings.calls is not None:
            db.execute(SQL["use_window"], (account, "calls", int(now // CALL_BUCKET_SECONDS), wanted.calls))
            db.execute(
                SQL["forget_window"],
                (account, "calls", find_oldest_bucket(now, CALL_BUCKET_SECONDS, MINUTE_SECONDS)),
            )
        for kind, amount in (("steps", wanted.steps), ("runs", wanted.runs)):
            if amount and getattr(ceilings, kind) is not None:
                db.execute(SQL["use_window"], (account, kind, PERMANENT_BUCKET, amount))
        if wanted.tokens:
            tokens = 0 if ceilings.tokens is None else wanted.tokens
            values = (account, run, wanted.step, wanted.attempt, tokens, wanted.cost, wanted.credits)
            db.execute(SQL["insert_reservation"], values)
    return None, tuple([short for short in found if _should_warn(db, short, now)])


def settle(db: SqliteDatabase, run: int, draft: Draft, rate: float) -> None:
    """Replace the reservation of a model call that ended with its usage."""
    data = draft.data
    assert isinstance(data, LlmResponse | LlmError | ContextCompacted | CompactionFailed)
    cost = data.cost or 0.0
    _settle(db, run, draft.timestamp, data.usage.input_tokens + data.usage.output_tokens, (cost, cost * rate))


def settle_lost_call(db: SqliteDatabase, run: int, now: Instant) -> None:
    """Settle a model call whose end is unknown, assuming that it used all that was reserved."""
    _settle(db, run, now, None, (None, None))


def _settle(
    db: SqliteDatabase, run: int, now: Instant, tokens: int | None, money: tuple[float, float] | tuple[None, None]
) -> None:
    db.execute(SQL["settle_money"], (run, *money))
    if tokens != 0:
        db.execute(SQL["settle_tokens"], (run, int(now // TOKEN_BUCKET_SECONDS), tokens))
        db.execute(SQL["forget_tokens"], (run, find_oldest_bucket(now, TOKEN_BUCKET_SECONDS, HOUR_SECONDS)))
    db.execute(SQL["settled"], (run,))


def list_standings(db: SqliteDatabase, ceilings: Ceilings, wanted: Reserve, now: Instant) -> Iterator[Shortage]:
    """Yield the standing of an account for each ceiling that the request counts against."""
    account = ceilings.account
    if wanted.tokens:
        cost, credits, tokens, reserved_cost, reserved_credits = _read_account(db, account)
        if ceilings.tokens is not None:
            used = db.execute(
                SQL["window"], (account, "tokens", find_oldest_bucket(now, TOKEN_BUCKET_SECONDS, HOUR_SECONDS))
            ).fetchall()
            sums = ceilings.tokens, sum(amount for _, amount in used), tokens, wanted.tokens
            yield Shortage(account, "tokens", *sums, find_reset_time("tokens", used, sum(sums[1:]) - sums[0]))
        if ceilings.credits is not None:
            yield Shortage(
                account=account,
                kind="credits",
                ceiling=ceilings.credits,
                used=credits,
                reserved=reserved_credits,
                wanted=find_known_amount(wanted.credits),
            )
        if ceilings.cost is not None:
            yield Shortage(
                account=account,
                kind="cost",
                ceiling=ceilings.cost,
                used=cost,
                reserved=reserved_cost,
                wanted=find_known_amount(wanted.cost),
            )
    if wanted.calls and ceilings.calls is not None:
        used = db.execute(
            SQL["window"], (account, "calls", find_oldest_bucket(now, CALL_BUCKET_SECONDS, MINUTE_SECONDS))
        ).fetchall()
        sums = ceilings.calls, sum(amount for _, amount in used), 0, wanted.calls
        yield Shortage(account, "calls", *sums, find_reset_time("calls", used, sum(sums[1:]) - sums[0]))
    if wanted.steps and ceilings.steps is not None:
        yield Shortage(
            account=account,
            kind="steps",
            ceiling=ceilings.steps,
            used=_sum_bucket(db, account, "steps"),
            reserved=0,
            wanted=wanted.steps,
        )
    if wanted.runs and ceilings.runs is not None:
        yield Shortage(
            account=account,
            kind="runs",
            ceiling=ceilings.runs,
            used=_sum_bucket(db, account, "runs"),
            reserved=0,
            wanted=wanted.runs,
        )


def _sum_bucket(db: SqliteDatabase, account: str, kind: str) -> int:
    return sum(int(amount) for _, amount in db.execute(SQL["window"], (account, kind, PERMANENT_BUCKET)))


def _read_account(db: SqliteDatabase, account: str) -> tuple[float, float, int, float, float]:
    """Return the dollars and credits used, and the tokens, dollars and credits reserved."""
    [found] = db.execute(SQL["account"], (account,)).fetchall()
    cost, credits, tokens, reserved_cost, reserved_credits = found
    return cost, credits, tokens, reserved_cost, reserved_credits


def _should_warn(db: SqliteDatabase, short: Shortage, now: Instant) -> bool:
    """Return whether an account is close to a ceiling and was not warned in this window or about this ceiling.
    Records the warning."""
    if short.kind in ("steps", "runs"):
        return False  # the run reports these if its agent is configured to
    used = short.used + short.wanted_amount if short.kind == "calls" else short.used
    if used < short.ceiling * WARN_SHARE:
        return False
    warned = db.execute(SQL["warned"], (short.account, short.kind)).fetchone()
    window = {"tokens": HOUR_SECONDS, "calls": MINUTE_SECONDS}.get(short.kind)
    if warned is not None and warned[0] == short.ceiling and (window is None or now - warned[1] < window):
        return False
    db.execute(SQL["warn"], (short.account, short.kind, short.ceiling, now))
    return True
