"""Going back to an earlier message: its files, its conversation, or both."""

from collections.abc import Awaitable, Callable
from typing import Literal, cast

from treadle.domain.transcript import MessageItem
from treadle.operations.file_changes import (
    FILES,
    UNDO_FILES,
    ChangedFiles,
    ListChangedFiles,
    UndoFiles,
    UndoneFiles,
)
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.chat_state import ForkSource
from treadle.surfaces.tui.controlled_app import ControlledApp

Part = Literal["both", "files", "conversation"]
PickMessage = Callable[[str, str], Awaitable[MessageItem | None]]
"""Let the user choose a message of the session, with a title and a hint."""
MAX_NAMED = 3


class Rewind:
    """Restores what was there before a message of the session."""

    def __init__(self, app: ControlledApp, pick_message: PickMessage) -> None:
        self._app = app
        self._pick_message = pick_message

    async def choose(self) -> None:
        """Let the user choose a message and what to restore."""
        from treadle.surfaces.tui.choice_screen import ChoiceScreen

        app = self._app
        item = await self._pick_message(texts.REWIND_TITLE, texts.REWIND_HINT)
        if item is None:
            return
        found = await app.link.call(FILES, ListChangedFiles(item.run_id, later=True))
        choices = [("1", "conversation", texts.REWIND_CONVERSATION)]
        if found.files:
            files = texts.REWIND_FILES.format(files=_name_files([each.path for each in found.files]))
            choices = [("1", "both", texts.REWIND_BOTH), ("2", "files", files), ("3", *choices[0][1:])]
        title = texts.REWIND_QUESTION.format(note=_describe_gaps(found))
        part = cast("Part | None", await app.ask(ChoiceScreen(app.palette, title, choices)))
        if part is None:
            return
        if part != "conversation":
            await self._restore_files(item, found)
        if part != "files":
            app.input.fork_source = ForkSource(item.run_id, app.chat.folder)
            app.input.enter("fork", item.text)

    async def _restore_files(self, item: MessageItem, found: ChangedFiles) -> None:
        from treadle.surfaces.tui.choice_screen import ChoiceScreen

        app = self._app
        conflicts = [file.path for file in found.files if file.conflict]
        overwrite = False
        if conflicts:
            choices = [("1", "leave", texts.REWIND_LEAVE), ("2", "overwrite", texts.REWIND_OVERWRITE)]
            title = texts.REWIND_CONFLICT.format(files=_name_files(conflicts))
            chosen = await app.ask(ChoiceScreen(app.palette, title, choices))
            if chosen is None:
                return
            overwrite = chosen == "overwrite"
        done = await app.link.call(UNDO_FILES, UndoFiles(item.run_id, later=True, overwrite=overwrite))
        app.flash(_describe_undone(done))


def _describe_gaps(found: ChangedFiles) -> str:
    if not found.unrecorded:
        return ""
    count = len(found.unrecorded)
    return texts.REWIND_GAPS.format(count=count, s="" if count == 1 else "s")


def _describe_undone(done: UndoneFiles) -> str:
    restored = [file.path for file in done.files if file.state == "restored"]
    left = [file for file in done.files if file.state in ("conflict", "failed")]
    said = texts.FILES_RESTORED.format(files=_name_files(restored)) if restored else texts.NO_FILES_RESTORED
    if left:
        reasons = "; ".join(f"{one_line(file.path)}: {file.reason}" for file in left[:MAX_NAMED])
        said += " " + texts.FILES_LEFT.format(count=len(left), reasons=reasons)
    return said


def _name_files(paths: list[str]) -> str:
    named = ", ".join(map(one_line, paths[:MAX_NAMED]))
    return f"{named} and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else named
