"""The format in which a message holds the text files that are attached to it. Models read it, and it is stored."""

_OPENING = "\n\nAttached file "
_NAME_END = ":\n"


def format_attached_file(name: str, text: str) -> str:
    """Return a text file as a part of a message."""
    return f"{_OPENING}{name}{_NAME_END}{text}"


def parse_attached_file(part: str) -> tuple[str, str]:
    """Return the name and the text of a file that is a part of a message."""
    head, _, text = part.partition(_NAME_END)
    return head.removeprefix(_OPENING), text


def strip_attached_files(message: str) -> str:
    """Return a message without the text files that follow it."""
    return message.partition(_OPENING)[0]
