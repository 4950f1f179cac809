"""Named people and groups of channels: agents send to them with the tool `send_message`, and answers of runs are
delivered to them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from treadle.domain.agents import AgentSpec
from treadle.domain.channels import ChannelConfig, ChannelLimits, find_recipient
from treadle.domain.ids import Instant, RunId
from treadle.domain.tools import ToolSpec
from treadle.ports.channel import FileRefused, FileSource, Incoming, Outgoing, OutgoingFile
from treadle.ports.channel_store import ChannelStore
from treadle.ports.clock import Clock
from treadle.ports.tool import InvalidArguments, Observation, Subjects, Tool, ToolContext, ToolError

NAME = "send_message"
MAX_CHARACTERS = 16_000


class SendArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    to: str
    text: str
    files: tuple[str, ...] = ()


class ChannelRecipients:
    """Implements `ports.tool.ToolSource`: offers `send_message` to agents that have recipients."""

    def __init__(self, channels: Mapping[str, ChannelConfig], clock: Clock) -> None:
        self.channels = channels
        self.clock = clock
        self.store: ChannelStore | None = None
        """The store of the open engine."""
        self.files: FileSource | None = None
        """The files that agents may send."""
        self.wakes: dict[str, list[Callable[[], None]]] = {}
        """Called after a message for a channel was stored."""

    def names_for(self, agent: str) -> list[str]:
        """Return the recipients that an agent may write to."""
        return [
            f"{channel}:{name}"
            for channel, config in self.channels.items()
            for name, recipient in config.recipients.items()
            if agent in recipient.agents
        ]

    def wake(self, channel: str) -> None:
        """Let a channel send what was stored, if this process holds it."""
        for wake in self.wakes.get(channel, ()):
            wake()

    def find(self, name: str, agent: AgentSpec | None = None) -> Tool | None:
        if name != NAME:
            return None
        return SendMessage(self, self.names_for(agent.name) if agent is not None else self._all(), agent)

    def names(self, glob: str, agent: AgentSpec | None = None) -> Iterable[str]:
        is_offered = agent is not None and self.names_for(agent.name)
        return [NAME] if is_offered and fnmatchcase(NAME, glob) else []

    def explain(self, name: str, agent: AgentSpec | None = None) -> str | None:
        return None

    def _all(self) -> list[str]:
        return [f"{channel}:{name}" for channel, config in self.channels.items() for name in config.recipients]


class SendMessage:
    """Stores a message for a recipient. The server that holds the channel sends it, once for each call."""

    def __init__(self, recipients: ChannelRecipients, allowed: list[str], agent: AgentSpec | None = None) -> None:
        self._recipients = recipients
        self._allowed = allowed
        self._agent = agent
        self.spec = ToolSpec(
            NAME,
            "Send a message to a person or group. It is sent in your name at once.",
            {
                "type": "object",
                "properties": {
                    "to": {"type": "string", "enum": allowed, "description": "The recipient."},
                    "text": {"type": "string", "description": "The message, as Markdown."},
                    "files": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Paths of files in the workspace to send with it.",
                    },
                },
                "required": ["to", "text"],
                "additionalProperties": False,
            },
            "external",
            repeatable=True,  # the message is stored under the key of the call
        )

    def parse(self, arguments: str) -> SendArguments:
        try:
            given = msgspec.json.decode(arguments, type=SendArguments)
        except msgspec.DecodeError as error:
            raise InvalidArguments(str(error)) from None
        if given.to not in self._allowed:
            raise InvalidArguments(f"`to` must be one of {', '.join(self._allowed) or 'no recipients'}")
        if not given.text.strip() or len(given.text) > MAX_CHARACTERS:
            raise InvalidArguments(f"`text` must have 1 to {MAX_CHARACTERS} characters")
        limit = self._limits(given.to).sent_files
        if len(given.files) > limit:
            raise InvalidArguments(f"`files` may have {limit} entries")
        return given

    def _limits(self, to: str) -> ChannelLimits:
        return self._recipients.channels[to.partition(":")[0]].limits

    def subjects(self, arguments: Any) -> Subjects:
        _, recipient = find_recipient(self._recipients.channels, arguments.to)
        asks = recipient.approval == "ask" or self._needs_reviewer(arguments.files)
        what = f"a message with {', '.join(arguments.files)}" if arguments.files else "a message"
        caution = f"it sends {what} to {arguments.to}" if asks else None
        return Subjects((arguments.to, arguments.text, *arguments.files), caution=caution, pattern=arguments.to)

    def _needs_reviewer(self, files: Sequence[str]) -> bool:
        """Return whether the agent may not read one of the files without an approval."""
        source = self._recipients.files
        if source is None or self._agent is None:
            return bool(files)
        return any(source.judge(self._agent, path) != "auto" for path in files)

    async def _read_files(self, arguments: SendArguments) -> tuple[OutgoingFile, ...]:
        source = self._recipients.files
        if not arguments.files:
            return ()
        if source is None or self._agent is None:
            raise ToolError("files cannot be sent from this process.")
        found: list[OutgoingFile] = []
        for path in arguments.files:
            try:
                found.append(await source.read(self._agent, path, self._limits(arguments.to).sent_file_bytes))
            except FileRefused as error:
                raise ToolError(f"{path[:200]} cannot be sent: {error}. Nothing was sent.") from None
        return tuple(found)

    async def run(self, arguments: Any, context: ToolContext) -> str | Observation:
        store = self._recipients.store
        if store is None:
            raise ToolError("no channel is available in this process.")
        try:
            channel, recipient = find_recipient(self._recipients.channels, arguments.to)
        except ValueError as error:  # the configuration has changed since the call was approved
            raise ToolError(f"{error}.") from None
        if context.agent not in recipient.agents:
            raise ToolError(f"you may not write to {arguments.to}.")
        files = await self._read_files(arguments)
        message = Outgoing(f"tool/{context.idempotency_key}", recipient.to, arguments.text, files=files)
        await store.finish(channel, [message], self._recipients.clock.now())
        self._recipients.wake(channel)
        return f"Stored for {arguments.to}; it is sent as soon as the channel is connected."


async def watch_run(
    channels: Mapping[str, ChannelConfig], store: ChannelStore, target: str, run_id: RunId, key: str, now: Instant
) -> str:
    """Send the answer of a run to a recipient. Return why that is not possible, or an empty text."""
    try:
        channel, recipient = find_recipient(channels, target)
    except ValueError as error:
        return f"The answer is not delivered: {error}."
    await store.watch(channel, Incoming(key, recipient.to, ""), run_id, now)
    return ""
