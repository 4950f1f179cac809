"""`treadle doctor`: what was probed, what is only configured, what is missing, and which guards are armed."""

import os
from collections.abc import Sequence
from typing import Any

from treadle.config.home import Home
from treadle.doctor.examination import examine
from treadle.doctor.findings import Finding
from treadle.surfaces.cli.event_output import note, say
from treadle.surfaces.cli.guard_self_test import Check, fire_all
from treadle.surfaces.cli.process import FAILED
from treadle.surfaces.cli.progress import ProgressLine
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json


async def diagnose(offline: bool, timeout_seconds: float, json: bool) -> int:
    home = Home.from_environment(os.environ)
    with ProgressLine(is_shown=not json) as line:
        line.show("looking at this machine …")
        findings = await examine(home, offline=offline, progress=line.show_probes, timeout_seconds=timeout_seconds)
        line.show("making every guard fire once …")
        checks = await fire_all()
    if json:
        for each in (*findings, *checks):
            _print_json(each)
    else:
        _show(findings, checks)
    wrong = [finding for finding in findings if finding.state == "wrong"]
    asleep = [check for check in checks if not check.armed]
    return FAILED if wrong or asleep else 0


def _show(findings: Sequence[Finding], checks: Sequence[Check]) -> None:
    print_table(
        ("WHAT", "STATE", "BASIS", "FOUND"),
        [(finding.about, finding.state, finding.basis, finding.found) for finding in findings],
    )
    print()
    print_table(
        ("GUARD", "STATE", "BASIS"),
        [(check.guard, "armed" if check.armed else "NOT ARMED", check.basis) for check in checks],
    )
    print()
    for finding in findings:
        if finding.advice:
            tell = say if finding.state == "wrong" else note
            tell(f"{finding.about}: {finding.advice}")
    for check in checks:
        if not check.armed:
            say(f"{check.guard}: it did not fire when it had to ({check.detail}). Please report it.")


def _print_json(value: Any) -> None:
    print_json(value)
