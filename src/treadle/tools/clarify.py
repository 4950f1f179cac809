"""`clarify`: the model asks a person. The engine parks the run and gives the answer as the result."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Subjects, ToolContext
from treadle.tools.function import tool

_NOT_RUN = "clarify is never run: the engine parks the run, and a person's answer is the result"


@tool(effect="none", interactive=True, timeout=0, name="clarify")
def _asked(
    question: Annotated[str, Meta(min_length=1)], options: Annotated[tuple[str, ...], Meta(max_length=10)] = ()
) -> None:
    """Ask the person you work for a question, and wait for the answer.

    Use it only when you cannot go on without a decision that is theirs: what they want is open in a way that leads
    to different work, or a step cannot be undone and they have not agreed to it. Not for what you can find out with
    the other tools, and not for leave to go on with what was asked. Ask one thing; say what you found and what you
    suggest. The answer may take days.

    Args:
        question: The whole question: they may not have the conversation before them.
        options: Answers to choose from, the one that you suggest first. They may answer otherwise.
    """


class Clarify:
    """The tool whose result is what a person answers."""

    def __init__(self) -> None:
        self.spec: ToolSpec = msgspec.structs.replace(_asked.spec, asks_a_person=True)

    def parse(self, arguments: str) -> Any:
        return _asked.parse(arguments)

    def subjects(self, arguments: Any) -> Subjects:
        return _asked.subjects(arguments)

    async def run(self, arguments: Any, context: ToolContext) -> str:
        raise RuntimeError(_NOT_RUN)


clarify = Clarify()
