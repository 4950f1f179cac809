"""Decides whether an error says that an account has nothing left to spend, or that calls are too frequent.

Waiting helps only in the second case. Both kinds mention quotas and limits, so both are distinguished here."""

import re

from treadle.models.http.error_facts import ErrorFacts
from treadle.models.http.patterns import any_of

_EMPTY_CODES = any_of(
    r"""
    insufficient_?(?:\w+_)?(?:quota|balance|credits?|funds)  billing_hard_limit\w*  enforced_spend_limit\w*
    exceeded_current_quota\w*  payment_required  billing_(?:not_active|insufficient_balance|balance_not_enough)
    arrearage  account_?overdue\w*  credits?_?(?:balance_)?(?:exhausted|exceeded|depleted)
    (?:\w+_)?spend(?:ing)?_?limit\w*  (?:\w+_)?usage_limit_exceeded  reject_no_credit  quote_exceeded
    (?:monthly|weekly)_?(?:limit|quota)\w*  allocationquota\.freetieronly  out_of_credits  no_?credits?
    quota_user_daily_(?:request|free)  set_?limit_?exceeded  balance_?(?:insufficient|not_?enough|depleted)
    (?:\w+_)?budget_?exceeded  exceeded_?budget  not_?enough_?(?:balance|credits?|funds)
    (?:\w+\.)?(?:resource_?pack|pkg|package)_?exhausted  blocked_api_access
    """
)
_EMPTY_NUMBERS = frozenset(
    (
        "1110", "1111", "1112", "1113", "1121", "1304", "1308", "1309", "1310", "1311", "base_resp:1008",
        "base_resp:2056",
    )
)  # fmt: skip
"""Numeric codes of Zhipu and MiniMax."""
_NO_MONEY = any_of(
    r"""
    \b(?:insufficient|not enough|negative|exhausted|depleted|out of) (?:\w+ ){0,3}(?:balance|credits?|funds|money)\b
    \b(?:balance|credits?|funds|money) (?:\w+ ){0,3}(?:too low|insufficient|exhausted|depleted|expired|not enough)\b
    \b(?:balance|credits?|funds|money) (?:\w+ ){0,3}(?:used up|been used|negative|empty)\b
    \bbalance (?:\w+ ){0,2}[$¥€] ?-?0(?:\.0+)?(?![\d.])
    \b(?:no|requires? more) (?:\w+ )?credits?\b
    (?:doesn.?t|does not|don.?t|do not) have (?:any|enough|sufficient) (?:\w+ )?(?:credits?|funds|balance)
    used (?:all|up)\b.{0,40}\b(?:credits?|allocation|allowance|quota|neurons)
    limited to \d[\d,]* .{0,30}(?:/|per|a|each) ?(?:month|year)\b
    (?:exceed(?:ed|s)?|over|crossed) (?:(?!thinking|reasoning|tokens?|context|time)\w+ ){0,2}budget\b
    (?<!thinking )(?<!reasoning )(?<!token )(?<!tokens )(?<!context )(?<!time )\bbudget (?:\w+ ){0,3}exceeded\b
    (?<!thinking )(?<!reasoning )(?<!token )(?<!tokens )\bbudget (?:\w+ ){0,3}(?:exhausted|depleted|reached)\b
    (?:reach\w*|exceed\w*|hit)\b[^.]{0,40}\bspend(?:ing)? (?:\w+ )?(?:limit|cap|quota)\b
    spend(?:ing)? (?:\w+ )?cap (?:(?:was|is|has been) )?(?:reached|exceeded|hit)
    (?:pack(?:age)?|allowance|allocation|subscription|trial)\b[^.]{0,30}\b(?:exhausted|used up|depleted|expired)
    reached the set \w+ limit  (?:model|service) (?:\w+ )?(?:has been|is|was) (?:paused|suspended)\b
    (?:credit|spend(?:ing)?|monthly|weekly|budget) (?:\w+ )?limit (?:(?:was|is|has been) )?(?:reached|exceeded)
    reached (?:its|your|the) (?:monthly|weekly) (?:spend\w*|usage|credit)? ?limit
    reached your specified api usage limits
    exceeded (?:(?:your|its|the) )?(?:monthly|included|current) (?:\w+ )?(?:credits|budget)
    exceeded (?:(?:your|its|the) )?(?:monthly|included) (?:\w+ )?quota
    payment (?:is )?(?:required|overdue|failed)
    account\b.{0,60}\b(?:suspended|overdue|in arrears|not active|good standing)
    key (?:credit )?limit exceeded  extra usage is required  premium request allowance
    欠费  余额(?:不足|已|为)  请充值  充值后  套餐已到期  资源包.{0,8}(?:用尽|用完|耗尽|不足)
    免费.{0,12}(?:用尽|用完|耗尽|消耗完)
    """
)
"""An account that must be paid, whatever wait is named."""
_NO_QUOTA = any_of(
    r"""
    insufficient (?:account )?quota  exceeded current quota  \b(?:have|has) no (?:\w+ ){0,2}quota\b
    quota (?:(?:is|are|has been|have been) )?(?:too low|insufficient|exhausted|depleted|not enough|used up|empty)
    exceeded (?:(?:your|its|the) )?current (?:\w+ )?quota
    free (?:allocated )?quota (?:has been )?(?:exceeded|exhausted)
    额度(?:已|不足|用)  使用上限  配额已用
    """
)
"""A quota, which may be a quota per minute: then a short wait is named."""
_QUOTA_EXCEEDED = any_of(
    r"""
    \bquota (?:(?:is|was|has been|have been) )?(?:exceeded|reached|hit)\b
    \bexceed(?:s|ed|ing)? (?:\w+ ){0,3}quota\b  \bover (?:\w+ ){0,2}quota\b
    """
)
"""A quota of unknown period: that of an account, unless the status, a code or a word says that it is a rate."""
_NO_QUOTA_CODES = any_of(r"quota_?exceeded  no_?quota  exceed_?(?:\w+_)?quota(?:_?limit)?")
_PLAN_LIMIT = any_of(
    r"""
    usage limit (?:(?:has been|was|is) )?(?:reached|exceeded|hit)
    (?:reached|hit|exceeded) (?:your|its|the) (?:\w+ ){0,3}usage limit
    """
)
"""The limit of a plan or a key. If a wait is named, however long, the message gives the time instead."""
_ACCOUNT_REFUSED = any_of(
    r"""
    \bpayment method\b  \bbilling\b  \bpast due\b  \bunpaid\b  \binvoices?\b  \btop[ _-]?up\b  \bquota\b
    \bcredit card\b  \bcard on file\b  \b(?:purchase|buy|add) (?:\w+ ){0,2}credits?\b
    \b(?:requires?|needs?|without) an? (?:\w+ ){0,3}(?:subscription|paid plan|paid account)\b
    \bsubscription (?:\w+ ){0,2}(?:inactive|required|cancell?ed|ended|lapsed)\b
    \btrial (?:\w+ ){0,2}(?:over|ended)\b
    \bupgrade (?:(?:your|the|to) (?:\w+ ){0,2}(?:plan|subscription|account|tier)|for access)\b
    额度  余额  套餐
    """
)
"""Words of a refusal that is about payment and not about the key."""
_MAX_RATE_WAIT_SECONDS = 3600.0
"""A quota that is restored within this time is a rate limit."""
_THROTTLE_CODES = any_of(
    r"""
    rate_?limit\w*  throttl[\w.]*  too_?many_?requests\w*  resource_exhausted  limit_requests  limit_burst_rate
    requestsper\w*  tokensper\w*  model_?rate_?limit\w*  tokens_usage_exceeded  tpm\w*  rpm\w*
    """
)
_THROTTLE_NUMBERS = frozenset(
    ("1302", "1303", "1305", "1312", "1313", "base_resp:1002", "base_resp:1039", "base_resp:1041")
)
_THROTTLE = any_of(
    r"""
    rate[ _-]?limit  too many requests  throttl  (?:requests?|tokens?) per (?:minute|second|hour|day)
    \b(?:tpm|rpm|tpd|rpd|qps)\b  concurren\w+ (?:request )?limit  slow down
    \b(?:requests?|api|calls?) (?:\w+ )?limit (?:(?:is|was|has been) )?(?:reached|exceeded|hit)\b
    频率过高  并发数过高  流量限制  限流  请求过于频繁  访问量过大
    """
)

_PER_MINUTE = any_of(r"\bper[ _-]?(?:minute|min|second|sec)\b  \b(?:tpm|rpm|qps|itpm|otpm)\b  每分钟  每秒")


def is_exhausted(status: int | None, facts: ErrorFacts, wait: float | None = None) -> bool:
    """Return whether the account has no credit or quota left, so that a retry is useless.

    A quota per minute, or one for which the provider asks for a short wait, is a rate limit."""
    if facts.has_code("resource_exhausted") and (
        facts.waits or not re.search(r"prepa|depleted|credit|\bspend", facts.words)
    ):
        return False  # Google uses this code for rates and for quotas, and names the wait for rates
    if status in (None, 400, 401, 403, 429) and not facts.codes.isdisjoint(_EMPTY_NUMBERS):
        return True
    if any(_EMPTY_CODES.fullmatch(_normalize_code(code)) for code in facts.codes):
        return True
    if _NO_MONEY.search(facts.words) is not None:
        return True
    if status in (401, 403) and _ACCOUNT_REFUSED.search(facts.words) is not None:
        return True
    if wait is None and _PLAN_LIMIT.search(facts.words) is not None:
        return not is_throttled(facts)
    is_rate = wait is not None and 0 < wait <= _MAX_RATE_WAIT_SECONDS
    if is_rate or _PER_MINUTE.search(facts.words):
        return False
    by_code = any(_NO_QUOTA_CODES.fullmatch(_normalize_code(code)) for code in facts.codes)
    if by_code or _NO_QUOTA.search(facts.words) is not None:
        return True
    if status in (429, 503) or is_throttled(facts) or mentions_rate_limit(facts):
        return False
    return _QUOTA_EXCEEDED.search(facts.words) is not None


def is_throttled(facts: ErrorFacts) -> bool:
    """Return whether the codes say that calls are too frequent."""
    if not facts.codes.isdisjoint(_THROTTLE_NUMBERS):
        return True
    return any(_THROTTLE_CODES.fullmatch(_normalize_code(code)) for code in facts.codes)


def mentions_rate_limit(facts: ErrorFacts) -> bool:
    """Return whether the message says that calls are too frequent."""
    return _THROTTLE.search(facts.words) is not None


def _normalize_code(code: str) -> str:
    return re.sub(r"(?:error|exception)$", "", re.sub(r"[^a-z0-9.]+", "_", code)).rstrip("_.") or code


_DAILY = any_of(
    r"""
    \b(?:per|a|each)[ _-]?day\b  per_?day(?![a-z])  \bdaily\b  \b[rt]pd\b  requestsperday  tokensperday
    free-models-per-day  每[天日]  今[日天]
    """
)
_SHORT_WAIT_SECONDS = 60.0


def is_daily(facts: ErrorFacts, wait: float | None) -> bool:
    """Return whether the quota of a day is used up, so that a retry within the minute fails again. A longer wait
    that the provider asks for is honoured."""
    said = "\n".join((facts.words, *facts.codes))
    return (wait is None or wait < _SHORT_WAIT_SECONDS) and _DAILY.search(said) is not None
