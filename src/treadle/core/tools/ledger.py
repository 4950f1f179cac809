"""The ledger of a run's tool calls, with what the guards need to know. All of it follows from the journal."""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal
from zlib import crc32

import msgspec
from msgspec import Struct

from treadle.domain.events import ReusedCall
from treadle.domain.file_fingerprints import FileFingerprint
from treadle.domain.messages import ToolResult, ToolUse
from treadle.domain.tools import ToolSpec
from treadle.domain.volatile_text import mask_times

Phase = Literal["asked", "requested", "started", "delegated", "ended"]
"""`requested`: the client was asked to run it."""
WARN_AFTER_FAILURES = 3
"""Consecutive failures of one tool after which a run looks stuck."""
MAX_KEY_CHARACTERS = 200
"""Length above which arguments are identified by their digest."""
_WAITS = re.compile(r"\bsleep[ (]\d")
RECENT_CALLS = 12
"""Number of recent calls in which a cycle is searched: three rounds of period four."""


@dataclass(slots=True)
class Call:
    """One tool call and its progress."""

    use: ToolUse
    call_id: str
    name: str
    key: str
    occurrence: int
    """How often this exact call was made since the world last changed, including this one."""
    consecutive: int
    """Number of consecutive calls with the same normalised signature, including this one."""
    world: int
    """How often the world had changed when it was made."""
    is_new: bool
    """Nothing about it repeats anything. Most calls are like this, and no guard need check them."""
    in_cycle: bool
    """The calls up to this one repeat the same sequence three times."""
    polls: bool
    """It repeats by design."""
    phase: Phase = "asked"
    attempts: int = 0
    started: int = 0
    """Sequence of its latest `tool_call_start`."""
    arguments: str | None = None
    """The arguments it was started with, or None. Hooks and reviewers may have changed what the model wrote."""
    files: tuple[FileFingerprint, ...] = ()
    """The files that it changes, as they were when it was shown."""
    result: ToolResult | None = None
    secrets: tuple[str, ...] = ()
    """Secrets whose values its arguments contained."""


class Told(Struct, frozen=True, gc=False):
    """The result of a call that succeeded."""

    digest: bytes
    text: str = ""
    """A text that ends with the result. The transcript has it too."""
    length: int = 0
    """Number of characters of the result."""
    untimed: bytes | None = None
    """The digest of the result without times, if the text is not known."""

    def digest_untimed(self) -> bytes:
        """Return the digest of the result without times."""
        if self.untimed is not None:
            return self.untimed
        return digest_untimed_result(self.text[len(self.text) - self.length :])


@dataclass(slots=True)
class Ledger:
    """Which calls were made, how often, and with which results."""

    ids: set[str] = field(default_factory=set[str])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    outcomes: dict[str, tuple[bytes, int]] = field(default_factory=dict[str, tuple[bytes, int]])
    """Key -> digest of its latest result, and how many times in a row it was the same."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Tool -> consecutive failures, including refusals by a guard."""
    refusals: dict[str, int] = field(default_factory=dict[str, int])
    """Tool -> how many of these were refusals."""
    failed_in_a_row: int = 0
    """Calls that failed since the last success, of any tool."""
    recent: deque[str] = field(default_factory=lambda: deque[str](maxlen=RECENT_CALLS))
    signature: tuple[str, int] = ("", 0)
    cycle_blocks: int = 0
    world: int = 0
    """How often a successful write, or the new result of a repeated call, has shown that the world changed."""
    seen: set[bytes] = field(default_factory=set[bytes])
    """Digests of all results so far."""
    succeeded: set[bytes] = field(default_factory=set[bytes])
    """Digests of the keys of successful calls."""
    results: set[bytes] = field(default_factory=set[bytes])
    """These digests, each followed by that of a result, as it was told or without its times."""
    firsts: dict[bytes, Told] = field(default_factory=dict[bytes, Told], compare=False)
    """The latest of these digests whose calls were not repeated -> their result. Times are masked only when a call
    is repeated, since that is slow."""

    def add_call(self, use: ToolUse, spec: ToolSpec | None) -> Call:
        """Add a call that the model made."""
        name = use.name if spec is None else spec.name
        return self._add_call(use, name, make_call_key(use), is_poll(use, spec))

    def _add_call(self, use: ToolUse, name: str, key: str, polls: bool) -> Call:
        self.ids.add(use.call_id)
        self.counts[key] = occurrence = self.counts.get(key, 0) + 1
        signature = _normalise(key)
        last, in_a_row = self.signature
        self.signature = (signature, in_a_row + 1 if signature == last else 1)
        if polls:
            self.recent.clear()
        else:
            self.recent.append(key)
        in_cycle = _repeats_in_cycles(self.recent)
        in_a_row = self.signature[1]
        is_new = occurrence == 1 and in_a_row == 1 and not in_cycle
        return Call(
            use=use,
            call_id=use.call_id,
            name=name,
            key=key,
            occurrence=occurrence,
            consecutive=in_a_row,
            world=self.world,
            is_new=is_new,
            in_cycle=in_cycle,
            polls=polls,
        )

    def add_result(self, call: Call, result: ToolResult, content: str, spec: ToolSpec | None) -> bool:
        """Add the result of a call. Return whether it is progress: the result is new, or the call had an effect
        that no call had before. The result of a repeated call that differs only in times is not new."""
        call.phase, call.result = "ended", result
        told = digest_result(content)
        if result.is_error:
            return self._add_result(call, told, is_error=True)
        writes = spec is not None and spec.writes
        return self._add_success(call, Told(told, result.content, len(content)), writes)

    def _add_success(self, call: Call, told: Told, writes: bool) -> bool:
        """Add the success of a call. Return whether it is progress."""
        key = digest_result(call.key)
        repeats = key in self.succeeded
        moved_on = repeats and self._has_changed(key, told)
        if not repeats:
            self.firsts[key] = told
            if len(self.firsts) > RECENT_CALLS:
                del self.firsts[next(iter(self.firsts))]
        self.succeeded.add(key)
        self.results.add(key + told.digest)
        is_new = self._add_result(call, told.digest, is_error=False)
        if writes:
            self.failures.clear()
            self.refusals.clear()
        if writes or moved_on:
            self._forget_counts(call.key, moved_on)
        return moved_on if repeats else writes or is_new

    def _has_changed(self, key: bytes, told: Told) -> bool:
        """Return whether a repeated call has a result that it never had, apart from its times."""
        if key + told.digest in self.results:
            return False
        if (first := self.firsts.pop(key, None)) is not None:
            self.results.add(key + first.digest_untimed())
        untimed = key + told.digest_untimed()
        is_change = untimed not in self.results
        self.results.add(untimed)
        return is_change

    def _add_result(self, call: Call, content: bytes, is_error: bool) -> bool:
        latest, times = self.outcomes.get(call.key, (b"", 0))
        self.outcomes[call.key] = (content, times + 1 if content == latest else 1)
        if is_error:
            self.failures[call.name] = self.failures.get(call.name, 0) + 1
            self.failed_in_a_row += 1
        else:
            self.failed_in_a_row = 0
            self.failures.pop(call.name, None)
            self.refusals.pop(call.name, None)
        is_new = content not in self.seen
        self.seen.add(content)
        return is_new

    def add_refusal(self, call: Call, result: ToolResult, counts: bool) -> None:
        """Add the refusal of a call. A guard's refusal counts as a failure of its tool; a reviewer's does not."""
        call.phase, call.result = "ended", result
        self._add_refusal(call, counts)

    def _add_refusal(self, call: Call, counts: bool) -> None:
        if counts:
            self.failures[call.name] = self.failures.get(call.name, 0) + 1
            self.refusals[call.name] = self.refusals.get(call.name, 0) + 1
            self.failed_in_a_row += 1
        self.cycle_blocks += call.in_cycle

    def add_reused_calls(self, turn: Sequence[ReusedCall]) -> None:
        """Add the calls of one turn of another run, from which this one continues."""
        asked = [
            self._add_call(ToolUse(each.call_id, each.name, ""), each.name, each.key, each.polls) for each in turn
        ]
        for call, each in sorted(zip(asked, turn, strict=True), key=lambda pair: pair[1].after):
            if each.ended in ("refused", "denied"):
                self._add_refusal(call, counts=each.ended == "refused")
            elif each.ended == "ok":
                untimed = bytes.fromhex(each.untimed or each.told)
                self._add_success(call, Told(bytes.fromhex(each.told), untimed=untimed), each.writes)
            else:
                self._add_result(call, bytes.fromhex(each.told), is_error=True)

    def find_worst_failure(self) -> tuple[str | None, int]:
        """Return the tool with the most consecutive failures, and their number."""
        if not self.failures:
            return None, 0
        return max(self.failures.items(), key=lambda item: item[1], default=(None, 0))

    def count_occurrences(self, call: Call) -> int:
        """Return how often this exact call was made since the world last changed, including this time."""
        return call.occurrence if call.world == self.world else 1

    def count_same_results(self, key: str) -> int:
        """Return how many times in a row this exact call had the same result."""
        return self.outcomes.get(key, (0, 0))[1]

    def _forget_counts(self, by: str, moved_on: bool) -> None:
        """Reset the counts after a call that changed the world, or whose result shows that it has changed: other
        calls may have new results. The call's own count stays, unless its result was new: it polls, or moves on
        with each call."""
        self.world += 1
        self.counts = {by: 0 if moved_on else self.counts.get(by, 0)}
        self.outcomes = {by: self.outcomes[by]}
        if moved_on:
            self.recent.clear()


def digest_result(content: str) -> bytes:
    """Return a digest that is the same in every process.

    Tools do not mislead their own run on purpose, so a checksum is enough, at a fifth of the cost."""
    encoded = content.encode("utf-8", "surrogatepass")
    return crc32(encoded).to_bytes(4, "big") + (len(encoded) & 0xFFFFFFFF).to_bytes(4, "big")


def digest_untimed_result(content: str) -> bytes:
    """Return a digest that is the same for results that differ in times only."""
    return digest_result(mask_times(content))


def is_poll(use: ToolUse, spec: ToolSpec | None) -> bool:
    """Return whether a call repeats by design: its tool is declared as a poller, or it waits before it looks."""
    if spec is None:
        return False
    return spec.poller or (spec.effect == "external" and _WAITS.search(use.arguments) is not None)


def make_call_key(use: ToolUse) -> str:
    """Return a key that is equal for calls of the same tool with equivalent arguments."""
    try:
        arguments = msgspec.json.encode(msgspec.json.decode(use.arguments or "{}"), order="sorted").decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        arguments = use.arguments
    if len(arguments) > MAX_KEY_CHARACTERS:
        arguments = "#" + blake2b(arguments.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"{use.name} {arguments}"


def _normalise(key: str) -> str:
    return "".join(key.lower().split())


def _repeats_in_cycles(recent: deque[str]) -> bool:
    """Return whether the latest calls are the same two, three or four in the same order, three times."""
    for period in (2, 3, 4):
        if len(recent) >= 3 * period and recent[-1] == recent[-1 - period]:
            tail = list(recent)[-3 * period :]
            if tail == tail[:period] * 3 and len(set(tail)) > 1:
                return True
    return False
