"""Runs in detail: the exact prompt of a step, the whole output of a call, the difference of two runs, and a run
with its child runs."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from treadle.domain.errors import UnknownCall
from treadle.domain.events import ToolCallEnd, ToolCallError
from treadle.domain.excerpts import take_excerpt
from treadle.domain.ids import RunId
from treadle.domain.messages import Message
from treadle.domain.runs import Metrics, add_metrics
from treadle.domain.tools import ToolSpec
from treadle.operations.context import Context
from treadle.operations.operation import LocalCaller, Operation
from treadle.operations.run_diff import RunDiff, diff
from treadle.operations.run_records import build_run_steps
from treadle.operations.run_tree import Member, list_members
from treadle.operations.runs import OneRun, RunView

MAX_PART_CHARACTERS = 100_000
"""The longest part of an output in one response."""


class StepPrompt(Struct, frozen=True):
    """The request that a model received at a step."""

    run_id: RunId
    step: int
    attempt: int
    provider: str
    model: str
    input_estimate: int
    """The estimated number of input tokens."""
    system: str
    tools: tuple[ToolSpec, ...]
    tools_offered: bool
    """False: the request forbids calls."""
    messages: tuple[Message, ...]
    body: Raw
    """The JSON body of the request, byte for byte."""


class CallOutput(Struct, frozen=True):
    """A part of what a tool call returned."""

    text: str
    start: int
    """The position of the first character."""
    length: int
    """The number of characters of the whole output."""


class TreeMember(Struct, frozen=True):
    """A run of a tree, with what it has used."""

    run: RunView
    depth: int
    """0 for the run at the top."""
    is_last: bool
    """Whether it is the last child of its parent."""
    metrics: Metrics


class RunTree(Struct, frozen=True):
    """A run and all runs below it, each before its children, and their sums."""

    members: tuple[TreeMember, ...]
    total: Metrics


# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class ShowPrompt(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    step: int
    """0: the latest step."""


class ReadOutput(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    call_id: str
    start: Annotated[int, Meta(ge=0, description="The position of the first character.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_PART_CHARACTERS, description="The maximum number of characters.")] = (
        MAX_PART_CHARACTERS
    )


class DiffRuns(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    other_id: RunId


# ── Operations ─────────────────────────────────────────────────────────────────────────────────────

PROMPT = Operation(
    "runs.prompt",
    "GET",
    "/v1/runs/{run_id}/steps/{step}/prompt",
    scope="read",
    request=ShowPrompt,
    response=StepPrompt,
    errors=(404, 422),
)
OUTPUT = Operation(
    "runs.output",
    "GET",
    "/v1/runs/{run_id}/calls/{call_id}/output",
    scope="read",
    request=ReadOutput,
    response=CallOutput,
    errors=(404,),
)
DIFF = Operation(
    "runs.diff",
    "GET",
    "/v1/runs/{run_id}/diff/{other_id}",
    scope="read",
    request=DiffRuns,
    response=RunDiff,
    errors=(404,),
)
TREE = Operation(
    "runs.tree", "GET", "/v1/runs/{run_id}/tree", scope="read", request=OneRun, response=RunTree, errors=(404,)
)


@PROMPT.handler
async def show_prompt(context: Context, request: ShowPrompt) -> StepPrompt:
    """Get the exact request that the model received at a step.

    Step 0 is the latest step. Of several attempts it is the last one."""
    record = await context.visible_run(request.run_id)
    sent = await context.service.prompt(record.origin.run_id, request.step or None)
    event, asked = sent.event, sent.request
    return StepPrompt(
        run_id=record.origin.run_id,
        step=event.step,
        attempt=event.attempt,
        provider=event.provider,
        model=event.model,
        input_estimate=event.input_estimate,
        system=asked.preamble.system,
        tools=tuple(asked.preamble.tools),
        tools_offered=event.tools_offered,
        messages=tuple(asked.conversation.messages),
        body=Raw(context.encode_request(sent.model.api_mode, asked)),
    )


@OUTPUT.handler
async def read_output(context: Context, request: ReadOutput) -> CallOutput:
    """Get what a tool call returned, a part at a time.

    The journal and the model have the beginning and the end of a long result; this is all of it."""
    record = await context.visible_run(request.run_id)
    ended: ToolCallEnd | ToolCallError | None = None
    async for event in context.service.read_stored(record.origin.run_id):
        if isinstance(event.data, ToolCallEnd | ToolCallError) and event.data.call_id == request.call_id:
            ended = event.data
    if ended is None:
        raise UnknownCall(f"{record.origin.run_id} has no result of the call `{request.call_id[:100]}`.")
    text = take_excerpt(ended.content, ended.excerpt)
    if ended.truncation is not None:
        full = await context.service.full_result(record.origin.session_id, request.call_id)
        if full is not None and len(full) == ended.truncation.length:
            text = full if ended.excerpt is None else full[ended.excerpt[0] :]
    return CallOutput(text[request.start : request.start + request.limit], request.start, len(text))


@DIFF.handler
async def diff_runs(context: Context, request: DiffRuns) -> RunDiff:
    """Compare two runs.

    Their agents, the first step that differs, and their results."""
    a, b = await context.visible_run(request.run_id), await context.visible_run(request.other_id)
    return await diff(LocalCaller(context), a.origin.run_id, b.origin.run_id)


@TREE.handler
async def show_tree(context: Context, request: OneRun) -> RunTree:
    """Get a run with all its child runs.

    Each with its state, steps, tokens and cost, and the sums of all."""
    record = await context.visible_run(request.run_id)
    found = await list_members(LocalCaller(context), record.origin.run_id)
    members = tuple([await _measure(context, member) for member in found])
    return RunTree(members, add_metrics(member.metrics for member in members))


async def _measure(context: Context, member: Member) -> TreeMember:
    events = [event async for event in context.service.read_stored(member.run.run_id)]
    metrics = build_run_steps(events, None if member.run.outcome is not None else context.now()).metrics
    run = RunView(**{name: getattr(member.run, name) for name in RunView.__struct_fields__})
    return TreeMember(run, member.depth, member.is_last, metrics)
