"""Formats file names for the model: on one line, without characters that a terminal would interpret."""

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_RAW_BYTES = range(0xDC80, 0xDD00)
"""The code points that Python uses for bytes of a name that are not UTF-8."""


def display_name(name: str) -> str:
    """Return the name, quoted and escaped if it contains control, invisible or undecodable characters."""
    return name if name.isprintable() else f'"{"".join(map(_escape, name))}"'


def _escape(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code in _RAW_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
