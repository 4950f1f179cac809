"""What a run asks of the person at the terminal: may this call run, and what did you mean?"""

import msgspec
from msgspec import Struct

from treadle.app import Engine
from treadle.domain.errors import InvalidState, UsageError
from treadle.domain.events import ClarifyRequested, Decision
from treadle.domain.identity import RunId
from treadle.home import Home
from treadle.ports.approvals import ApprovalRecord
from treadle.service import Answer
from treadle.surfaces.cli.printing import Printer
from treadle.surfaces.cli.prompt import Prompt
from treadle.surfaces.cli.terminal import one_line

WIDTH = 2000
BY = "terminal"
HELP = "y: once · n: no · e: with other arguments · l: later; what you type after n is told to the agent"


class Asking(Struct, frozen=True):
    """How the questions of a run are answered here."""

    engine: Engine
    home: Home
    printer: Printer
    prompt: Prompt | None
    """None: nobody sits here."""
    always: Decision | None = None
    """The answer to every approval, where it was given beforehand."""

    async def settle(self, run_id: RunId) -> bool:
        """Have everything answered that the run waits for; whether all of it was."""
        for approval in await self.engine.service.approvals(run_id):
            if not await self._approval(approval):
                return False
        for question in await self.engine.service.questions(run_id):
            if not await self._question(run_id, question):
                return False
        return True

    async def _approval(self, approval: ApprovalRecord) -> bool:
        if self.always is not None:
            return await self._decide(approval, Answer(self.always, by=f"{BY}, beforehand"))
        if self.prompt is None:
            return False
        self.printer.note(f"{approval.tool} asks to run: {one_line(approval.arguments, WIDTH)}")
        self.printer.note(f"  ({approval.reason}; {approval.approval_id})")
        while True:
            typed = await self.prompt.ask(self._choices(approval))
            word, _, rest = (typed or "later").partition(" ")
            match word.lower():
                case "y" | "yes":
                    return await self._decide(approval, Answer("approve", by=BY))
                case "s" | "session" if approval.pattern is not None:
                    return await self._decide(approval, Answer("approve", by=BY, remember="session"))
                case "a" | "always" if approval.pattern is not None:
                    await self._allow_for_good(approval, approval.pattern)
                    return await self._decide(approval, Answer("approve", by=BY, remember="session"))
                case "n" | "no":
                    return await self._decide(approval, Answer("deny", note=rest.strip(), by=BY))
                case "e" | "edit":
                    edited = rest.strip() or await self.prompt.ask("arguments, as JSON:")
                    if edited and await self._decide(approval, Answer("approve", edited, by=BY)):
                        return True
                case "l" | "later":
                    return False
                case _:
                    self.printer.note(HELP)

    def _choices(self, approval: ApprovalRecord) -> str:
        more = ""
        if approval.pattern is not None:
            every = f"every `{approval.tool}`" if approval.pattern == "*" else f"`{approval.pattern}`"
            more = f" [s]ession or [a]lways ({every})"
        return f"Run it? [y]es{more} [n]o [e]dit [l]ater:"

    async def _decide(self, approval: ApprovalRecord, answer: Answer) -> bool:
        """Whether it is answered now, by us or by somebody else."""
        try:
            await self.engine.service.decide(approval.approval_id, answer)
        except InvalidState as error:
            self.printer.note(str(error))
        except UsageError as error:  # what was typed does not fit
            self.printer.note(str(error))
            return False
        return True

    async def _allow_for_good(self, approval: ApprovalRecord, pattern: str) -> None:
        agent = await self.engine.service.agent_of(approval.origin.run_id)
        where = self.home.allow(agent.name, approval.tool, pattern)
        self.printer.note(f"from now on without asking; it is written in {where}")

    async def _question(self, run_id: RunId, question: ClarifyRequested) -> bool:
        if self.prompt is None:
            return False
        self.printer.note(f"the agent asks: {question.question}")
        for number, option in enumerate(question.options, start=1):
            self.printer.note(f"  {number}. {option}")
        typed = await self.prompt.ask("your answer:")
        if not typed:
            return False
        chosen = int(typed) if typed.isdecimal() else 0
        text = question.options[chosen - 1] if 0 < chosen <= len(question.options) else typed
        try:
            await self.engine.service.answer(run_id, question.call_id, text, by=BY)
        except InvalidState as error:
            self.printer.note(str(error))
        return True


def arguments_in_words(arguments: str) -> str:
    """The arguments of a call for a table: the value alone where there is one."""
    try:
        decoded = msgspec.json.decode(arguments, type=dict[str, object])
    except msgspec.DecodeError:
        return arguments
    values = list(decoded.values())
    return str(values[0]) if len(values) == 1 else arguments
