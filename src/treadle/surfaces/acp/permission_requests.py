"""Approvals and questions of a run as requests to the editor.

An approval is decided once, from any surface. If another surface decides first, the request is withdrawn."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from acp.helpers import update_tool_call
from acp.schema import (
    CreateFormSessionElicitationRequest,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    RequestPermissionRequest,
    ToolCallUpdate,
)

from treadle.domain.errors import InvalidState, StoreError, TreadleError
from treadle.domain.ids import RunId
from treadle.domain.modes import ApprovalMode
from treadle.domain.permissions import describe_destruction
from treadle.domain.tools import EDIT_TOOLS
from treadle.operations import approvals, runs
from treadle.operations.approvals import ApprovalView
from treadle.operations.run_control import ANSWER, AnswerQuestion
from treadle.operations.run_tree import list_members
from treadle.surfaces.acp.client import ELICITATION, PERMISSION, EditorClient
from treadle.surfaces.acp.tool_view import show_whole_call, text_content, view_call
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.terminal.call_view import describe_offer

BY = "editor"
ONCE, SESSION, DENY = "allow-once", "allow-session", "deny"
EDITS, PLAN_EDITS, PLAN_ASK = "allow-edits", "plan-accept-edits", "plan-ask"
_MODES: Mapping[str, ApprovalMode] = {EDITS: "accept_edits", PLAN_EDITS: "accept_edits", PLAN_ASK: "ask"}
"""The mode in which the session continues after an option."""
log = logging.getLogger(__name__)


class EditorQuestion:
    """A question that the next prompt answers."""

    def __init__(self, run_id: RunId, question: runs.Question) -> None:
        self.run_id = run_id
        self.question = question


class PermissionRequests:
    """Keeps the requests to the editor equal to what the run and its child runs wait for."""

    def __init__(
        self,
        link: HomeLink,
        client: EditorClient,
        session_id: str,
        folder: Path,
        ask_in_chat: Callable[[EditorQuestion], Awaitable[None]],
    ) -> None:
        self._link = link
        self._client = client
        self._session_id = session_id
        self._folder = folder
        self._ask_in_chat = ask_in_chat
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._lock = asyncio.Lock()
        self.question: EditorQuestion | None = None
        """The question that was asked in the conversation."""

    async def refresh(self, run_id: RunId | None) -> None:
        """Ask what is new, and withdraw what is decided. None: nothing is waited for."""
        async with self._lock:
            wanted: dict[str, Callable[[], Awaitable[None]]] = {}
            if run_id is not None:
                members = {
                    member.run.run_id: member.run
                    for member in await list_members(self._link, run_id, unfinished=True)
                }
                for view in (await self._link.call(approvals.LIST, approvals.ListApprovals())).items:
                    if view.run_id in members:
                        is_child = view.run_id != run_id
                        wanted[view.approval_id] = lambda view=view, is_child=is_child: self._approve(
                            view, is_child
                        )
                for member_id, run in members.items():
                    if run.waiting_for == "answer" or run.status == "running":
                        for question in (await self._link.call(runs.QUESTIONS, runs.OneRun(member_id))).items:
                            opened = EditorQuestion(member_id, question)
                            wanted[f"{member_id}/{question.call_id}"] = lambda opened=opened: self._clarify(opened)
            for key in [key for key in self._asked if key not in wanted]:
                self._asked.pop(key).cancel()
            if self.question is not None and _key(self.question) not in wanted:
                self.question = None
            for key, ask in wanted.items():
                if key not in self._asked:
                    self._asked[key] = asyncio.create_task(self._perform(ask))

    async def close(self) -> None:
        """Withdraw everything. The approvals stay open."""
        asked, self._asked = list(self._asked.values()), {}
        for task in asked:
            task.cancel()
        if asked:
            await asyncio.wait(asked)

    async def _perform(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except (ConnectionError, StoreError):
            pass  # the approval stays open
        except TreadleError as error:
            log.warning("A request to the editor failed: %s", error)
        except Exception:
            log.exception("A request to the editor failed")

    # ── Approvals ──

    async def _approve(self, approval: ApprovalView, is_child: bool) -> None:
        view = view_call(approval.tool, approval.arguments, self._folder)
        call_id = f"{approval.run_id}:{approval.call_id}"
        warning = (
            () if approval.destructive is None else (text_content(describe_destruction(approval.destructive)),)
        )
        content = [
            *warning,
            *(view.content or [show_whole_call(approval.tool, approval.arguments)]),
            text_content(approval.reason),
        ]
        request = RequestPermissionRequest(
            session_id=self._session_id,
            tool_call=ToolCallUpdate(
                tool_call_id=call_id,
                title=view.title,
                kind=view.kind,
                status="pending",
                content=list(content),
                locations=view.locations or None,
                raw_input=view.raw_input,
            ),
            options=make_options(approval),
        )
        result = await self._client.ask(PERMISSION, request)
        decision = _read_choice(result)
        if decision not in (ONCE, SESSION, DENY, *_MODES):
            await self._report_undecided(call_id, approval)
            return
        answer = approvals.DecideApproval(
            approval.approval_id,
            "deny" if decision == DENY else "approve",
            remember="session" if decision == SESSION else "once",
            mode=_MODES.get(decision),
            by=BY,
        )
        with suppress(InvalidState):  # another surface was first; the run shows what it decided
            await self._link.call(approvals.DECIDE, answer, key=self._link.make_key())
        if is_child:  # the session does not show the calls of child runs in detail
            status = "failed" if decision == DENY else "completed"
            await self._client.update(self._session_id, update_tool_call(call_id, status=status))

    async def _report_undecided(self, call_id: str, approval: ApprovalView) -> None:
        """The editor gave no decision: say where else it can be given."""
        said = (
            f"Not decided. Decide it with `treadle approvals approve {approval.approval_id}`, or cancel the turn."
        )
        update = update_tool_call(
            call_id, content=[show_whole_call(approval.tool, approval.arguments), text_content(said)]
        )
        await self._client.update(self._session_id, update)

    # ── Questions ──

    async def _clarify(self, asked: EditorQuestion) -> None:
        text: str | None = None
        question = asked.question
        if self._client.can_elicit:
            text = await self._elicit(question)
        elif question.options:
            text = await self._choose(asked)
        if text is None:
            self.question = asked
            await self._ask_in_chat(asked)
            return
        with suppress(InvalidState):
            request = AnswerQuestion(asked.run_id, question.call_id, text, BY)
            await self._link.call(ANSWER, request, key=self._link.make_key())

    async def _elicit(self, question: runs.Question) -> str | None:
        answer = ElicitationStringPropertySchema(
            type="string", title="Answer", enum=list(question.options) or None, min_length=1
        )
        request = CreateFormSessionElicitationRequest(
            session_id=self._session_id,
            message=question.question,
            mode="form",
            requested_schema=ElicitationSchema(properties={"answer": answer}, required=["answer"]),
        )
        result: dict[str, Any] = await self._client.ask(ELICITATION, request) or {}
        content: Any = result.get("content")
        given: Any = content.get("answer") if isinstance(content, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return given if result.get("action") == "accept" and isinstance(given, str) and given.strip() else None

    async def _choose(self, asked: EditorQuestion) -> str | None:
        """Ask a question with options in an editor that has no forms: as a request with these options."""
        question = asked.question
        request = RequestPermissionRequest(
            session_id=self._session_id,
            tool_call=ToolCallUpdate(
                tool_call_id=f"{asked.run_id}:{question.call_id}",
                title=question.question,
                kind="think",
                status="pending",
                content=[text_content(question.question)],
            ),
            options=[
                PermissionOption(option_id=f"option-{number}", name=option, kind="allow_once")
                for number, option in enumerate(question.options)
            ],
        )
        chosen = _read_choice(await self._client.ask(PERMISSION, request))
        by_id = {f"option-{number}": option for number, option in enumerate(question.options)}
        return by_id.get(chosen)


def _key(asked: EditorQuestion) -> str:
    return f"{asked.run_id}/{asked.question.call_id}"


def make_options(approval: ApprovalView) -> list[PermissionOption]:
    if approval.is_plan:
        return [
            PermissionOption(option_id=PLAN_EDITS, name="Approve, and accept edits", kind="allow_always"),
            PermissionOption(option_id=PLAN_ASK, name="Approve, and ask before changes", kind="allow_once"),
            PermissionOption(option_id=DENY, name="Keep planning", kind="reject_once"),
        ]
    options = [PermissionOption(option_id=ONCE, name="Allow once", kind="allow_once")]
    if approval.pattern is not None and approval.tool in EDIT_TOOLS:
        options.append(
            PermissionOption(option_id=EDITS, name="Allow all edits in this workspace", kind="allow_always")
        )
    elif approval.pattern is not None:
        rule = describe_offer(approval.tool, approval.pattern)
        options.append(
            PermissionOption(option_id=SESSION, name=f"Allow for this session: {rule}", kind="allow_always")
        )
    return [*options, PermissionOption(option_id=DENY, name="Deny", kind="reject_once")]


def _read_choice(result: dict[str, Any] | None) -> str:
    """Return the option that was selected; empty if none was."""
    outcome: Any = (result or {}).get("outcome")
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":  # pyright: ignore[reportUnknownMemberType]
        return ""
    return str(outcome.get("optionId", ""))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
