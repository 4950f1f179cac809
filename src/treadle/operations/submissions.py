"""Messages for agents, and the checks on them. Everything that can be checked is checked here, before anything is
written."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from treadle.core.context.projection import max_cost
from treadle.core.tools.permissions import check_examples
from treadle.domain.agents import AgentSpec
from treadle.domain.attachments import check_attached_parts
from treadle.domain.client_tools import check_client_tools
from treadle.domain.commands import CompactSession, SessionCommand, parse_command
from treadle.domain.errors import InvalidState, MissingKey, SizeLimitExceeded, UnknownModel, UsageError
from treadle.domain.events import Redacted, RunQueued
from treadle.domain.ids import RunId, TokenId
from treadle.domain.labels import Labels, make_labels
from treadle.domain.limits import DEFAULT_MAX_ATTACHMENT_BYTES
from treadle.domain.messages import MESSAGE_LIMIT, Message, Part, Text
from treadle.domain.permissions import ApprovalRule
from treadle.domain.quotas import Quotas
from treadle.domain.schemas import check_schema
from treadle.domain.tools import ClientTool
from treadle.domain.users import UserId, check_user, journaled_owner
from treadle.domain.workspaces import Workspace, is_same_place
from treadle.operations.journal_pages import read_queued
from treadle.operations.not_found import unknown_session
from treadle.operations.requested_run import RequestedRun
from treadle.operations.usage import UsageAccounts, refuse_spent, refuse_unless_running
from treadle.operations.workspaces import WorkspaceIdentifier
from treadle.ports.journal import Journal, Runs
from treadle.ports.model import Models
from treadle.ports.sessions import Sessions
from treadle.ports.tool import InvalidArguments, Subjects, Toolbox
from treadle.ports.vault import Redactor, Vault


class Submission(RequestedRun, frozen=True):
    """A message for an agent, with what the service knows about its sender."""

    key: str | None = None
    """An idempotency key: the same key returns the same run."""
    token: TokenId | None = None
    """The access token that the message was sent with."""
    token_quotas: Quotas | None = None
    """The quotas of all runs of that token together."""
    follows_anonymous: bool = False
    """An earlier run of the session is anonymous. The service finds it out."""

    @property
    def labels(self) -> Labels:
        """The labels of the run. Raise UsageError if they are invalid."""
        try:
            return make_labels((*self.agent.tags, *self.tags), self.metadata)
        except ValueError as error:
            raise UsageError(f"The labels of the run are invalid: {error}. Nothing was started.") from None

    @property
    def command(self) -> SessionCommand | None:
        """The session command in the message, or None."""
        if self.plain:
            return None
        parts = self.message.parts
        return parse_command(parts[0].text) if len(parts) == 1 and isinstance(parts[0], Text) else None


async def resolve_submission(
    submission: Submission, sessions: Sessions, runs: Runs, journal: Journal, identify: WorkspaceIdentifier
) -> Submission:
    """Return a submission with the owner of its session, the model that was chosen for the session and, for an
    agent without a folder of its own, the folder of the session. Raise UnknownSession if the sender may not see the
    session."""
    if submission.resumed_from is not None:
        submission = await _join_session(submission, submission.resumed_from, runs)
    if submission.follows is not None:
        followed = await runs.record(submission.follows.run_id)
        submission = msgspec.structs.replace(submission, session_id=followed.origin.session_id)
    known = None if submission.session_id is None else await sessions.basics(submission.session_id)
    if submission.session_id is None or known is None:
        return submission
    if submission.only_own and known.owner != submission.user:
        raise unknown_session(submission.session_id)
    agent = submission.agent
    if known.model is not None and known.agent == agent.name and not submission.has_own_model:
        agent = msgspec.structs.replace(agent, model=known.model, provider=None)
    folder = known.workspace.folder
    may_work_there = known.owner == submission.user or submission.token is None or submission.asker is not None
    if agent.workspace is None and folder and may_work_there and not _is_default_folder(folder, agent, identify):
        agent = msgspec.structs.replace(agent, workspace=folder)
    latest = await read_queued(known.latest_run, journal)
    return msgspec.structs.replace(
        submission,
        user=known.owner,
        agent=agent,
        follows_anonymous=latest.has_anonymous_words,
        mode=known.mode if submission.mode is None else submission.mode,
    )


def _is_default_folder(folder: str, agent: AgentSpec, identify: WorkspaceIdentifier) -> bool:
    """Return whether a folder is the one that an agent without a folder of its own gets. All are in one folder."""
    return Path(folder).parent == Path(identify(agent).folder).parent


def explain_mismatch(queued: RunQueued, submission: Submission, workspace: Workspace) -> str | None:
    """Return why a message must not be delivered to a run that waits in its session, or None."""
    if queued.agent.name != submission.agent.name:
        return f"it is a run of agent `{queued.agent.name}`"
    if queued.workspace is not None and not is_same_place(queued.workspace, workspace):
        return f"it works in {queued.workspace.folder}"
    if submission.anonymous and not queued.anonymous:
        return f"it is for `{queued.user}`, and the message names no user"
    return None


def make_queued(
    submission: Submission, credits_per_dollar: float, workspace: Workspace, version: int | None
) -> RunQueued:
    """Return the first event of the run that answers a submission."""
    labels = submission.labels
    return RunQueued(
        submission.agent,
        resumed_from=submission.resumed_from,
        asker=submission.asker,
        command=submission.command,
        token=submission.token,
        token_quotas=submission.token_quotas,
        credits_per_dollar=credits_per_dollar,
        before=submission.before,
        instructions=submission.instructions,
        owner=journaled_owner(submission.user),
        workspace=workspace,
        anonymous=submission.anonymous,
        follows_anonymous=submission.follows_anonymous,
        follows=submission.follows,
        tool_choice=submission.tool_choice,
        tags=labels.tags,
        metadata=labels.metadata,
        trace_parent=submission.trace_parent,
        own_deps=submission.own_deps,
        client_tools=submission.client_tools,
        version=version,
        mode=submission.mode,
        stand_ins=submission.stand_ins,
    )


async def _join_session(submission: Submission, ended: RunId, runs: Runs) -> Submission:
    """Return a submission in the session of the run that it continues. Raise an error if it names another session,
    or if that run has not ended."""
    record = await runs.record(ended)
    session_id = record.origin.session_id
    if submission.session_id not in (None, session_id):
        raise UsageError(
            f"{ended} belongs to session {session_id}, not to {submission.session_id}. Leave out the session id."
        )
    if record.outcome is None:
        raise InvalidState(
            f"{ended} has not ended, so no other run can continue it. Send it a message, or resume it."
        )
    return msgspec.structs.replace(submission, session_id=session_id, after_current=True)


class Admission:
    """Decides whether a submission can be accepted."""

    def __init__(self, models: Models, tools: Toolbox, books: UsageAccounts, vault: Vault) -> None:
        self._models = models
        self._vault = vault
        self._tools = tools
        self._books = books

    async def check(self, submission: Submission) -> None:
        """Raise an error for everything about the submission that can be known to be wrong."""
        agent, command = submission.agent, submission.command
        _check_user(submission.user)
        self._refuse_secrets(submission.labels)
        self._check_client_tools(agent, submission.client_tools)
        await self._check_message(agent, submission.message)
        for earlier in submission.before:
            check_attached_parts(earlier.parts, agent.limits.max_attachment_bytes)
        _check_beginning(submission)
        if command is None or isinstance(command, CompactSession):  # a model writes the summary
            await refuse_spent(agent, submission.token, submission.token_quotas, self._books)
        if command is None:
            self._check_agent(agent)
        if command is None or isinstance(command, CompactSession):
            self._check_models(agent, submission.token_quotas)

    def _refuse_secrets(self, labels: Labels) -> None:
        """Raise UsageError for a label with a secret: it would be stored and shown."""
        redactor = self._vault.redactor
        if redactor.is_idle:
            return
        for label in (*labels.tags, *labels.metadata, *labels.metadata.values()):
            if names := redactor.redact(label).names:
                raise UsageError(
                    f"The labels of the run contain the secret `{names[0]}`. Nothing was started. Leave it out."
                )

    def _check_client_tools(self, agent: AgentSpec, tools: tuple[ClientTool, ...]) -> None:
        if not tools:
            return
        if agent.client_tools == "off":
            raise UsageError(
                f"Agent `{agent.name}` accepts no tools of clients (`client_tools: off`). Leave them out."
            )
        try:
            check_client_tools(tools)
        except ValueError as error:
            raise UsageError(f"The client's tools are invalid: {error}. Nothing was started.") from None
        if names := self._vault.redactor.redact(msgspec.json.encode(tools).decode()).names:
            raise UsageError(
                f"The client's tools contain the secret `{names[0]}`. Nothing was started. Leave it out."
            )

    async def check_fork(
        self, agent: AgentSpec, message: Message | None, token: TokenId | None, token_quotas: Quotas | None
    ) -> None:
        """Raise an error for a fork whose run could not be started with this message."""
        await self._check_message(agent, message)
        await refuse_spent(agent, token, token_quotas, self._books)
        self._check_agent(agent)
        self._check_models(agent, token_quotas)

    async def _check_message(self, agent: AgentSpec, message: Message | None) -> None:
        await refuse_unless_running(agent.name, self._books)
        if message is not None:
            check_message(message, agent.limits.max_attachment_bytes)

    def _check_agent(self, agent: AgentSpec) -> None:
        if agent.output is not None:
            try:
                check_schema(agent.output)
            except ValueError as error:
                raise UsageError(f"The output of agent `{agent.name}` is not a JSON Schema: {error}") from None
        self._tools.select(agent.tools, agent)
        self._check_workspace(agent)
        for rule in agent.approvals.rules:
            self._check_rule(agent, rule)

    def _check_models(self, agent: AgentSpec, token_quotas: Quotas | None) -> None:
        found = [self._models.resolve(agent.model, agent.provider)]
        for name in agent.fallbacks:
            with suppress(MissingKey):  # it may be set by then; otherwise the next model is used
                found.append(self._models.resolve(name, None))
        ceiling = _find_money_ceiling(agent, token_quotas)
        if ceiling is None:
            return
        others = [] if agent.routing is None else [tier.model for tier in agent.routing.tiers]
        if agent.compaction.model is not None:
            others.append(agent.compaction.model)
        for name in others:
            with suppress(MissingKey, UnknownModel):  # the run reports it if it needs the model
                found.append(self._models.resolve(name, None))
        for model in found:
            if max_cost(0, agent.model_settings, model.profile) is None:
                raise UsageError(
                    f"The price of {model.provider}/{model.model} is unknown, so {ceiling} of agent `{agent.name}` "
                    "cannot be enforced. Set its prices under `models` in config.yaml, or remove the limit."
                )

    def _check_workspace(self, agent: AgentSpec) -> None:
        if agent.workspace is not None and not Path(agent.workspace).expanduser().is_dir():
            raise UsageError(f"The workspace {agent.workspace} of agent `{agent.name}` is not a folder. Create it.")

    def _check_rule(self, agent: AgentSpec, rule: ApprovalRule) -> None:
        """Raise UsageError for a rule that can never apply, or that contradicts its examples."""
        if not any(character in rule.tool for character in "*?[") and self._tools.find(rule.tool, agent) is None:
            raise UsageError(
                f"The approvals of agent `{agent.name}` have a rule for `{rule.tool}`, which is not a known tool; "
                "fix the rule."
            )
        try:
            check_examples(rule, partial(self._seen_in, rule.tool))
        except ValueError as error:
            raise UsageError(f"The approvals of agent `{agent.name}`: {error}. Fix the rule.") from None

    def _seen_in(self, tool_name: str, example: str) -> Subjects:
        """Return what a rule matches when a tool is called with this text as its only required argument."""
        tool = self._tools.find(tool_name)
        required: list[str] = [] if tool is None else tool.spec.schema.get("required", [])
        if tool is None or len(required) != 1:
            return Subjects((example,))
        try:
            return tool.subjects(tool.parse(msgspec.json.encode({required[0]: example}).decode()))
        except InvalidArguments:
            return Subjects((example,))


def _check_user(name: UserId) -> None:
    try:
        check_user(name)
    except ValueError as error:
        raise UsageError(f"The user of the run is invalid: {error}. Nothing was started.") from None


def _find_money_ceiling(agent: AgentSpec, token_quotas: Quotas | None) -> str | None:
    """Return the name of the limit in money that applies to the run, or None. It can be enforced only if prices are
    known."""
    if agent.limits.cost is not None:
        return "limits.cost"
    quotas = (agent.quotas, token_quotas)
    return "quotas.credits" if any(each is not None and each.credits is not None for each in quotas) else None


def _check_beginning(submission: Submission) -> None:
    """Raise UsageError for an invalid earlier conversation or invalid instructions."""
    if submission.before and submission.session_id is not None:
        raise UsageError(
            "Only a new session can start with an earlier conversation. "
            "Leave out the session id, or the conversation."
        )
    for message in submission.before:
        _check_length("An earlier message", message.text)
    _check_length("The text of the instructions", submission.instructions)


def check_message(message: Message, max_attachment_bytes: int = DEFAULT_MAX_ATTACHMENT_BYTES) -> None:
    """Raise UsageError if a message or an attachment of it is too large, or if it is empty."""
    check_attached_parts(message.parts, max_attachment_bytes)
    _check_length("The message", message.text)
    if not message.text.strip() and len(message.parts) == 1:
        raise UsageError("The message is empty. Write what the agent should do.")


def _check_length(what: str, text: str) -> None:
    if len(text) > MESSAGE_LIMIT:
        raise SizeLimitExceeded(
            f"{what} has {len(text)} characters; at most {MESSAGE_LIMIT} are accepted. "
            "Send it in parts, or give the agent a tool that reads it."
        )


def redact_message(message: Message, redactor: Redactor) -> tuple[Message, tuple[Redacted, ...]]:
    """Return the message without secrets, and the event that records what was redacted."""
    if redactor.is_idle:
        return message, ()
    names: dict[str, None] = {}
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Text):
            redaction = redactor.redact(part.text)
            names |= dict.fromkeys(redaction.names)
            parts.append(Text(redaction.text))
        else:
            parts.append(part)
    return Message(message.role, tuple(parts)), (Redacted(tuple(names), "user_message"),) if names else ()
