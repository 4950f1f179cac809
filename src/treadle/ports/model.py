"""A model: a conversation goes in, a reply comes out piece by piece, and it ends `Completed` or `Failed`."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.agents import ModelSettings
from treadle.domain.events import ModelErrorKind, StopReason
from treadle.domain.messages import Message, Part
from treadle.domain.models import Profile
from treadle.domain.runs import Usage
from treadle.domain.tools import ToolSpec

ToolChoice = Literal["auto", "none"]


class Preamble:
    """What stands before the conversation and does not change during a run: instructions and tools. It keeps the
    bytes that it takes on each wire format."""

    __slots__ = ("_wire", "system", "tools")

    def __init__(self, system: str, tools: tuple[ToolSpec, ...]) -> None:
        self.system = system
        self.tools = tools
        self._wire: dict[str, bytes] = {}

    def encoded_as(self, wire_format: str, encode: Callable[["Preamble"], bytes]) -> bytes:
        """The bytes in `wire_format`; `encode` is called the first time only."""
        found = self._wire.get(wire_format)
        if found is None:
            found = self._wire[wire_format] = encode(self)
        return found


class Conversation:
    """Messages that are only ever added at the end. Each is encoded once for each wire format, and its bytes are
    kept: a request costs what it adds, and the copying of what it sends."""

    __slots__ = ("_wire", "messages")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = list(messages)
        self._wire: dict[str, list[bytes]] = {}

    def encoded_as(self, wire_format: str, encode: Callable[[Message], bytes]) -> list[bytes]:
        """The bytes of every message in `wire_format`; `encode` is called for those it does not have yet."""
        encoded = self._wire.setdefault(wire_format, [])
        for message in self.messages[len(encoded) :]:
            encoded.append(encode(message))
        return encoded


class ModelRequest(Struct, frozen=True):
    """What a model is asked. `conversation` is the run's own, not a copy: read it before the next event."""

    model: str
    preamble: Preamble
    conversation: Conversation
    settings: ModelSettings
    tool_choice: ToolChoice = "auto"
    provider: str = ""
    """Whose model it is: reasoning goes back only to where it came from."""
    profile: Profile = Profile()
    plain: bool = False
    """Send no reasoning back: the provider has refused the conversation with it."""
    filled: bool = False
    """Put a blank where reasoning is missing: the provider has refused the conversation without it."""
    aside: str = ""
    """Sent after the conversation, with this request alone: only by requests of older journals."""


class TextDelta(Struct, frozen=True, gc=False):
    text: str


class ReasoningDelta(Struct, frozen=True, gc=False):
    text: str


class CallDelta(Struct, frozen=True, gc=False):
    """A fragment of a call: `index` says which call of this reply."""

    index: int
    name: str
    arguments: str


class Completed(Struct, frozen=True):
    """The whole reply. Every call in it has arguments that parse."""

    parts: tuple[Part, ...]
    stop: StopReason
    usage: Usage
    raw_stop: str | None = None
    dropped_calls: tuple[str, ...] = ()
    """The names of calls that are left out because they must not run: the reply was cut or filtered."""


class Failed(Struct, frozen=True):
    """No reply. One that ends without saying that it has, or with arguments cut off, is this too."""

    kind: ModelErrorKind
    message: str
    """What happened, to which provider, and what to do next."""
    retryable: bool
    status: int | None = None
    retry_after: float | None = None
    """Seconds, where the provider said so."""
    usage: Usage = Usage()
    compact: bool = False
    """The conversation is too long for the model."""
    repair: bool = False
    """The provider finds fault with the shape of the conversation."""
    next_key: bool = False
    """Another key of the provider is ready, and will be used if it is tried again."""
    next_model: bool = False
    """Another model may well do what this one cannot."""
    wants_reasoning: bool = False
    """What the provider finds fault with is that reasoning is missing."""
    once: bool = False
    """Trying again may help, but not more than once."""
    longest_reply: int | None = None
    """The request asks for too long a reply; one of at most so many tokens should be accepted."""
    unclear: bool = False
    """The request was refused without a reason to act on: it may be too long."""


Delta = TextDelta | ReasoningDelta | CallDelta
Show = Callable[[Delta], None]
"""Takes a piece of a reply, at once."""


class Model(Protocol):
    """One provider's model behind one wire format."""

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        """Send the request, show what comes back as it comes, and return how it ended.

        Errors of the network or the provider are values and not exceptions. Cancelling aborts the call."""
        ...


BreakerChange = Literal["opened", "closed"]


class Breaker(Protocol):
    """Keeps calls from a model that fails most of the time. Times are those of a monotonic clock; `who` names
    whoever calls, so that one call is not taken for another."""

    def wait(self, now: float, who: str = "") -> float | None:
        """Seconds until a call may be tried; None when it may be now. A call that may be tried must be followed by
        `record` or `abandon`."""
        ...

    def record(self, failed: bool, now: float, who: str = "") -> BreakerChange | None:
        """A call has ended; whether that has changed what the breaker does."""
        ...

    def abandon(self, who: str = "") -> None:
        """A call was cut short and says nothing about the model."""
        ...


class Resolved(Struct, frozen=True):
    """A model that was found, and how."""

    provider: str
    model: str
    api_mode: str
    reason: str
    client: Model
    breaker: Breaker
    profile: Profile = Profile()
    query_window: Callable[[], Awaitable[int | None]] | None = None
    """Ask the server for the context window, where the profile does not know it; None: no server to ask."""


class Models(Protocol):
    def resolve(self, model: str, provider: str | None) -> Resolved:
        """The model that a name stands for; one that can be called now, if the name stands for several. Raises
        UnknownModel or MissingKey, saying what to set."""
        ...
