"""Every call the run has made, and what the guards must know of them. All of it follows from the journal."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal
from zlib import crc32

import msgspec

from treadle.domain.events import ReusedCall
from treadle.domain.messages import ToolResult, ToolUse
from treadle.domain.tools import ToolSpec

Phase = Literal["asked", "started", "delegated", "ended"]
WARN_AFTER_FAILURES = 3
"""How many failures of one tool in a row make a run look stuck."""
MAX_KEY_CHARACTERS = 200
"""Characters beyond which arguments are known by their digest."""
RECENT_CALLS = 12
"""How many calls back a cycle is looked for: three rounds of period four."""


@dataclass(slots=True)
class Call:
    """One call and how far it has come."""

    use: ToolUse
    call_id: str
    name: str
    key: str
    occurrence: int
    """How often this very call was asked for since the world last changed, this one included."""
    consecutive: int
    """How many calls in a row had the same normalised signature, this one included."""
    world: int
    """How often the world had changed when it was asked for."""
    is_new: bool
    """Nothing about it repeats anything: most calls are so, and no guard need look at them."""
    in_cycle: bool
    """The calls up to this one are the same few, in the same order, three times over."""
    phase: Phase = "asked"
    attempts: int = 0
    started: int = 0
    """The sequence of its latest `tool_call_start`."""
    arguments: str | None = None
    """What it was started with, where it was: hooks and people may have changed what the model wrote."""
    result: ToolResult | None = None
    secrets: tuple[str, ...] = ()
    """Those whose values its arguments held."""


@dataclass(slots=True)
class Ledger:
    """What was called, how often, and what came of it."""

    ids: set[str] = field(default_factory=set[str])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    outcomes: dict[str, tuple[bytes, int]] = field(default_factory=dict[str, tuple[bytes, int]])
    """Key -> digest of its latest result, and how many times in a row that came back."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Tool -> failures in a row."""
    failed_in_a_row: int = 0
    """Calls that failed since one succeeded, whatever their tools and arguments."""
    recent: deque[str] = field(default_factory=lambda: deque[str](maxlen=RECENT_CALLS))
    signature: tuple[str, int] = ("", 0)
    cycle_blocks: int = 0
    world: int = 0
    """How often a successful write has changed the world."""
    seen: set[bytes] = field(default_factory=set[bytes])
    """Digests of all results so far."""

    def ask(self, use: ToolUse, spec: ToolSpec | None) -> Call:
        """Enter a call that the model asked for."""
        name = use.name if spec is None else spec.name
        return self._asked(use, name, make_call_key(use), spec is not None and spec.poller)

    def _asked(self, use: ToolUse, name: str, key: str, polls: bool) -> Call:
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
        return Call(use, use.call_id, name, key, occurrence, in_a_row, self.world, is_new, in_cycle)

    def end(self, call: Call, result: ToolResult, told: str, spec: ToolSpec | None) -> bool:
        """Enter what came of a call, and what it told; say whether that was anything new."""
        call.phase, call.result = "ended", result
        return self._ended(call, digest_result(told), result.is_error, spec is not None and spec.writes)

    def _ended(self, call: Call, told: bytes, is_error: bool, writes: bool) -> bool:
        latest, times = self.outcomes.get(call.key, (b"", 0))
        self.outcomes[call.key] = (told, times + 1 if told == latest else 1)
        if is_error:
            self.failures[call.name] = self.failures.get(call.name, 0) + 1
            self.failed_in_a_row += 1
        else:
            self.failed_in_a_row = 0
            self.failures.pop(call.name, None)
            if writes:
                self._world_changed(call.key)
        news = told not in self.seen
        self.seen.add(told)
        return news

    def refuse(self, call: Call, result: ToolResult, counts: bool) -> None:
        """Enter that a call was refused. By a guard it counts as a failure of its tool; by a person it does not."""
        call.phase, call.result = "ended", result
        self._refused(call, counts)

    def _refused(self, call: Call, counts: bool) -> None:
        if counts:
            self.failures[call.name] = self.failures.get(call.name, 0) + 1
            self.failed_in_a_row += 1
        self.cycle_blocks += call.in_cycle

    def reuse(self, turn: Sequence[ReusedCall]) -> None:
        """Enter the calls of one turn of another run, which this one goes on from."""
        asked = [
            self._asked(ToolUse(each.call_id, each.name, ""), each.name, each.key, each.polls) for each in turn
        ]
        for call, each in sorted(zip(asked, turn, strict=True), key=lambda pair: pair[1].after):
            if each.ended in ("refused", "denied"):
                self._refused(call, counts=each.ended == "refused")
            else:
                self._ended(call, bytes.fromhex(each.told), each.ended == "failed", each.writes)

    def worst_failure(self) -> tuple[str | None, int]:
        """The tool that has failed most often in a row."""
        if not self.failures:
            return None, 0
        return max(self.failures.items(), key=lambda item: item[1], default=(None, 0))

    def occurrences(self, call: Call) -> int:
        """How often this very call has been asked for since the world last changed, this time included."""
        return call.occurrence if call.world == self.world else 1

    def same_results(self, key: str) -> int:
        """How many times in a row this very call has brought the same result."""
        return self.outcomes.get(key, (0, 0))[1]

    def _world_changed(self, by: str) -> None:
        """After a successful write another call may well answer anew: count from the start, but for the writer."""
        self.world += 1
        self.failures.clear()
        self.counts = {by: self.counts.get(by, 0)}
        self.outcomes = {by: self.outcomes[by]}


def digest_result(told: str) -> bytes:
    """What tells one result from another, in this process and in any other: a run is not to be misled on purpose by
    its own tools, so a checksum will do, at a fifth of the price."""
    encoded = told.encode("utf-8", "surrogatepass")
    return crc32(encoded).to_bytes(4, "big") + (len(encoded) & 0xFFFFFFFF).to_bytes(4, "big")


def make_call_key(use: ToolUse) -> str:
    """What makes two calls the same: the tool and its arguments, however they were spelled."""
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
    """Whether the latest calls are the same two, three or four, in the same order, three times over."""
    for period in (2, 3, 4):
        if len(recent) >= 3 * period and recent[-1] == recent[-1 - period]:
            tail = list(recent)[-3 * period :]
            if tail == tail[:period] * 3 and len(set(tail)) > 1:
                return True
    return False
