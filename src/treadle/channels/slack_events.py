"""Reading the events of Slack: buttons, files and commands."""

from typing import Any, cast

from treadle.ports.channel import Incoming, IncomingFile

COMMAND_PREFIX = "!"
"""Slack keeps messages that begin with a slash for itself."""


def is_direct_event(event: dict[str, Any]) -> bool:
    """Return whether an event happened in a direct message. Some events, such as app_mention, do not say it."""
    kind = event.get("channel_type")
    return str(event["channel"]).startswith("D") if kind is None else kind == "im"


def read_press(payload: dict[str, Any]) -> Incoming | None:
    actions = cast("list[dict[str, Any]]", payload.get("actions") or [])
    if payload.get("type") != "block_actions" or not actions:
        return None
    message = cast("dict[str, Any]", payload.get("message") or {})
    channel = str(cast("dict[str, Any]", payload.get("channel") or {}).get("id", ""))
    user = cast("dict[str, Any]", payload.get("user") or {})
    thread = str(message.get("thread_ts") or "")
    return Incoming(
        f"press/{actions[0].get('action_ts') or payload.get('trigger_id')}",
        f"{channel}/{thread}" if thread else channel,
        str(user.get("id", "")),
        str(user.get("username", "")),
        is_direct=channel.startswith("D"),
        kind="press",
        value=str(actions[0].get("value", "")),
        reply_to=str(message.get("ts", "")),
        parent=channel if thread else "",
    )


def list_files(event: dict[str, Any]) -> tuple[IncomingFile, ...]:
    files = cast("list[dict[str, Any]]", event.get("files") or [])
    return tuple(
        IncomingFile(
            str(file.get("url_private_download") or file.get("url_private") or ""),
            str(file.get("name", "")),
            str(file.get("mimetype", "")),
            int(file.get("size") or 0),
        )
        for file in files
    )


def read_command(text: str) -> str:
    """Return `!stop` as `/stop`."""
    return f"/{text[1:]}" if text.startswith(COMMAND_PREFIX) and text[1:2].isalpha() else text


def unescape(text: str) -> str:
    """Return text without Slack's escapes of `&`, `<` and `>`."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
