"""Child runs that the user has opened: each takes the place of the session until the user goes back."""

import asyncio
from contextlib import aclosing

from treadle.domain.envelope import Event
from treadle.domain.errors import StoreError, TreadleError
from treadle.domain.ids import SessionId
from treadle.domain.transcript import ChildItem
from treadle.operations.event_source import follow_without_resets
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.chat_run import ChatRun
from treadle.surfaces.tui.controlled_app import ControlledApp
from treadle.surfaces.tui.item_view import list_children
from treadle.surfaces.tui.transcript import SessionTranscript, ShownItem

RECONNECT_SECONDS = 0.5


class OpenChild:
    """A child run on the screen, and where the user was before."""

    def __init__(self, app: ControlledApp, child: ChildItem, came_from: ShownItem | None) -> None:
        self.child = child
        self.came_from = came_from
        self.transcript = SessionTranscript(self._show_change)
        self.run = ChatRun(child.child_run_id, self.transcript)
        self._app = app
        self._reading = asyncio.create_task(self._read())

    def close(self) -> None:
        self._reading.cancel()

    def apply(self, event: Event) -> None:
        """Apply an event of the run, or of one of its own child runs."""
        self.run.apply(event)
        self._app.display_state.show_state()

    async def _read(self) -> None:
        """Apply the events of the run from the beginning to the end. If the home changes hands, continue."""
        while not self.run.ended:
            try:
                run_id, after = self.run.run_id, self.run.sequence
                async with aclosing(follow_without_resets(self._app.link, run_id, after)) as events:
                    async for event in events:
                        self.apply(event)
                return
            except StoreError:
                await asyncio.sleep(RECONNECT_SECONDS)
            except TreadleError as error:
                self._app.flash(str(error))
                return

    def _show_change(self, item: ShownItem | None) -> None:
        if self._app.child_runs.transcript is self.transcript:
            self._app.view.note_change(item)


class ChildRuns:
    """Opens child runs, one inside the other, and goes back."""

    def __init__(self, app: ControlledApp) -> None:
        self._app = app
        self._open: list[OpenChild] = []
        self._session: SessionId | None = None

    @property
    def current(self) -> OpenChild | None:
        """The child run on the screen."""
        if self._open and self._session != self._app.chat.session_id:  # another session was opened
            self._discard()
        return self._open[-1] if self._open else None

    @property
    def is_open(self) -> bool:
        return self.current is not None

    @property
    def transcript(self) -> SessionTranscript:
        """The transcript on the screen."""
        current = self.current
        return self._app.chat.transcript if current is None else current.transcript

    def handle_event(self, event: Event) -> None:
        """Apply an event to the open child runs that started its run."""
        for opened in self._open:
            if event.run_id in opened.run.children:
                opened.apply(event)

    async def choose(self) -> None:
        """Open the child run of the call on the screen, or let the user choose among several."""
        shown = self._find_call()
        if shown is None:
            self._app.flash(texts.NO_CHILD)
            return
        found = list_children(shown)
        if len(found) == 1:
            self.open(shown, found[0])
            return
        from treadle.surfaces.tui.picker_screen import PickerRow, PickerScreen

        rows = [PickerRow(child.child_run_id, child.agent, child.outcome or child.state) for child in found]

        async def load() -> list[PickerRow]:
            return rows

        app, title, hint = self._app, texts.CHILDREN_TITLE, texts.CHILDREN_HINT
        picked = await app.ask(PickerScreen(app.palette, app.key_map, title, hint, load))
        if picked is not None:
            self.open(shown, next(child for child in found if child.child_run_id == picked.key))

    def _find_call(self) -> ShownItem | None:
        """Return the last item with child runs up to the last visible one; or the latest of all."""
        items = self.transcript.items
        last = self._app.view.last_visible
        end = next((index + 1 for index, item in enumerate(items) if item is last), len(items))
        with_children = [item for item in items if list_children(item)]
        before = [item for item in items[:end] if list_children(item)]
        return (before or with_children or [None])[-1]

    def open(self, shown: ShownItem, child: ChildItem) -> None:
        """Show the transcript of a child run."""
        if self.current is None:
            self._session = self._app.chat.session_id
        self._open.append(OpenChild(self._app, child, shown))
        self._show()

    def go_back(self) -> None:
        """Show the run that started the one on the screen, at the call."""
        if self.current is not None:
            left = self._open.pop()
            left.close()
            self._show(left.came_from)

    def close(self) -> None:
        """Show the session."""
        if self.current is not None:
            self._discard()
            self._show()

    def stop(self) -> None:
        """Stop following the open child runs."""
        for opened in self._open:
            opened.close()
        self._open.clear()

    def _discard(self) -> None:
        self.stop()
        self._app.display_state.show_state()

    def _show(self, place: ShownItem | None = None) -> None:
        view = self._app.view
        view.redraw()
        view.follow_end()
        if place is not None:
            view.show_item(place)
        self._app.display_state.show_state()

    def describe(self) -> str:
        """Return a line about the child run on the screen; empty if there is none."""
        current = self.current
        if current is None:
            return ""
        path = " > ".join(one_line(opened.child.agent) for opened in self._open)
        totals = current.run.totals
        state = totals.outcome or texts.CHILD_WAITS.get(totals.waiting_for or "", totals.waiting_for or "running")
        key = self._app.key_map["message.stop"]
        return texts.CHILD_OPEN.format(path=path, state=str(state).replace("_", " "), key=key)
