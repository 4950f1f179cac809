"""Assembles the tool calls of a `chat_completions` reply from their fragments."""

from collections.abc import Container, Iterable
from itertools import pairwise
from typing import Any

import msgspec

from treadle.domain.json_text import ObjectProgress
from treadle.domain.limits import DEFAULT_MAX_CALLS, MAX_NAME_PIECES
from treadle.domain.messages import CallExtra, ToolUse
from treadle.models.formats.chat_chunks import Fragment, Function
from treadle.models.http.wire import NO_ARGUMENTS, UnusableReply, check_arguments, encode, normalize_object
from treadle.ports.model import CallDelta, Show

MAX_EXTRA_CHARACTERS = 256 * 1024
"""Larger data that a provider attaches to a call is dropped."""
_BEYOND = -1
"""In place of a position: the call is beyond the limit and not stored."""


class _OpenCall:
    """The part of a call received so far."""

    __slots__ = ("_progress", "_read", "arguments", "extra", "id", "index", "names", "shown")

    def __init__(self, index: int | None) -> None:
        self.index = index  # the provider's index; ours is the position in the list
        self.id = ""
        self.names: list[str] = []
        """The pieces of its name, or the repeated name, from servers that repeat it."""
        self.arguments: list[str] = []
        self.extra: Any = None
        self.shown = 0  # how many pieces of the arguments have been shown
        self._progress = ObjectProgress()
        self._read = 0  # how many pieces of the arguments `_progress` has read

    @property
    def is_empty(self) -> bool:
        return not (self.id or self.names or self.arguments)

    @property
    def is_whole(self) -> bool:
        """Return whether the arguments are a complete object. Each piece is read once, however often this is
        called."""
        for piece in self.arguments[self._read :]:
            self._progress.add(piece)
        self._read = len(self.arguments)
        return self._progress.has_ended and normalize_object("".join(self.arguments)) is not None

    def add_name(self, piece: str) -> None:
        if len(self.names) < MAX_NAME_PIECES:
            self.names.append(piece)
        else:
            self.names[-1] = piece


class ChatCalls:
    """The calls of one reply. Those beyond `max_calls` are counted and not stored."""

    def __init__(self, offered: Container[str], max_calls: int = DEFAULT_MAX_CALLS) -> None:
        self._offered = offered
        self._max_calls = max_calls
        self._calls: list[_OpenCall] = []
        self._by_index: dict[int, int] = {}
        self._by_id: dict[str, int] = {}
        """Positions of the latest call with each index and ID."""
        self._latest_excess: tuple[int | None, str] | None = None
        """Index and ID of the latest call beyond the limit."""
        self.excess = 0
        """Number of calls beyond the limit."""
        self.repeated: list[Fragment] = []
        """The calls of a complete message that came after the pieces."""
        self.unshown: dict[int, None] = {}
        """Positions of the calls with pieces that were not shown yet."""

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def characters(self) -> int:
        return sum(len(piece) for call in self._calls for piece in call.arguments)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the calls that have started."""
        return tuple([self._name(call) for call in self._calls if call.names])

    def add(self, fragment: Fragment) -> None:
        """Add one fragment."""
        function = fragment.function or Function()
        if self._calls and not (function.name or fragment.id or self.excess):  # nearly always: of the latest call
            latest = self._calls[-1]
            if (
                latest.index == fragment.index
                and isinstance(function.arguments, str)
                and not fragment.extra_content
            ):
                latest.arguments.append(function.arguments)
                self.unshown[len(self._calls) - 1] = None
                return
        arguments = function.arguments or function.parameters or ""
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        place = self._place(fragment, function.name or "", arguments)
        if place is None:
            return
        call = self._calls[place]
        if fragment.id and not call.id:
            call.id = fragment.id
            self._by_id[fragment.id] = place
        call.extra = fragment.extra_content or call.extra
        if function.name:
            call.add_name(function.name)
        if arguments:
            call.arguments.append(arguments)
        self.unshown[place] = None

    def cut(self, fragments: list[Fragment]) -> list[Fragment]:
        """Return the calls of a complete message without those beyond the limit, which are counted."""
        self.excess += max(0, len(fragments) - self._max_calls)
        return fragments[: self._max_calls]

    def show_new(self, show: Show) -> None:
        """Show what arrived since the last call."""
        for place in self.unshown:
            call = self._calls[place]
            show(CallDelta(place, self._name(call), "".join(call.arguments[call.shown :])))
            call.shown = len(call.arguments)
        self.unshown.clear()

    def check_repeated(self, calls: list[ToolUse]) -> None:
        """Raise UnusableReply if a call has other arguments in the complete message than it had in pieces."""
        by_id = {use.call_id: use for use in calls}
        for place, fragment in enumerate(self.repeated):
            use = by_id.get(fragment.id or "") or (calls[place] if place < len(calls) else None)
            final = (fragment.function or Function()).arguments or ""
            if use is not None:
                text = final if isinstance(final, str) else encode(final).decode()
                check_arguments(use.name, use.arguments, text)

    def build_calls(self, provider: str, model: str) -> list[ToolUse]:
        """Return the calls of a reply that ended normally. Raise UnusableReply if one of them is incomplete."""
        uses: list[ToolUse] = []
        for place, call in enumerate(self._calls, start=1):
            if call.is_empty:
                continue
            text, name = _join_arguments(call.arguments).strip(), self._name(call)
            arguments = "{}" if text in NO_ARGUMENTS else normalize_object(text)
            if not name or arguments is None:
                what = "has arguments that are not a JSON object" if name else "has no name"
                raise UnusableReply(f"call {place} of it ({name or 'unnamed'}) {what}, so it is probably cut off")
            uses.append(ToolUse(call.id, name, arguments, _make_extra(call.extra, provider, model)))
        return uses

    def _name(self, call: _OpenCall) -> str:
        return join_name(call.names, self._offered)

    def _place(self, fragment: Fragment, name: str, arguments: str) -> int | None:
        """Return the position of the call that a fragment belongs to, or None if it is beyond the limit. The index
        decides where it can be trusted: some providers omit it, and some use 0 for every call."""
        place = self._latest(fragment)
        if place == _BEYOND:
            self._count_excess(fragment, name)
            return None
        if place is not None and not (name and self._begins_another(self._calls[place], fragment, name, arguments)):
            return place
        if len(self._calls) >= self._max_calls:
            self._count_excess(fragment, name)
            return None
        self._calls.append(_OpenCall(fragment.index))
        place = len(self._calls) - 1
        if fragment.index is not None:
            self._by_index[fragment.index] = place
        return place

    def _count_excess(self, fragment: Fragment, name: str) -> None:
        """Count a call beyond the limit, unless the fragment continues the latest one."""
        call = (fragment.index, fragment.id or "")
        is_another = self._latest_excess is None or (
            bool(name) and (call != self._latest_excess or not fragment.index)
        )
        if not is_another:
            return
        self.excess += 1
        self._latest_excess = call
        if fragment.index in self._by_index:
            self._by_index[fragment.index] = _BEYOND
        if fragment.id in self._by_id:
            self._by_id[fragment.id] = _BEYOND

    def _latest(self, fragment: Fragment) -> int | None:
        """Return the last call that the fragment may continue: its position, `_BEYOND`, or None."""
        if fragment.index is not None:
            return self._by_index.get(fragment.index)
        if fragment.id and (place := self._by_id.get(fragment.id)) is not None:
            return place
        if self.excess:
            return _BEYOND
        return len(self._calls) - 1 if self._calls else None

    def _begins_another(self, call: _OpenCall, fragment: Fragment, name: str, arguments: str) -> bool:
        """Return whether a fragment with a name starts a new call although its position is taken. Names and ids
        may be repeated in every fragment, ids may even differ, and a name may arrive in pieces, so none of them is
        sufficient."""
        if fragment.id and call.id:
            if fragment.id == call.id:
                return False
            return fragment.index is None or name != self._name(call) or call.is_whole
        return (bool(arguments) or name != self._name(call)) and call.is_whole


def join_name(pieces: Iterable[str], offered: Container[str]) -> str:
    """Return the name of a tool from its pieces, joined as the official SDKs do. If the result is not an offered
    tool, the name may have been repeated or extended with every piece."""
    names = list(pieces)
    joined = "".join(names)
    if len(names) < 2 or joined in offered:
        return joined
    grows = all(later.startswith(earlier) for earlier, later in pairwise(names))
    if grows and (names[-1] in offered or names[0] == names[-1]):
        return names[-1]
    return names[0] if names[0] in offered else joined


def _join_arguments(pieces: list[str]) -> str:
    """Return the arguments from their pieces. Some servers send all of them again in the last piece, or everything
    so far in each piece."""
    joined = "".join(pieces)
    if len(pieces) < 2 or normalize_object(joined) is not None or normalize_object(pieces[-1]) is None:
        return joined
    *earlier, last = pieces
    is_repeated = last.startswith("".join(earlier)) or all(
        later.startswith(piece) for piece, later in pairwise(pieces)
    )
    return last if is_repeated else joined


def _make_extra(content: Any, provider: str, model: str) -> CallExtra | None:
    if not content:
        return None
    text = encode(content).decode()
    return CallExtra(provider, model, text) if len(text) <= MAX_EXTRA_CHARACTERS else None
