"""A new run from a step of an old one: what it begins with, and what it has otherwise."""

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
from treadle.domain.messages import Image, Message, Text, user
from treadle.domain.permissions import Asker
from treadle.domain.quotas import Quotas
from treadle.engine.run_history import load_run_history
from treadle.operations.event_factory import Drafts
from treadle.operations.prompts import request_of
from treadle.operations.submissions import Admission, Submission, Ticket, without_secrets
from treadle.ports.clock import Ids
from treadle.ports.journal import Journal, Runs
from treadle.ports.vault import Vault


class Fork(Struct, frozen=True):
    """Which run, from which step, and what the new one has otherwise."""

    run_id: RunId
    step: int | None = None
    """None: the last."""
    model: str | None = None
    message: str | None = None
    """At the first step in the place of what was asked; later it is said after the results."""
    agent: AgentSpec | None = None
    """None: as the old run had it, with all that held for it because of those above it."""
    key: str | None = None
    """The same key again finds the same run."""
    asker: Asker | None = None
    token: TokenId | None = None
    token_quotas: Quotas | None = None
    provider: str | None = None
    """Who is asked for the model; None: whoever the agent asks."""


class Forking:
    def __init__(
        self,
        journal: Journal,
        runs: Runs,
        admission: Admission,
        drafts: Drafts,
        vault: Vault,
        ids: Ids,
        agent_id: Callable[[str], Awaitable[AgentId]],
        credits_per_dollar: float,
    ) -> None:
        self._journal = journal
        self._runs = runs
        self._admission = admission
        self._drafts = drafts
        self._vault = vault
        self._ids = ids
        self._agent_id = agent_id
        self._credits_per_dollar = credits_per_dollar

    async def fork(self, fork: Fork) -> Ticket:
        """Queue the new run, in a session of its own. The old one is only read. What was said in it goes on, so
        the new run has the same owner, whoever asks for it."""
        if fork.key is not None and (known := await self._runs.submitted(fork.key)):
            return Ticket(known, (await self._runs.record(known)).origin.session_id)
        stood = await self._stood(fork)
        begun = _begun(stood, fork)
        await self._admission.check(begun.submission(fork))
        run_id, above = RunId(self._ids("run")), stood.queued.lineage if fork.agent is None else None
        queued = RunQueued(
            begun.agent if above is None else cap_by_ceilings(above.ceilings, begun.agent),
            asker=fork.asker,
            token=fork.token,
            token_quotas=fork.token_quotas,
            credits_per_dollar=self._credits_per_dollar,
            before=begun.before,
            instructions=stood.queued.instructions,
            lineage=None if above is None else detach_lineage(above, run_id),
            owner=stood.queued.owner,
        )
        said = ()
        if begun.message is not None:
            message, redacted = without_secrets(begun.message, self._vault.redactor)
            said = (*redacted, UserMessage(message))
        return await self._queue(run_id, (queued, begun.forked, *said), begun.agent.name, fork.key)

    async def _queue(self, run_id: RunId, first: Sequence[EventData], agent: str, key: str | None) -> Ticket:
        session_id = SessionId(self._ids("ses"))
        origin = Origin(run_id, session_id, await self._agent_id(agent))
        drafts = tuple(self._drafts.make(data) for data in first)
        found = await self._journal.submit(origin, drafts, key)
        if found == run_id:
            return Ticket(run_id, session_id)
        return Ticket(found, (await self._runs.record(found)).origin.session_id)

    async def _stood(self, fork: Fork) -> "Stood":
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
        wanted = request_of(fork.run_id, fork.step, events)
        assert isinstance(wanted.data, LlmRequest)
        asked = next((event.data.message for event in events if isinstance(event.data, UserMessage)), None)
        up_to = events[: wanted.sequence]
        fold_all(state, up_to)
        return Stood(state, queued, make_fork(state, up_to, wanted.data), asked)


class Stood(Struct, frozen=True):
    """Where the old run stood."""

    state: RunState
    queued: RunQueued
    forked: RunForked
    asked: Message | None
    """None: it is a fork itself, and was told nothing new."""

    @property
    def was_just_asked(self) -> bool:
        """Whether the last message is what the run was asked."""
        return self.forked.step == 1 and len(self.state.transcript.messages) - 1 in self.forked.tasks


class Begun(Struct, frozen=True):
    """What the new run begins with."""

    agent: AgentSpec
    before: tuple[Message, ...]
    forked: RunForked
    message: Message | None

    def submission(self, fork: Fork) -> Submission:
        """The same as a message that somebody sends, to be judged like one."""
        said = self.message or user("(as before)")
        return Submission(self.agent, said, token=fork.token, token_quotas=fork.token_quotas, plain=True)


def _begun(stood: Stood, fork: Fork) -> Begun:
    agent = _agent(stood.queued.agent, fork)
    messages, forked = tuple(stood.state.transcript.messages), stood.forked
    if _without_its_model(agent) != _without_its_model(stood.queued.agent):  # it has another prompt
        forked = msgspec.structs.replace(forked, measured=None, notes="", workspace="", recalled="")
    if agent != stood.queued.agent:  # and is answered by another model
        forked = msgspec.structs.replace(forked, route="", plain=False)
    if fork.message is None:
        return Begun(agent, messages, forked, None)
    if not stood.was_just_asked:
        return Begun(agent, messages, forked, user(fork.message))
    forked = msgspec.structs.replace(forked, asked="", tasks=forked.tasks[:-1], route="", recalled="")
    return Begun(agent, messages[:-1], forked, _in_its_place(stood.asked or messages[-1], fork.message))


def _agent(old: AgentSpec, fork: Fork) -> AgentSpec:
    agent = fork.agent or old
    if fork.model is not None and not fork.model.strip():
        raise UsageError("The model has no name; write provider/model-id or an alias.")
    if fork.provider is not None:
        return msgspec.structs.replace(agent, model=fork.model or agent.model, provider=fork.provider)
    if fork.model is None:
        return agent
    return msgspec.structs.replace(agent, model=fork.model, provider=None, routing=None)


def _without_its_model(agent: AgentSpec) -> AgentSpec:
    return msgspec.structs.replace(agent, model="-", provider=None, routing=None)


def _in_its_place(asked: Message, text: str) -> Message:
    """Other words; what was attached to the message stays."""
    return user(text, *(part for part in asked.parts[1:] if isinstance(part, Text | Image)))
