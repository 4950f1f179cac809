"""Messages of a channel besides answers: approvals, questions, waits, failures and help."""

import re
from typing import Protocol

from treadle.domain.code_fences import close_code_block
from treadle.domain.commands import COMMAND_NAMES
from treadle.domain.events.run import WaitReason
from treadle.domain.ids import ApprovalId, RunId
from treadle.domain.memories import describe_recall
from treadle.domain.permissions import describe_destruction, is_exact_pattern
from treadle.domain.transcript import EndItem
from treadle.ports.channel import DEFAULT_COMMAND_PREFIX, Button, Outgoing

MAX_SHOWN_ARGUMENTS, MAX_REASON = 1500, 500
MAX_QUESTION, MAX_OPTION = 1000, 150
"""Characters: a prompt fits in one message of every platform, with its notes."""
MAX_BUTTONS, MAX_LABEL = 8, 60
MAX_PATTERN = 200
HELP = (
    "Write what you need. While I work, further messages reach me too.\n\n"
    "`/stop` ends what I am doing.\n"
    "`/reset` starts the conversation anew, and `/undo` takes that back.\n"
    "`/usage` shows what the conversation has used, `/memory` what I remember, `/compact` shortens it, and "
    "`/pin TEXT` keeps a text in it.\n"
    "`/mode` shows how much I may do without asking, and `/mode NAME` changes it.\n"
    "`/approve` and `/deny` decide what I may do, for people who may approve."
)
COMMANDS = (*COMMAND_NAMES, "/approve", "/deny", "/help", "/mode", "/start", "/stop")
_COMMAND = re.compile(rf"(?<![\w/])/(?={'|'.join(name[1:] for name in COMMANDS)}\b)")
APPROVE, APPROVE_SESSION, DENY = "approve", "session", "deny"
SESSION_LABEL = "Approve for this session"
ANSWER_PREFIX = "option/"


def make_question_key(run_id: RunId, call_id: str) -> str:
    return f"question/{run_id}/{call_id}"


class AskedApproval(Protocol):
    """A request to approve a call."""

    @property
    def approval_id(self) -> ApprovalId: ...
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def pattern(self) -> str | None: ...
    @property
    def destructive(self) -> str | None: ...


class AskedQuestion(Protocol):
    """A question of an agent."""

    @property
    def call_id(self) -> str: ...
    @property
    def question(self) -> str: ...
    @property
    def options(self) -> tuple[str, ...]: ...


def make_approval_prompt(asked: AskedApproval, conversation: str, has_buttons: bool) -> Outgoing:
    """Return the message that asks for an approval. It shows the whole call, or says that it is longer."""
    arguments = _show_hidden(asked.arguments)
    cut = ""
    if len(arguments) > MAX_SHOWN_ARGUMENTS:
        cut = f"\n\nOnly the first {MAX_SHOWN_ARGUMENTS} of {len(arguments)} characters are shown. "
        cut += f"The dashboard shows all of them: approval {asked.approval_id}."
        arguments = arguments[:MAX_SHOWN_ARGUMENTS]
    longest = max(map(len, re.findall("`+", arguments)), default=0)
    fence = "`" * max(3, longest + 1)  # the arguments cannot end the block
    reason = _cut(asked.reason, MAX_REASON)
    warning = (
        "" if asked.destructive is None else f"**{_cut(describe_destruction(asked.destructive), MAX_REASON)}**\n\n"
    )
    text = f"{warning}**Approval needed** for `{asked.name}`: {reason}\n\n{fence}\n{arguments}\n{fence}{cut}"
    if not has_buttons:
        text += "\n\nReply `approve` or `deny`."
    elif asked.pattern:
        text += f"\n\n{SESSION_LABEL} allows {_describe_grant(asked.name, asked.pattern)}."
    buttons = (
        Button("Approve", APPROVE),
        *((Button(SESSION_LABEL, APPROVE_SESSION),) if asked.pattern else ()),
        Button("Deny", DENY),
    )
    return Outgoing(f"approval/{asked.approval_id}", conversation, text, buttons if has_buttons else ())


def _describe_grant(tool: str, pattern: str) -> str:
    """Return which calls an approval for the session covers. A pattern that is not plain text is not shown."""
    if is_exact_pattern(pattern):
        return "exactly this command"
    if pattern == "*":
        return f"every `{tool}`"
    is_plain = pattern.isprintable() and "`" not in pattern and len(pattern) <= MAX_PATTERN
    return f"`{tool}` with `{pattern}`" if is_plain else f"such calls of `{tool}`"


def make_question_prompt(asked: AskedQuestion, run_id: RunId, conversation: str, has_buttons: bool) -> Outgoing:
    """Return the message that asks a question. Options that do not fit on buttons are listed in the text."""
    options = [" ".join(option.split()) for option in asked.options]
    buttons = tuple(
        Button(option[:MAX_LABEL] or "…", f"{ANSWER_PREFIX}{number}")
        for number, option in enumerate(options[:MAX_BUTTONS])
    )
    text = _cut(asked.question, MAX_QUESTION)
    if options and not (has_buttons and len(buttons) == len(options) and max(map(len, options)) <= MAX_LABEL):
        text += "\n\n" + "\n".join(
            f"{number}. {_cut(option, MAX_OPTION)}" for number, option in enumerate(options, 1)
        )
    return Outgoing(make_question_key(run_id, asked.call_id), conversation, text, buttons if has_buttons else ())


def describe_decision(decision: str, by: str = "") -> str:
    said = {"approve": "Approved", "deny": "Denied"}.get(decision, "The approval has expired")
    return f"{said}{f' by {by}' if by else ''}."


def spell_commands(text: str, prefix: str) -> str:
    """Return a text of Treadle itself with its commands as people write them on the platform."""
    return text if prefix == DEFAULT_COMMAND_PREFIX else _COMMAND.sub(prefix, text)


def describe_wait(reason: WaitReason | None, detail: str) -> str | None:
    """Return what to tell a person about a run that waits, or None if nothing needs to be said."""
    match reason:
        case "quota" | "budget" | "unavailable":
            return f"I am waiting: {detail}"
        case "interrupted":
            return "I stopped. Write to continue, or `/stop` to end it."
        case "approval" | "answer" | "retry" | "breaker" | "child" | "client_tool" | None:
            return None


def describe_end(end: EndItem, answer: str, prefix: str) -> str:
    """Return the answer of a run. A run that did not complete says so. A silent completion is empty. `prefix` is
    that of commands on the platform."""
    if end.silent:
        return ""
    if end.outcome == "completed":
        return answer
    reason = end.reason or f"it ended as {end.outcome}"
    said = f"{close_code_block(answer)}\n\n" if answer else ""
    following = f" {spell_commands(end.next, prefix)}" if end.next else ""
    return f"{said}**This was not finished**: {reason}{following}"


def add_recalled(text: str, count: int, prefix: str) -> str:
    """Return an answer with the line that says how many memories were recalled for it, if any were. `prefix` is
    that of commands on the platform."""
    if not count:
        return text
    return f"{close_code_block(text)}\n\n*{describe_recall(count)}; `{prefix}memory` lists what I remember*"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} … (cut after {limit} of {len(text)} characters)"


def _show_hidden(text: str) -> str:
    """Return a text in which characters that are invisible or change the direction are written as escapes."""
    return "".join(each if each.isprintable() or each in "\n\t" else f"\\u{ord(each):04x}" for each in text)
