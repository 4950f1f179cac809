"""Approvals and questions that people decide on a channel, with buttons, replies or commands."""

from treadle.channels.prompts import ANSWER_PREFIX, APPROVE, APPROVE_SESSION, DENY, question_key
from treadle.domain.channels import Person
from treadle.domain.errors import InvalidState, TreadleError
from treadle.domain.events import ClarifyRequested
from treadle.domain.ids import ApprovalId, RunId
from treadle.operations.approval_service import Answer
from treadle.operations.service import LocalService
from treadle.ports.approvals import ApprovalRecord
from treadle.ports.channel import ChannelStore, Incoming, OutboxItem
from treadle.ports.journal import RunRecord

MAY_NOT = (
    "You may not decide approvals here. The operator can allow it: `treadle channels approve` with the grant "
    "`approve`."
)
_WORDS = {
    "approve": APPROVE,
    "approved": APPROVE,
    "yes": APPROVE,
    "allow": APPROVE,
    "deny": DENY,
    "denied": DENY,
    "no": DENY,
}


class Decisions:
    """Decides approvals and answers questions in the name of a person. Methods return what to reply, or None if the
    message is not a decision."""

    def __init__(self, channel: str, store: ChannelStore, service: LocalService) -> None:
        self._channel = channel
        self._store = store
        self._service = service

    async def press(self, message: Incoming, person: Person) -> str:
        """Apply a button. It counts only on a message that was sent to the same conversation."""
        prompt = await self._prompt(message)
        if prompt is None or all(button.value != message.value for button in prompt.message.buttons):
            return "This button is no longer valid."
        return await self._apply(prompt, message.value, "", person) or ""

    async def reply(self, message: Incoming, person: Person) -> str | None:
        """Apply a reply to a prompt, if the message is one."""
        prompt = await self._prompt(message) if message.reply_to else None
        if prompt is None:
            return None
        word, _, rest = message.text.strip().partition(" ")
        if prompt.key.startswith("question/"):
            return await self._apply(prompt, message.text, "", person)
        value = _WORDS.get(word.strip(".,!").lower())
        return None if value is None else await self._apply(prompt, value, rest.strip(), person)

    async def command(self, message: Incoming, person: Person, run: RunRecord | None) -> str | None:
        """Apply `/approve` or `/deny`, with the ID of an approval or for the only one that is pending."""
        head, _, rest = message.text.strip().partition(" ")
        if head not in ("/approve", "/deny"):
            return None
        pending: list[ApprovalRecord] = [] if run is None else await self._pending(run, message.conversation)
        wanted, _, note = rest.strip().partition(" ")
        chosen = [each for each in pending if each.approval_id == wanted]
        if not chosen and len(pending) == 1:
            chosen, note = pending, rest.strip()
        if not chosen:
            ids = ", ".join(each.approval_id for each in pending)
            return f"Which one? `{head} ID` with one of {ids}." if ids else "No approval is pending here."
        return await self._decide(chosen[0].approval_id, APPROVE if head == "/approve" else DENY, note, person)

    async def answer(self, message: Incoming, person: Person, run: RunRecord, user: str) -> str | None:
        """Answer the oldest open question of a run, if there is one and the person may answer it."""
        asked = await self._open_questions(run)
        if not asked or not (person.may("approve") or person.user == user):
            return None
        run_id, question = asked[0]
        options = question.options
        text = message.text.strip()
        if options and text.isdecimal() and 1 <= int(text) <= len(options):
            text = options[int(text) - 1]
        return await self._answer(run_id, question.call_id, text, person)

    # ── Applying ──

    async def _prompt(self, message: Incoming) -> OutboxItem | None:
        found = await self._store.find_sent(
            self._channel, message_id=message.reply_to, conversation=message.conversation
        )
        return found if found is not None and found.key.startswith(("approval/", "question/")) else None

    async def _apply(self, prompt: OutboxItem, value: str, note: str, person: Person) -> str | None:
        kind, _, rest = prompt.key.partition("/")
        if kind == "approval":
            return await self._decide(ApprovalId(rest), value, note, person)
        run_id, _, call_id = rest.partition("/")
        text = value
        if value.startswith(ANSWER_PREFIX):
            questions = await self._service.questions(RunId(run_id))
            question = next((each for each in questions if each.call_id == call_id), None)
            number = int(value.removeprefix(ANSWER_PREFIX))
            if question is None or number >= len(question.options):
                return "This question is answered already."
            text = question.options[number]
        if not person.may("approve") and (await self._service.run(RunId(run_id))).owner != person.user:
            return MAY_NOT
        return await self._answer(RunId(run_id), call_id, text, person)

    async def _decide(self, approval_id: ApprovalId, value: str, note: str, person: Person) -> str:
        if not person.may("approve"):
            return MAY_NOT
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

    async def _pending(self, run: RunRecord, conversation: str) -> list[ApprovalRecord]:
        """Return the pending approvals of a run, and those of its child runs that this conversation was asked."""
        shown: list[ApprovalRecord] = []
        for record in await self._service.approvals():
            prompt = await self._store.find_sent(self._channel, key=f"approval/{record.approval_id}")
            is_here = prompt is not None and prompt.conversation == conversation
            if is_here or record.origin.run_id == run.origin.run_id:
                shown.append(record)
        return shown

    async def _open_questions(self, run: RunRecord) -> list[tuple[RunId, ClarifyRequested]]:
        """Return the open questions of a run that were shown on this channel."""
        if run.waiting_for not in ("answer", None):
            return []
        run_id = run.origin.run_id
        return [
            (run_id, each)
            for each in await self._service.questions(run_id)
            if await self._store.find_sent(self._channel, key=question_key(run_id, each.call_id)) is not None
        ]
