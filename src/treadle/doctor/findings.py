"""One finding of the doctor, and whether it was probed just now."""

from typing import Literal

from msgspec import Struct

State = Literal["ok", "set", "note", "wrong"]
"""ok: it was tried and works, or was recorded to work. set: it is configured and was not tried. note: something
optional is missing. wrong: something does not work."""
Basis = Literal["probed", "recorded", "setting"]
"""probed: it was tried or read just now. recorded: it is what another process has stored, and was not tried.
setting: it is what the configuration says, and was not tried."""


class Finding(Struct, frozen=True):
    """One line of the report."""

    about: str
    state: State
    found: str
    advice: str = ""
    """What to do about it."""
    basis: Basis = "probed"

    def __post_init__(self) -> None:
        if self.basis == "setting" and self.state == "ok":
            raise ValueError(f"{self.about}: a setting that was not tried is not `ok`")
        if self.basis == "probed" and self.state == "set":
            raise ValueError(f"{self.about}: what was probed is not only `set`")


def setting(about: str, found: str, advice: str = "", state: State = "set") -> Finding:
    """Return a finding about something that was not tried."""
    return Finding(about, state, found, advice, "setting")
