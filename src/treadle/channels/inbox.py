"""Accepted messages: handled in order in each conversation, each exactly once, whatever process dies when."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from msgspec.structs import replace

from treadle.channels.albums import ALBUM_SECONDS, merge_album
from treadle.channels.attachments import load_attachments
from treadle.channels.decisions import Decisions
from treadle.channels.intake import Intake
from treadle.channels.mode_command import apply_mode_command
from treadle.channels.outbox import ChannelOutbox
from treadle.channels.prompts import COMMANDS, HELP, spell_commands
from treadle.channels.run_watch import RunWatch
from treadle.channels.tasks import TaskSet
from treadle.domain.agents import AgentSpec
from treadle.domain.channels import ChannelConfig, Person, name_user
from treadle.domain.commands import parse_command
from treadle.domain.errors import InvalidState, SessionDeleted, StoreError, TreadleError, UsageError
from treadle.domain.events import ChannelReceived
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Message, user
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_start import start_here
from treadle.operations.service import LocalService
from treadle.ports.channel import Incoming, Outgoing
from treadle.ports.channel_store import ChannelConversation, ChannelStore, InboxItem
from treadle.ports.clock import Clock, Ids
from treadle.ports.journal import RunRecord, Runs

logger = logging.getLogger(__name__)

EMPTY = "Your message has no text. Write what I should do."


class Inbox:
    """Handles the messages of one channel. Only the process that holds the channel's lease has one."""

    def __init__(
        self,
        name: str,
        config: ChannelConfig,
        store: ChannelStore,
        service: LocalService,
        runs: Runs,
        agent: Callable[[], AgentSpec],
        outbox: ChannelOutbox,
        watch: RunWatch,
        clock: Clock,
        ids: Ids,
        intake: Intake,
    ) -> None:
        self._name = name
        self._config = config
        self._store = store
        self._service = service
        self._runs = runs
        self._agent = agent
        self._outbox = outbox
        self._watch = watch
        self._clock = clock
        self._ids = ids
        self._intake = intake
        self._decisions = Decisions(name, store, service)
        self._tasks = TaskSet()

    async def accept(self, messages: Sequence[Incoming], cursor: str | None = None) -> None:
        """Store messages, and handle them."""
        for conversation in await self._intake.accept(messages, cursor):
            self._wake(conversation)
            self._outbox.wake(conversation)

    async def resume(self) -> None:
        """Continue with what the previous process has left."""
        for item in await self._store.inbox(self._name):
            if item.run_id is not None:
                self._watch.follow(item.run_id, item.message.conversation)
            else:
                self._wake(item.message.conversation)
        await self._outbox.wake_all()

    async def close(self) -> None:
        await self._tasks.close()

    def _wake(self, conversation: str) -> None:
        self._tasks.run_again(conversation, lambda: self._drain(conversation))

    async def _drain(self, conversation: str) -> None:
        while items := [each for each in await self._list_items(conversation) if each.state == "new"]:
            for item in items:
                await self._handle(item)

    async def _list_items(self, conversation: str) -> Sequence[InboxItem]:
        return await self._store.inbox(self._name, conversation)

    async def _handle(self, item: InboxItem) -> None:
        message = item.message
        current = await self._store.find_received(self._name, message.message_id)
        if current is not None:
            message = current.message  # it may have been edited meanwhile, or belong to an album that is done
            if current.state != "new":
                return
        if message.album and message.kind == "message":
            await asyncio.sleep(ALBUM_SECONDS)
            message = await merge_album(self._name, replace(item, message=message), self._store, self._clock)
        try:
            person = await self._store.person(self._name, message.sender)
            is_allowed = person is not None and person.may("direct" if message.is_direct else "groups")
            reply = await self._answer(message, person) if person is not None and is_allowed else ""
        except StoreError:
            raise  # the message stays, and is handled again
        except TreadleError as error:
            reply = f"Your message was not accepted: {error}"
        except Exception:
            logger.exception("channel %s: message %s failed", self._name, message.message_id)
            reply = "Your message was not handled: internal error. The log of the server has the details."
        if reply is None:
            return
        reply = spell_commands(reply, self._outbox.command_prefix)
        said = [Outgoing(f"reply/{item.message.message_id}", item.message.conversation, reply)] if reply else []
        await self._store.finish(self._name, said, self._clock.now(), message_id=item.message.message_id)
        self._outbox.wake(item.message.conversation)

    async def _answer(self, message: Incoming, person: Person) -> str | None:
        """Handle a message. Return what to reply, "" for nothing, or None if a run answers it."""
        match message.kind:
            case "press":
                return await self._decisions.apply_press(message, person)
            case "edit":
                return await self._edit(message)
            case "delete":
                return await self._delete(message)
            case "message":
                return await self._read(message, person)

    # ── Messages ──

    async def _read(self, message: Incoming, person: Person) -> str | None:
        if (known := await self._runs.find_submitted(self._make_key(message))) is not None:
            return await self._follow(message, known.run_id)
        text = message.text.strip()
        if message.problem:
            return message.problem
        if not text and not message.attachments:
            return EMPTY
        head = text.split(maxsplit=1)[0].lower().rstrip(":.!,;?") if text else ""
        if head in ("/start", "/help"):
            return HELP
        conversation = await self._find_conversation(message, person)
        run = await self._current_run(conversation)
        if head == "/stop":  # whatever follows, such as the signature of a mail
            return await self._stop(run)
        if (meant := find_mistyped_command(head)) is not None:
            return f"There is no command {head}. Did you mean {meant}?"
        for decide in (
            lambda: self._decisions.apply_reply(message, person),
            lambda: self._decisions.apply_command(message, person, run),
            lambda: apply_mode_command(text, person, conversation.session_id, self._service),
        ):
            if (said := await decide()) is not None:
                return said
        if run is not None and text and parse_command_safely(text) is None:
            said = await self._decisions.answer(message, person, run, conversation.user)
            if said is not None:
                return said
        return await self._deliver(message, conversation, run)

    async def _stop(self, run: RunRecord | None) -> str:
        if run is None:
            return "Nothing is in progress."
        await self._service.cancel(run.origin.run_id, "stopped on the channel")
        return ""

    async def _deliver(
        self, message: Incoming, conversation: ChannelConversation, run: RunRecord | None
    ) -> str | None:
        content = await self._compose(message, conversation)
        is_command = parse_command_safely(message.text) is not None
        if run is not None and not is_command and (self._config.mode != "queue" or run.status == "waiting"):
            mode = "interrupt" if self._config.mode == "interrupt" else "steer"
            try:
                await self._service.steer(run.origin.run_id, content, mode, self._make_key(message))
            except InvalidState:
                pass  # it has ended meanwhile, or is a command: the message starts a run
            else:
                event, key = self._make_event(message), f"{self._make_key(message)}/received"
                await self._service.note(run.origin.run_id, event, key)
                return await self._follow(message, run.origin.run_id)
        return await self._follow(message, await self._submit(message, content, conversation))

    async def _submit(self, message: Incoming, content: Message, conversation: ChannelConversation) -> RunId:
        run = RequestedRun(
            agent=self._agent(),
            message=content,
            session_id=conversation.session_id,
            asker="channel",
            user=conversation.user,
        )
        key, cause = self._make_key(message), self._make_event(message)
        try:
            return (await start_here(self._service, run, key, cause)).run_id
        except SessionDeleted:
            fresh = await self._start_new_session(conversation)
            run = replace(run, session_id=fresh.session_id)
            return (await start_here(self._service, run, key, cause)).run_id

    async def _follow(self, message: Incoming, run_id: RunId) -> None:
        await self._store.start(self._name, message.message_id, run_id)
        self._watch.follow(run_id, message.conversation)

    async def _compose(self, message: Incoming, conversation: ChannelConversation) -> Message:
        text = message.text.strip()
        if not conversation.is_direct and message.sender_name and parse_command_safely(text) is None:
            text = f"{message.sender_name}: {text}"
        if not message.attachments:
            return user(text)
        channel = await self._outbox.connection()
        parts = await load_attachments(message.attachments, channel, self._config.limits)
        return user(text or "[a message without text]", *parts)

    # ── Edits and deletions ──

    async def _edit(self, message: Incoming) -> str | None:
        """Apply an edit. It replaces a message that was not read yet, is sent to a run in progress, and is ignored
        after the run."""
        target = await self._store.find_received(self._name, message.target)
        if target is None or target.message.sender != message.sender or not message.text.strip():
            return ""
        edited = replace(target.message, text=message.text)
        if target.state == "new" and await self._store.replace_received(self._name, edited):
            return ""
        if target.run_id is None or target.state == "done":
            return ""
        correction = user(f"[The user edited an earlier message. It now says:]\n{message.text}")
        try:
            await self._service.steer(target.run_id, correction, "steer", self._make_key(message))
        except InvalidState:
            return ""
        return ""

    async def _delete(self, message: Incoming) -> str:
        """Apply a deletion: before the message is read it is dropped, and the run that it started is cancelled."""
        target = await self._store.find_received(self._name, message.target)
        if target is None or target.state == "done" or target.message.sender != message.sender:
            return ""
        if target.state == "new":
            await self._store.finish(self._name, [], self._clock.now(), message_id=message.target)
        elif target.run_id is not None and await self._is_started_by(target.run_id, message.target):
            try:
                await self._service.cancel(target.run_id, "the message was deleted")
            except InvalidState:
                return ""
        return ""

    async def _is_started_by(self, run_id: RunId, message_id: str) -> bool:
        first = [event.data for event in await self._service.page(run_id, 0, 3)]
        return any(isinstance(data, ChannelReceived) and data.message_id == message_id for data in first)

    # ── Conversations ──

    async def _find_conversation(self, message: Incoming, person: Person) -> ChannelConversation:
        """Return the conversation of a message. A direct one belongs to the person, a group to a user of its own,
        so that a group does not see the memories of a person."""
        owner = person.user if message.is_direct else name_user(self._name, f"group.{message.conversation}")
        known = await self._store.conversation(self._name, message.conversation)
        if known is not None and known.user == owner:
            return known
        fresh = ChannelConversation(self._name, message.conversation, self._new_session(), owner, message.is_direct)
        await self._store.save_conversation(fresh)
        return fresh

    async def _start_new_session(self, conversation: ChannelConversation) -> ChannelConversation:
        fresh = replace(conversation, session_id=self._new_session())
        await self._store.save_conversation(fresh)
        return fresh

    async def _current_run(self, conversation: ChannelConversation) -> RunRecord | None:
        found = await self._runs.list_unfinished(conversation.session_id)
        return found[0] if found else None

    def _new_session(self) -> SessionId:
        return SessionId(self._ids("ses"))

    def _make_key(self, message: Incoming) -> str:
        return f"channel/{self._name}/{message.message_id}"

    def _make_event(self, message: Incoming) -> ChannelReceived:
        return ChannelReceived(
            self._name, message.message_id, message.conversation, message.sender, len(message.attachments)
        )


def find_mistyped_command(head: str) -> str | None:
    """Return the command that the first word of a message is nearly, or None. Other words after a slash may be
    paths."""
    if not head.startswith("/") or head in COMMANDS:
        return None
    return next(iter(get_close_matches(head, COMMANDS, 1, 0.8)), None)


def parse_command_safely(text: str) -> object:
    """Return the session command in a text, also a wrong one, or None."""
    try:
        return parse_command(text)
    except UsageError as error:
        return error
