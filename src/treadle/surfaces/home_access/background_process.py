"""Starts the process that executes the runs of a home without a terminal (`background`)."""

from collections.abc import Sequence

from treadle.system.helper_process import start_command_helper


def start_background_process(run_ids: Sequence[str]) -> None:
    """Start a process that takes the home over, executes its runs, and ends when they have ended."""
    start_command_helper("treadle.surfaces.home_access.background", *run_ids)
