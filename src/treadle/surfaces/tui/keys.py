"""The key map. The bindings of the app and its widgets, and the help, are made from it."""

from typing import Literal, NamedTuple

Place = Literal["anywhere", "message", "approval", "output", "picker"]


class Key(NamedTuple):
    """An action and its keys. A place without focus does not react to its keys."""

    place: Place
    action: str
    keys: tuple[str, ...]
    help: str


KEYS: tuple[Key, ...] = (
    Key("message", "send", ("enter",), "Send the message. While a run is in progress: steer it."),
    Key("message", "queue", ("tab",), "Queue the message for after the run; complete a command or a file name."),
    Key("message", "stop", ("escape",), "Interrupt the run; again: cancel it. Close what is open."),
    Key("message", "newline", ("shift+enter", "alt+enter", "ctrl+j"), "Begin a new line."),
    Key("message", "next_mode", ("shift+tab",), "Change the mode: ask, accept edits, plan, auto."),
    Key("message", "previous", ("up",), "Earlier message, on the first line."),
    Key("message", "next", ("down",), "Later message, on the last line."),
    Key("message", "search_history", ("ctrl+r",), "Search earlier messages."),
    Key("message", "edit_queued", ("alt+up",), "Take the last queued message back to edit or remove it."),
    Key("message", "open_editor", ("ctrl+g",), "Write the message in your editor ($VISUAL or $EDITOR)."),
    Key("approval", "choose_1", ("1",), "Approve the call."),
    Key("approval", "choose_2", ("2",), "Edit its arguments, then run it."),
    Key("approval", "choose_3", ("3",), "Deny it with a note."),
    Key("approval", "choose_4", ("4",), "Allow such calls for this session, or all edits in this workspace."),
    Key("approval", "choose_5", ("5",), "Allow such calls in this workspace from now on."),
    Key("approval", "next_mode", ("shift+tab",), "Change the mode for the calls after this one."),
    Key("approval", "scroll_on", ("pagedown", "space", "down"), "Read on."),
    Key("approval", "scroll_back", ("pageup", "up"), "Read back."),
    Key("approval", "help", ("question_mark",), "Show the help."),
    Key("approval", "later", ("escape",), "Leave it for later."),
    Key("anywhere", "help", ("f1",), "Show this help."),
    Key("anywhere", "sessions", ("f2", "ctrl+p"), "Sessions: search, open, rename, delete, fork."),
    Key("anywhere", "models", ("f3",), "Choose the model."),
    Key("anywhere", "agents", ("f4",), "Choose the agent."),
    Key("anywhere", "answer", ("f5",), "Go to the approval or question that waits."),
    Key("anywhere", "show_output", ("f6",), "Show the whole output of a tool call."),
    Key("anywhere", "new_session", ("ctrl+n",), "Start a new session."),
    Key("anywhere", "toggle_details", ("ctrl+o",), "Show or hide the details of tool calls."),
    Key("anywhere", "toggle_thinking", ("ctrl+t",), "Show or hide the model's thinking."),
    Key("anywhere", "copy_answer", ("ctrl+y",), "Copy the last answer."),
    Key("anywhere", "page_up", ("pageup",), "Scroll back."),
    Key("anywhere", "page_down", ("pagedown",), "Scroll on."),
    Key("anywhere", "scroll_top", ("ctrl+home",), "Go to the beginning."),
    Key("anywhere", "scroll_end", ("ctrl+end",), "Go to the end."),
    Key("anywhere", "previous_message", ("ctrl+up", "alt+pageup"), "Go to your message before."),
    Key("anywhere", "next_message", ("ctrl+down", "alt+pagedown"), "Go to your message after."),
    Key("anywhere", "find", ("ctrl+f",), "Search in this session."),
    Key("anywhere", "leave", ("ctrl+c",), "Clear the message; interrupt a busy run; twice: quit."),
    Key("anywhere", "quit_if_empty", ("ctrl+d",), "Quit, if the message is empty."),
    Key("output", "read_on", ("pagedown", "space"), "Read on."),
    Key("output", "read_back", ("pageup",), "Read back."),
    Key("output", "line_down", ("down",), "One line on."),
    Key("output", "line_up", ("up",), "One line back."),
    Key("output", "begin", ("home",), "Go to the beginning."),
    Key("output", "end", ("end",), "Go to the end."),
    Key("output", "previous_call", ("left",), "Show the call before."),
    Key("output", "next_call", ("right",), "Show the call after."),
    Key("output", "close", ("escape", "q", "f6", "ctrl+c"), "Close the output."),
    Key("picker", "close", ("escape",), "Close the list."),
    Key("picker", "all", ("ctrl+o",), "List the sessions of all folders, or of this one."),
    Key("picker", "fork", ("ctrl+f",), "Fork the session from one of its messages."),
    Key("picker", "rename", ("ctrl+e",), "Rename the session."),
    Key("picker", "delete", ("ctrl+x",), "Delete the session."),
)
PLACES: dict[Place, str] = {
    "message": "Message",
    "approval": "Approvals and questions",
    "anywhere": "Everywhere",
    "output": "Output of a tool call",
    "picker": "Lists",
}
_NAMES = {
    "pagedown": "Page Down", "pageup": "Page Up", "escape": "Esc", "enter": "Enter", "tab": "Tab", "space": "Space",
    "question_mark": "?",
    "up": "Up", "down": "Down", "home": "Home", "end": "End", "left": "Left", "right": "Right",
    "ctrl": "Ctrl", "shift": "Shift", "alt": "Alt",
}  # fmt: skip


def find_action(place: Place, key: str) -> str | None:
    """Return the action of a key in a place."""
    return _ACTIONS.get((place, key.replace("\r", "enter")))  # some terminals name Enter by its code


def describe(key: str) -> str:
    """Return a key as people write it: `Ctrl-R`."""
    return "-".join(_NAMES.get(part, part.upper() if len(part) <= 2 else part) for part in key.split("+"))


def list_keys(place: Place) -> list[tuple[str, str]]:
    """Return the keys of a place with what they do."""
    return [(", ".join(map(describe, each.keys)), each.help) for each in KEYS if each.place == place]


_ACTIONS = {(each.place, key): each.action for each in KEYS for key in each.keys}
