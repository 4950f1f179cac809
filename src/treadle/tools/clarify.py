"""`clarify`: the model asks the user a question. The engine parks the run and returns the answer as the result."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Subjects, ToolContext
from treadle.tools.function import tool

_NOT_RUN = "clarify is never run: the engine parks the run, and the user's answer is the result"


@tool(effect="none", interactive=True, timeout=0, name="clarify")
def _question_tool(
    question: Annotated[str, Meta(min_length=1)], options: Annotated[tuple[str, ...], Meta(max_length=10)] = ()
) -> None:
    """Ask the user a question and wait for the answer. Only for a decision that is theirs.

    Args:
        question: The question.
        options: Answers to choose from.
    """


class Clarify:
    """The tool whose result is the answer of a person."""

    def __init__(self) -> None:
        self.spec: ToolSpec = msgspec.structs.replace(_question_tool.spec, asks_a_person=True)

    def parse(self, arguments: str) -> Any:
        return _question_tool.parse(arguments)

    def subjects(self, arguments: Any) -> Subjects:
        return _question_tool.subjects(arguments)

    async def run(self, arguments: Any, context: ToolContext) -> str:
        raise RuntimeError(_NOT_RUN)


clarify = Clarify()
