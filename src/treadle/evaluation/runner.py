"""Runs suites: each case is a run of the engine under a key made of its content, so that a repeated evaluation
continues where it stopped and pays nothing twice."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event
from treadle.domain.errors import TreadleError, UsageError
from treadle.domain.evaluations import CaseResult, CheckGrade, Evaluation, Lane, TargetComparison
from treadle.domain.ids import RunId
from treadle.domain.messages import Message, Text, user
from treadle.domain.suites import Case, CommandCheck, FileCheck, FunctionCheck, JudgeCheck, Suite, SuiteTarget
from treadle.domain.tools import StandIn, StandIns
from treadle.evaluation.effects import CheckPlace, Effects
from treadle.evaluation.grading import Observed, grade
from treadle.evaluation.observation import observe
from treadle.evaluation.statistics import compare, summarize
from treadle.evaluation.suite_file import SuiteFile
from treadle.operations import agent_versions, agents, evaluations, replays
from treadle.operations.case_folders import PREPARE, READ, PrepareFolder, ReadCaseFile
from treadle.operations.operation import OperationClient
from treadle.operations.overrides import apply_overrides
from treadle.operations.refusal import Refusal
from treadle.operations.requested_run import Overrides, RequestedRun
from treadle.operations.run_control import CANCEL, StopRun
from treadle.operations.run_start import START_LOCAL, StartLocalRun

TAG = "evaluation"
_encode = msgspec.json.Encoder(order="sorted").encode


class EvaluationOptions(Struct, frozen=True, kw_only=True):
    """How suites are run."""

    lane: Lane = "candidate"
    repeat: int = 1
    parallel: int = 4
    max_cost: float | None = None
    """Dollars of all runs together, after which no further one starts."""
    fresh: str = ""
    """Makes runs of this evaluation differ from those of earlier ones."""
    name: str = ""


class Job(Struct, frozen=True):
    """One run of a case by a target."""

    suite: SuiteFile
    case: Case
    target: SuiteTarget
    repeat: int


class ResolvedTarget(Struct, frozen=True):
    """The agent of a target, with the overrides of the suite."""

    spec: AgentSpec
    version: int | None


Progress = Callable[[CaseResult, int, int, float], None]
"""Called with each result, how many there are now and will be, and the dollars so far."""


class EvaluationRunner:
    """Runs suites in the process that owns the home."""

    def __init__(
        self,
        client: OperationClient,
        options: EvaluationOptions,
        find_agent: Callable[[str], AgentSpec | None] = lambda name: None,
    ) -> None:
        """`find_agent` returns an agent that only the program knows, or None."""
        self._client = client
        self._options = options
        self._find_agent = find_agent
        self._targets: dict[str, Awaitable[ResolvedTarget]] = {}
        self._cost = 0.0
        self._effects = Effects(client)

    async def run(self, suites: Sequence[SuiteFile], progress: Progress | None = None) -> Evaluation:
        """Run every case with every target. Return the results in the order of the suites."""
        jobs = list(make_jobs(suites, self._options))
        started_at = time.time()
        results: list[CaseResult | None] = [None] * len(jobs)
        waiting, done = iter(enumerate(jobs)), 0

        async def work() -> None:
            nonlocal done
            for place, job in waiting:
                result = await self._run_job(job)
                results[place] = result
                done += 1
                self._cost += result.total_cost
                if progress is not None:
                    progress(result, done, len(jobs), self._cost)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._options.parallel, len(jobs))):
                group.create_task(work())
        found = tuple([each for each in results if each is not None])
        return make_evaluation(found, self._options, started_at, time.time())

    async def _run_job(self, job: Job) -> CaseResult:
        if self._options.max_cost is not None and self._cost >= self._options.max_cost:
            return _make_result(job, "skipped", reason="the cost limit was reached")
        try:
            match self._options.lane:
                case "candidate":
                    return await self._run_candidate(job)
                case "observed":
                    return await self._grade_source(job)
                case "baseline":
                    return await self._replay_source(job)
        except (TreadleError, OSError, TimeoutError) as error:
            return _make_result(job, "error", reason=str(error) or "it took too long")

    async def _run_candidate(self, job: Job) -> CaseResult:
        target = await self._resolve(job.target)
        digest = compute_digest(job, target.spec, self._options.fresh)
        folder = ""
        if needs_folder(job):
            wanted = PrepareFolder(f"{digest[:32]}-{job.repeat}", job.case.files)
            folder = (await self._client.call(PREPARE, wanted)).path
        run = make_request(job, target, folder)
        ticket = await self._client.call(START_LOCAL, StartLocalRun(run), key=f"eval/{digest}/{job.repeat}")
        seen = await self._wait(ticket.run_id, job.suite.suite.timeout, folder)
        return await self._grade(job, seen, digest, target.spec)

    async def _grade_source(self, job: Job) -> CaseResult:
        source = _require_source(job)
        seen = await self._observe(source, "")
        if seen is None:
            return _make_result(job, "error", reason=f"{source} has not ended")
        return await self._grade(job, seen, "", AgentSpec(TAG, "none"))

    async def _replay_source(self, job: Job) -> CaseResult:
        source = _require_source(job)
        agent = job.target.agent
        replayed = await self._client.call(replays.REPLAY, replays.ReplayRun(source, agent))
        seen = await self._observe(source, "")
        where = ""
        if replayed.divergence is not None:
            first = replayed.divergence.differences[0]
            parts = (
                f" ({', '.join(replayed.divergence.request_differs)})"
                if replayed.divergence.request_differs
                else ""
            )
            where = f"event {replayed.divergence.sequence} ({replayed.divergence.type}): {first.path}{parts}"
        grades = (CheckGrade("replay", replayed.is_same, where or replayed.cannot),)
        result = _make_result(job, "passed" if replayed.is_same else "failed", run_id=source, grades=grades)
        return result if seen is None else msgspec.structs.replace(result, answer=seen.answer, steps=seen.steps)

    async def _wait(self, run_id: RunId, seconds: float, workspace: str) -> Observed:
        """Return what a run did when it has ended. A run that takes too long or waits for a person is cancelled."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._client.call(evaluations.WAIT, evaluations.WaitForEnd(run_id))
        seen = await self._observe(run_id, workspace)
        if seen is not None:
            return seen
        with suppress(TreadleError):
            await self._client.call(CANCEL, StopRun(run_id, "the evaluation does not wait any longer"))
        raise UsageError(f"{run_id} did not end within {seconds:g} s, or waits for a person")

    async def _observe(self, run_id: RunId, workspace: str) -> Observed | None:
        events: list[Event] = []
        source: AsyncGenerator[Event, None] = self._client.read_stored(run_id)
        async with aclosing(source) as stored:
            events = [event async for event in stored]
        return observe(run_id, events, workspace)

    async def _grade(self, job: Job, seen: Observed, digest: str, agent: AgentSpec) -> CaseResult:
        grades: list[CheckGrade] = []
        place = CheckPlace(f"{digest or seen.run_id}/{job.repeat}", job.suite.path.parent, agent)
        checks = (*job.suite.suite.checks, *job.case.checks)
        files = {
            each.path: await self._read_file(seen, each.path) for each in checks if isinstance(each, FileCheck)
        }
        for check in checks:
            if isinstance(check, CommandCheck | JudgeCheck | FunctionCheck):
                grades.append(await self._effects.grade(check, seen, place))
            else:
                grades.append(grade(check, seen, files.get))
        stopped = seen.unrecorded and job.case.unrecorded == "stop"
        if stopped:
            grades.append(CheckGrade("recorded", False, seen.reason or "a call had no recorded result"))
        result = _make_result(
            job,
            "passed" if all(each.passed for each in grades) else "failed",
            run_id=RunId(seen.run_id),
            grades=tuple(grades),
        )
        return msgspec.structs.replace(
            result,
            digest=digest,
            answer=seen.answer,
            cost=seen.cost,
            steps=seen.steps,
            duration_ms=seen.duration_ms,
            unrecorded=seen.unrecorded,
        )

    async def _read_file(self, seen: Observed, path: str) -> str | None:
        if not seen.workspace:
            return None
        return (await self._client.call(READ, ReadCaseFile(seen.workspace, path))).text

    async def _resolve(self, target: SuiteTarget) -> ResolvedTarget:
        key = target.label + repr(target)
        if key not in self._targets:
            self._targets[key] = asyncio.ensure_future(resolve_target(self._client, target, self._find_agent))
        return await self._targets[key]


async def run_evaluation(
    client: OperationClient,
    suites: Sequence[SuiteFile],
    options: EvaluationOptions,
    baseline: str | None = None,
    progress: Progress | None = None,
    find_agent: Callable[[str], AgentSpec | None] = lambda name: None,
) -> Evaluation:
    """Run suites and record the results. With a baseline, the last comparison is with that evaluation."""
    before = None if baseline is None else await _find_baseline(client, baseline)
    evaluation = await EvaluationRunner(client, options, find_agent).run(suites, progress)
    if before is not None:
        comparison = _compare_evaluations(evaluation, before)
        evaluation = msgspec.structs.replace(evaluation, comparisons=(*evaluation.comparisons, comparison))
    await client.call(evaluations.RECORD, evaluations.RecordEvaluation(evaluation))
    return evaluation


async def _find_baseline(client: OperationClient, name: str) -> Evaluation:
    try:
        return await client.call(evaluations.SHOW, evaluations.OneEvaluation(name))
    except (TreadleError, Refusal) as error:
        raise UsageError(
            f"There is no evaluation `{name}` to compare with: {error} Record one: treadle eval run SUITE "
            f"--name {name}"
        ) from None


def _compare_evaluations(evaluation: Evaluation, before: Evaluation) -> TargetComparison:
    """Compare the last target of an evaluation with the last one of an earlier one."""
    target, other = evaluation.targets[-1].target, before.targets[-1].target
    ours = [each for each in evaluation.results if each.target == target]
    theirs = [each for each in before.results if each.target == other]
    return compare(target, ours, f"{before.name} ({other})", theirs)


async def resolve_target(
    client: OperationClient, target: SuiteTarget, find_agent: Callable[[str], AgentSpec | None]
) -> ResolvedTarget:
    """Return the agent of a target. Raise an error if it does not exist or cannot be used."""
    name, mark, version = target.agent.partition("@")
    own = None if mark else find_agent(name)
    if own is not None:
        spec, number = own, 0
    elif mark:
        found = await client.call(agent_versions.VERSION, agent_versions.OneVersion(name, version))
        if found.settings is None:
            raise UsageError(f"Version {version} of agent `{name}` cannot be used.")
        spec, number = found.settings, found.number
    else:
        spec, number = (await client.call(agents.SHOW, agents.OneAgent(name))).agent, None
    overrides = Overrides(model=target.model, limits=target.limits, tools=target.tools)
    return ResolvedTarget(apply_overrides(spec, overrides), number)


def make_jobs(suites: Sequence[SuiteFile], options: EvaluationOptions) -> Sequence[Job]:
    """Return what is to be run. Raise UsageError for a suite without an agent."""
    found: list[Job] = []
    for file in suites:
        suite: Suite = file.suite
        targets = suite.targets or ((SuiteTarget(agent=suite.agent),) if suite.agent else ())
        if not targets:
            raise UsageError(f"{file.path}: there is no agent. Write `agent: NAME`, or `targets`.")
        repeats = range(1, (options.repeat if options.lane == "candidate" else 1) + 1)
        found += [Job(file, case, target, n) for target in targets for case in suite.cases for n in repeats]
    return found


def compute_digest(job: Job, spec: AgentSpec, fresh: str) -> str:
    """Return a digest of everything that a run is made of. Checks are not part of it: they are graded anew."""
    case = job.case
    attachments = [blake2b((job.suite.path.parent / path).read_bytes()).hexdigest() for path in case.attachments]
    content = [
        msgspec.to_builtins(spec), case.message, msgspec.to_builtins(case.conversation), attachments, case.files,
        msgspec.to_builtins(case.calls), case.unrecorded, case.stub, fresh,
    ]  # fmt: skip
    return blake2b(_encode(content), digest_size=20).hexdigest()


def make_request(job: Job, target: ResolvedTarget, folder: str) -> RequestedRun:
    """Return the message of a case for its target, which works in a folder of its own if it needs one."""
    case, limit = job.case, target.spec.limits.max_attachment_bytes
    from treadle.api.agent import make_attachment  # few cases have attachments

    parts = [make_attachment(job.suite.path.parent / path, limit) for path in case.attachments]
    stand_ins = None
    if case.calls is not None:
        recorded = [
            StandIn(each.tool, msgspec.json.encode(each.arguments).decode(), each.result, each.is_error)
            for each in case.calls
        ]
        stand_ins = StandIns(tuple(recorded), case.unrecorded, case.stub)
    return RequestedRun(
        agent=msgspec.structs.replace(target.spec, workspace=folder) if folder else target.spec,
        message=user(case.message, *parts),
        before=tuple([Message(_read_role(each.role), (Text(each.text),)) for each in case.conversation]),
        plain=True,
        anonymous=True,
        has_own_model=True,
        version=target.version,
        tags=(TAG,),
        stand_ins=stand_ins,
    )


def needs_folder(job: Job) -> bool:
    """Return whether a run can read or change files, so that it needs a folder of its own."""
    case, checks = job.case, (*job.suite.suite.checks, *job.case.checks)
    is_live = case.calls is None or case.unrecorded == "execute"
    return is_live or bool(case.files) or any(isinstance(each, CommandCheck | FileCheck) for each in checks)


def make_evaluation(
    results: tuple[CaseResult, ...], options: EvaluationOptions, started_at: float, ended_at: float
) -> Evaluation:
    """Return an evaluation with its summaries. Targets are compared with the first one."""
    targets = summarize(results)
    first = [each for each in results if targets and each.target == targets[0].target]
    comparisons = [
        compare(other.target, [each for each in results if each.target == other.target], targets[0].target, first)
        for other in targets[1:]
    ]
    name = options.name or "+".join(dict.fromkeys(each.suite for each in results))
    digest = blake2b(f"{name}{started_at}".encode(), digest_size=8).hexdigest()
    return Evaluation(
        evaluation_id=f"eva_{digest}",
        name=name,
        lane=options.lane,
        started_at=started_at,
        ended_at=ended_at,
        results=results,
        targets=targets,
        comparisons=tuple(comparisons),
    )


def _make_result(job: Job, state: Any, **more: Any) -> CaseResult:
    return CaseResult(
        suite=job.suite.name,
        case=job.case.name,
        target=job.target.label,
        repeat=job.repeat,
        state=state,
        tags=job.case.tags,
        **more,
    )


def _require_source(job: Job) -> RunId:
    if not job.case.source:
        raise UsageError(f"the case `{job.case.name}` was not made of a run: it has no `source`")
    return RunId(job.case.source)


def _read_role(role: str) -> Any:
    if role not in ("user", "assistant"):
        raise UsageError(f"a message of the conversation has the role `{role}`; accepted: user, assistant")
    return role
