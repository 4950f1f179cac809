"""`/mode` on a channel: shows or changes how much the agent of a conversation may do without asking."""

from treadle.domain.channels import Person
from treadle.domain.errors import Unknown
from treadle.domain.ids import SessionId
from treadle.domain.modes import MODE_CYCLE, MODE_TEXTS, describe_mode, is_wider, parse_mode
from treadle.operations.service import LocalService

COMMAND = "/mode"
NO_SESSION = "There is no conversation yet. Write a message first."
REFUSED = "The mode `{mode}` lets me do more without asking. Only people who may approve can choose it."


async def apply_mode_command(text: str, person: Person, session_id: SessionId, service: LocalService) -> str | None:
    """Return what to reply to the command, or None if the text is something else."""
    head, _, name = text.strip().partition(" ")
    if head.lower() != COMMAND:
        return None
    try:
        current = (await service.session(session_id)).mode
    except Unknown:
        return NO_SESSION
    if not name.strip():
        names = ", ".join(MODE_CYCLE)
        return f"Mode: {describe_mode(current)}. {MODE_TEXTS[current]}\n\n`/mode NAME` changes it: {names}."
    try:
        mode = parse_mode(name)
    except ValueError as error:
        return f"The mode was not changed: {error}."
    if is_wider(mode, current) and not person.may("approve"):
        return REFUSED.format(mode=describe_mode(mode))
    await service.modes.change(session_id, mode, f"{person.name} ({person.channel})")
    return f"Mode: {describe_mode(mode)}. {MODE_TEXTS[mode]}"
