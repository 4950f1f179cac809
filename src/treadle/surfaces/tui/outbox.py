"""Sends the message: its text, its attachments, or the command that it is."""

from base64 import b64encode
from pathlib import Path

from treadle.domain.agents import Limits
from treadle.domain.errors import TreadleError
from treadle.domain.messages import MESSAGE_LIMIT, Image
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.attachments import (
    Chip,
    find_data_image,
    find_images,
    find_mentioned_images,
    is_long,
    make_file_chip,
    make_image_chip,
    make_paste_chip,
)
from treadle.surfaces.tui.commands import find_command, looks_like_command
from treadle.surfaces.tui.controlled_app import ControlledApp
from treadle.surfaces.tui.item_view import format_size
from treadle.surfaces.tui.own_commands import OwnCommands


class Outbox:
    """What is about to be sent."""

    def __init__(self, app: ControlledApp) -> None:
        self._app = app
        self.own = OwnCommands(app)

    # ── Attachments ──

    def add_pasted(self, text: str) -> None:
        """Insert pasted text, or attach it if it is long or names an image."""
        app = self._app
        is_message = app.prompt.mode == "message"
        image = find_data_image(text) if is_message else None
        paths = find_images(text, app.folder) if is_message else []
        if image is not None:
            self.attach_image(image, texts.PASTED_IMAGE)
        elif paths:
            for path in paths:
                self.attach(path)
        elif is_message and is_long(text):
            number = sum(bool(chip.text) for chip in app.extras.chips) + 1
            self._add(make_paste_chip(_clean(text), number))
        else:
            app.prompt.insert(_clean(text))
        app.prompt.take_focus()

    def attach(self, path: Path) -> None:
        """Attach a file."""
        try:
            self._add(self._make_file_chip(path))
        except TreadleError as error:
            self._app.flash(str(error))
        except OSError as error:
            self._app.flash(texts.UNREADABLE.format(path=path, error=error.strerror))

    def attach_image(self, image: Image, name: str) -> None:
        """Attach an image without a file."""
        try:
            self._add(make_image_chip(image, name, self._max_bytes))
        except TreadleError as error:
            self._app.flash(str(error))

    async def paste_clipboard(self) -> None:
        """Attach the image of the clipboard, or paste its text."""
        from treadle.surfaces.terminal.clipboard import NoClipboard, TooLarge, read_clipboard

        app = self._app
        try:
            image, text = await read_clipboard(self._max_bytes)
        except NoClipboard:
            image, text = b"", app.clipboard  # what was copied in this terminal
            if not text:
                app.flash(texts.NO_CLIPBOARD)
        except TooLarge:
            app.flash(texts.CLIPBOARD_TOO_LARGE.format(limit=format_size(self._max_bytes)))
            return
        if image:
            self.attach_image(Image("image/png", b64encode(image).decode()), texts.CLIPBOARD_IMAGE)
        elif text:
            self.add_pasted(text)

    @property
    def _max_bytes(self) -> int:
        """The limit of the agent for an attachment."""
        try:
            return self._app.link.home.agent(self._app.chat.agent_name).limits.max_attachment_bytes
        except TreadleError:
            return Limits().max_attachment_bytes  # the agent is not in the home; the server checks the message

    def _make_file_chip(self, path: Path) -> Chip:
        """Return the chip of a file that the agent accepts."""
        return make_file_chip(path, self._max_bytes)

    def recall(self, text: str) -> None:
        """Put an earlier message into the prompt, with what was attached to it."""
        self._app.prompt.put(text)
        self._set_chips(list(self._app.history.find_attachments(text)))

    def remove_last(self) -> None:
        """Remove the last attachment."""
        if self._app.extras.chips:
            self._set_chips(self._app.extras.chips[:-1])

    def _add(self, chip: Chip) -> None:
        self._set_chips([*self._app.extras.chips, chip])

    def _set_chips(self, chips: list[Chip]) -> None:
        self._app.extras.chips = chips
        self._app.extras.show()

    # ── Sending ──

    async def send(self, text: str, *, after_run: bool = False) -> None:
        """Send the message, or perform the command that it is."""
        app = self._app
        if text.startswith("!") and text[1:].strip():
            app.history.add(text)
            app.prompt.put("")
            await self.own.run_shell(text[1:].strip())
            return
        found = find_command(text)
        if found is not None and not found[0].is_session:
            app.history.add(text)
            app.prompt.put("")
            await app.runner.run(*found)
            return
        if found is None and text.startswith("/") and (own := await self.own.find(text)) is not None:
            app.history.add(text)
            if not own.is_trusted:
                app.prompt.put(own.text)
                app.flash(texts.COMMAND_INSERTED.format(path=own.source, keys=app.key_map))
                return
            text = own.text
        elif found is None and looks_like_command(text):
            app.flash(texts.UNKNOWN_COMMAND.format(name=text.split()[0]))
            return
        chips = app.extras.chips
        size = len(text) + sum(len(chip.text) for chip in chips)
        if size > MESSAGE_LIMIT:
            app.flash(texts.TOO_LONG.format(size=size, limit=MESSAGE_LIMIT))
            return
        try:
            images = [self._make_file_chip(path) for path in find_mentioned_images(text, app.folder)]
        except TreadleError as error:
            app.flash(str(error))
            return
        parts = tuple(chip.part for chip in (*chips, *images))
        app.history.add(text, chips)
        app.prompt.put("")
        self._set_chips([])
        app.child_runs.close()
        app.view.follow_end()
        try:
            await (app.chat.queue(text, parts) if after_run else app.chat.send(text, parts))
        except TreadleError as error:
            app.flash(texts.SENDING_FAILED.format(error=error))
            app.prompt.put(app.prompt.text or text)  # nothing that was typed is lost
            self._set_chips([*chips, *app.extras.chips])
        app.review.go_back()


def _clean(text: str) -> str:
    """Return pasted text without control characters."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c for c in lines if c in "\n\t" or (ord(c) >= 0x20 and not 0x7F <= ord(c) <= 0x9F))
