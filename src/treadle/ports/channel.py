"""The contract between Treadle and a chat platform. The store is in `ports/channel_store.py`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.ids import Instant
from treadle.domain.permissions import Verdict

# ── Messages ──

Kind = Literal["message", "edit", "delete", "press"]
"""press: a button was pressed."""


class IncomingFile(Struct, frozen=True, omit_defaults=True):
    """A file of a message. Its content is fetched only when the message is accepted."""

    file_id: str
    """What the adapter needs to fetch it."""
    name: str = ""
    media_type: str = ""
    size: int = 0
    """Bytes; 0 if unknown."""


class Incoming(Struct, frozen=True, omit_defaults=True):
    """Something that a person did on a platform."""

    message_id: str
    """Unique on the channel. An edit, a deletion and a press have IDs of their own."""
    conversation: str
    """Where the answer goes, unique on the channel. Threads are conversations of their own."""
    sender: str
    sender_name: str = ""
    text: str = ""
    attachments: tuple[IncomingFile, ...] = ()
    is_direct: bool = True
    """Only this person and the bot take part in the conversation."""
    is_addressed: bool = True
    """In a group: the message mentions the bot or replies to it."""
    is_bot: bool = False
    """A program sent it: another bot, an auto-reply, a mailing list."""
    distrust: str = ""
    """Why the sender is not proven, such as a mail whose From may be forged. Such a message is not accepted."""
    problem: str = ""
    """Why the text cannot be read, for the person: such as an encrypted message. It reaches no model."""
    kind: Kind = "message"
    target: str = ""
    """The message that is edited or deleted, or the key of the message whose button was pressed."""
    value: str = ""
    """The value of the button."""
    reply_to: str = ""
    """The platform's ID of the message that it replies to."""
    parent: str = ""
    """The conversation that contains this one, if it is a thread."""
    album: str = ""
    """The album that the message is a part of. Its parts are handled as one message."""


class Button(Struct, frozen=True):
    label: str
    value: str


class OutgoingFile(Struct, frozen=True):
    name: str
    media_type: str
    data: bytes


class Outgoing(Struct, frozen=True, omit_defaults=True):
    """A message to send."""

    key: str
    """The same for every attempt. The adapter derives the platform's deduplication ID from it."""
    conversation: str
    text: str
    """Markdown. The adapter writes it in the platform's dialect."""
    buttons: tuple[Button, ...] = ()
    reply_to: str = ""
    """The platform's ID of the message that it answers."""
    is_draft: bool = False
    """The text is unfinished and will be edited."""
    files: tuple[OutgoingFile, ...] = ()
    """Unless the platform combines files with text, a message that is sent has either text or one file."""


DEFAULT_COMMAND_PREFIX = "/"


class Traits(Struct, frozen=True):
    """What a platform can do."""

    max_characters: int
    """Characters of one message."""
    measure: Callable[[str], int] = len
    """Returns how many of these characters a text needs, which is Markdown."""
    can_edit: bool = False
    has_buttons: bool = False
    deduplicates: bool = False
    """A message that is sent again with the same key appears once."""
    edit_seconds: float = 1.0
    """Minimum interval between two edits of a message."""
    typing_seconds: float | None = None
    """How long a typing indicator lasts; None if there is none."""
    max_file_bytes: int = 10_000_000
    """Bytes of a file that the platform accepts."""
    combines_files: bool = False
    """Text and files are one message. Otherwise each file is a message of its own after the text."""
    command_prefix: str = DEFAULT_COMMAND_PREFIX
    """What people write before a command, where the platform keeps messages that begin with a slash."""


# ── Errors ──


class ChannelError(Exception):
    """The platform did not answer as expected. The attempt is repeated."""


class ChannelRefused(ChannelError):
    """The platform rejects the message for good: the chat is gone, or the person has blocked the bot."""


class ContentRefused(ChannelRefused):
    """The platform rejects what a message says, such as a text that is too long. Other messages are possible."""


class ChannelBusy(ChannelError):
    """The platform asks for a pause."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class FileRefused(Exception):
    """A file is not sent. The message says why."""


# ── The platform ──


class Receiver(Protocol):
    """Takes what arrives on a channel."""

    async def accept(self, messages: Sequence[Incoming], cursor: str | None = None) -> None:
        """Store messages, and with them how far the platform was read. Acknowledge them to the platform only after
        this returns. Messages that were stored before are ignored."""
        ...

    async def cursor(self) -> str | None:
        """Return how far the platform was read."""
        ...

    async def conversations(self, after: str | None, limit: int) -> Sequence[str]:
        """Return conversations in which messages were accepted in the last 30 days: the latest ones, or in order
        those after a conversation."""
        ...

    def report_connected(self, account: str) -> None:
        """Report that the connection works, and which account it is."""
        ...


class Channel(Protocol):
    """One account on a platform. Created for each connection, and closed after it."""

    @property
    def traits(self) -> Traits: ...

    async def check(self) -> str:
        """Log in, and return the name of the account. Raise ChannelError if that fails."""
        ...

    async def receive(self, receiver: Receiver) -> None:
        """Pass on messages until cancelled. Raise ChannelError when the connection is lost."""
        ...

    async def send(self, message: Outgoing) -> str:
        """Send a message, and return the platform's ID of it."""
        ...

    async def edit(self, message_id: str, message: Outgoing) -> None:
        """Replace a message. Only for platforms that can edit."""
        ...

    async def show_typing(self, conversation: str) -> None: ...

    async def fetch(self, attachment: IncomingFile, max_bytes: int) -> bytes:
        """Return the content of an attachment. Raise ChannelRefused if it has more bytes than that."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class LimitedChannel(Protocol):
    """A channel whose connection can work with a limitation. Optional: most platforms have none."""

    @property
    def limitation(self) -> str:
        """Why the connection is of limited use since the last `check`, and what to do; empty: it is not."""
        ...


def find_limitation(channel: Channel) -> str:
    """Return the limitation of a connected channel, or an empty text."""
    return channel.limitation if isinstance(channel, LimitedChannel) else ""


@runtime_checkable
class WebhookChannel(Protocol):
    """A channel whose platform posts to the service. Optional: most platforms are connected to."""

    def verify(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request comes from the platform. `headers` has names in lower case."""
        ...

    async def read(self, body: bytes) -> Sequence[Incoming]:
        """Return the messages in the body of a request that was verified."""
        ...


@runtime_checkable
class FolderChannel(Protocol):
    """A channel that keeps files between connections, such as encryption keys. Optional."""

    def use_folder(self, folder: Path) -> None:
        """Keep files in this folder, which is private to the user and to the channel. Called once, before any other
        method."""
        ...


@runtime_checkable
class CleanedChannel(Protocol):
    """A channel that keeps records of its own, which must not grow forever. Optional."""

    async def clean(self, before: Instant) -> None:
        """Delete records from before this time. Called after each connection, and every few hours."""
        ...


@runtime_checkable
class BatchChannel(Channel, Protocol):
    """A channel whose platform stores the attachments of a message in one piece. Optional."""

    async def fetch_all(
        self, attachments: Sequence[IncomingFile], max_bytes: int
    ) -> Sequence[bytes | ChannelRefused]:
        """Return the content of attachments, each as `fetch` does, with as few requests as possible."""
        ...


@runtime_checkable
class UploadChannel(Channel, Protocol):
    """A channel whose platform stores a file before people see it. Optional: the ID is recorded in between, so a
    file appears once even if the process ends while it is sent."""

    async def upload(self, message: Outgoing) -> str:
        """Upload the file of a message, and return its ID. People do not see it yet."""
        ...

    async def share(self, file_id: str, message: Outgoing) -> None:
        """Show an uploaded file in the conversation of its message."""
        ...

    async def is_shared(self, file_id: str) -> bool:
        """Return whether an earlier attempt to share a file succeeded."""
        ...


class FileSource(Protocol):
    """The files that agents may send."""

    def judge(self, agent: AgentSpec, path: str) -> Verdict:
        """Return what the agent's approval rules say about reading a file."""
        ...

    async def read(self, agent: AgentSpec, path: str, max_bytes: int) -> OutgoingFile:
        """Return a file of the agent's workspace. Raise FileRefused if it cannot be sent."""
        ...


class ChannelAdapter(Protocol):
    """Makes channels of one platform. Adapters register as entry points of the group `treadle.channels`."""

    def __call__(self, name: str, settings: Mapping[str, Any]) -> Channel:
        """Return a channel that is not connected yet. Raise ValueError for settings that it cannot use."""
        ...
