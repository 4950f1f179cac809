"""Options and arguments that several commands take."""

from typing import TYPE_CHECKING, Annotated

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Option

if TYPE_CHECKING:
    from treadle.domain.events import Decision

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]
RunArgument = Annotated[str, Argument(metavar="RUN", help="The id of the run, run_…", suggest=completion.run_ids)]
ApprovalArgument = Annotated[str, Argument(metavar="APPROVAL", help="The id of the approval, apr_…")]
Note = Annotated[str, Option(metavar="TEXT", help="A note for the agent.")]
ModelArgument = Annotated[str, Argument(metavar="MODEL", help="An alias or provider/model-id.")]
BaseUrl = Annotated[
    str | None,
    Option(
        metavar="URL",
        help="Use the OpenAI-compatible endpoint at this address, with the key in OPENAI_API_KEY if set.",
    ),
]

Yes = Annotated[
    bool | None,
    Option("--yes/--no", help="Approve or deny every request. Default: ask at the terminal."),
]
FurtherYes = Annotated[
    bool | None,
    Option("--yes/--no", help="Approve or deny every further request. Default: ask at the terminal."),
]


def decision_of(yes: bool | None) -> "Decision | None":
    return None if yes is None else "approve" if yes else "deny"
