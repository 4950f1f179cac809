"""Whether somebody really wants what cannot be taken back."""

from treadle.domain.errors import UsageError
from treadle.surfaces.cli.line_input import Prompt
from treadle.surfaces.cli.process import Stop


async def is_wanted(question: str, what: str) -> bool:
    """Ask at the terminal. Where nobody can be asked, raise UsageError, with `what` as that which was not done."""
    if not Prompt.is_possible():
        raise UsageError(f"{what} cannot be taken back, and nobody is here to be asked. Add --yes if you are sure.")
    with Stop() as stop:
        typed = await Prompt(stop).ask(f"{question} [y/N]")
        if stop.is_heard:
            raise KeyboardInterrupt
    return (typed or "").lower() in ("y", "yes")
