"""Confirmation of what cannot be undone."""

from treadle.domain.errors import UsageError
from treadle.surfaces.terminal.line_input import Prompt, ask_yes_or_no


async def is_confirmed(question: str, action: str) -> bool:
    """Ask at the terminal. Raises UsageError, which names the action, if there is no terminal to ask at."""
    if not Prompt.is_possible():
        raise UsageError(
            f"{action} cannot be undone, and there is no terminal to confirm it at. Add --yes if you are sure."
        )
    return await ask_yes_or_no(question)
