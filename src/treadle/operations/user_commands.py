"""Commands that a user runs in the workspace of an agent, in the sandbox that the agent has."""

from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.ports.sandbox import CommandError, EndedBy

TIMEOUT_SECONDS = 120.0
MAX_COMMAND_CHARACTERS = 20_000


class UserCommand(Struct, frozen=True, forbid_unknown_fields=True):
    agent: AgentSpec
    command: Annotated[str, Meta(min_length=1, max_length=MAX_COMMAND_CHARACTERS)]


class RunUserCommand(Struct, frozen=True):
    user_command: UserCommand


class CommandOutput(Struct, frozen=True):
    output: str
    """Standard output and error. If it was too long, the middle is left out. Values of secrets are redacted."""
    exit_code: int | None
    """Null: it was stopped."""
    ended_by: EndedBy | None = None
    """Why it was stopped."""


RUN = Operation(
    "local.run_command",
    "POST",
    "/v1/commands",
    scope="admin",
    request=RunUserCommand,
    response=CommandOutput,
    public=False,
    whole_body="user_command",
)


@RUN.handler
async def run_user_command(context: Context, request: RunUserCommand) -> CommandOutput:
    """Run a command in the workspace of an agent. The agent does not learn of it."""
    wanted = request.user_command
    try:
        done = await context.run_command(wanted.agent, wanted.command, TIMEOUT_SECONDS)
    except CommandError as error:
        raise UsageError(f"The command was not run: {error}") from None
    return CommandOutput(context.vault.redactor.redact(done.output).text, done.exit_code, done.ended_by)
