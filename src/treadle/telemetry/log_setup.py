"""Installs the log of an engine: JSON lines to a private file, to standard error, or to both."""

import logging
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from treadle.domain.errors import ConfigError
from treadle.telemetry.logs import JsonLogFormatter, PrivateLogFile
from treadle.telemetry.settings import Telemetry

LOG_FILE = "treadle.log"


def install_log(
    opened: AsyncExitStack, settings: Telemetry, home: Callable[[], Path], formatter: JsonLogFormatter
) -> None:
    """Install the handlers that the settings name, until `opened` is closed. `home` creates the home."""
    root, treadle = logging.getLogger(), logging.getLogger("treadle")
    handlers: list[logging.Handler] = []
    if settings.log_json:
        handlers.append(logging.StreamHandler(sys.stderr))
        for handler in [each for each in root.handlers if _writes_to_terminal(each)]:
            root.removeHandler(handler)
            opened.callback(root.addHandler, handler)
    if settings.log_file:
        handlers.append(_open_log_file(home() / "logs" / LOG_FILE))
    for handler in handlers:
        handler.setFormatter(formatter)
        root.addHandler(handler)
        opened.callback(handler.close)
        opened.callback(root.removeHandler, handler)
    if treadle.level == logging.NOTSET:
        treadle.setLevel(logging.INFO)
        opened.callback(treadle.setLevel, logging.NOTSET)


def _open_log_file(path: Path) -> logging.Handler:
    try:
        return PrivateLogFile(path)
    except OSError as error:
        raise ConfigError(f"{path}: the log cannot be written: {error.strerror}; check its permissions") from None


def _writes_to_terminal(handler: logging.Handler) -> bool:
    """Return whether a handler writes to a stream and not to a file."""
    return isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)
