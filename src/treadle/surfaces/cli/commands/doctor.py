"""`treadle doctor`: checks of the configuration, of providers and of the guards."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from treadle.config.home import Home
from treadle.surfaces.cli.command_line import Group, Option
from treadle.surfaces.cli.progress import ProgressLine
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.terminal.output import Column, alert, note, print_json, print_table
from treadle.surfaces.terminal.process import FAILED

if TYPE_CHECKING:
    from treadle.operations.system_facts import DoctorFinding
    from treadle.surfaces.cli.guard_self_test import Check

group = Group()


@group.command("doctor")
async def diagnose(
    offline: Annotated[bool, Option("--offline", help="Open no connections; print settings instead.")] = False,
    timeout: Annotated[float, Option(min=0.1, metavar="SECONDS", help="Time limit of each probe.")] = 2.0,
    json: Json = False,
) -> int:
    """Check the configuration, the providers and every guard, and print what is missing.

    Nothing is changed or charged: providers with a key are asked for the list of their models. Each line is
    `probed`, `recorded` by another process, or a `setting`; the latter two were not tried. The exit code is 1 if
    something is wrong."""
    with ProgressLine(is_shown=not json) as line:
        line.show("checking the configuration and the providers …")
        from treadle.doctor.examination import examine
        from treadle.surfaces.cli.guard_self_test import check_guards

        findings = await examine(
            Home.from_environment(os.environ), offline=offline, progress=line.show_probes, timeout_seconds=timeout
        )
        line.show("testing the guards …")
        checks = await check_guards()
    if json:
        for each in (*findings, *checks):
            print_json(each)
    else:
        _print_findings(findings, checks)
    wrong = [finding for finding in findings if finding.state == "wrong"]
    unarmed = [check for check in checks if not check.armed]
    return FAILED if wrong or unarmed else 0


def _print_findings(findings: "Sequence[DoctorFinding]", checks: "Sequence[Check]") -> None:
    print_table(
        (Column("WHAT", shrinks_to=22), "STATE", "BASIS", Column("FOUND", shrinks_to=30, wraps=True)),
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
            (alert if finding.state == "wrong" else note)(f"{finding.about}: {finding.advice}")
    for check in checks:
        if not check.armed:
            alert(f"{check.guard}: the guard did not fire in its test ({check.detail}). Please report it.")
