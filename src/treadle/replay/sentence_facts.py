"""Reading what was put into words: facts that an event tells in a sentence, which the loop was given as values."""

import re
from datetime import UTC, datetime

from treadle.core.context.memory_prompt import MAX_MEMORY_CHARACTERS
from treadle.core.guards.quota import describe_account
from treadle.domain import events as e
from treadle.domain.ids import AgentId, Instant
from treadle.domain.memories import Memory, MemoryId
from treadle.domain.time_format import format_minute
from treadle.ports.accounts import AccountShortage, Reserve

_USED = re.compile(r"(?:it has|;) ([\d,]+) (?:times|are used)|; ([\d.e+-]+) are spent|it has cost ([\d.e+-]+)[,;]")
_LEFT_ALONE = re.compile(r"is left alone for (\d+) s")
_MEMORY = re.compile(r"- \((\d{4}-\d\d-\d\d|undated)\) (.*)")
_CUT = re.compile(r"\n\[… \d+ of (\d+) characters are left out here; [^\n]* …\]\n")
_WANTED = re.compile(r"the next call may (take|cost) ([\d.e+-]+?)\.(?: |$)")
_ROOM_AGAIN = re.compile(r"There is room again on ([^.]+)\.")
_NOT_IN_TIME = re.compile(r"did not end within (\S+) s and was stopped")


def short_of(wait: e.RunWaiting, reserve: Reserve) -> AccountShortage:
    """The account that a run waits for."""
    named = [each for each in reserve.accounts if wait.detail.startswith(describe_account(each.account))]
    told = [each for each in named if each.cost is not None and f"may cost {each.cost:g} dollars" in wait.detail]
    account = (told or named or reserve.accounts)[0]
    found = _USED.search(wait.detail)
    used = 0.0 if found is None else float(next(filter(None, found.groups())).replace(",", ""))
    again = _room_again(wait)
    if wait.reason == "quota":
        return AccountShortage(account.account, "calls", account.calls or 0, used, 0.0, reserve.calls, again)
    if "model tokens" in wait.detail:
        return AccountShortage(account.account, "tokens", account.tokens or 0, used, 0.0, reserve.tokens, again)
    if "credits" in wait.detail:
        return AccountShortage(
            account.account, "credits", account.credits or 0.0, used, 0.0, reserve.credits, again
        )
    return AccountShortage(account.account, "cost", account.cost or 0.0, used, 0.0, reserve.cost, again)


def dollars_wanted(detail: str, per_dollar: float) -> float | None:
    """What a call would have cost that a run waited to make; None: nobody knew."""
    found = _WANTED.search(detail)
    if found is None:
        return None if "no price is known" in detail else 0.0
    return float(found[2]) / (per_dollar if found[1] == "take" else 1.0)


def _room_again(wait: e.RunWaiting) -> Instant | None:
    """When the account has what is wanted: at the end of the wait, where the words agree with that."""
    found = _ROOM_AGAIN.search(wait.detail)
    if found is None:
        return None
    if wait.wake_at is not None and format_minute(wait.wake_at) == found[1]:
        return wait.wake_at
    return datetime.strptime(found[1], "%A, %Y-%m-%d %H:%M UTC").replace(tzinfo=UTC).timestamp()


def seconds_left_alone(text: str) -> int | None:
    """For how long a model is left alone, as a sentence has it."""
    found = _LEFT_ALONE.search(text)
    return None if found is None else int(found[1])


def seconds_given(content: str) -> float | None:
    """The time that a call was given, where it did not end within it."""
    found = _NOT_IN_TIME.search(content)
    return None if found is None else float(found[1])


def memories_in(text: str, agent_id: AgentId, ids: tuple[MemoryId, ...] = ()) -> list[Memory]:
    """The memories that a text shows, a line each."""
    found: list[Memory] = []
    for line in text.split("\n"):
        if match := _MEMORY.fullmatch(line):
            name = ids[len(found)] if len(found) < len(ids) else f"mem_{len(found)}"
            found.append(Memory(name, agent_id, "long_term", match[2][:MAX_MEMORY_CHARACTERS], _moment(match[1])))
    return found


def _moment(day: str) -> float:
    return float("inf") if day == "undated" else datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


def whole_of(shown: str) -> str:
    """A text of which this is left when it is cut: as long, with the same beginning and end."""
    found = _CUT.search(shown)
    if found is None:
        return shown
    head, tail = shown[: found.start()], shown[found.end() :]
    return f"{head}{'.' * (int(found[1]) - len(head) - len(tail))}{tail}"
