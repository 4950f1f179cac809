"""Guard against answers that claim what no call has done.

The model is asked once; then the answer is delivered with the claim marked as unverified. Agents without tools are
not asked, since they could not do it; what their answer itself contains does not count, nor a text that they were
asked to write for others, such as a story. Only claims in English are
found."""

import re
from collections.abc import Iterator
from typing import Final

from treadle.core.guards.claims import Act, ActionClaim
from treadle.core.guards.sentences import find_answer_claims
from treadle.core.guards.verdict import WarnModel
from treadle.core.state import RunState, has_text
from treadle.domain.events import PhantomAction
from treadle.domain.ids import Instant
from treadle.domain.messages import ToolResult
from treadle.domain.observations import has_exit_code
from treadle.domain.tools import ToolSpec

_SIGNS: Final[dict[Act, str]] = {
    "send": """send mail message post publish tweet notif forward submit upload deploy push release
        reply share slack deliver sms comment""",
    "create": """create write save add generate make register init clone
        export insert put edit append upload copy""",
    "change": """update edit modify change fix rename move replace refactor config enable disable merge
        commit patch apply close archive set reset assign upgrade migrate format revert write""",
    "delete": "delete remove clean drop erase wipe purge revoke unsubscribe uninstall clear trash write edit",
    "run": """run exec test install start stop compile build launch kill reboot trigger command shell
        query script job python deploy""",
    "arrange": """schedul book reserv cancel invite remind alarm timer calendar event meeting appointment""",
    "pay": "order purchas buy pay transfer refund invoice checkout process issue",
}
"""Act -> parts of the name or description of a tool that may perform it."""
_GENERAL: Final = "bash shell command exec python code terminal"
"""Parts of the name of a tool that can do anything."""


_WRITTEN_IN_ANSWERS: Final[tuple[Act, ...]] = ("create", "change")
"""Acts that an answer with a block of text or code may itself be."""
_TEXT_TASK: Final = re.compile(
    r"\b(?:translat|story|stories|novel|fiction|tale\b|fable\b|poem|poet|song|lyrics|verse|role-?play|pretend|imagine"
    r"|act as\b|character|summar|tl;dr|rewrit|reword|rephras|paraphras|proofread|correct (?:the|this|my)|grammar"
    r"|diary|draft|letter\b|resume\b|r\u00e9sum\u00e9|cv\b|cover letter|dialogue|screenplay|scene\b|changelog"
    r"|release notes|commit message|minutes of|transcri|\u00fcbersetz|tradu)"
    r"|\u7ffb\u8bd1|\u043f\u0435\u0440\u0435\u0432\u0435\u0434",
    re.IGNORECASE,
)
"""Requests for a text in which "I" is not the agent, or which tells what others did."""
_ORDER: Final = re.compile(
    r"\b(?:send|email|e-mail|book|schedule|delete|deploy|publish|upload|order|cancel|pay|refund|invite|submit)\b",
    re.IGNORECASE,
)
"""Requests for an act outside the conversation."""
_WORD: Final = re.compile(r"\w{2,}")
_WORK_WORDS: Final = 25
"""Number of different words outside its claims that make an answer more than a claim."""
_KEPT_SHARE: Final = 0.5
"""Share of these words that the second answer must have in order to replace the first."""


def judge(state: RunState, now: Instant) -> WarnModel | None:
    if state.guards.phantom_claims or state.turn.reply is None or state.turn.reply.stop == "interrupted":
        return None
    if not has_text(state.turn.reply) or not has_tools(state) or (claim := find_unverified_claim(state)) is None:
        return None
    note = (
        f'You say: "{claim.sentence}" No tool call of this conversation has done that. Do it with a tool now, or '
        "answer again and say plainly what you did and did not do."
    )
    return WarnModel((PhantomAction(state.guards.phantom_claims + 1, claim.sentence, note),))


def has_tools(state: RunState) -> bool:
    """Return whether the agent has tools that could do what it claims."""
    return not all(spec.asks_a_person for spec in state.tools.values())


def find_unverified_claim(state: RunState) -> ActionClaim | None:
    """Return the first unsupported claim of the answer, or None."""
    claims = find_answer_claims(state.answer, '{["' if state.agent.output is not None else "{[")
    if not claims:
        return None
    if not has_tools(state):
        if _writes_for_others(state):
            return None
        if _has_block(state.answer):
            claims = [claim for claim in claims if claim.act not in _WRITTEN_IN_ANSWERS]
    done = list(_list_successful_tools(state))
    return next((claim for claim in claims if not any(_supports(spec, claim) for spec in done)), None)


def _writes_for_others(state: RunState) -> bool:
    """Return whether the answer is a text in other words than the agent's own, such as a story or a translation."""
    if _ORDER.search(state.submitted_text) is not None:
        return False
    asked = [message.text for message in state.transcript.messages if message.role == "user"]
    return any(_TEXT_TASK.search(text) is not None for text in (state.agent.persona, *asked))


def choose_answer(state: RunState) -> tuple[str, str]:
    """Return the answer to deliver, and its unsupported claim or "".

    It is the second answer, unless the first has content that the second has lost and nothing was done between
    them: then the second only withdraws a claim, and the first is worth more."""
    if state.guards.claimed_answer is not None and state.usage.actions == state.guards.actions_at_claim:
        first, claim = state.guards.claimed_answer
        if _loses_work(first, state.answer):
            return first, claim
    found = find_unverified_claim(state)
    return state.answer, "" if found is None else found.sentence


def _loses_work(first: str, second: str) -> bool:
    """Return whether the first answer has content besides its claims that the shorter second one lacks."""
    if len(second) >= len(first):
        return False
    work = _words(first)
    for claim in find_answer_claims(first):
        work -= _words(claim.sentence)
    is_work = len(work) >= _WORK_WORDS or _has_block(first)
    return is_work and len(work & _words(second)) < _KEPT_SHARE * len(work)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _has_block(text: str) -> bool:
    return "```" in text or "~~~" in text or "<<<<<<<" in text


def _list_successful_tools(state: RunState) -> Iterator[ToolSpec]:
    """Yield the tools whose calls have succeeded, in this run or earlier in its session. A command that failed has
    run all the same, and may have done a part of its work."""
    names = {use.call_id: use.name for message in state.transcript.messages for use in message.calls}
    for message in state.transcript.messages:
        for part in message.parts:
            if (
                isinstance(part, ToolResult)
                and part.call_id in names
                and (not part.is_error or has_exit_code(part.content))
            ):
                name = names[part.call_id]
                yield state.tools.get(name) or ToolSpec(name, "", {})


def _supports(spec: ToolSpec, claim: ActionClaim) -> bool:
    """Return whether a call of this tool has done it, or may have found it done."""
    found = claim.form == "state" and not spec.writes
    return found or _may_have_done(spec, claim.act)


def _may_have_done(spec: ToolSpec, act: Act) -> bool:
    """Return whether a call of this tool supports such a claim: it changes things, and not only other things."""
    signs = f"{spec.name} {spec.description}".lower()
    if not spec.writes:
        return act == "run" and _mentions(signs, act)  # a query or a test run may only read
    if _is_general(spec) or _mentions(signs, act) or (act == "change" and _mentions(signs, "arrange")):
        return True
    return not any(_mentions(signs, other) for other in _SIGNS)  # its effect is unknown


def _is_general(spec: ToolSpec) -> bool:
    """Return whether the tool can do anything, including by delegation to a run with its own record of calls."""
    named = any(word in spec.name.lower() for word in _GENERAL.split())
    return spec.effect == "external" and (named or spec.delegates is not None)


def _mentions(text: str, act: Act) -> bool:
    return any(sign in text for sign in _SIGNS[act].split())
