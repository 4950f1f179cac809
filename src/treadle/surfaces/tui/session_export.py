"""A session as Markdown, and the difference of two runs."""

from msgspec.structs import replace

from treadle.domain.ids import SessionId
from treadle.domain.transcript import (
    AnswerItem,
    CallItem,
    EndItem,
    Item,
    MessageItem,
    NoteItem,
    PlanItem,
    QuestionItem,
    ThinkingItem,
)
from treadle.operations import sessions
from treadle.operations.run_diff import RunDiff
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.tui.call_output import read_output
from treadle.surfaces.tui.session_pages import SessionPages


async def export_markdown(link: HomeLink, session_id: SessionId) -> str:
    """Return the whole session as Markdown."""
    title = (await link.call(sessions.SHOW, sessions.ShowSession(session_id))).title
    runs = list((await link.call(sessions.RUNS, sessions.RunsOfSession(session_id))).items)
    pages, parts = SessionPages(link, runs), list[str]()
    while pages.has_more:
        items, _ = await pages.read_page()
        for index, item in enumerate(items):
            if isinstance(item, CallItem) and item.truncated:
                items[index] = replace(item, result="".join([part async for part in read_output(link, item)]))
        parts[:0] = [part for part in map(_export, items) if part]
    return f"# {title or session_id}\n\n" + "\n\n".join(parts) + "\n"


def _export(item: Item) -> str:
    match item:
        case MessageItem(text=text):
            return "\n".join(f"> {line}" for line in text.split("\n"))
        case AnswerItem(text=text, source="command"):
            fence = _fence(text)
            return f"{fence}\n{text}\n{fence}"
        case AnswerItem(text=text):
            return text
        case ThinkingItem(text=text):
            return f"<details><summary>Thinking</summary>\n\n{text}\n\n</details>"
        case CallItem(name=name, arguments=arguments, result=result):
            fence = _fence(arguments + result)
            shown = f"{fence}json\n{arguments}\n{fence}"
            return f"**{name}**\n\n{shown}" + (f"\n\n{fence}\n{result}\n{fence}" if result else "")
        case PlanItem(steps=steps):
            return "\n".join(f"- [{'x' if step.status == 'completed' else ' '}] {step.text}" for step in steps)
        case QuestionItem(question=question, answer=answer) if answer:
            return f"*{question}*\n\n> {answer}"
        case NoteItem(text=text, details=details) if details:
            fence = _fence(details)
            return f"<details><summary>{text}</summary>\n\n{fence}\n{details}\n{fence}\n\n</details>"
        case NoteItem(text=text):
            return f"*{text}*"
        case EndItem(status=status, text=text) if status == "completed":
            return text
        case EndItem(outcome=outcome, reason=reason):
            return f"*{outcome.replace('_', ' ')}: {reason}*"
        case _:
            return ""


def _fence(text: str) -> str:
    """Return a fence that the text does not contain."""
    fence = "```"
    while fence in text:
        fence += "`"
    return fence


def describe_diff(found: RunDiff) -> str:
    """Return the difference of two runs as Markdown."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode()
    fence = _fence(text)
    return f"{fence}json\n{text}\n{fence}"
