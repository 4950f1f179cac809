"""Findings about what was not tried."""

from treadle.operations.system_facts import DoctorFinding, FindingState


def setting(about: str, found: str, advice: str = "", state: FindingState = "set") -> DoctorFinding:
    """Return a finding about something that was not tried."""
    return DoctorFinding(about, state, found, advice, "setting")
