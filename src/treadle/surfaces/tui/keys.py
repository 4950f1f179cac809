"""The key map. The bindings of the app and its widgets, and the help, are made from it."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from textual.keys import KEY_NAME_REPLACEMENTS, KEY_TO_UNICODE_NAME, REPLACED_KEYS

from treadle.domain.suggestions import find_closest

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
    Key(
        "message",
        "stop",
        ("escape",),
        "Close what is open; interrupt the run; again: cancel it.",
    ),
    Key("message", "newline", ("shift+enter", "alt+enter", "ctrl+j"), "Begin a new line."),
    Key("message", "next_mode", ("shift+tab",), "Change the mode: ask, accept edits, plan, auto."),
    Key("message", "previous", ("up",), "Earlier message, on the first line."),
    Key("message", "next", ("down",), "Later message, on the last line."),
    Key("message", "search_history", ("ctrl+r",), "Search earlier messages."),
    Key("message", "edit_queued", ("alt+up",), "Take the last queued message back to edit or remove it."),
    Key("message", "paste", ("ctrl+v",), "Attach the image of the clipboard, or paste its text."),
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
    Key("anywhere", "open_child", ("f7",), "Open the child run of a tool call, also while it works."),
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
Bound = Mapping[str, Mapping[str, str | tuple[str, ...]]]
"""Keys that a user has chosen, by place and action."""
MODIFIERS = ("alt", "ctrl", "shift")
NAMED_KEYS = (
    "escape", "enter", "tab", "space", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown", "up",
    "down", "left", "right", *(f"f{number}" for number in range(1, 13)),
)  # fmt: skip
NO_KEY = "none"
NEEDED = (("message", "send"), ("approval", "choose_1"), ("approval", "choose_3"))
"""Actions that need a key, since no command does the same."""
ACCEPTED_KEYS = (
    "Ctrl, Alt or Shift with a letter, a digit, a sign or a named key (`ctrl+l`), a named key alone "
    f"({', '.join(NAMED_KEYS[:15])}, f1 to f12), a list of keys"
)
_ALIASES = {
    "esc": "escape", "return": "enter", "del": "delete", "ins": "insert", "page_up": "pageup", "pgup": "pageup",
    "page_down": "pagedown", "pgdn": "pagedown", "control": "ctrl", "option": "alt", "meta": "alt",
}  # fmt: skip
_SAME_CODE = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+left_square_bracket": "escape", "ctrl+h": "backspace"}
"""Keys that terminals do not tell apart."""
_NAMES = {
    "pagedown": "Page Down", "pageup": "Page Up", "escape": "Esc", "enter": "Enter", "tab": "Tab", "space": "Space",
    "backspace": "Backspace", "delete": "Delete", "insert": "Insert",
    "up": "Up", "down": "Down", "home": "Home", "end": "End", "left": "Left", "right": "Right",
    "ctrl": "Ctrl", "shift": "Shift", "alt": "Alt",
}  # fmt: skip


class KeyMap:
    """The keys in force: the defaults, with what the user has changed. In a text, `{keys[PLACE.ACTION]}` stands for
    the key of an action."""

    def __init__(self, keys: Sequence[Key] = KEYS) -> None:
        self.keys = tuple(keys)
        self._actions = {(each.place, key): each.action for each in keys for key in each.keys}
        self._keys = {f"{each.place}.{each.action}": each.keys for each in keys}

    def find_action(self, place: Place, key: str) -> str | None:
        """Return the action of a key in a place."""
        return self._actions.get((place, key.replace("\r", "enter")))  # some terminals name Enter by its code

    def list_keys(self, place: Place) -> list[tuple[str, str]]:
        """Return the keys of a place with what they do. Actions without a key are left out."""
        return [(describe_keys(each.keys), each.help) for each in self.keys if each.place == place and each.keys]

    def __getitem__(self, name: str) -> str:
        """Return the first key of an action as people write it."""
        keys = self._keys[name]
        return describe(keys[0]) if keys else "(no key)"


def describe_keys(keys: Sequence[str]) -> str:
    return ", ".join(map(describe, keys))


def describe(key: str) -> str:
    """Return a key as people write it: `Ctrl-R`."""
    return "-".join(map(_describe_part, key.split("+")))


def _describe_part(part: str) -> str:
    if part in _NAMES:
        return _NAMES[part]
    if len(part) == 1 or (part[0] == "f" and part[1:].isdecimal()):
        return part.upper()
    name = REPLACED_KEYS.get(part, part)
    try:
        return unicodedata.lookup(KEY_TO_UNICODE_NAME.get(name, name.replace("_", " ")))
    except KeyError:
        return part


DEFAULT_KEYS = KeyMap()


# ── The keys of a user ──


def bind_keys(bound: Bound) -> tuple[KeyMap, list[str]]:
    """Return the key map with the keys of a user, and what is wrong with them. A wrong entry changes nothing.

    A key of the user is taken from the actions that have it by default."""
    chosen: dict[tuple[str, str], tuple[str, ...]] = {}
    problems: list[str] = []
    for place, actions in bound.items():
        for action, value in actions.items():
            try:
                chosen[place, action] = _read_entry(place, action, value, chosen)
            except ValueError as error:
                problems.append(str(error))
    taken = {(near, key) for (place, _), keys in chosen.items() for key in keys for near in _near(place)}
    made = [each._replace(keys=_choose_keys(each, chosen, taken)) for each in KEYS]
    return KeyMap(made), problems


def _choose_keys(
    key: Key, chosen: Mapping[tuple[str, str], tuple[str, ...]], taken: set[tuple[str, str]]
) -> tuple[str, ...]:
    if (key.place, key.action) in chosen:
        return chosen[key.place, key.action]
    left = tuple(each for each in key.keys if (key.place, each) not in taken)
    return left or (key.keys if (key.place, key.action) in NEEDED else ())


def _near(place: str) -> tuple[str, ...]:
    """Return the places that react to the same key: the message has the focus nearly always."""
    return ("message", "anywhere") if place in ("message", "anywhere") else (place,)


def _read_entry(
    place: str, action: str, value: str | tuple[str, ...], chosen: Mapping[tuple[str, str], tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the keys of an action. Raise ValueError."""
    if place not in PLACES:
        raise ValueError(f"keys.{place} is not a place; {_suggest(place, PLACES)}accepted: {', '.join(PLACES)}")
    at, known = f"keys.{place}.{action}", [each.action for each in KEYS if each.place == place]
    if action not in known:
        raise ValueError(f"{at} is not an action; {_suggest(action, known)}accepted: {', '.join(known)}")
    named = (value,) if isinstance(value, str) else value
    keys = () if named == (NO_KEY,) else tuple(_read_key(at, place, name) for name in named)
    if not keys and (place, action) in NEEDED:
        raise ValueError(f"{at}: found no key; accepted: {ACCEPTED_KEYS}")
    for (other_place, other), others in chosen.items():
        if place in _near(other_place) and (twice := set(keys) & set(others)):
            raise ValueError(
                f"{at}: found `{min(twice)}`, which keys.{other_place}.{other} has too; accepted: a key of its own"
            )
    return keys


def _suggest(name: str, known: Iterable[str]) -> str:
    near = find_closest(name, known)
    return f"did you mean `{near}`? " if near else ""


def _read_key(at: str, place: str, written: str) -> str:
    """Return a key as Textual names it. Raise ValueError."""
    parts = [_ALIASES.get(part, part) for part in _split(written.strip().lower().replace(" ", "_"))]
    *modifiers, name = parts
    if len(name) == 1 and not name.isalnum():
        name = unicodedata.name(name, "").lower().replace("-", "_").replace(" ", "_")
        name = KEY_NAME_REPLACEMENTS.get(name, name)
        is_character = bool(name)
    else:
        is_character = len(name) == 1
    if not (is_character or name in NAMED_KEYS) or not set(modifiers) <= set(MODIFIERS):
        raise ValueError(f"{at}: found `{written}`; accepted: {ACCEPTED_KEYS}, or `{NO_KEY}`")
    key = "+".join([*sorted(set(modifiers)), name])
    if key in _SAME_CODE:
        raise ValueError(
            f"{at}: found `{written}`, which terminals do not tell from {describe(_SAME_CODE[key])}; "
            f"accepted: another key"
        )
    types_text = is_character or name in ("space", "backspace")
    if types_text and place in ("message", "anywhere", "picker") and not {"ctrl", "alt"} & set(modifiers):
        raise ValueError(f"{at}: found `{written}`, which types text here; accepted: the same with Ctrl or Alt")
    return key


def _split(written: str) -> list[str]:
    """Return the parts of a key that is written with `+` or `-`, either of which may be the key itself."""
    head, last = written[:-1], written[-1:]
    parts = head.replace("-", "+").split("+")
    if last in "+-":
        return [*(part for part in parts if part), last]
    return [*parts[:-1], parts[-1] + last]
