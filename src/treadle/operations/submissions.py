"""What can be sent to an agent, and whether it may be: everything that can be known to be wrong is found here,
before anything is written."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from treadle.core.context.projection import max_cost
from treadle.core.tools.permissions import check_examples
from treadle.domain.agents import AgentSpec
from treadle.domain.commands import CompactSession, SessionCommand, parse_command
from treadle.domain.errors import MissingKey, SizeLimitExceeded, UnknownModel, UsageError
from treadle.domain.events import Redacted
from treadle.domain.ids import RunId, SessionId, TokenId
from treadle.domain.messages import MESSAGE_LIMIT, Message, Part, Text
from treadle.domain.permissions import ApprovalRule, Asker
from treadle.domain.quotas import Quotas
from treadle.domain.schemas import check_schema
from treadle.domain.users import LOCAL_USER, UserId, check_user
from treadle.operations.usage import UsageAccounts, refuse_spent, refuse_unless_running
from treadle.ports.model import Models
from treadle.ports.tool import InvalidArguments, Toolbox
from treadle.ports.vault import Redactor


class Submission(Struct, frozen=True):
    """A message for an agent."""

    agent: AgentSpec
    message: Message
    session_id: SessionId | None = None
    key: str | None = None
    """The same key again finds the same run."""
    resumed_from: RunId | None = None
    asker: Asker | None = None
    """Whoever sends it can be asked something back, there."""
    token: TokenId | None = None
    """The access token that it was sent with."""
    token_quotas: Quotas | None = None
    """What all runs of that token may use together."""
    before: tuple[Message, ...] = ()
    """What was said before, elsewhere: for a new session, which begins with it."""
    instructions: str = ""
    """What the agent is told for this run, after its own instructions."""

    plain: bool = False
    """It is a message, also where it begins like a command: nobody has typed it."""
    user: UserId = LOCAL_USER
    """Who owns the session that it begins. One that is there already keeps its owner, and so does the run in it."""
    only_own: bool = False
    """Sessions and runs of other users do not exist for whoever sends it."""

    @property
    def command(self) -> SessionCommand | None:
        """What is asked of the session itself, where the message is such a wish."""
        if self.plain:
            return None
        parts = self.message.parts
        return parse_command(parts[0].text) if len(parts) == 1 and isinstance(parts[0], Text) else None


class Ticket(Struct, frozen=True):
    run_id: RunId
    session_id: SessionId


class Admission:
    """Whether a submission can be taken."""

    def __init__(self, models: Models, tools: Toolbox, books: UsageAccounts) -> None:
        self._models = models
        self._tools = tools
        self._books = books

    async def check(self, submission: Submission) -> None:
        """Raise whatever can be known to be wrong."""
        agent, command = submission.agent, submission.command
        _check_user(submission.user)
        await refuse_unless_running(agent.name, self._books)
        check_message(submission.message)
        _check_beginning(submission)
        if command is None or isinstance(command, CompactSession):  # which asks a model for a summary
            await refuse_spent(agent, submission.token, submission.token_quotas, self._books)
            self._check_models(submission)
        if command is None:
            self._check_agent(agent)

    def _check_agent(self, agent: AgentSpec) -> None:
        if agent.output is not None:
            try:
                check_schema(agent.output)
            except ValueError as error:
                raise UsageError(f"The output of agent `{agent.name}` is no JSON Schema: {error}") from None
        self._tools.select(agent.tools)
        self._check_workspace(agent)
        for rule in agent.approvals.rules:
            self._check_rule(agent, rule)

    def _check_models(self, submission: Submission) -> None:
        agent = submission.agent
        found = [self._models.resolve(agent.model, agent.provider)]
        for name in agent.fallbacks:
            with suppress(MissingKey):  # it may be set by the time it is needed; without it the next one is asked
                found.append(self._models.resolve(name, None))
        ceiling = _ceiling_on_money(submission)
        if ceiling is None:
            return
        others = [] if agent.routing is None else [tier.model for tier in agent.routing.tiers]
        if agent.compaction.model is not None:
            others.append(agent.compaction.model)
        for name in others:
            with suppress(MissingKey, UnknownModel):  # which the run will tell of, if it ever asks it
                found.append(self._models.resolve(name, None))
        for model in found:
            if max_cost(0, agent.model_settings, model.profile) is None:
                raise UsageError(
                    f"No price is known of {model.provider}/{model.model}, so {ceiling} of agent `{agent.name}` "
                    "could not be kept. Give its prices under `models` in config.yaml, or take the ceiling away."
                )

    def _check_workspace(self, agent: AgentSpec) -> None:
        if agent.workspace is not None and not Path(agent.workspace).expanduser().is_dir():
            raise UsageError(f"The workspace {agent.workspace} of agent `{agent.name}` is no folder; make it.")

    def _check_rule(self, agent: AgentSpec, rule: ApprovalRule) -> None:
        """A rule that can never apply, or does other than its author thinks, guards nothing."""
        if not any(character in rule.tool for character in "*?[") and self._tools.find(rule.tool) is None:
            raise UsageError(
                f"The approvals of agent `{agent.name}` have a rule for `{rule.tool}`, which is no tool; mend it."
            )
        try:
            check_examples(rule, partial(self._seen_in, rule.tool))
        except ValueError as error:
            raise UsageError(f"The approvals of agent `{agent.name}`: {error}. Mend the rule.") from None

    def _seen_in(self, tool_name: str, example: str) -> Sequence[str]:
        """What a rule looks at when a tool is called with this text as its one necessary argument."""
        tool = self._tools.find(tool_name)
        required: list[str] = [] if tool is None else tool.spec.schema.get("required", [])
        if tool is None or len(required) != 1:
            return (example,)
        try:
            return tool.subjects(tool.parse(msgspec.json.encode({required[0]: example}).decode())).texts
        except InvalidArguments:
            return (example,)


def _check_user(name: UserId) -> None:
    try:
        check_user(name)
    except ValueError as error:
        raise UsageError(f"The run cannot be for this user: {error}. Nothing was begun.") from None


def _ceiling_on_money(submission: Submission) -> str | None:
    """What a run must keep to, and can only where prices are known."""
    if submission.agent.limits.cost is not None:
        return "limits.cost"
    quotas = (submission.agent.quotas, submission.token_quotas)
    return "quotas.credits" if any(each is not None and each.credits is not None for each in quotas) else None


def _check_beginning(submission: Submission) -> None:
    """What a session begins with, and what its run is told beside."""
    if submission.before and submission.session_id is not None:
        raise UsageError("Only a new session can begin with what was said elsewhere; leave out its id, or that.")
    for message in submission.before:
        _check_length("A message from before", message.text)
    _check_length("What the run is told beside", submission.instructions)


def check_message(message: Message) -> None:
    _check_length("The message", message.text)
    if not message.text.strip() and len(message.parts) == 1:
        raise UsageError("The message is empty. Say what is to be done.")


def _check_length(what: str, text: str) -> None:
    if len(text) > MESSAGE_LIMIT:
        raise SizeLimitExceeded(
            f"{what} has {len(text)} characters; at most {MESSAGE_LIMIT} are taken. "
            "Send it in parts, or give the agent a tool that reads it."
        )


def without_secrets(message: Message, redactor: Redactor) -> tuple[Message, tuple[Redacted, ...]]:
    """The message as it is kept, and what is on record of what was taken out of it."""
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
