"""Imports what the first message needs, while the user writes it."""

import importlib
from contextlib import suppress

from treadle.domain.errors import TreadleError
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.tui.chat import Chat

MODULES = ("treadle.operations.submissions", "pygments.lexers", "pygments.lexers.python", "pygments.lexers.shell")


def preload(link: HomeLink, chat: Chat) -> None:
    """Import modules in this thread, so that neither the first message nor the first code block is delayed."""
    for name in MODULES:
        importlib.import_module(name)
    engine = link.engine
    with suppress(TreadleError):
        spec = chat.spec()
        if engine is not None:
            engine.models.resolve(spec.model, spec.provider)
