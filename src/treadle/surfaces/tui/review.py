"""What the user does about approvals and questions: one after another, in the panel or with the prompt."""

import asyncio

from treadle.domain.errors import InvalidState, UsageError
from treadle.operations.approval_service import Answer
from treadle.surfaces.terminal.call_view import describe_offer
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.approval_choices import BY, ApprovalChoice, list_choices
from treadle.surfaces.tui.chat_state import Pending, PendingApproval, PendingQuestion
from treadle.surfaces.tui.controlled_app import ControlledApp
from treadle.surfaces.tui.edited_arguments import make_editable, read_edited
from treadle.surfaces.tui.prompt_view import Mode
from treadle.system.workspace_identity import identify_workspace


class Review:
    """Shows the first pending item, and sends what the user decides."""

    def __init__(self, app: ControlledApp) -> None:
        self._app = app
        self._left: set[str] = set()
        """Items that the user has left for later."""
        self._announced: set[str] = set()
        self._current: Pending | None = None

    @property
    def asks_question(self) -> bool:
        """Return whether the panel shows a question of the agent."""
        return isinstance(self._current, PendingQuestion)

    def show(self) -> None:
        """Show the first item that was not left for later; or nothing."""
        app = self._app
        if not app.is_running or not app.panel.is_mounted:
            return
        pending = app.chat.pending
        self._left &= {each.key for each in pending}
        waiting = [each for each in pending if each.key not in self._left]
        shown = waiting[0] if waiting else None
        previous, self._current = self._current, shown
        if app.prompt.mode in ("note", "edit", "answer") and (
            previous is None or shown is None or previous.key != shown.key
        ):
            app.input.leave()
        app.input.show_mode()  # the state may have been drawn before this, and is not drawn again while it waits
        app.panel.show(shown, len(pending))
        self._announce(shown)
        if shown is None:
            if app.focused is app.panel or app.focused is None:
                app.prompt.take_focus()
            return
        if not self._take_keys() and (previous is None or previous.key != shown.key):
            app.flash(texts.FOCUS_APPROVAL.format(keys=app.key_map))

    def go_back(self) -> None:
        """Give the keys to the panel after a message was sent or cleared. Keys that continue the message decide
        nothing."""
        if self._app.focused is not self._app.panel and self._take_keys():
            self._app.panel.wait_for_reader()

    def _take_keys(self) -> bool:
        """Give the keys to the panel if something waits and no message is begun. Return whether it has them."""
        app = self._app
        is_empty = app.prompt.mode == "message" and not app.prompt.text and not app.extras.chips
        if self._current is not None and is_empty:
            app.panel.take_focus()
        return app.focused is app.panel

    def _announce(self, shown: Pending | None) -> None:
        if shown is not None and shown.key not in self._announced:
            self._announced.add(shown.key)
            if self._app.preferences.bell:
                self._app.ring(texts.BELL_WAITS.format(agent=shown.agent))

    def focus(self) -> None:
        """Go to the panel, also to what was left for later."""
        self._left.clear()
        self.show()
        if self._current is not None:
            self._app.panel.take_focus()

    def leave(self) -> None:
        """Leave the item for later."""
        if self._current is not None:
            self._left.add(self._current.key)
        self._app.flash(texts.LATER.format(keys=self._app.key_map))
        self.show()
        self._app.prompt.take_focus()

    def type(self, character: str) -> None:
        """Begin to type: an answer to a question, or a message."""
        app = self._app
        if isinstance(self._current, PendingQuestion):
            app.input.enter("answer", character)
        else:
            app.prompt.take_focus()
            app.prompt.insert(character)

    def choose(self, pending: Pending, choice: int) -> None:
        """Do what a key of the panel means. The prompt is ready for text before the next key is read."""
        app = self._app
        if isinstance(pending, PendingQuestion):
            app.perform(self._answer(pending, pending.question.options[choice - 1]))
            return
        chosen = next((each for each in list_choices(pending.view) if each.key == str(choice)), None)
        if chosen is None:
            return
        match chosen.types:
            case "edit":
                app.input.enter("edit", make_editable(pending.view.arguments))
            case "note":
                app.input.enter("note")
            case _:
                if chosen.is_rule:
                    app.perform(self._allow_always(pending, chosen))
                elif chosen.answer is not None:
                    app.perform(self._decide(pending, chosen.answer))

    async def _allow_always(self, pending: PendingApproval, chosen: ApprovalChoice) -> None:
        """Approve a call, and store a rule that allows such calls in this workspace."""
        view, app = pending.view, self._app
        assert chosen.answer is not None, "a rule comes with an approval"
        assert view.pattern is not None, "a rule is offered only for calls with a pattern"
        await self._decide(pending, chosen.answer)
        workspace = identify_workspace(pending.folder or app.folder)
        path = await asyncio.to_thread(app.link.home.allow, pending.agent, view.tool, view.pattern, workspace)
        app.flash(texts.ALLOWED_ALWAYS.format(rule=describe_offer(view.tool, view.pattern), path=path))

    async def submit(self, mode: Mode, text: str) -> None:
        """Send what the user has typed about the item."""
        pending = self._current
        match mode, pending:
            case "note", PendingApproval():
                await self._decide(pending, Answer("deny", note=text.strip(), by=BY))
            case "edit", PendingApproval():
                await self._submit_edited(pending, text)
            case "answer", PendingQuestion() if text.strip():
                await self._answer(pending, text.strip())
            case _:
                self._app.input.leave()

    async def _submit_edited(self, pending: PendingApproval, text: str) -> None:
        try:
            arguments = read_edited(pending.view.arguments, text)
        except UsageError as error:
            self._app.flash(str(error))
            return
        await self._decide(pending, Answer("approve", arguments, by=BY))

    async def _decide(self, approval: PendingApproval, answer: Answer) -> None:
        try:
            await self._app.chat.decide(approval, answer)
        except InvalidState as error:  # it was decided elsewhere
            self._app.flash(str(error))
        except UsageError as error:
            self._app.flash(str(error))
            return
        finally:
            self._app.panel.accept_keys()
        await self._continue_review()

    async def _answer(self, question: PendingQuestion, text: str) -> None:
        try:
            await self._app.chat.answer(question, text)
        except InvalidState as error:
            self._app.flash(str(error))
        finally:
            self._app.panel.accept_keys()
        await self._continue_review()

    async def _continue_review(self) -> None:
        self._app.input.leave()
        await self._app.chat.refresh_pending()
