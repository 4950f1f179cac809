"""Questions of agents that wait for an answer, over all runs. `runs.questions` returns those of one run."""

from msgspec import Struct

from treadle.domain.ids import RunId, SessionId
from treadle.domain.users import LOCAL_USER, UserId
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page
from treadle.ports.journal import RunFilter

MAX_RUNS = 200
"""How many waiting runs are searched for questions."""


class WaitingQuestion(Struct, frozen=True):
    """A question of an agent that waits for an answer."""

    run_id: RunId
    session_id: SessionId
    agent: str
    call_id: str
    question: str
    options: tuple[str, ...] = ()
    owner: UserId = LOCAL_USER
    """The user that its run is for."""
    summary: str = ""
    """The beginning of the message that the run answers."""


LIST = Operation(
    "questions.list",
    "GET",
    "/v1/questions",
    scope="read",
    also="approve",
    request=NoParameters,
    response=Page[WaitingQuestion],
)


@LIST.handler
async def list_questions(context: Context, _: NoParameters) -> Page[WaitingQuestion]:
    """List the questions that wait for an answer.

    Those of the latest runs first."""
    waiting = RunFilter(agents=context.visible_agents(None), status="waiting", owners=context.visible_owners(None))
    found: list[WaitingQuestion] = []
    for record in await context.service.runs(waiting, MAX_RUNS):
        if record.waiting_for not in ("answer", "approval"):  # a run may wait for both
            continue
        found += [
            WaitingQuestion(
                run_id=record.origin.run_id,
                session_id=record.origin.session_id,
                agent=record.agent,
                call_id=asked.call_id,
                question=asked.question,
                options=tuple(asked.options),
                owner=record.owner,
                summary=record.message,
            )
            for asked in await context.service.questions(record.origin.run_id)
        ]
    return Page(tuple(found))
