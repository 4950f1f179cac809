"""What can be sent to an agent, and whether it may be: everything that can be known to be wrong is found here,
before anything is written."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from treadle.core.permissions import check_examples
from treadle.domain.agents import AgentSpec
from treadle.domain.commands import CompactSession, SessionCommand, command_in
from treadle.domain.errors import MissingKey, SizeLimitExceeded, UsageError
from treadle.domain.events import Redacted
from treadle.domain.identity import RunId, SessionId
from treadle.domain.messages import Message, Part, Text
from treadle.domain.permissions import ApprovalRule, Asker
from treadle.domain.schemas import refuse_wrong_schema
from treadle.ports.model import Models
from treadle.ports.tool import InvalidArguments, Toolbox
from treadle.ports.vault import Redactor

MESSAGE_LIMIT = 128_000
"""Characters of one message."""


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

    @property
    def command(self) -> SessionCommand | None:
        """What is asked of the session itself, where the message is such a wish."""
        parts = self.message.parts
        return command_in(parts[0].text) if len(parts) == 1 and isinstance(parts[0], Text) else None


class Ticket(Struct, frozen=True):
    run_id: RunId
    session_id: SessionId


class Admission:
    """Whether a submission can be taken."""

    def __init__(self, models: Models, tools: Toolbox) -> None:
        self._models = models
        self._tools = tools

    def check(self, submission: Submission) -> None:
        """Raise whatever can be known to be wrong."""
        check_message(submission.message)
        agent = submission.agent
        if isinstance(submission.command, CompactSession):  # which asks a model for a summary
            self._models.resolve(agent.model, agent.provider)
        if submission.command is not None:
            return
        if agent.output is not None:
            try:
                refuse_wrong_schema(agent.output)
            except ValueError as error:
                raise UsageError(f"The output of agent `{agent.name}` is no JSON Schema: {error}") from None
        self._models.resolve(agent.model, agent.provider)
        for name in agent.fallbacks:
            with suppress(MissingKey):  # it may be set by the time it is needed; without it the next one is asked
                self._models.resolve(name, None)
        self._tools.select(agent.tools)
        self._check_workspace(agent)
        for rule in agent.approvals.rules:
            self._check_rule(agent, rule)

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


def check_message(message: Message) -> None:
    length = len(message.text)
    if length > MESSAGE_LIMIT:
        raise SizeLimitExceeded(
            f"The message has {length} characters; at most {MESSAGE_LIMIT} are taken. "
            "Send it in parts, or give the agent a tool that reads it."
        )
    if not message.text.strip() and len(message.parts) == 1:
        raise UsageError("The message is empty. Say what is to be done.")


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
