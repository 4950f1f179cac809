"""How names of files are shown to the model: on one line, and with nothing in them that a screen would act on."""

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_RAW_BYTES = range(0xDC80, 0xDD00)
"""Where Python puts the bytes of a name that are not UTF-8."""


def display_name(name: str) -> str:
    """The name as it is; in quotes and escaped where it holds control, invisible or undecodable characters."""
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
