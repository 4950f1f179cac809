"""The type of a rule about provider errors, and the predicates that rules use."""

import re
from collections.abc import Callable, Container
from typing import NamedTuple

from treadle.domain.events import ModelErrorKind
from treadle.models.http.error_facts import ErrorFacts
from treadle.models.http.filter_errors import is_filter_error
from treadle.models.http.overflow import Blame, OverflowVerdict
from treadle.models.http.patterns import any_of
from treadle.models.http.quota_errors import is_daily, is_exhausted, mentions_rate_limit
from treadle.models.http.structure_errors import has_wrong_structure, is_template_error


class Example(NamedTuple):
    """An observed response that a rule is for. A status of None: an error inside a stream that started
    normally."""

    status: int | None
    body: str


class ErrorReport(NamedTuple):
    """The facts that an error response reports."""

    status: int | None
    """The status of the response, or the one named in the body."""
    facts: ErrorFacts
    verdict: OverflowVerdict
    words: str
    wait: float | None = None
    """The seconds that the provider asks the client to wait, if it says so."""


class ErrorRule(NamedTuple):
    """Matches a response whose status is in `statuses` (None: any), whose body matches `words`, and for which
    `accepts` is true. Says what to do next."""

    kind: ModelErrorKind
    next_step: str
    examples: tuple[Example, ...]
    statuses: Container[int | None] | None = None
    words: re.Pattern[str] | None = None
    accepts: Callable[[ErrorReport], bool] | None = None
    retry: bool = False
    once: bool = False
    """Retry at most once."""
    compact: bool = False
    repair: bool = False
    next_key: bool = False
    next_model: bool = False
    filtered: bool = False

    def matches(self, report: ErrorReport) -> bool:
        if self.statuses is not None and report.status not in self.statuses:
            return False
        if self.words is not None and self.words.search(report.words) is None:
            return False
        return self.accepts is None or self.accepts(report)


class Decision(NamedTuple):
    """The rule that applies to a response, and the facts behind it."""

    rule: ErrorRule
    report: ErrorReport

    @property
    def longest_reply(self) -> int | None:
        """Return a limit of the reply that the provider should accept, if the reply was too long."""
        return self.report.verdict.longest_reply if self.report.verdict.blame is Blame.REPLY else None

    @property
    def is_unclear(self) -> bool:
        """Return whether a request was refused without a usable reason, so that it may be too long."""
        report, rule = self.report, self.rule
        if (
            rule.kind != "invalid_request"
            or rule.retry
            or rule.repair
            or rule.filtered
            or report.status not in (400, 413, 422)
        ):
            return False
        if report.verdict.blame is not Blame.NOTHING or report.facts.parameters:
            return False
        return _OTHER_REASONS.search(report.words) is None


_OTHER_REASONS = any_of(
    r"""
    unsupported  not supported  does(?: not|n.t) (?:support|exist)  required  missing
    must (?:be|have|contain|match|not)
    invalid (?:value|type|schema|json|role|signature|api|key|url|base64|format|image|tool|function|argument)
    \bexpected\b  unknown (?:param|field|model|name|arg|role|type)  unrecogni[sz]ed
    deprecated  not allowed  policy  safety  flagged  filter  sensitive
    moderation  image  \btools?\b  schema  not found  permission  temperature  parse  malformed
    \bnames?\b[^.]{0,30}too long  敏感  不支持  参数  不存在
    """
)
"""Words of a reason that has nothing to do with length."""


# ── Predicates of rules ────────────────────────────────────────────────────────────────────────────


def blames_conversation(report: ErrorReport) -> bool:
    return report.verdict.blame is Blame.CONVERSATION


def blames_reply(report: ErrorReport) -> bool:
    return report.verdict.blame is Blame.REPLY


def is_out_of_credit(report: ErrorReport) -> bool:
    return is_exhausted(report.status, report.facts, report.wait)


def is_filtered(report: ErrorReport) -> bool:
    return is_filter_error(report.status, report.facts)


def is_daily_quota(report: ErrorReport) -> bool:
    return is_daily(report.facts, report.wait)


def is_rate_limited(report: ErrorReport) -> bool:
    return mentions_rate_limit(report.facts)


def has_structure_error(report: ErrorReport) -> bool:
    return has_wrong_structure(report.facts, report.words)


def has_template_error(report: ErrorReport) -> bool:
    return is_template_error(report.facts)


def is_unreadable_call(report: ErrorReport) -> bool:
    """Return whether the model wrote a call, or JSON, that its own provider could not parse."""
    return report.facts.has_code("tool_use_failed", "output_parse_failed", "json_validate_failed")
