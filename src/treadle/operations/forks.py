"""Forks: new runs that continue from a step of an old run."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from treadle.core.fold import fold_all
from treadle.core.fork import make_fork
from treadle.core.state import RunState
from treadle.core.subagents.limits import cap_by_ceilings, detach_lineage
from treadle.domain.agents import AgentSpec
from treadle.domain.commands import format_command
from treadle.domain.envelope import Origin
from treadle.domain.errors import InvalidState, UsageError
from treadle.domain.events import EventData, LlmRequest, RunForked, RunQueued, UserMessage
from treadle.domain.ids import AgentId, RunId, SessionId, TokenId
from treadle.domain.labels import inherit_tags
from treadle.domain.messages import Image, Message, Text, user
from treadle.domain.modes import copy_mode
from treadle.domain.permissions import Asker
from treadle.domain.quotas import Quotas
from treadle.engine.run_history import load_run_history
from treadle.operations.event_factory import DraftFactory
from treadle.operations.prompts import find_request
from treadle.operations.schemas import Ticket
from treadle.operations.submissions import Admission, redact_message
from treadle.operations.workspaces import WorkspaceIdentifier
from treadle.ports.clock import Ids
from treadle.ports.journal import Journal, Runs
from treadle.ports.vault import Vault


class Fork(Struct, frozen=True):
    """Which run to fork from which step, and what to change."""

    run_id: RunId
    step: int | None = None
    """None for the last step."""
    model: str | None = None
    message: str | None = None
    """At the first step it replaces the original message; later it follows the results."""
    agent: AgentSpec | None = None
    """None: the agent of the old run, with all restrictions that its ancestors imposed."""
    version: int | None = None
    """The version of `agent`; None: the current one."""
    key: str | None = None
    """An idempotency key: the same key returns the same run."""
    asker: Asker | None = None
    token: TokenId | None = None
    token_quotas: Quotas | None = None
    provider: str | None = None
    """The provider of the model; None for that of the agent."""
    new_id: RunId | None = None
    """The ID of the new run; None: any."""
    own_deps: bool = False
    """The program provides deps to the new run, in memory."""


class ForkService:
    def __init__(
        self,
        journal: Journal,
        runs: Runs,
        admission: Admission,
        drafts: DraftFactory,
        vault: Vault,
        ids: Ids,
        agent_id: Callable[[str], Awaitable[AgentId]],
        credits_per_dollar: float,
        identify: WorkspaceIdentifier,
        find_version: Callable[[str, int | None], Awaitable[int | None]],
    ) -> None:
        self._journal = journal
        self._runs = runs
        self._admission = admission
        self._drafts = drafts
        self._vault = vault
        self._ids = ids
        self._agent_id = agent_id
        self._credits_per_dollar = credits_per_dollar
        self._identify = identify
        self._find_version = find_version

    async def fork(self, fork: Fork) -> Ticket:
        """Queue the new run in a session of its own. The old run is only read.

        The new run continues the old conversation, so it has the same owner, whichever user requests it."""
        if fork.key is not None and (known := await self._runs.find_submitted(fork.key)):
            return Ticket(known.run_id, (await self._runs.record(known.run_id)).origin.session_id)
        point = await self._load_point(fork)
        start = _prepare_start(point, fork)
        await self._admission.check_fork(start.agent, start.message, fork.token, fork.token_quotas)
        run_id, above = fork.new_id or RunId(self._ids("run")), point.queued.lineage if fork.agent is None else None
        queued = RunQueued(
            start.agent if above is None else cap_by_ceilings(above.ceilings, start.agent),
            asker=fork.asker,
            token=fork.token,
            token_quotas=fork.token_quotas,
            credits_per_dollar=self._credits_per_dollar,
            before=start.before,
            instructions=point.queued.instructions,
            lineage=None if above is None else detach_lineage(above, run_id),
            owner=point.queued.owner,
            workspace=self._identify(start.agent),
            anonymous=point.queued.anonymous,
            follows_anonymous=point.queued.has_anonymous_words,
            tags=inherit_tags(point.queued.tags, start.agent.tags),
            metadata=point.queued.metadata,
            own_deps=point.queued.own_deps or fork.own_deps,
            client_tools=point.queued.client_tools if fork.token == point.queued.token else (),
            version=point.queued.version
            if fork.agent is None
            else await self._find_version(fork.agent.name, fork.version),
            mode=copy_mode(point.queued.mode),
        )
        messages = ()
        if start.message is not None:
            message, redacted = redact_message(start.message, self._vault.redactor)
            messages = (*redacted, UserMessage(message))
        return await self._queue(run_id, (queued, start.forked, *messages), start.agent.name, fork.key)

    async def _queue(self, run_id: RunId, first: Sequence[EventData], agent: str, key: str | None) -> Ticket:
        session_id = SessionId(self._ids("ses"))
        origin = Origin(run_id, session_id, await self._agent_id(agent))
        drafts = tuple(self._drafts.make(data) for data in first)
        found = await self._journal.submit(origin, drafts, key)
        if found == run_id:
            return Ticket(run_id, session_id)
        return Ticket(found, (await self._runs.record(found)).origin.session_id)

    async def _load_point(self, fork: Fork) -> "ForkPoint":
        state, events = await load_run_history(fork.run_id, self._journal)
        queued = events[0].data
        assert isinstance(queued, RunQueued), f"the first event of {fork.run_id} is {events[0].type}"
        if queued.command is not None:
            raise InvalidState(
                f"{fork.run_id} is the command {format_command(queued.command)}, which has no steps to fork from. "
                "Fork a run of its session that has answered a message."
            )
        if fork.step is not None and fork.step < 1:
            raise UsageError(f"There is no step {fork.step}: steps are counted from 1.")
        request = find_request(fork.run_id, fork.step, events)
        assert isinstance(request.data, LlmRequest)
        asked = next((event.data.message for event in events if isinstance(event.data, UserMessage)), None)
        up_to = events[: request.sequence]
        fold_all(state, up_to)
        return ForkPoint(state, queued, make_fork(state, up_to, request.data), asked)


class ForkPoint(Struct, frozen=True):
    """The state of the old run at the fork."""

    state: RunState
    queued: RunQueued
    forked: RunForked
    asked: Message | None
    """None: the run is a fork itself, without a new message."""

    @property
    def was_just_asked(self) -> bool:
        """Whether the last message is the message that the run answers."""
        return self.forked.step == 1 and len(self.state.transcript.messages) - 1 in self.forked.tasks


class ForkStart(Struct, frozen=True):
    """What the new run starts with."""

    agent: AgentSpec
    before: tuple[Message, ...]
    forked: RunForked
    message: Message | None


def _prepare_start(point: ForkPoint, fork: Fork) -> ForkStart:
    agent = _choose_agent(point.queued.agent, fork)
    messages, forked = tuple(point.state.transcript.messages), point.forked
    if _ignore_model(agent) != _ignore_model(point.queued.agent):  # the prompt differs
        forked = msgspec.structs.replace(forked, measured=None, notes="", workspace="", recalled="")
    if agent != point.queued.agent:  # another model answers
        forked = msgspec.structs.replace(forked, route="", plain=False)
    if fork.message is None:
        return ForkStart(agent, messages, forked, None)
    if not point.was_just_asked:
        return ForkStart(agent, messages, forked, user(fork.message))
    forked = msgspec.structs.replace(forked, asked="", tasks=forked.tasks[:-1], route="", recalled="")
    return ForkStart(agent, messages[:-1], forked, _replace_text(point.asked or messages[-1], fork.message))


def _choose_agent(old: AgentSpec, fork: Fork) -> AgentSpec:
    agent = fork.agent or old
    if fork.model is not None and not fork.model.strip():
        raise UsageError("The model has no name; write provider/model-id or an alias.")
    if fork.provider is not None:
        return msgspec.structs.replace(agent, model=fork.model or agent.model, provider=fork.provider)
    if fork.model is None:
        return agent
    return msgspec.structs.replace(agent, model=fork.model, provider=None, routing=None)


def _ignore_model(agent: AgentSpec) -> AgentSpec:
    return msgspec.structs.replace(agent, model="-", provider=None, routing=None)


def _replace_text(asked: Message, text: str) -> Message:
    """Return the message with another text and the same attachments."""
    return user(text, *(part for part in asked.parts[1:] if isinstance(part, Text | Image)))
