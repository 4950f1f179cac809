"""Destructive calls: the approval carries the warning, and approves this call and no other."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.running import agent, opened
from tests.engine.test_approvals import TERMINAL, wait_for_approval
from treadle.channels.prompts import APPROVE_SESSION, make_approval_prompt
from treadle.core.tools.permissions import apply_rules
from treadle.domain.errors import UsageError
from treadle.domain.events import ApprovalRequested
from treadle.domain.ids import ApprovalId
from treadle.domain.permissions import ApprovalRule, ApprovalRules, Verdict
from treadle.ports.approvals import Grant
from treadle.sandbox.commands import ShellCommands
from treadle.testing.models import ScriptedModel, ask, call, say
from treadle.tools.bash import Bash, BashArguments

ASKS: dict[str, Any] = {"approvals": {"default": "ask"}, "sandbox": "off"}
TOOL = Bash(ShellCommands())


async def test_a_destructive_call_can_be_approved_only_once(tmp_path: Path) -> None:
    line = "rm -rf ./data"
    model = ScriptedModel(ask(call("bash", "c1", command=line)), say("done"))
    workspace = tmp_path / "work"
    (workspace / "data").mkdir(parents=True)

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=["bash"], workspace=str(workspace), **ASKS), "go", **TERMINAL)
        request = await wait_for_approval(engine, run_id)
        assert request.destructive == "`rm -rf ./data` removes folders with everything in them"
        assert request.pattern is None, "no grant is offered"
        with pytest.raises(UsageError, match="only once"):
            await engine.decide(request.approval_id, "approve", remember="session")
        service = engine.service.approval_service
        assert "no rule" in str(await service.explain_rule(request.approval_id, f"exactly: {line}"))
        await engine.decide(request.approval_id, "approve")
        assert (await engine.wait(run_id)).text == "done"
        assert not (workspace / "data").exists()


@pytest.mark.parametrize(
    "line", ["git reset --hard", "rm -rf src", "git clean -fdx", "find . -delete", "truncate -s0 x"]
)
def test_no_grant_allows_a_destructive_command(line: str) -> None:
    subjects = TOOL.subjects(BashArguments(line))
    assert subjects.pattern is None
    for pattern in (f"exactly: {line}", line, "*", line.partition(" ")[0] + " *"):
        ruling = apply_rules(ApprovalRules(default="ask"), TOOL.spec, subjects, [Grant("bash", pattern)])
        assert ruling.verdict == "ask"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (ApprovalRule("bash", "auto", "rm -rf src"), "auto"),
        (ApprovalRule("bash", "auto", "rm *", options="any"), "auto"),
        (ApprovalRule("bash", "auto", "exactly: rm -rf src"), "auto"),
        (ApprovalRule("bash", "auto", "rm *"), "ask"),
        (ApprovalRule("bash", "auto"), "auto"),
    ],
)
def test_an_explicit_rule_of_the_operator_allows_it(rule: ApprovalRule, expected: Verdict) -> None:
    rules = ApprovalRules(default="ask", rules=(rule,))
    assert apply_rules(rules, TOOL.spec, TOOL.subjects(BashArguments("rm -rf src"))).verdict == expected


def test_rules_that_never_ask_let_it_run() -> None:
    assert apply_rules(ApprovalRules(), TOOL.spec, TOOL.subjects(BashArguments("rm -rf src"))).verdict == "auto"


def test_a_channel_warns_and_offers_no_session() -> None:
    asked = ApprovalRequested(
        ApprovalId("apr_1"), "c", "bash", '{"command":"rm -rf ."}', "ask", destructive="`rm -rf .` removes folders"
    )
    prompt = make_approval_prompt(asked, "c", has_buttons=True)
    assert prompt.text.startswith("**Warning: `rm -rf .` removes folders. This cannot be undone")
    assert APPROVE_SESSION not in {button.value for button in prompt.buttons}
