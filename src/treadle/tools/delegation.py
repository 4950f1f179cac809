"""`agent_spawn`, `agent_send`, `invoke_agent`: delegate work to a child run. The engine starts the child run and
parks the calling run; the output of the child run is the result."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from treadle.domain.lineage import Order
from treadle.domain.messages import MESSAGE_LIMIT
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Subjects, ToolContext
from treadle.tools.function import FunctionTool, tool

_NOT_RUN = "a delegating call is never run: the engine starts a child run, whose output is the result"
_Text = Annotated[str, Meta(min_length=1, max_length=MESSAGE_LIMIT)]


@tool(effect="external", parallel=True, timeout=0, name="agent_spawn")
def _spawn(
    message: _Text,
    instructions: _Text | None = None,
    agent: _Text | None = None,
    tools: tuple[str, ...] | None = None,
    model: str | None = None,
) -> None:
    """Start a helper for one part of your work, and get its answer as the result.

    The helper starts with an empty conversation: it knows nothing of yours. Use it for a separate task whose
    details you do not need: a search through many files, one of several similar tasks. Several calls in one turn
    run in parallel. It costs as much as your own work, so do not use it for one or two steps.

    Args:
        message: The whole task: the goal, everything the helper needs to know, and the form of the answer.
        instructions: The role and working style of the helper. Default: yours.
        agent: The name of another agent to use instead of a copy of you.
        tools: The names of the tools that it may use, from your own. Default: all of them.
        model: Another model that you may use.
    """


@tool(effect="external", parallel=True, timeout=0, name="agent_send")
def _send(agent: _Text, message: _Text) -> None:
    """Send a message to another agent, and get its answer as the result.

    The agent remembers your earlier messages to it in this conversation, and nothing else of the conversation. Use
    it for an exchange of several turns with a specialist.

    Args:
        agent: The name of the agent.
        message: The message.
    """


@tool(effect="external", parallel=True, timeout=0, name="invoke_agent")
def _invoke(agent: _Text, message: _Text) -> None:
    """Give a task to another agent by its name, and get its answer as the result.

    The agent starts with an empty conversation each time. Several calls in one turn run in parallel.

    Args:
        agent: The name of the agent.
        message: The whole task, with everything the agent needs to know.
    """


class Delegation:
    """A tool that starts another run, whose outcome is its result."""

    def __init__(self, function: FunctionTool[Any, Any], role: Literal["spawn", "send", "invoke"]) -> None:
        self._function = function
        self.spec: ToolSpec = msgspec.structs.replace(function.spec, delegates=role)

    def parse(self, arguments: str) -> Order:
        given = self._function.parse(arguments)
        return Order(**{name: getattr(given, name) for name in given.__struct_fields__})

    def subjects(self, arguments: Order) -> Subjects:
        """The agent and the message: rules may let some be asked, and others not."""
        texts = (arguments.agent or "", arguments.message)
        return Subjects(tuple([text for text in texts if text]), pattern=arguments.agent or "*")

    async def run(self, arguments: Any, context: ToolContext) -> str:
        raise RuntimeError(_NOT_RUN)


agent_spawn = Delegation(_spawn, "spawn")
agent_send = Delegation(_send, "send")
invoke_agent = Delegation(_invoke, "invoke")
