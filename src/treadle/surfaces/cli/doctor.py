"""`treadle doctor`: what is configured, what is missing, and which guards are armed."""

import os
from collections.abc import Sequence
from typing import Any

from treadle.doctor_assembly import Finding, examine
from treadle.home import Home
from treadle.surfaces.cli.doctor_guards import Check, fire_all
from treadle.surfaces.cli.printing import note, say
from treadle.surfaces.cli.process import FAILED
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json


async def diagnose(json: bool) -> int:
    findings = await examine(Home.from_environment(os.environ))
    checks = await fire_all()
    if json:
        for finding in findings:
            _print_json(finding)
        for check in checks:
            _print_json(check)
    else:
        _show(findings, checks)
    wrong = [finding for finding in findings if finding.state == "wrong"]
    asleep = [check for check in checks if not check.armed]
    return FAILED if wrong or asleep else 0


def _show(findings: Sequence[Finding], checks: Sequence[Check]) -> None:
    print_table(("WHAT", "STATE", "FOUND"), [(finding.about, finding.state, finding.found) for finding in findings])
    print()
    print_table(("GUARD", "STATE"), [(check.guard, "armed" if check.armed else "NOT ARMED") for check in checks])
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
