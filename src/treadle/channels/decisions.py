"""Approvals and questions that people decide on a channel, with buttons, replies or commands."""

import re
import shlex
from collections.abc import AsyncGenerator, Sequence

from treadle.channels.outbox import TEXT_SUFFIX
from treadle.channels.prompts import ANSWER_PREFIX, APPROVE, APPROVE_SESSION, DENY, make_question_key
from treadle.domain.channels import Person
from treadle.domain.errors import InvalidState, TreadleError
from treadle.domain.events import ClarifyRequested
from treadle.domain.ids import ApprovalId, RunId
from treadle.operations.approval_service import Answer
from treadle.operations.service import LocalService
from treadle.ports.approvals import ApprovalRecord
from treadle.ports.channel import Incoming
from treadle.ports.channel_store import ChannelStore, OutboxItem
from treadle.ports.journal import RunFilter, RunRecord

MAX_CHILDREN = 100
"""Unfinished child runs of one run in which questions are looked for."""
NO_DECISION = (
    "This is not a decision, and the approval is still pending. Reply with the word `approve` or `deny` and "
    "nothing else; a note can follow after a colon or on a new line. To say something else, write a message that "
    "is not a reply."
)
_APPROVAL = re.compile(
    r"\s*(?:approve|approved|yes|allow)(?:[.!]?\s*\Z|:(?P<note>.*)|[.!]?[^\S\n]*\n(?P<lines>.*))",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
"""Exactly the word, or the word and, after a colon or a new line, a note. Anything else could mean the opposite."""
_MARKS = r"[\s*_~`\"'()\[\]\u00ab\u00bb\u201c-\u201e]*"
_DENIAL = re.compile(
    rf"{_MARKS}(?:deny|denied|no|nope|reject|rejected|refuse)(?![^\W_]|['?\u2019])"
    rf"{_MARKS}[.,:;!\u2013\u2014-]*(?P<note>.*)",
    re.DOTALL | re.IGNORECASE,
)
"""The first word, with marks and punctuation around it. A question is not a decision."""
_COMMAND = re.compile(r"(?P<verb>/(?:approve|deny))(?P<rest>(?:\W.*)?)", re.ASCII | re.DOTALL | re.IGNORECASE)
_COMMAND_NOTE = re.compile(r"[.!]?\s*\Z|[.!]?\s*(?::|\n)(?P<note>.*)", re.DOTALL)
NO_COMMAND = (
    "Nothing was decided. `/approve` or `/approve ID` approves; a note can follow after a colon or on a new line. "
    "`/deny` denies."
)
_NUMBER = re.compile(r"[*_`#(]*([0-9]{1,4})[*_`.:)]*[ \t]*(?:\n|\Z)")
_PART = re.compile(rf"{TEXT_SUFFIX}(?:/\d+)?\Z")


class Decisions:
    """Decides approvals and answers questions in the name of a person. Methods return what to reply, or None if the
    message is not a decision."""

    def __init__(self, channel: str, store: ChannelStore, service: LocalService) -> None:
        self._channel = channel
        self._store = store
        self._service = service

    async def apply_press(self, message: Incoming, person: Person) -> str:
        """Apply a button. It counts only on a message that was sent to the same conversation."""
        prompt = await self._find_prompt(message)
        if prompt is None or all(button.value != message.value for button in prompt.message.buttons):
            return "This button is no longer valid."
        if prompt.key.startswith("question/"):
            return await self._answer_prompt(prompt, message.value, person)
        return await self._decide_prompt(prompt, message.value, "", person)

    async def apply_reply(self, message: Incoming, person: Person) -> str | None:
        """Apply a reply to a prompt, if the message is one."""
        prompt = await self._find_prompt(message) if message.reply_to else None
        if prompt is None:
            return None
        text = message.text.strip()
        if prompt.key.startswith("question/"):
            return await self._answer_prompt(prompt, text, person)
        if (decision := read_decision(text)) is not None:
            return await self._decide_prompt(prompt, *decision, person)
        if text.startswith("/") or not person.may("approve"):
            return None
        record = await self._service.approval(_find_approval(prompt))
        return None if record.decision is not None else NO_DECISION

    async def apply_command(self, message: Incoming, person: Person, run: RunRecord | None) -> str | None:
        """Apply `/approve` or `/deny`, with the ID of an approval or for the only one that is pending."""
        found = _COMMAND.fullmatch(message.text.strip())
        if found is None:
            return None
        head, rest = found["verb"].lower(), found["rest"]
        pending = await self._list_pending(run, message.conversation)
        chosen, note = _choose_approval(pending, rest)
        if chosen is None:
            ids = ", ".join(each.approval_id for each in pending)
            return f"Which one? `{head} ID` with one of {ids}." if ids else "No approval is pending here."
        if head == "/deny":
            return await self._decide(chosen, DENY, note.strip(": \t\n"), person)
        said = _COMMAND_NOTE.fullmatch(note)
        if said is None:
            return NO_COMMAND
        return await self._decide(chosen, APPROVE, (said["note"] or "").strip(), person)

    async def answer(self, message: Incoming, person: Person, run: RunRecord, user: str) -> str | None:
        """Answer the oldest open question of a run or its child runs, if there is one and the person may answer."""
        asked = await self._open_questions(run)
        if not asked or not (person.may("approve") or person.user == user):
            return None
        run_id, question = asked[0]
        return await self._answer(run_id, question.call_id, _choose(question.options, message.text.strip()), person)

    # ── Applying ──

    async def _find_prompt(self, message: Incoming) -> OutboxItem | None:
        """Return the prompt that a message replies to. It counts only in the conversation that it was sent to
        and in threads below it: people who know an ID could name it elsewhere."""
        for conversation in filter(None, dict.fromkeys((message.conversation, message.parent))):
            found = await self._store.find_sent(
                self._channel, message_id=message.reply_to or None, conversation=conversation
            )
            if found is not None and found.key.startswith(("approval/", "question/")):
                return found
        return None

    async def _decide_prompt(self, prompt: OutboxItem, value: str, note: str, person: Person) -> str:
        return await self._decide(_find_approval(prompt), value, note, person)

    async def _answer_prompt(self, prompt: OutboxItem, text: str, person: Person) -> str:
        """Answer a question with a text, the number of an option, or the value of its button."""
        run_id, _, call_id = _find_subject(prompt).partition("/")
        if not person.may("approve") and (await self._service.run(RunId(run_id))).owner != person.user:
            return _refuse(person)
        questions = await self._service.questions(RunId(run_id))
        question = next((each for each in questions if each.call_id == call_id), None)
        if question is None:
            return "This question is answered already."
        if not text:
            return "Your answer has no text."
        return await self._answer(RunId(run_id), call_id, _choose(question.options, text), person)

    async def _decide(self, approval_id: ApprovalId, value: str, note: str, person: Person) -> str:
        if not person.may("approve"):
            return _refuse(person)
        decision = "deny" if value == DENY else "approve"
        remember = "session" if value == APPROVE_SESSION else "once"
        try:
            answer = Answer(decision, note=note[:2000], by=f"{person.name} ({self._channel})", remember=remember)
            await self._service.decide(approval_id, answer)
        except InvalidState as error:
            return str(error)
        return ""

    async def _answer(self, run_id: RunId, call_id: str, text: str, person: Person) -> str:
        try:
            await self._service.answer(run_id, call_id, text, f"{person.name} ({self._channel})")
        except TreadleError as error:
            return str(error)
        return ""

    # ── Looking ──

    async def _list_pending(self, run: RunRecord | None, conversation: str) -> list[ApprovalRecord]:
        """Return the pending approvals that this conversation was asked, also those of child runs and of runs whose
        answers are delivered here, and those of its run in progress."""
        shown: list[ApprovalRecord] = []
        for record in await self._service.approvals():
            prompt = await self._store.find_sent(self._channel, key=f"approval/{record.approval_id}")
            is_here = prompt is not None and prompt.conversation == conversation
            if is_here or (run is not None and record.origin.run_id == run.origin.run_id):
                shown.append(record)
        return shown

    async def _open_questions(self, run: RunRecord) -> list[tuple[RunId, ClarifyRequested]]:
        """Return the open questions of a run and of its child runs that were shown on this channel."""
        asked = [run.origin.run_id, *[run_id async for run_id in self._list_waiting_children(run.origin.run_id)]]
        return [
            (run_id, each)
            for run_id in asked
            for each in await self._service.questions(run_id)
            if await self._store.find_sent(self._channel, key=make_question_key(run_id, each.call_id)) is not None
        ]

    async def _list_waiting_children(self, run_id: RunId) -> AsyncGenerator[RunId, None]:
        """Yield the child runs that wait for a person, however deep, in the order in which they were started."""
        children = await self._service.runs(RunFilter(parent_run_id=run_id, unfinished=True), MAX_CHILDREN)
        for child in reversed(children):
            if child.waiting_for in ("answer", "approval"):
                yield child.origin.run_id
            async for below in self._list_waiting_children(child.origin.run_id):
                yield below


def _find_subject(prompt: OutboxItem) -> str:
    """Return what a prompt is about. A long prompt was sent in parts, whose keys say so at their ends."""
    return _PART.sub("", prompt.key.partition("/")[2])


def _find_approval(prompt: OutboxItem) -> ApprovalId:
    return ApprovalId(_find_subject(prompt))


def read_decision(text: str) -> tuple[str, str] | None:
    """Return the decision of a reply and its note, or None. A reply approves only if it says nothing else; a denial
    is the first word, whatever follows."""
    if (approval := _APPROVAL.fullmatch(text.strip())) is not None:
        return APPROVE, (approval["note"] or approval["lines"] or "").strip("*_~` \n")
    denial = _DENIAL.fullmatch(text)
    return None if denial is None else (DENY, denial["note"].strip("*_~` \n"))


def _choose_approval(pending: Sequence[ApprovalRecord], rest: str) -> tuple[ApprovalId | None, str]:
    """Return the approval that a command names, or the only one, and what follows its ID."""
    for each in pending:
        if rest.strip().startswith(each.approval_id):
            after = rest.strip().removeprefix(each.approval_id)
            if not after or not (after[0].isalnum() or after[0] in "_-"):
                return each.approval_id, after
    return (pending[0].approval_id, rest) if len(pending) == 1 else (None, rest)


def _refuse(person: Person) -> str:
    grants = " ".join(f"--grant {each}" for each in (*person.grants, "approve"))
    command = f"treadle channels approve {shlex.quote(f'{person.channel}:{person.sender}')} {grants}"
    return f"You may not decide approvals here. The operator can allow it: `{command}`"


def _choose(options: Sequence[str], text: str) -> str:
    """Return the option that a number on the first line or the value of a button stands for, or the text itself."""
    if text.startswith(ANSWER_PREFIX):
        number = text.removeprefix(ANSWER_PREFIX)
        index = int(number) if number.isascii() and number.isdecimal() and len(number) <= 4 else -1
    else:
        found = _NUMBER.match(text)
        index = -1 if found is None else int(found[1]) - 1
    return options[index] if 0 <= index < len(options) else text
