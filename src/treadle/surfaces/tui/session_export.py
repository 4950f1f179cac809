"""A session as Markdown, and the difference of two runs."""

from treadle.domain.ids import SessionId
from treadle.operations import sessions
from treadle.operations.run_diff import RunDiff
from treadle.surfaces.cli.home_link import HomeLink
from treadle.surfaces.tui.call_output import read_output
from treadle.surfaces.tui.session_pages import SessionPages
from treadle.surfaces.tui.transcript import Item, ShownAnswer, ShownCall, ShownNote, ShownThinking, UserItem


async def export_markdown(link: HomeLink, session_id: SessionId) -> str:
    """Return the whole session as Markdown."""
    title = (await link.call(sessions.SHOW, sessions.ShowSession(session_id))).title
    runs = list((await link.call(sessions.RUNS, sessions.RunsOfSession(session_id))).items)
    pages, parts = SessionPages(link, runs), list[str]()
    while pages.has_more:
        items, _ = await pages.read_page()
        for item in items:
            if isinstance(item, ShownCall) and item.truncated:
                item.result = "".join([part async for part in read_output(link, item)])
        parts[:0] = [part for part in map(_export, items) if part]
    return f"# {title or session_id}\n\n" + "\n\n".join(parts) + "\n"


def _export(item: Item) -> str:
    match item:
        case UserItem(text=text):
            return "\n".join(f"> {line}" for line in text.split("\n"))
        case ShownAnswer(text=text, source="command"):
            fence = _fence(text)
            return f"{fence}\n{text}\n{fence}"
        case ShownAnswer(text=text):
            return text
        case ShownThinking(text=text):
            return f"<details><summary>Thinking</summary>\n\n{text}\n\n</details>"
        case ShownCall(name=name, arguments=arguments, result=result):
            fence = _fence(arguments + result)
            shown = f"{fence}json\n{arguments}\n{fence}"
            return f"**{name}**\n\n{shown}" + (f"\n\n{fence}\n{result}\n{fence}" if result else "")
        case ShownNote(text=text, details=details) if details:
            fence = _fence(details)
            return f"<details><summary>{text}</summary>\n\n{fence}\n{details}\n{fence}\n\n</details>"
        case ShownNote(text=text):
            return f"*{text}*"
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
