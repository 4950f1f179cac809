"""The suites of a home: listing them, and adding a case that is made of a recorded run."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from treadle.domain.errors import UsageError
from treadle.domain.ids import RunId
from treadle.domain.suites import Contains, Suite
from treadle.operations.context import Context
from treadle.operations.evaluations import refuse_limited
from treadle.operations.operation import LocalCaller, Operation
from treadle.operations.recorded_cases import read_recorded_case
from treadle.operations.refusal import Refusal
from treadle.operations.schemas import Page, moment
from treadle.ports.evaluations import StoredSuite

MAX_CHECKS = 20
Step = Annotated[int, Meta(ge=1, description="Begin at this step: what the run did before is told as history.")]
SuiteName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class SuiteView(Struct, frozen=True, kw_only=True):
    """A suite of the home."""

    name: str
    changed_at: datetime
    targets: tuple[str, ...]
    """What runs its cases."""
    cases: int
    tags: tuple[str, ...]
    error: str = ""
    """Why it cannot be used."""


class SuiteDetail(SuiteView, frozen=True, kw_only=True):
    """A suite with its cases."""

    suite: Suite | None
    """Null if it cannot be used."""


class AddedCase(Struct, frozen=True):
    """A case that was added to a suite."""

    suite: str
    case: str
    run_id: RunId


class ListSuites(Struct, frozen=True, forbid_unknown_fields=True):
    """The request of a list of all suites."""


class OneSuite(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class AddCase(Struct, frozen=True, forbid_unknown_fields=True):
    name: SuiteName
    run_id: RunId
    step: Step | None = None
    case: Annotated[str, Meta(max_length=100, description="The name of the case. Default: from its message.")] = ""
    contains: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=4000)], ...],
        Meta(
            description="Texts that the answer must contain. Default: the checks that the run passes.",
            max_length=MAX_CHECKS,
        ),
    ] = ()


SUITES = Operation(
    "evaluations.suites",
    "GET",
    "/v1/suites",
    scope="read",
    request=ListSuites,
    response=Page[SuiteView],
)
SUITE = Operation(
    "evaluations.suite",
    "GET",
    "/v1/suites/{name}",
    scope="read",
    request=OneSuite,
    response=SuiteDetail,
    errors=(404,),
)
ADD = Operation(
    "evaluations.add_case",
    "POST",
    "/v1/suites/{name}/cases",
    scope="admin",
    request=AddCase,
    response=AddedCase,
    errors=(404, 409),
    status=201,
)


@SUITES.handler
async def list_suites(context: Context, _: ListSuites) -> Page[SuiteView]:
    """List the suites in the folder `evals` of the home."""
    refuse_limited(context)
    return Page(tuple([SuiteView(**_fields(each)) for each in context.suites().list()]))


@SUITE.handler
async def show_suite(context: Context, request: OneSuite) -> SuiteDetail:
    """Get a suite with its cases."""
    refuse_limited(context)
    found = context.suites().find(request.name)
    if found is None:
        raise Refusal(404, "NotFound", f"There is no suite `{request.name}`.")
    return SuiteDetail(**_fields(found), suite=found.suite)


@ADD.handler
async def add_case(context: Context, request: AddCase) -> AddedCase:
    """Add a case that is made of a recorded run to a suite.

    The suite is created if it is missing. The case has the results of the run's tool calls, without secrets."""
    refuse_limited(context)
    stored = context.suites().find(request.name)
    if stored is not None and stored.error:
        raise UsageError(f"The suite cannot be used: {stored.error}")
    checks = tuple([Contains(text) for text in request.contains])
    caller = LocalCaller(context)
    agent, case = await read_recorded_case(caller, request.run_id, request.step, request.case, checks)
    return AddedCase(request.name, context.suites().add(request.name, agent, case), request.run_id)


def _fields(stored: StoredSuite) -> dict[str, Any]:
    suite = stored.suite or Suite()
    tags = sorted({tag for case in suite.cases for tag in case.tags})
    return {
        "name": stored.name,
        "changed_at": moment(stored.changed_at),
        "targets": tuple([each.label for each in suite.targets]) or ((suite.agent,) if suite.agent else ()),
        "cases": len(suite.cases),
        "tags": tuple(tags),
        "error": stored.error,
    }
