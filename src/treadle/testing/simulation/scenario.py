"""One schedule: a few runs with parallel tools, users who steer, interrupt and cancel them, clients with tools of
their own, and crashes."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from treadle.core.context.compaction import INSTRUCTIONS
from treadle.domain.errors import InvalidState
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Message, ToolUse, user
from treadle.domain.runs import Usage
from treadle.operations.approval_service import Answer as Verdict
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_start import start_here
from treadle.operations.service import LocalService
from treadle.ports.approvals import ApprovalRecord
from treadle.ports.model import ModelRequest
from treadle.testing.faults import Fault, Operation
from treadle.testing.models import ScriptedFailure, ScriptedReply, ScriptStep, ask, call, say
from treadle.testing.simulation.agents import AGENT, BOUND, CRAMPED, HURRIED, JUDGED, JUDGES, SHALLOW
from treadle.testing.simulation.clients import CLIENT_TOOLS, SimulatedClient
from treadle.testing.simulation.invariants import check_journals
from treadle.testing.simulation.loop import SimulatedLoop
from treadle.testing.simulation.world import SimulatedProcess, SimulatedReader, Violation, World, adopting_factory

PADDING = " and a lot of words that do not matter" * 20
STUCK_SECONDS = 900.0
"""Virtual seconds after which a run that has not ended counts as stuck."""
COMMANDS = ("/compact", "/compact the numbers", "/undo", "/reset", "/pin", "/pin a fact", "/usage")
HELPED = " with the help of others"
TOOLS = ("look", "look", "watch", "post", "post", "sign", "nonsense")
UNCOUNTED = Usage(400, 60, estimated=True)
_TOLD = re.compile(r"steered \d+-\d+")

Answer = TypeVar("Answer")


class SimulationSchedule(Struct, frozen=True):
    """Everything that a simulation depends on. The same schedule always runs the same way."""

    seed: int
    workers: Literal[1, 2] = 1
    """One process that is restarted when it dies, or two that take over from each other."""
    crashes: tuple[tuple[int, Fault], ...] | None = None
    """The writes (counted from 0) at which the process dies, before or after; None: drawn from the seed."""


class SimulationReport(Struct, frozen=True):
    writes: int
    crashes: int
    outcomes: tuple[str, ...]


def simulate(schedule: SimulationSchedule) -> SimulationReport:
    """Run one schedule and check every invariant. Raise Violation, or the error that occurred."""
    chance = Random(schedule.seed)
    loop = SimulatedLoop(chance)
    loop.set_task_factory(adopting_factory)
    faults: list[str] = []
    loop.set_exception_handler(lambda _, context: faults.append(str(context.get("exception", context))))
    try:
        report = loop.run_until_complete(_Simulation(schedule, chance).run())
    finally:
        _drain(loop)
        loop.close()
    if faults:
        raise Violation(f"unhandled in the background: {faults[0]}")
    return report


def _drain(loop: SimulatedLoop) -> None:
    for _ in range(3):  # tasks that end may start others
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))


class _Simulation:
    def __init__(self, schedule: SimulationSchedule, chance: Random) -> None:
        self._schedule = schedule
        self._chance = chance
        self._numbers = count(1)
        self._world = World(chance, self._policy)
        self._writes = 0
        self._crashes = 0
        self._streams: dict[RunId, SimulatedReader] = {}
        self._readers: list[asyncio.Task[Any]] = []
        self._acknowledged: list[tuple[RunId, str]] = []
        """Texts of steered messages that were acknowledged."""
        self._cancelled: set[RunId] = set()
        self._clients: dict[RunId, SimulatedClient] = {}
        self._serving: list[asyncio.Task[None]] = []

    async def run(self) -> SimulationReport:
        for _ in range(self._schedule.workers):
            await self._start_process()
        keepers = [asyncio.ensure_future(work) for work in (self._keep_alive(), self._review())]
        try:
            people = [asyncio.ensure_future(self._user(number)) for number in range(3)]
            await asyncio.gather(*people)
            await self._wait_until_all_ended()
            await self._check_readers()
        finally:
            for keeper in (*keepers, *self._serving):
                keeper.cancel()
        for reader in self._readers:
            if reader.done() and not reader.cancelled() and (error := reader.exception()):
                raise error
        for client, serving in zip(self._clients.values(), self._serving, strict=True):
            if serving.done() and not serving.cancelled() and (error := serving.exception()):
                raise error
            client.raise_error()
        deliveries = [delivery for client in self._clients.values() for delivery in client.deliveries]
        sole = self._schedule.workers == 1
        outcomes = check_journals(self._world, self._acknowledged, self._cancelled, deliveries, sole)
        return SimulationReport(self._writes, self._crashes, outcomes)

    # ── Processes ──

    def _plan(self, operation: Operation) -> Fault | None:
        """Return whether the process dies at this write."""
        if operation in ("read", "runnable"):
            return None
        number, self._writes = self._writes, self._writes + 1
        if self._schedule.crashes is not None:
            fault = dict(self._schedule.crashes).get(number)
        elif self._crashes < 3 and self._chance.random() < 0.05:
            fault = self._chance.choice(("before", "after"))
        else:
            fault = None
        self._crashes += fault is not None
        return fault

    async def _start_process(self) -> None:
        process = self._world.start(self._plan, sole=self._schedule.workers == 1)
        await process.spawn(process.start())
        for stream in self._streams.values():
            self._follow(stream, process)

    def _follow(self, stream: SimulatedReader, process: SimulatedProcess) -> None:
        """Let a reader follow its run at this process, unless it already does so at a live one."""
        if not stream.ended and (stream.process is None or stream.process.journal.dead):
            self._readers.append(process.spawn(stream.follow(process)))

    async def _keep_alive(self) -> None:
        """Act as the operator: restart dead processes, and occasionally stall a process past its lease."""
        while True:
            await asyncio.sleep(0.5 + self._chance.random())
            alive = self._world.alive()
            if len(alive) < self._schedule.workers:
                await self._start_process()
            elif self._schedule.workers > 1 and self._chance.random() < 0.05:
                self._chance.choice(alive).journal.stall(10 + 20 * self._chance.random())

    async def _run_at_process(self, work: Callable[[LocalService], Coroutine[Any, Any, Answer]]) -> Answer:
        """Run something in a process. If the process dies meanwhile, retry in another, as a user would."""
        while True:
            alive = self._world.alive()
            if not alive:
                await asyncio.sleep(0.5)
                continue
            process: SimulatedProcess = self._chance.choice(alive)
            try:
                return await process.spawn(work(process.service))
            except asyncio.CancelledError:
                if not process.journal.dead:
                    raise

    # ── Users and reviewers ──

    async def _user(self, number: int) -> None:
        """Submit a run, follow it and interfere with it."""
        await asyncio.sleep(self._world.delay())
        session = SessionId(f"ses_{number % 2}")
        task = self._task(number, self._chance.randint(0, 3), 0.5)
        message = user(f"{task}{self._chance.choice(('', PADDING))}")
        agent = self._chance.choice((AGENT, CRAMPED, BOUND, JUDGED, SHALLOW, HURRIED))
        tools = self._chance.choice(((), CLIENT_TOOLS, CLIENT_TOOLS))
        run = RequestedRun(agent, message, session, asker="terminal", client_tools=tools)
        ticket = await self._run_at_process(lambda service: start_here(service, run, f"person-{number}"))
        if ticket.run_id not in self._streams:
            self._streams[ticket.run_id] = stream = SimulatedReader(ticket.run_id)
            for process in self._world.alive()[:1]:
                self._follow(stream, process)
        if tools and ticket.run_id not in self._clients:
            self._serve(ticket.run_id, number)
        for meddling in range(self._chance.choice((0, 0, 1, 2, 3))):
            await asyncio.sleep(3 * self._chance.random())
            try:
                await self._interfere(self._pick_from_tree(ticket.run_id), f"{number}-{meddling}")
            except InvalidState:
                break  # the run has ended
        if self._chance.random() < 0.3:
            await self._command(session, f"command-{number}")

    def _serve(self, run_id: RunId, number: int) -> None:
        """Run the calls of the client's tools."""

        async def meddle() -> None:
            await self._interfere(run_id, f"{number + 10}-{next(self._numbers):05}")

        self._clients[run_id] = client = SimulatedClient(run_id, self._world, self._run_at_process, meddle)
        self._serving.append(asyncio.ensure_future(client.serve()))

    def _task(self, number: int, rounds: int, helped: float) -> str:
        return f"task {number} in {rounds} rounds{HELPED if self._chance.random() < helped else ''}"

    def _pick_from_tree(self, run_id: RunId) -> RunId:
        """Return the run itself in most cases, or one of its descendants."""
        children = self._world.disk.execute("SELECT run_id FROM runs WHERE parent_run_id = ?", (run_id,)).fetchall()
        if not children or self._chance.random() < 0.6:
            return run_id
        return RunId(self._chance.choice(children)[0])

    async def _command(self, session: SessionId, key: str) -> None:
        """Send a session command."""
        run = RequestedRun(CRAMPED, user(self._chance.choice(COMMANDS)), session)
        with suppress(InvalidState):  # a run of the session waits and must be handled first
            await self._run_at_process(lambda service: start_here(service, run, key))

    async def _interfere(self, run_id: RunId, name: str) -> None:
        match self._chance.choice(("steer", "interrupt", "park", "cancel")):
            case "steer" | "interrupt" as mode:
                text = f"steered {name}"
                twice = range(self._chance.choice((1, 2)))
                for _ in twice:  # an impatient user sends it again with the same key
                    await self._run_at_process(
                        lambda service, mode=mode: service.steer(run_id, user(text), mode, key=name)
                    )
                self._acknowledged.append((run_id, text))
            case "park":
                await self._run_at_process(lambda service: service.interrupt(run_id))
                await asyncio.sleep(3 * self._chance.random())
                await self._run_at_process(lambda service: service.resume(run_id))
            case _:
                await self._run_at_process(lambda service: service.cancel(run_id))
                self._cancelled.add(run_id)

    async def _review(self) -> None:
        """Act as a reviewer who checks pending approvals now and then and decides. A second one may decide too."""
        while True:
            await asyncio.sleep(4 * self._chance.random())
            for waiting in await self._run_at_process(lambda service: service.approvals()):
                for _ in range(self._chance.choice((0, 1, 1, 2))):
                    await self._answer(waiting)

    async def _answer(self, waiting: ApprovalRecord) -> None:
        edited = msgspec.json.encode({"n": next(self._numbers), "edited": True}).decode()
        verdict = self._chance.choice(
            (Verdict("approve"), Verdict("deny", note="no"), Verdict("approve", arguments=edited))
        )
        with suppress(InvalidState):  # another reviewer was faster, it has expired, or the process died afterwards
            await self._run_at_process(lambda service: service.decide(waiting.approval_id, verdict))

    async def _wait_until_all_ended(self) -> None:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + STUCK_SECONDS
        while True:
            row = self._world.disk.execute("SELECT count(*), group_concat(run_id) FROM runs WHERE outcome IS NULL")
            unfinished = row.fetchone()
            if unfinished is None or not unfinished[0]:
                return
            if loop.time() > give_up:
                raise Violation(f"stuck: {unfinished[1]}")
            await asyncio.sleep(0.5)

    async def _check_readers(self) -> None:
        """Check that every reader got what the journal contains: everything, unless the run continued in another
        process."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + STUCK_SECONDS
        for stream in self._streams.values():
            while self._schedule.workers == 1 and not stream.ended:
                if loop.time() > give_up:
                    raise Violation(f"{stream.run_id}: a reader never received the end, after {stream.last}")
                await asyncio.sleep(0.5)
            rows = self._world.disk.execute(
                "SELECT event_id FROM events JOIN runs ON runs.id = run WHERE run_id = ? ORDER BY events.sequence",
                (stream.run_id,),
            )
            held = [row[0] for row in rows]
            if stream.given != held[: len(stream.given)]:
                raise Violation(f"{stream.run_id}: a reader received other events than the journal contains")

    # ── The model ──

    def _policy(self, request: ModelRequest, world: World) -> ScriptStep:
        """Reply as a model that calls tools for as many rounds as its task says, then answers, and occasionally
        fails."""
        if self._chance.random() < 0.08:
            return ScriptedFailure(
                text=self._chance.choice(("", "half a")), retry_after=self._chance.choice((None, 2.0))
            )
        if request.preamble.system.startswith(INSTRUCTIONS):
            return self._summary(request)
        if request.preamble.system.startswith(JUDGES):
            return say(self._chance.choice(('{"score": 0.9}', '{"score": 0.1, "reasons": "thin"}', "no idea")))
        messages = request.conversation.messages
        rounds, done = _progress(messages)
        if done >= rounds or self._chance.random() < 0.1:  # its earlier work may be out of the window
            return say(f"answer {next(self._numbers)}", usage=UNCOUNTED)
        known = {tool.name for tool in request.preamble.tools}
        offered = [tool.name for tool in CLIENT_TOOLS if tool.name in known]
        return self._calls(HELPED in messages[0].text, (*TOOLS, *offered, *offered, *offered))

    def _summary(self, request: ModelRequest) -> ScriptStep:
        """Reply as a summariser that is occasionally empty. Texts of users are never left out."""
        told = dict.fromkeys(_TOLD.findall(request.conversation.messages[0].text))
        return say(self._chance.choice(("", *("\n".join(("## Done", "something", *told)) for _ in range(4)))))

    def _calls(self, helped: bool, tools: Sequence[str]) -> ScriptedReply:
        calls = [
            self._delegation() if helped and self._chance.random() < 0.5 else self._call(tools)
            for _ in range(self._chance.randint(1, 4))
        ]
        return ask(*calls, text=self._chance.choice(("", "so")), usage=UNCOUNTED)

    def _call(self, tools: Sequence[str]) -> ToolUse:
        number = next(self._numbers)
        call_id = self._chance.choice((f"c{number}", f"c{number}", f"c{number}", "same", ""))
        tool = self._chance.choice(tools)
        match self._chance.randint(0, 9):
            case 0:
                return call(tool, call_id, wrong=number)
            case 1:
                return call(tool, call_id, n=number, fail=True)
            case _:
                return call(tool, call_id, n=number)

    def _delegation(self) -> ToolUse:
        """Delegate to a child run, which may delegate further. Not every such call is valid."""
        number = next(self._numbers)
        call_id, task = f"c{number}", self._task(number, self._chance.randint(0, 2), 0.3)
        match self._chance.randint(0, 7):
            case 0:
                return call("agent_send", call_id, agent=self._chance.choice(("helper", "leader")), message=task)
            case 1 | 2:
                name = self._chance.choice(("helper", "leader", "poor", "nobody"))
                return call("invoke_agent", call_id, agent=name, message=task)
            case 3:
                tools = self._chance.choice((["look", "invoke_agent"], ["look", "agent_spawn"], ["nonsense"]))
                return call("agent_spawn", call_id, message=self._task(number, 2, 0.8), tools=tools)
            case 4:
                return call("agent_spawn", call_id, agent="helper", message=task)
            case _:
                return call("agent_spawn", call_id, message=task)


def _progress(messages: list[Message]) -> tuple[int, int]:
    """Return how many rounds the latest task requires, and how many it has had."""
    rounds = done = 0
    if any(message.mark == "summary" for message in messages):
        return 0, 0  # it has done enough
    for message in messages:
        if message.role == "user" and "task " in message.text:
            rounds, done = int(message.text.split(" in ")[1].split(" ")[0]), 0
        elif message.role == "tool":
            done += 1
    return rounds, done
