"""Options and arguments that several commands take."""

from typing import TYPE_CHECKING, Annotated

from treadle.domain.modes import ApprovalMode
from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Option

if TYPE_CHECKING:
    from treadle.domain.events.permissions import Decision
    from treadle.surfaces.home_access.session_folder import FolderChoice

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]
EventsJson = Annotated[bool, Option("--json", help="Print every event as JSON, one per line.")]
Limit = Annotated[int, Option(min=1, help="Maximum number of rows.")]
New = Annotated[
    bool, Option("--new", help="Start with an empty database even if the one that the home had is missing.")
]
Yes = Annotated[bool, Option("--yes", help="Do not ask for confirmation.")]
AgentArgument = Annotated[
    str, Argument(metavar="NAME", help="The name of an agent.", suggest=completion.agent_names)
]
AgentOption = Annotated[
    str, Option("-a", "--agent", metavar="NAME", help="The agent.", suggest=completion.agent_names)
]
RunArgument = Annotated[
    str,
    Argument(
        metavar="RUN",
        help="The id of the run, run_…, a unique beginning of it, or `last`.",
        suggest=completion.run_ids,
    ),
]
SessionArgument = Annotated[
    str,
    Argument(
        metavar="SESSION",
        help="The id of the session, ses_…, a unique beginning of it, its title, or `last`.",
        suggest=completion.session_ids,
    ),
]
ApprovalArgument = Annotated[
    str, Argument(metavar="APPROVAL", help="The id of the approval, apr_…, a unique beginning of it, or `last`.")
]
Note = Annotated[str, Option(metavar="TEXT", help="A note for the agent.")]
ModelArgument = Annotated[str, Argument(metavar="MODEL", help="An alias or provider/model-id.")]
Model = Annotated[
    str | None,
    Option("-m", "--model", metavar="MODEL", help="Use this model: an alias or provider/model-id."),
]
Mode = Annotated[
    ApprovalMode | None,
    Option(
        help="How much the agent may do without asking, from this message on. plan: only read. accept_edits: also "
        "change files of the workspace. auto: everything that the sandbox confines. Default: as it is."
    ),
]
Continue = Annotated[bool, Option("-c", "--continue", help="Continue the latest session of the current folder.")]
BaseUrl = Annotated[
    str | None,
    Option(
        metavar="URL",
        help="Use the OpenAI-compatible endpoint at this address, with the key in OPENAI_API_KEY if set.",
    ),
]
Tags = Annotated[
    list[str] | None, Option("--tag", metavar="TAG", help="Tag the run and its child runs. Repeatable.")
]
Metadata = Annotated[
    list[str] | None,
    Option("--metadata", metavar="NAME=VALUE", help="Note this about the run and its child runs. Repeatable."),
]
OnlyTags = Annotated[
    list[str] | None, Option("--tag", metavar="TAG", help="Only runs with this tag. Repeatable: all of them.")
]
OnlyMetadata = Annotated[
    list[str] | None,
    Option("--metadata", metavar="NAME=VALUE", help="Only runs with this metadata. Repeatable: all of it."),
]
OnlyUser = Annotated[str | None, Option(metavar="NAME", help="Only runs of this user.")]
Decisions = Annotated[
    bool | None,
    Option("--yes/--no", help="Approve or deny every request. Default: ask at the terminal."),
]
FurtherDecisions = Annotated[
    bool | None,
    Option("--yes/--no", help="Approve or deny every further request. Default: ask at the terminal."),
]


Here = Annotated[
    bool,
    Option("--here", help="Continue a session of another folder in this one. What was allowed for it is dropped."),
]
There = Annotated[bool, Option("--there", help="Continue a session of another folder in its own folder.")]


def folder_choice_of(here: bool, there: bool) -> "FolderChoice | None":
    """Return the folder that --here or --there chooses. Raise UsageError for both."""
    if here and there:
        from treadle.domain.errors import UsageError

        raise UsageError("--here and --there exclude each other. Use one of them.")
    return "here" if here else "there" if there else None


def decision_of(yes: bool | None) -> "Decision | None":
    """Return the decision that --yes or --no makes in advance."""
    return None if yes is None else "approve" if yes else "deny"
