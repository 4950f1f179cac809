"""A typed message approves only if it says nothing else. Denials may say more."""

import pytest

from treadle.channels.decisions import read_decision
from treadle.channels.prompts import APPROVE, DENY

APPROVALS = [
    ("approve", ""), ("Approve", ""), ("APPROVED", ""), ("yes", ""), ("Yes.", ""), ("yes!", ""), ("allow", ""),
    ("  approve \n", ""), ("\tYES!\n\n", ""), ("approve: be careful", "be careful"), ("Yes:do it", "do it"),
    ("yes\nonly this once", "only this once"), ("approve.\n\nSent from my iPhone", "Sent from my iPhone"),
    ("Allow!\r\nthanks", "thanks"), ("yes: ", ""), ("approve\u00a0", ""),
]  # fmt: skip
DENIALS = [
    "deny", "Deny.", "no", "No!", "NO", "no, wait", "No - not yet", "deny because of x", "denied", "**no**",
    "_Deny_",
    "“No”. Too risky", "no\nwait for Bob", "deny: too risky", "nope", "reject", "Rejected!",
    "No way, yes I mean it",
    "no yes", "(no)",
]  # fmt: skip
NEITHER = [
    "Allow me to check with Bob first", "Yes, I saw it - do NOT run it yet", "yes but not now", "ok then no",
    "yes, deny",
    "approve?", "yes?", "Yes, no", "yes please", "Yes,please", "approve it", "approve this", "allow it",
    "Approved by whom?",
    "approve - later", "approve, later", "approve; later", "yes...", "yes!!", "yes.!", "approve..", "yes and no",
    "yes no",
    "yess", "yes1", "approval", "approving", "allowed?", "allowance", "not approve", "do not approve",
    "don't approve",
    "can I approve?", "I approve", "I say yes", "ok", "okay", "sure", "go", "go ahead", "y", "Y", "ye", "yep",
    "yeah", "n?",
    "👍", "yes 👍", "👍 yes", "✅", "approve ✅", "\uff59\uff45\uff53", "\u0443\u0435s", "\u0443es",
    "ye\u017f", "ye\u200bs", "\u200byes", "yes\u200b",
    "approve\u200b: ok", "yes\u2028no", "> approve", "> yes\nno", "> approve\n\nwhat is this?", "**approve**",
    "`approve`",
    "_Yes_", "\"yes\"", "'approve'", "(yes)", "yes)", "yes : no", "yes -", "/yes", "approve/deny", "yes|no",
    "yes=no",
    "approve deny", "deny?", "no?", "On Monday Bob wrote:\n> approve", "Re: approve", "", " ", ":", "yes;",
    "yes—no",
    "approve\tlater", "hello", "what does it do?", "Yes, but deny the second one", "yes if the tests pass",
    "yes when Bob is back",
]  # fmt: skip


@pytest.mark.parametrize(("text", "note"), APPROVALS)
def test_a_message_approves_if_it_is_exactly_the_word(text: str, note: str) -> None:
    assert read_decision(text) == (APPROVE, note)


@pytest.mark.parametrize("text", DENIALS)
def test_a_denial_may_say_more(text: str) -> None:
    decision = read_decision(text)
    assert decision is not None
    assert decision[0] == DENY


@pytest.mark.parametrize("text", NEITHER)
def test_everything_else_decides_nothing(text: str) -> None:
    assert read_decision(text) is None


def test_the_list_is_long_enough() -> None:
    assert len(APPROVALS) + len(DENIALS) + len(NEITHER) >= 60
