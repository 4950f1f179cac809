"""The store of chat channels: people, conversations, messages in both directions, and the state of connections."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.channels import ChannelStatus, PairingCode, Person
from treadle.domain.ids import Instant, RunId, SessionId
from treadle.domain.users import UserId
from treadle.ports.channel import Incoming, Outgoing

InboxState = Literal["new", "running", "done"]
OutboxState = Literal["draft", "ready", "sent", "failed"]


class ChannelConversation(Struct, frozen=True):
    """A conversation and its session."""

    channel: str
    conversation: str
    session_id: SessionId
    user: UserId
    """The user who owns the session."""
    is_direct: bool


class ChannelState(Struct, frozen=True):
    """What the process that holds the connection of a channel recorded about it."""

    channel: str
    status: ChannelStatus
    account: str
    """The account that it is or was connected as."""
    reason: str
    """Why it is not connected. If it is connected: why the connection is of limited use."""
    since: Instant
    """When the status began."""
    retry_at: Instant | None
    recorded_at: Instant
    is_held: bool | None = None
    """Whether a process holds the connection now, as the database sees it. None if the database cannot tell."""


class InboxItem(Struct, frozen=True):
    """A message that was accepted."""

    number: int
    message: Incoming
    state: InboxState
    run_id: RunId | None


class OutboxItem(Struct, frozen=True):
    """A message that is to be sent, or was."""

    number: int
    key: str
    conversation: str
    state: OutboxState
    message: Outgoing
    message_id: str
    """The platform's ID once it was sent."""
    attempts: int
    first_failed_at: Instant | None
    retry_at: Instant | None
    run_id: RunId | None
    problem: str = ""


class ChannelStore(Protocol):
    """People, conversations, and messages in both directions. Every method commits before it returns."""

    async def people(self, channel: str | None = None) -> Sequence[Person]: ...

    async def person(self, channel: str, sender: str) -> Person | None: ...

    async def save_person(self, person: Person) -> None: ...

    async def remove_person(self, channel: str, sender: str) -> bool: ...

    async def codes(self, now: Instant) -> Sequence[PairingCode]:
        """Return the valid codes, oldest first."""
        ...

    async def add_code(self, code: PairingCode) -> None:
        """Store a code that was made now, and remove those that have expired."""
        ...

    async def remove_code(self, code: str) -> bool: ...

    async def conversation(self, channel: str, conversation: str) -> ChannelConversation | None: ...

    async def save_conversation(self, conversation: ChannelConversation) -> None: ...

    async def conversations(self, channel: str, after: str | None, limit: int) -> Sequence[str]:
        """Return conversations of which messages are stored: the latest ones, or in order those after a
        conversation."""
        ...

    async def states(self) -> Sequence[ChannelState]:
        """Return what was recorded about the connections of channels."""
        ...

    async def save_state(self, state: ChannelState) -> None: ...

    async def cursor(self, channel: str) -> str | None: ...

    async def receive(
        self, channel: str, messages: Sequence[Incoming], cursor: str | None, now: Instant
    ) -> Sequence[Incoming]:
        """Store messages and the cursor in one transaction. Return those that were not stored before."""
        ...

    async def inbox(self, channel: str, conversation: str | None = None) -> Sequence[InboxItem]:
        """Return the messages that are not done, oldest first."""
        ...

    async def find_received(self, channel: str, message_id: str) -> InboxItem | None: ...

    async def replace_received(self, channel: str, message: Incoming) -> bool:
        """Replace a message that is still new. Return False if it is not."""
        ...

    async def start(self, channel: str, message_id: str, run_id: RunId) -> None:
        """Record the run that answers a message."""
        ...

    async def watch(self, channel: str, message: Incoming, run_id: RunId, now: Instant) -> None:
        """Record that the answer of a run goes to a conversation, once for each `message_id`."""
        ...

    async def finish(
        self,
        channel: str,
        messages: Sequence[Outgoing],
        now: Instant,
        *,
        message_id: str | None = None,
        run_id: RunId | None = None,
    ) -> None:
        """Store messages to send, and mark one message, or all messages of a run, as done, in one transaction. A
        draft with the same key becomes the message. What was stored under a key before stays."""
        ...

    async def draft(self, channel: str, message: Outgoing, run_id: RunId | None, now: Instant) -> OutboxItem:
        """Store a draft, or return the message that has its key already. The drafts of a run are closed at its
        end."""
        ...

    async def outbox(self, channel: str, conversation: str | None = None) -> Sequence[OutboxItem]:
        """Return the messages that are ready to be sent, oldest first."""
        ...

    async def find_sent(
        self, channel: str, *, key: str | None = None, message_id: str | None = None, conversation: str = ""
    ) -> OutboxItem | None:
        """Return a message by its key, or by the platform's ID in a conversation."""
        ...

    async def settle(self, item: OutboxItem, channel: str) -> None:
        """Store the result of an attempt: state, ID, attempts, retry time and problem. The text of a message that
        was sent or given up is removed."""
        ...

    async def counts(self, channel: str) -> Mapping[str, int]:
        """Return how many messages are `new`, `running`, `ready` and `failed`."""
        ...

    async def forget_before(self, before: Instant, now: Instant) -> None:
        """Remove what was done before a time: its message IDs are no longer recognised. Remove pairing codes that
        have expired, and conversations without a session of which no message is stored."""
        ...
