"""What a conversation begins with."""

from msgspec import Struct

from treadle.domain.ids import SessionId
from treadle.domain.modes import ApprovalMode
from treadle.surfaces.tui.chat import Chat


class Opening(Struct, frozen=True):
    """What the user asked for on the command line."""

    session: SessionId | None = None
    """None begins a new session."""
    folder: str = ""
    """The folder of a session that continues elsewhere; empty: the current one."""
    model: str | None = None
    message: str = ""
    """What is sent first."""
    chooses: bool = False
    """Whether the user chooses a session first."""
    mode: ApprovalMode | None = None

    async def begin(self, chat: Chat) -> None:
        """Open the session. Raise UnknownModel or MissingKey if the model cannot be called."""
        await chat.start(self.session, self.folder)
        if self.model is not None:
            await chat.set_model(self.model)
        if self.mode is not None:
            await chat.set_mode(self.mode)
