"""What a rule about the errors of providers is, and what it is decided by."""

import re
from collections.abc import Callable, Container
from typing import NamedTuple

from treadle.domain.events import ModelErrorKind
from treadle.models.http.error_facts import ErrorFacts
from treadle.models.http.overflow import Blame, OverflowVerdict
from treadle.models.http.patterns import any_of
from treadle.models.http.quota_errors import is_exhausted, mentions_rate_limit


class Example(NamedTuple):
    """An answer that a rule is for, as it was seen. A status of None: inside a stream that began well."""

    status: int | None
    body: str


class ErrorReport(NamedTuple):
    """What an answer says."""

    status: int | None
    """The status, or the one that the body stands for."""
    facts: ErrorFacts
    verdict: OverflowVerdict
    words: str
    wait: float | None = None
    """The seconds that the provider asks to wait, where it says so."""


class ErrorRule(NamedTuple):
    """Fits an answer with one of `statuses` (none given: any) whose body matches `words` and for which `accepts` is
    true; says what to do next."""

    kind: ModelErrorKind
    next_step: str
    examples: tuple[Example, ...]
    statuses: Container[int | None] | None = None
    words: re.Pattern[str] | None = None
    accepts: Callable[[ErrorReport], bool] | None = None
    retry: bool = False
    once: bool = False
    """Retry it once and no more."""
    compact: bool = False
    repair: bool = False
    next_key: bool = False
    next_model: bool = False

    def fits(self, told: ErrorReport) -> bool:
        if self.statuses is not None and told.status not in self.statuses:
            return False
        if self.words is not None and self.words.search(told.words) is None:
            return False
        return self.accepts is None or self.accepts(told)


class Decision(NamedTuple):
    """The rule for an answer, and what it was decided by."""

    rule: ErrorRule
    told: ErrorReport

    @property
    def longest_reply(self) -> int | None:
        """A bound of the reply that the provider should accept, where that is the remedy."""
        return self.told.verdict.longest_reply if self.told.verdict.blame is Blame.REPLY else None

    @property
    def is_unclear(self) -> bool:
        """Whether a request was refused without a reason that can be acted on, so that it may be too long."""
        told, rule = self.told, self.rule
        if rule.kind != "invalid_request" or rule.retry or rule.repair or told.status not in (400, 413, 422):
            return False
        if told.verdict.blame is not Blame.NOTHING or told.facts.parameters:
            return False
        return _OTHER_REASONS.search(told.words) is None


_OTHER_REASONS = any_of(
    r"""
    unsupported  not supported  does(?: not|n.t) (?:support|exist)  required  missing
    must (?:be|have|contain|match|not)
    invalid (?:value|type|schema|json|role|signature|api|key|url|base64|format|image|tool|function|argument)
    \bexpected\b  unknown (?:param|field|model|name|arg|role|type)  unrecogni[sz]ed
    deprecated  not allowed  policy  safety  flagged  filter  sensitive
    moderation  image  \btools?\b  schema  not found  permission  temperature  parse  malformed
    敏感  不支持  参数  不存在
    """
)
"""Words of a reason that has nothing to do with length."""


# ── What a rule may ask of an answer ───────────────────────────────────────────────────────────────


def blames_conversation(told: ErrorReport) -> bool:
    return told.verdict.blame is Blame.CONVERSATION


def blames_reply(told: ErrorReport) -> bool:
    return told.verdict.blame is Blame.REPLY


def is_out_of_credit(told: ErrorReport) -> bool:
    return is_exhausted(told.status, told.facts, told.wait)


def is_rate_limited(told: ErrorReport) -> bool:
    return mentions_rate_limit(told.facts)


def is_unreadable_call(told: ErrorReport) -> bool:
    """Whether the model wrote a call, or JSON, that its own provider could not read."""
    return told.facts.has_code("tool_use_failed", "output_parse_failed", "json_validate_failed")
