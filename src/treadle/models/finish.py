"""How a reply ended: one table of finish words for all wire formats.

Providers spell the same word in many ways (`tool_calls`, `TOOL_CALLS`, `tool-calls`, `FinishReason.TOOL_CALLS`).
Words are therefore compared by their letters and digits only, and unknown words by the substrings they contain."""

import re
from functools import lru_cache
from typing import Final, Literal

from treadle.domain.events import StopReason

ReplyEnd = Literal["ended", "tools", "unknown", "cut", "filtered", "malformed", "failed"]
"""`cut`: stopped at a limit, or paused by the provider, before the model was done. `filtered`: refused or withheld.
`malformed`: the provider could not parse a call of the model. `failed`: the provider aborted the reply."""

_SEVERITY: Final[dict[ReplyEnd, int]] = {
    "ended": 0,
    "tools": 1,
    "unknown": 2,
    "cut": 3,
    "filtered": 4,
    "malformed": 5,
    "failed": 6,
}
STOP_REASONS: Final[dict[ReplyEnd, StopReason]] = {
    "ended": "end_turn",
    "tools": "tool_use",
    "unknown": "other",
    "cut": "max_tokens",
    "filtered": "refusal",
}
"""The stop reason of a reply that can be used."""
ENDS_THAT_RUN_CALLS: Final = ("ended", "tools")
"""The ends after which the calls of a reply run. Some servers say `stop` even for replies with calls."""

_WORDS: Final[dict[ReplyEnd, str]] = {
    "ended": """stop stopped stop_sequence stop_token end end_turn end_of_turn end_of_text eos eos_token complete
        completed done finish finished success natural normal""",
    "tools": "tool_calls tool_call tool_use tools function_call function_calls tool_execution call calls",
    "cut": """length max_tokens max_token max_output_tokens max_completion_tokens max_new_tokens max_length
        model_length token_limit token_limit_reached context_length context_length_exceeded context_window_exceeded
        model_context_window_exceeded incomplete truncated unfinished limit pause_turn pause paused""",
    "filtered": """content_filter content_filtered content_filtering filter filtered refusal refused safety
        recitation blocklist blocked prohibited_content spii language image_safety image_prohibited_content
        image_recitation sensitive guardrail guardrail_intervened guardrails moderation flagged policy_violation
        model_armor error_toxic""",
    "malformed": """malformed_function_call malformed_tool_call malformed_tool_use malformed_model_output
        malformed_response unexpected_tool_call too_many_tool_calls missing_thought_signature invalid_tool_call
        function_call_filter""",
    "failed": """error abort aborted cancel cancelled canceled failed failure insufficient_system_resource
        network_error server_error internal_error timeout timed_out interrupted disconnected error_limit
        overloaded unavailable run_abort preempted deadline_exceeded""",
}
_FULL: Final = """model_context_window_exceeded context_window_exceeded context_length_exceeded context_length
    context_limit_reached max_context_length"""
"""Words for a reply that was cut because the context window is full. To continue it, the conversation must become
shorter."""
_PAUSE: Final = "pause"
"""In the words of a provider that paused a reply, such as `pause_turn` of Anthropic. The reply is sent back and the
model goes on."""
_SUBSTRINGS: Final[tuple[tuple[ReplyEnd, str], ...]] = (
    ("malformed", "malform invalid unexpected unpars"),
    (
        "failed",
        """error fail abort cancel timeout timedout resource unavailab overload disconnect interrupt exception crash
        kill evict preempt lost shutdown""",
    ),
    (
        "filtered",
        "filter safety block refus prohibit polic moderat guardrail sensitiv recit toxi violat unsafe harm risk",
    ),
    ("cut", "length token limit trunc context incomplete unfinish exceed budget max full"),
    ("tools", "tool function"),
    ("ended", "stop eos complete finish done success endturn endof"),
)
"""Substrings of unlisted words. The most cautious interpretation comes first."""


def _normalize_word(word: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", word.lower())


_TABLE: Final[dict[str, ReplyEnd]] = {
    _normalize_word(word): end for end, words in _WORDS.items() for word in words.split()
}


_PLAIN_REFUSALS: Final = ("refusal", "refused", "contentfilter")
_FULL_WORDS: Final = frozenset(map(_normalize_word, _FULL.split()))


def _squash(word: str) -> str:
    return _normalize_word(word.rpartition(".")[2] or word).removeprefix("finishreason")


@lru_cache(maxsize=64)
def classify_finish_word(word: str) -> ReplyEnd:
    """Return how a reply ended, given the provider's finish word."""
    squashed = _squash(word)
    found = _TABLE.get(squashed)
    if found is not None:
        return found
    if squashed.startswith(("eos", "stoptoken", "endtoken", "stopsequence")):
        return "ended"
    for end, substrings in _SUBSTRINGS:
        if any(substring in squashed for substring in substrings.split()):
            return end
    return "unknown"


class Ending:
    """How one reply ended, combined from all finish words received for it. When words contradict each other, the
    most cautious one counts: `length` followed by `stop` is a reply that was cut."""

    __slots__ = ("end", "word")

    def __init__(self) -> None:
        self.end: ReplyEnd | None = None
        self.word: str | None = None
        """The finish word that `end` comes from."""

    def add(self, word: str, end: ReplyEnd | None = None) -> None:
        """Add a finish word. `end` gives its meaning instead of the table."""
        end = end or classify_finish_word(word)
        if self.end is None or _SEVERITY[end] > _SEVERITY[self.end]:
            self.end, self.word = end, word

    def word_for(self, stop: StopReason) -> str | None:
        """Return the finish word if it says more than the stop reason does: an unknown end or a pause."""
        is_pause = self.end == "cut" and _PAUSE in (self.word or "").lower()
        return self.word if stop == "other" or is_pause else None

    @property
    def refusal(self) -> str:
        """The finish word of a refused or filtered reply if it says more than that, else ""."""
        is_plain = self.end != "filtered" or _squash(self.word or "") in _PLAIN_REFUSALS
        return "" if is_plain else self.word or ""

    @property
    def window_full(self) -> bool:
        """Whether the reply was cut because the context window is full."""
        return self.end == "cut" and _squash(self.word or "") in _FULL_WORDS

    @property
    def runs_calls(self) -> bool:
        """Return whether the calls of the reply may run."""
        return self.end in ENDS_THAT_RUN_CALLS
