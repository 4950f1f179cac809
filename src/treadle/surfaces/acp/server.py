"""The process of `treadle acp`: standard input and output, the log, and what happens when the editor is gone."""

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from acp.agent.connection import AgentSideConnection

from treadle.config.home import Home
from treadle.domain.errors import ConfigError, UsageError
from treadle.surfaces.acp.agent import EditorAgent
from treadle.surfaces.acp.stdio import StdioTransport, Writer, claim_stdio, open_reader
from treadle.surfaces.home_access.background_process import start_background_process
from treadle.surfaces.terminal.output import note

if TYPE_CHECKING:
    from treadle.api.engine import HostedEngine
    from treadle.surfaces.home_access.home_link import HomeLink

LOG_FOLDER, LOG_NAME = "logs", "acp.log"
MAX_LOG_BYTES = 5_000_000
HAND_OVER_SECONDS = 30.0
"""How long a run may take to come to a safe point before this process ends anyway; the journal survives that."""


async def serve_editor(home: Home, agent: str) -> int:
    """Serve one editor until it closes standard input, or until SIGTERM. A run in progress continues in the
    background."""
    log = open_log(home)
    if sys.stdin is not None and sys.stdin.isatty():
        note("Waiting for an editor on standard input. Editors start this command; docs/editors.md says how.")
    try:
        source, target = claim_stdio(log)
    except OSError:
        raise UsageError("Standard input or output is closed. Start the command from an editor.") from None
    writer = Writer(target)
    await writer.open()
    transport = StdioTransport(await open_reader(source), writer)
    editor = EditorAgent(home, transport, lambda: _make_link(home), agent)
    connection = AgentSideConnection(editor, transport, listening=False, use_unstable_protocol=True)  # pyright: ignore[reportArgumentType] -- it has what the router calls
    listening = asyncio.create_task(connection.listen())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, listening.cancel)
    with suppress(asyncio.CancelledError):
        await listening
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)  # a second signal ends the process at once
    await editor.leave()
    await connection.close()
    if editor.opening.link is not None:
        await _close_home(editor.opening.link, editor.open_runs)
    return 0


async def _close_home(link: "HomeLink", run_ids: list[str]) -> None:
    """Leave the runs of this process to one in the background, and close the home."""
    access = link.access
    if access is not None and access.engine is not None and access.engine.busy:
        logging.getLogger(__name__).info("The editor is gone; runs go on in the background.")
        start_background_process(run_ids)
        with suppress(TimeoutError):
            await asyncio.wait_for(access.released.wait(), HAND_OVER_SECONDS)
    closing = asyncio.create_task(link.close())
    await asyncio.wait({closing}, timeout=HAND_OVER_SECONDS)


def _make_link(home: Home) -> "HomeLink":
    from treadle.surfaces.home_access.home_link import HomeLink  # initialize does not need it

    return HomeLink(home, lambda: _make_engine(home))


def _make_engine(home: Home) -> "HostedEngine":
    """Return an engine that prints nothing."""
    from treadle.api.engine import create_engine
    from treadle.bootstrap.stores import ONLY_OWN

    engine = create_engine(home=home, share=ONLY_OWN)
    engine.models.local.notice = logging.getLogger(__name__).info
    return engine


def open_log(home: Home) -> int:
    """Send the log to a file in the home, private to this user. Return its descriptor."""
    folder = home.ensure() / LOG_FOLDER
    path = folder / LOG_NAME
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be written: {error.strerror}. Check its permissions.") from None
    handler = logging.StreamHandler(os.fdopen(os.dup(descriptor), "a", encoding="utf-8", errors="replace"))
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers, root.level = [handler], logging.INFO
    return descriptor
