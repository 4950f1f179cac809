"""Errors about what does not exist for a caller. The caller may not see it, it was deleted, or it never existed."""

from treadle.domain.errors import UnknownRun, UnknownSession


def unknown_run(run_id: str) -> UnknownRun:
    return UnknownRun(f"There is no run {run_id} in this database. `treadle runs list` shows all runs.")


def unknown_session(session_id: str) -> UnknownSession:
    return UnknownSession(f"There is no session {session_id}. `treadle sessions list` shows all sessions.")
