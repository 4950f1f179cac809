"""A model takes a conversation and streams a reply that ends `Completed` or `Failed`."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from treadle.domain.agents import ModelSettings
from treadle.domain.events import ModelErrorKind, StopReason
from treadle.domain.limits import DEFAULT_MAX_CALLS
from treadle.domain.messages import Message, Part
from treadle.domain.models import Profile
from treadle.domain.runs import Usage
from treadle.domain.tools import ToolChoiceMode, ToolSpec


class Preamble:
    """The instructions and tools before the conversation. They do not change during a run, so their encoding is
    cached per wire format."""

    __slots__ = ("_wire", "output", "system", "tools")

    def __init__(self, system: str, tools: tuple[ToolSpec, ...], output: Mapping[str, Any] | None = None) -> None:
        self.system = system
        self.tools = tools
        self.output = output
        """The JSON Schema of the answer, which is also in the instructions."""
        self._wire: dict[str, bytes] = {}

    def encode_as(self, wire_format: str, encode: Callable[["Preamble"], bytes]) -> bytes:
        """Return the bytes in `wire_format`. `encode` is called only the first time."""
        found = self._wire.get(wire_format)
        if found is None:
            found = self._wire[wire_format] = encode(self)
        return found


class Conversation:
    """An append-only list of messages.

    Each message is encoded once per wire format and its bytes are cached, so a request costs only the encoding of
    its new messages and the copy that is sent."""

    __slots__ = ("_wire", "messages")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = list(messages)
        self._wire: dict[str, list[bytes]] = {}

    def encode_as(self, wire_format: str, encode: Callable[[Message], bytes]) -> list[bytes]:
        """Return the bytes of every message in `wire_format`. `encode` is called only for new messages."""
        encoded = self._wire.setdefault(wire_format, [])
        for message in self.messages[len(encoded) :]:
            encoded.append(encode(message))
        return encoded


class ModelRequest(Struct, frozen=True):
    """A request to a model. `conversation` is the run's own object, not a copy: read it before the next event."""

    model: str
    preamble: Preamble
    conversation: Conversation
    settings: ModelSettings
    tool_choice: ToolChoiceMode = "auto"
    named_tool: str = ""
    """The tool that must be called, if the choice is `required`; empty: any. A format that cannot express a choice
    leaves it out."""
    provider: str = ""
    """The provider of the model. Reasoning is sent back only to the provider that it came from."""
    profile: Profile = Profile()
    plain: bool = False
    """Send no reasoning back, because the provider refused the conversation with it."""
    filled: bool = False
    """Send a blank where reasoning is missing, because the provider refused the conversation without it."""
    constrained: bool = False
    """Have the provider constrain the reply by the output schema of the preamble, if the format can express it."""
    max_calls: int = DEFAULT_MAX_CALLS
    """Maximum tool calls of the reply. An adapter drops further calls while they arrive, and counts them."""


class TextDelta(Struct, frozen=True, gc=False):
    text: str


class ReasoningDelta(Struct, frozen=True, gc=False):
    text: str


class CallDelta(Struct, frozen=True, gc=False):
    """A fragment of a tool call. `index` is the position of the call in the reply."""

    index: int
    name: str
    arguments: str


class Completed(Struct, frozen=True):
    """A complete reply. The arguments of all its calls parse."""

    parts: tuple[Part, ...]
    stop: StopReason
    usage: Usage
    raw_stop: str | None = None
    dropped_calls: tuple[str, ...] = ()
    """Names of calls that must not run and are left out, because the reply was truncated or filtered."""
    excess_calls: int = 0
    """Number of calls left out because they exceed `ModelRequest.max_calls`."""
    refusal: str = ""
    """The provider's word for the end of a reply that it refused or filtered, if it says more than that."""
    window_full: bool = False
    """The reply was cut because the context window is full."""


class RecordedReply(Completed, frozen=True):
    """A reply from a journal. It was limited when it was recorded, perhaps by other limits, and is not changed."""


class Failed(Struct, frozen=True):
    """The model gave no usable reply. This includes a stream that stops without its end marker or inside of
    arguments."""

    kind: ModelErrorKind
    message: str
    """What happened, at which provider, and what to do."""
    retryable: bool
    status: int | None = None
    retry_after: float | None = None
    """Seconds, if the provider gave them."""
    usage: Usage = Usage()
    compact: bool = False
    """The conversation is too long for the model."""
    repair: bool = False
    """The provider rejected the structure of the conversation."""
    next_key: bool = False
    """Another key of the provider is available and will be used for a retry."""
    next_model: bool = False
    """Another model may be able to answer."""
    wants_reasoning: bool = False
    """The provider rejected the conversation because reasoning is missing."""
    refuses_schema: bool = False
    """The provider rejected the request because it carried an output schema."""
    once: bool = False
    """A retry may help, but only once."""
    longest_reply: int | None = None
    """The requested reply is too long. A request for at most this many tokens should be accepted."""
    unclear: bool = False
    """The request was refused without a usable reason. It may be too long."""
    filtered: bool = False
    """A content filter rejected the conversation."""


Delta = TextDelta | ReasoningDelta | CallDelta
Show = Callable[[Delta], None]
"""Receives a piece of a reply as soon as it arrives."""


class Model(Protocol):
    """A model of a provider, called in one wire format."""

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        """Send the request, pass each piece of the reply to `show`, and return how it ended.

        Network and provider errors are returned, not raised. Cancelling aborts the call."""
        ...


BreakerChange = Literal["opened", "closed"]


class Breaker(Protocol):
    """A circuit breaker: stops calls to a model that fails most of the time.

    Times are those of a monotonic clock. `who` identifies the caller, so that calls are not confused."""

    def wait(self, now: float, who: str = "") -> float | None:
        """Return the seconds until a call may be tried, or None if it may be tried now.

        A call that may be tried must be followed by `record` or `abandon`."""
        ...

    def record(self, failed: bool, now: float, who: str = "") -> BreakerChange | None:
        """Record the end of a call. Return the change of the breaker's state, if any."""
        ...

    def abandon(self, who: str = "") -> None:
        """Record that a call was aborted and says nothing about the model."""
        ...


class Resolved(Struct, frozen=True):
    """A resolved model, and why it was chosen."""

    provider: str
    model: str
    api_mode: str
    reason: str
    client: Model
    breaker: Breaker
    profile: Profile = Profile()
    query_window: Callable[[], Awaitable[int | None]] | None = None
    """Ask the server for the context window if the profile does not know it; None if there is no server to ask."""


class Models(Protocol):
    def resolve(self, model: str, provider: str | None) -> Resolved:
        """Return the model for a name. If the name stands for several models, return one that can be called now.

        Raise UnknownModel or MissingKey with advice on what to set."""
        ...
