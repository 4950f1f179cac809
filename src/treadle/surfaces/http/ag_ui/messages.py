"""Items of a transcript as messages of AG-UI, with ids that are the same in a stream and in a snapshot."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from treadle.domain.messages import Image
from treadle.domain.transcript import AnswerItem, CallItem, EndItem, Item, MessageItem, ThinkingItem
from treadle.surfaces.http.ag_ui.events import (
    CallFunction,
    Content,
    ImageContent,
    ImageData,
    MessageCall,
    SnapshotMessage,
    TextContent,
)
from treadle.surfaces.http.ag_ui.requests import PartText, ThreadMessage

SEPARATOR = ":"
"""Between the ID of a run and the key of an item. The ids of clients' own messages look otherwise."""
CLIENT_PREFIX = "client__"
"""How the model calls a tool of the client whose name the agent has too."""


def make_id(item: Item) -> str:
    """Return the id of the message or the call that an item is. The text of a reply has that of the whole reply."""
    return find_reply_id(item) if isinstance(item, AnswerItem) else f"{item.run_id}{SEPARATOR}{item.key}"


def is_own_id(message_id: str) -> bool:
    """Return whether Treadle has given a message its id."""
    return message_id.startswith("run_") and SEPARATOR in message_id


def find_reply_id(item: AnswerItem | CallItem) -> str:
    """Return the id of the message that the text and the calls of a reply are."""
    return f"{item.run_id}{SEPARATOR}{item.sequence}"


def make_result_id(call: CallItem) -> str:
    return f"{make_id(call)}{SEPARATOR}result"


def find_call_name(name: str, client_tools: frozenset[str]) -> str:
    """Return the name of a tool as the client knows it."""
    own = name.removeprefix(CLIENT_PREFIX)
    return own if own in client_tools else name


def make_content(text: str, images: Sequence[Image]) -> Content:
    if not images:
        return text
    shown = [ImageContent(ImageData(image.data, image.media_type)) for image in images]
    return (*([TextContent(text)] if text else []), *shown)


def make_messages(items: Iterable[Item], client_tools: frozenset[str] = frozenset()) -> list[SnapshotMessage]:
    """Return the messages that items are. Results follow the message with their calls."""
    found: dict[str, SnapshotMessage] = {}
    results: dict[str, SnapshotMessage] = {}
    for item in items:
        if not isinstance(item, CallItem) or find_reply_id(item) not in found:
            found |= results  # of the reply before
            results = {}
        match item:
            case MessageItem(text=text, images=images):
                found[make_id(item)] = SnapshotMessage(
                    id=make_id(item), role="user", content=make_content(text, images)
                )
            case ThinkingItem(text=text):
                found[make_id(item)] = SnapshotMessage(id=make_id(item), role="reasoning", content=text)
            case AnswerItem(text=text):
                found[make_id(item)] = SnapshotMessage(id=make_id(item), role="assistant", content=text)
            case EndItem(text=text) if text:
                found[make_id(item)] = SnapshotMessage(id=make_id(item), role="assistant", content=text)
            case CallItem():
                parent = find_reply_id(item)
                message = found.get(parent, SnapshotMessage(id=parent, role="assistant"))
                function = CallFunction(find_call_name(item.name, client_tools), item.arguments)
                call = MessageCall(make_id(item), function, "function")
                found[parent] = replace(message, tool_calls=(*message.tool_calls, call))
                if item.is_final:
                    results[make_result_id(item)] = _make_result(item)
            case _:
                pass
    return [*(found | results).values()]


def _make_result(call: CallItem) -> SnapshotMessage:
    return SnapshotMessage(
        id=make_result_id(call),
        role="tool",
        tool_call_id=make_id(call),
        content=make_content(call.result, call.images),
        error="" if call.state == "done" else call.error or call.state,
    )


def adopt_ids(messages: Sequence[SnapshotMessage], known: Sequence[ThreadMessage]) -> list[SnapshotMessage]:
    """Return messages with the ids that the client has given to what its user said and to the results of its own
    tools, and with its instructions first. A client keeps its own order for ids that it knows and appends the
    others: after a message that it does not know, no id is adopted."""
    ids = {each.id for each in known}
    results = {each.tool_call_id: each.id for each in known if each.role == "tool"}
    is_known = True
    own = [each for each in known if each.role == "user" and not is_own_id(each.id)]
    adopted: list[SnapshotMessage] = [
        SnapshotMessage(id=each.id, role=each.role, content=each.content)
        for each in known
        if each.role in ("system", "developer") and isinstance(each.content, str)
    ]
    for message in messages:
        if message.role == "user" and is_known:
            place = next((at for at, each in enumerate(own) if _find_text(each) == _get_text(message)), None)
            if place is not None:
                message = replace(message, id=own[place].id)
                own = own[place + 1 :]
        elif message.role == "tool" and message.tool_call_id in results:
            message = replace(message, id=results[message.tool_call_id])
        is_known = is_known and message.id in ids
        adopted.append(message)
    return adopted


def list_known_results(messages: Iterable[ThreadMessage]) -> frozenset[str]:
    """Return the ids of the calls whose results the client has."""
    return frozenset(each.tool_call_id for each in messages if each.role == "tool" and each.tool_call_id)


def _find_text(message: ThreadMessage) -> str:
    if isinstance(message.content, tuple):
        return "".join([part.text for part in message.content if isinstance(part, PartText)])
    return message.content if isinstance(message.content, str) else ""


def _get_text(message: SnapshotMessage) -> str:
    if isinstance(message.content, tuple):
        return "".join([part.text for part in message.content if isinstance(part, TextContent)])
    return message.content or ""
