"""Questions of a run to the user at the terminal: approvals of calls, and questions of the agent."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import InvalidState, UsageError
from treadle.domain.events.permissions import Decision
from treadle.domain.ids import RunId
from treadle.domain.permissions import ConcernKind, describe_destruction
from treadle.operations import approvals, runs
from treadle.operations.approval_service import Answer
from treadle.operations.approvals import ApprovalView
from treadle.operations.local_admin import AGENT, CHECK_RULES, CheckRules
from treadle.operations.operation import Caller
from treadle.operations.run_control import ANSWER, AnswerQuestion
from treadle.operations.run_tree import list_members
from treadle.surfaces.cli.approval_scopes import COMMANDS, ApprovalScope, list_scopes
from treadle.surfaces.terminal.call_view import (
    decode,
    describe_offer,
    describe_rule,
    pretty_json,
    quote_lines,
    readable_json,
    show_change,
)
from treadle.surfaces.terminal.editor import is_editor_set, open_editor, write_copy
from treadle.surfaces.terminal.event_output import Printer
from treadle.surfaces.terminal.line_input import Prompt
from treadle.surfaces.terminal.output import alert
from treadle.surfaces.terminal.text import measure_terminal, reveal_line
from treadle.system.workspace_identity import identify_workspace

BY = "terminal"
OTHER_LINES = 10
"""Lines of the terminal that the arguments of a call may not use."""
MOST_ROWS = 40
NO_RULE = "no rule matches only such calls; y runs it once"
NO_ALWAYS = "a rule would not change it: {reason}; s approves it for this session"
NO_TEXT = "only n takes a note and e takes arguments: type {word} alone, or n and a note for the agent"
AnswerResult = Literal["accepted", "too late", "refused"]
"""too late: another reviewer has decided; refused: the answer is not valid."""
VIEW_FIRST = "the call was not shown completely: v shows it, then it can be approved"


class RunQuestions(Struct, frozen=True):
    """Asks the questions of runs, or answers them with a decision made in advance."""

    caller: Caller
    home: Home
    printer: Printer
    prompt: Prompt | None
    """None: there is no terminal to ask at."""
    always: Decision | None = None
    """The decision on every approval, made in advance."""

    async def settle(self, run_id: RunId, before_asking: Callable[[], Awaitable[None]]) -> bool:
        """Ask everything that the run and its child runs wait for. Return whether all of it is answered. It calls
        `before_asking` before each question."""
        for member in await list_members(self.caller, run_id, unfinished=True):
            if not await self._settle(member.run.run_id, before_asking):
                return False
        return True

    async def _settle(self, run_id: RunId, before_asking: Callable[[], Awaitable[None]]) -> bool:
        for approval in (await self.caller.call(approvals.LIST, approvals.ListApprovals(run_id))).items:
            await before_asking()
            if not await self._approval(approval):
                return False
        for question in (await self.caller.call(runs.QUESTIONS, runs.OneRun(run_id))).items:
            await before_asking()
            if not await self._question(run_id, question):
                return False
        return True

    async def _approval(self, approval: ApprovalView) -> bool:
        if self.always is not None:
            answer = Answer(self.always, by=f"{BY}, in advance")
            return await decide(self.caller, self.printer, approval, answer) != "refused"
        if self.prompt is None:
            return False
        agent = await self.caller.call(AGENT, runs.OneRun(approval.run_id))
        return await ApprovalDialog(self.caller, self.home, self.printer, self.prompt, approval, agent).run()

    async def _question(self, run_id: RunId, question: runs.Question) -> bool:
        if self.prompt is None:
            return False
        self.printer.note("The agent asks:")
        options = [f"  {number}. {option}" for number, option in enumerate(question.options, start=1)]
        for line in quote_lines("\n".join([question.question, *options]), measure_terminal(sys.stderr).columns):
            alert(line)
        while not (typed := await self.prompt.ask("your answer:")):
            if typed is None:
                return False
            self.printer.note("Type your answer. Ctrl-D leaves it for later.")
        chosen = int(typed) if typed.isdecimal() else 0
        text = question.options[chosen - 1] if 0 < chosen <= len(question.options) else typed
        try:
            await self.caller.call(ANSWER, AnswerQuestion(run_id, question.call_id, text, BY))
        except InvalidState as error:
            self.printer.note(str(error))
        return True


class ApprovalDialog:
    """Shows one call and asks until it is decided or left for later."""

    def __init__(
        self,
        caller: Caller,
        home: Home,
        printer: Printer,
        prompt: Prompt,
        approval: ApprovalView,
        agent: AgentSpec,
    ) -> None:
        self._caller = caller
        self._home = home
        self._printer = printer
        self._prompt = prompt
        self._call = approval
        self._agent = agent
        self._seen = False
        """Whether the whole call was shown."""
        self._scopes: tuple[ApprovalScope, ...] = ()
        """What can be allowed permanently."""
        self._reason = ""
        """Why nothing can be allowed permanently."""
        self._concern: ConcernKind | None = None

    async def run(self) -> bool:
        """Run the dialog and return whether the call was decided."""
        await self._find_scopes()
        self._printer.note(f"{self._call.tool} asks to run {self._where()}:")
        self._show(min(MOST_ROWS, measure_terminal(sys.stderr).lines - OTHER_LINES))
        if self._call.destructive is not None:
            alert(reveal_line(describe_destruction(self._call.destructive)))
        self._printer.note(f"  ({reveal_line(self._call.reason)}; {self._call.approval_id})")
        while True:
            typed = await self._prompt.ask(self._choices())
            if typed is None:
                return False
            word, _, rest = typed.partition(" ")
            match word.lower():
                case "y" | "yes" | "s" | "session" | "a" | "always":
                    if (refusal := self._refusal(word, rest)) is not None:
                        self._printer.note(refusal)
                    else:
                        return await self._approve(word[0].lower())
                case "n" | "no":
                    return await self._decide(Answer("deny", note=rest.strip(), by=BY))
                case "e" | "edit":
                    if await self._edit(rest.strip()):
                        return True
                case "v" | "view":
                    self._show(None)
                case "l" | "later":
                    return False
                case _:
                    self._help()

    async def _find_scopes(self) -> None:
        """Find what a rule in the agent's file would permit from now on. An `ask` rule of an agent is stricter."""
        call, found = self._call, tuple[ApprovalScope, ...]()
        if call.pattern is not None:
            found = list_scopes(call.tool, call.arguments, call.pattern, str(self._folder))
        request = CheckRules(call.approval_id, tuple([scope.pattern for scope in found]))
        effects = await self._caller.call(CHECK_RULES, request)
        reasons, self._concern = effects.reasons, effects.concern
        self._scopes = tuple([scope for scope, reason in zip(found, reasons, strict=True) if reason is None])
        self._reason = next((reason for reason in reasons if reason is not None), "")

    @property
    def _folder(self) -> Path:
        return self._home.workspace_path(self._agent)

    def _where(self) -> str:
        """Return where the call runs, and with which access."""
        place = f"in {reveal_line(str(self._folder))}"
        if self._call.tool not in COMMANDS:
            return place
        policy = self._agent.confinement
        if policy.mode == "off" or self._concern == "unconfined":  # the engine has found none on this machine
            return f"{place}, in no sandbox, with the network on"
        return f"{place}, in a sandbox with the network {'on' if policy.network else 'off'}"

    def _show(self, rows: int | None) -> None:
        columns = measure_terminal(sys.stderr).columns
        call = show_change(self._call.tool, self._call.arguments, self._folder, columns, rows)
        for line in call.lines:
            alert(line)
        self._seen = self._seen or call.is_whole

    def _choices(self) -> str:
        view = "" if self._seen else " [v]iew"
        more = ""
        if self._call.pattern is not None:
            more = " [s]ession [a]lways" if self._scopes else " [s]ession"
        return f"Run it?{view} [y]es{more} [n]o [e]dit [l]ater:"

    def _help(self) -> None:
        self._printer.note("y: run it once · n: deny it; what you type after n is a note for the agent")
        if self._call.pattern is not None:
            what = describe_offer(self._call.tool, self._call.pattern)
            self._printer.note(f"s: run it, and approve {what} for this session")
            always = f"run it, and choose what the agent {self._agent.name} may do in this workspace from now on"
            self._printer.note(f"a: {always if self._scopes else self._explain_no_rule()}")
        self._printer.note("e: run it with other arguments · v: show all of it · l, Ctrl-C or Ctrl-D: decide later")

    def _explain_no_rule(self) -> str:
        return NO_ALWAYS.format(reason=reveal_line(self._reason))

    def _refusal(self, word: str, rest: str) -> str | None:
        """Return why the typed answer cannot approve the call; None if it can."""
        if rest.strip():
            return NO_TEXT.format(word=word)
        if word[0].lower() in "sa" and self._call.pattern is None:
            return NO_RULE
        if word[0].lower() == "a" and not self._scopes:
            return self._explain_no_rule()
        return None if self._seen else VIEW_FIRST

    async def _approve(self, choice: str) -> bool:
        pattern = self._call.pattern
        if choice == "y" or pattern is None:
            return await self._decide(Answer("approve", by=BY))
        if choice == "a":
            return await self._approve_always(pattern)
        result = await decide(self._caller, self._printer, self._call, Answer("approve", by=BY, remember="session"))
        if result == "accepted":
            self._printer.note(f"Approved for this session: {describe_rule(self._call.tool, pattern)}.")
        return result != "refused"

    async def _approve_always(self, pattern: str) -> bool:
        """Let the reviewer choose what to allow from now on. Return whether the call was decided."""
        scopes, chosen = self._scopes, self._scopes[0]
        if len(scopes) > 1:
            for number, scope in enumerate(scopes, start=1):
                self._printer.note(f"  {number}. {scope.label}")
            typed = await self._prompt.ask(f"Allow from now on, 1 to {len(scopes)} (Enter: nothing):")
            if not typed or not typed.isdecimal() or not 0 < int(typed) <= len(scopes):
                self._printer.note("Nothing was decided.")
                return False if typed is None else await self.run()
            chosen = scopes[int(typed) - 1]
        remember = "session" if chosen.pattern == pattern else "once"
        result = await decide(self._caller, self._printer, self._call, Answer("approve", by=BY, remember=remember))
        if result == "accepted":
            workspace = identify_workspace(self._folder)
            where = self._home.allow(self._agent.name, self._call.tool, chosen.pattern, workspace)
            since = "now" if remember == "session" else "the next run"
            self._printer.note(
                f"Allowed in this workspace from {since} on: {chosen.label}. The rule is in {where}."
            )
        return result != "refused"

    async def _edit(self, arguments: str) -> bool:
        if not arguments and is_editor_set():
            arguments = await asyncio.to_thread(self._edit_in_editor)
        elif not arguments:
            self._printer.note("The arguments as they are now, to copy and change:")
            alert(readable_json(self._call.arguments))
            arguments = await self._prompt.ask("arguments, as JSON:") or ""
        return bool(arguments) and await self._decide(Answer("approve", arguments, by=BY))

    def _edit_in_editor(self) -> str:
        """Return the arguments as the reviewer edited them; empty if nothing is to be decided."""
        before = pretty_json(self._call.arguments)
        file = write_copy(before.encode(), f"{self._call.tool}-", ".json")
        try:
            open_editor(file)
        except UsageError as error:
            self._printer.note(str(error))
            return ""
        after = file.read_text(errors="replace")
        if after == before:
            file.unlink()
            self._printer.note("Nothing was changed.")
            return ""
        if decode(after).values is None:
            self._printer.note(f"This is not a JSON object. Nothing was decided; your text is in {file}")
            return ""
        file.unlink()
        return after

    async def _decide(self, answer: Answer) -> bool:
        return await decide(self._caller, self._printer, self._call, answer) != "refused"


async def decide(caller: Caller, printer: Printer, approval: ApprovalView, answer: Answer) -> AnswerResult:
    """Send a decision. Print why if it was not accepted."""
    try:
        await caller.call(approvals.DECIDE, approvals.decision_of(approval.approval_id, answer))
    except InvalidState as error:
        printer.note(str(error))
        return "too late"
    except UsageError as error:
        printer.note(str(error))
        return "refused"
    return "accepted"
