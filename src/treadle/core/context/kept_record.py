"""What is kept with a summary, whatever its writer drops: the user's words, decisions, files and the plan.

It is made from the messages that a summary replaces, and is part of the message with the summary. The next one is
read from there, so it survives forks, and the undo of a compaction restores the one before."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from treadle.core.context.memory_prompt import NOTE, remove_section
from treadle.domain.edits.patch_format import list_patch_paths
from treadle.domain.messages import Message, Text, ToolResult, ToolUse
from treadle.domain.observations import extract_text
from treadle.domain.tools import PLAN_TOOL, ToolSpec

RECORD_SHARE = 0.1
"""Share of the context window that the record may take."""
MAX_RECORD_TOKENS = 8192
_CHARACTERS_PER_TOKEN = 4
_OPENING = "[kept by the engine, word for word]"
WORDS, DECISIONS, FILES, PLAN = "The user's words", "Earlier decisions", "Files touched", "Plan"
CONSTRAINTS = "Earlier constraints"
_SHARES = {WORDS: 0.35, CONSTRAINTS: 0.1, DECISIONS: 0.2, FILES: 0.25, PLAN: 0.1}
"""Share of the record for each part. Where it does not suffice, entries are left out: of the user's words and of
constraints those in the middle, of other parts the oldest."""
_WITH_EARLIEST = (WORDS, CONSTRAINTS)
_CARRIED = {"constraints": CONSTRAINTS, "decisions": DECISIONS}
"""Sections of a summary whose entries the record takes over when the next summary replaces it. They are never taken
for the user's words: the writer of a summary has read results of tools and files too."""
USER_MESSAGES = "user_messages"
"""The id by which `recall` returns the messages of the user that summaries have replaced."""
_ALL_MESSAGES = f'[recall(call_id="{USER_MESSAGES}") has all messages of the user]'
_MAX_ITEM_CHARACTERS = 300
MAX_SENTENCE_CHARACTERS = 1500
"""A longer sentence of the user is cut, and says so."""
CUT = " [cut: the rest was in the user's message]"
_MAX_WHOLE_MESSAGE = 600
"""Of a longer message of the user, only the sentences that demand something are kept."""
MAX_LONG_MESSAGE = 3000
"""Characters that are kept of one long message, such as a pasted document."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])\s*|\n+")
_DEMANDS = re.compile(
    r"\b(?:must|never|always|do not|don['\u2019]t|only|should|shall|prefer|avoid|require|need|keep|without|instead|"
    r"at most|at least|no more|make sure|ensure|remember|important|not|use|"
    r"muss|m\u00fcssen|niemals|nie|immer|nicht|kein\w*|nur|soll\w*|bitte|ohne|stattdessen|mindestens|h\u00f6chstens|"
    r"doit|doivent|jamais|toujours|ne pas|uniquement|seulement|sans|debe\w*|nunca|siempre|solo|s\u00f3lo|sin|"
    r"deve\w*|sempre|mai|non|n\u00e3o|sem|apenas)\b"
    r"|\b(?:\u043d\u0435|\u043d\u0438\u043a\u043e\u0433\u0434\u0430|\u0432\u0441\u0435\u0433\u0434\u0430|\u0442\u043e\u043b\u044c\u043a\u043e|\u043d\u0443\u0436\u043d\u043e)\b"
    r"|\u5fc5\u987b|\u5fc5\u9808|\u4e0d\u8981|\u4e0d\u80fd|\u4e0d\u5f97|\u7981\u6b62|\u53ea\u80fd|\u59cb\u7ec8|\u8bf7\u52ff|\u5fc5\u305a|\u3057\u306a\u3044|\u306a\u3044\u3067|\u7981\u6b62|\u3060\u3051",
    re.IGNORECASE,
)
"""Words of several languages. Of a long message without any of them, the first and the last sentences are kept."""
_RECALL, _CHANGED = ": recall(call_id=", "; changed since, to recall as well: "
_MAX_CHANGES = 20
"""Changes of a file that are listed after its read. After more, it must be read again."""
_HEADING = re.compile(r"^#{1,6}[ \t]*\**([^*\n:]+?)\**:?[ \t]*$", re.MULTILINE)
_ITEM = re.compile(r"^(?:[-*•]|\d+[.)]) +(\S.*)$")


class KeptRecord(Struct, frozen=True):
    """The entries of each part, the oldest first."""

    words: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    """As the writers of summaries noted them."""

    def parts(self) -> dict[str, tuple[str, ...]]:
        return {
            WORDS: self.words,
            CONSTRAINTS: self.constraints,
            DECISIONS: self.decisions,
            FILES: self.files,
            PLAN: self.plan,
        }


def max_record_tokens(window: int) -> int:
    return min(MAX_RECORD_TOKENS, int(window * RECORD_SHARE))


def make_record(span: Sequence[Message], summaries: Sequence[str], tools: Mapping[str, ToolSpec]) -> KeptRecord:
    """Return the record for the summary that replaces these messages. `summaries` are those among them, with their
    records."""
    before = [read_record(text) for text in summaries]
    words = [item for record in before for item in record.words]
    decisions = [item for record in before for item in record.decisions]
    files = [item for record in before for item in record.files]
    plans = [record.plan for record in before if record.plan]
    words += [item for message in span for item in _list_words(message)]
    plan = next((found for message in reversed(span) if (found := _find_plan(message)) is not None), None)
    return KeptRecord(
        tuple(dict.fromkeys(words)),
        tuple(dict.fromkeys(decisions)),
        tuple(_merge_files(files, span, tools)),
        plan if plan is not None else (plans[-1] if plans else ()),
        tuple(dict.fromkeys(item for record in before for item in record.constraints if item not in words)),
    )


def read_record(text: str) -> KeptRecord:
    """Return the record in the text of a summary, with the constraints and decisions of the summary itself."""
    found: dict[str, list[str]] = {part: [] for part in _SHARES}
    summary, _, kept = text.partition(_OPENING)
    for name, items in _list_sections(kept):
        if name in found:
            found[name] += [item for item in items if item != _ALL_MESSAGES]
    for name, items in _list_sections(summary):
        if (part := _CARRIED.get(name.casefold())) is not None:
            found[part] += [item[:_MAX_ITEM_CHARACTERS] for item in items]
    return KeptRecord(*[tuple(dict.fromkeys(found[part])) for part in (WORDS, DECISIONS, FILES, PLAN, CONSTRAINTS)])


def split_record(text: str) -> str:
    """Return the text of a summary without the record, and without the sections that the record takes over."""
    summary = text.partition(_OPENING)[0]
    kept: list[str] = []
    skips = False
    for line in summary.split("\n"):
        if (heading := _HEADING.match(line)) is not None:
            skips = heading[1].strip().casefold() in _CARRIED
        if not skips:
            kept.append(line)
    return "\n".join(kept).strip()


def remove_marks(text: str) -> str:
    """Return the text of a summary without the mark that begins a record, which its writer cannot set."""
    return text.replace(_OPENING, "")


def render_record(record: KeptRecord, max_tokens: int) -> str:
    """Return the record as text of at most this size, or an empty text if there is nothing to keep."""
    sections: list[str] = []
    for part, items in record.parts().items():
        fitting = _select_fitting(items, int(max_tokens * _CHARACTERS_PER_TOKEN * _SHARES[part]), part)
        if fitting:
            more = [_ALL_MESSAGES] if part == WORDS else []
            sections.append("\n".join([f"## {part}", *(f"- {item}" for item in (*fitting, *more))]))
    return "\n".join([_OPENING, *sections]) if sections else ""


def list_stored_calls(span: Sequence[Message], tools: Mapping[str, ToolSpec]) -> list[ToolResult]:
    """Return the results that the record says how to recall: reads of files, and changes with a diff."""
    stored: list[ToolResult] = []
    for use, result in _list_results(span):
        spec = tools.get(use.name)
        if _list_paths(use, spec) and (_reads_file(spec) or _shows_change(result)):
            stored.append(result)
    return stored


def list_user_messages(span: Sequence[Message]) -> list[str]:
    """Return the messages of the user in full."""
    return [text for message in span if (text := _read_words(message))]


def _list_results(span: Sequence[Message]) -> Iterator[tuple[ToolUse, ToolResult]]:
    """Yield the calls that succeeded, with their results."""
    results = {part.call_id: part for message in span for part in message.parts if isinstance(part, ToolResult)}
    for use in _list_calls(span):
        result = results.get(use.call_id)
        if result is not None and not result.is_error:
            yield use, result


def _shows_change(result: ToolResult) -> bool:
    """Return whether the result of a change has its diff."""
    return "\n@@ " in extract_text(result.content)


def _list_sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each heading of a text with the entries below it."""
    name, items = "", list[str]()
    for line in text.split("\n"):
        if (heading := _HEADING.match(line)) is not None:
            yield name, items
            name, items = heading[1].strip(), []
        elif (item := _ITEM.match(line.strip())) is not None:
            items.append(item[1].strip())
    yield name, items


def _select_fitting(items: Sequence[str], max_characters: int, part: str) -> list[str]:
    """Return the entries that fit, in order. Later ones come first. Of the user's words, those that demand
    something come before others; they and constraints are taken from both ends."""
    order = list(range(len(items) - 1, -1, -1))
    if part == WORDS:
        demanding = [at for at in order if _DEMANDS.search(items[at])]
        chosen = {*demanding}
        order = [*_alternate(demanding), *(at for at in order if at not in chosen)]
    elif part in _WITH_EARLIEST:
        order = _alternate(order)
    fitting: list[int] = []
    for at in order:
        max_characters -= len(items[at]) + 3
        if max_characters < 0:
            break
        fitting.append(at)
    return [items[at] for at in sorted(fitting)]


def _alternate(order: list[int]) -> list[int]:
    """Return the indexes from both ends in turn."""
    pairs = zip(order, reversed(order), strict=True)
    return list(dict.fromkeys(at for pair in pairs for at in pair))


# ── The user's words ──


def _list_words(message: Message) -> Iterator[str]:
    """Yield the sentences of a message of the user. Of a long one, only those that demand something."""
    text = _read_words(message)
    is_long = len(text) > _MAX_WHOLE_MESSAGE
    sentences = [
        words for each in _SENTENCE_END.split(text) if any(map(str.isalnum, words := " ".join(each.split())))
    ]
    if is_long:
        demanding = [words for words in sentences if _DEMANDS.search(words)]
        sentences = _select_ends(demanding or [*sentences[:2], *sentences[2:][-2:]])
    for words in sentences:
        is_cut = len(words) > MAX_SENTENCE_CHARACTERS
        yield words[: MAX_SENTENCE_CHARACTERS - len(CUT)] + CUT if is_cut else words


def _read_words(message: Message) -> str:
    """Return what the user wrote in a message; nothing if it is not one of the user."""
    if message.role != "user" or message.mark is not None:
        return ""
    text = "\n".join(remove_section(part.text) for part in message.parts if isinstance(part, Text)).strip()
    return "" if text.startswith(NOTE) else text


def _select_ends(sentences: Sequence[str]) -> list[str]:
    """Return the sentences from both ends of a long message that fit."""
    left, chosen = MAX_LONG_MESSAGE, list[int]()
    for at in _alternate(list(range(len(sentences)))):
        left -= min(len(sentences[at]), MAX_SENTENCE_CHARACTERS)
        if left < 0:
            break
        chosen.append(at)
    return [sentences[at] for at in sorted(chosen)]


# ── Files and the plan ──


def _list_calls(span: Iterable[Message]) -> Iterator[ToolUse]:
    for message in span:
        for part in message.parts:
            if isinstance(part, ToolUse):
                yield part


def _reads_file(spec: ToolSpec | None) -> bool:
    """Return whether a tool reads one file: it cannot be called without a path."""
    required = () if spec is None else spec.schema.get("required", ())
    return spec is not None and spec.effect == "read" and any(name in required for name in spec.paths)


def _list_paths(use: ToolUse, spec: ToolSpec | None) -> tuple[str, ...]:
    """Return the files that a call reads or changes."""
    if spec is None or not (spec.paths or spec.patches) or not (_reads_file(spec) or spec.effect == "write"):
        return ()
    try:
        arguments = msgspec.json.decode(use.arguments or "{}", type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ()
    paths = [path for name in spec.paths if isinstance(path := arguments.get(name), str)]
    patches = [patch for name in spec.patches if isinstance(patch := arguments.get(name), str)]
    named = [path for patch in patches for path in list_patch_paths(patch) or ()]
    return tuple([path for path in (*paths, *named) if path and path.isprintable()])


def _merge_files(known: Sequence[str], span: Sequence[Message], tools: Mapping[str, ToolSpec]) -> Iterator[str]:
    """Yield each file with how to recall its text, or that it was changed, those touched last at the end."""
    files = {item.partition(": ")[0]: item for item in known}
    for use, result in _list_results(span):
        spec = tools.get(use.name)
        for path in _list_paths(use, spec):
            before = files.pop(path, "")
            if _reads_file(spec):
                files[path] = f'{path}: recall(call_id="{use.call_id}") has its text'
            elif _RECALL in before and _shows_change(result) and before.count(",") < _MAX_CHANGES:
                files[path] = before + (", " if _CHANGED in before else _CHANGED) + use.call_id
            else:
                files[path] = f"{path}: changed"
    yield from files.values()


def _find_plan(message: Message) -> tuple[str, ...] | None:
    """Return the steps of a plan that are not completed, or None if a message sets no plan."""
    for use in _list_calls([message]):
        if use.name == PLAN_TOOL:
            try:
                entries = msgspec.json.decode(use.arguments, type=_Plan).entries
            except msgspec.MsgspecError:
                continue
            return tuple(
                [f"{each.status}: {each.content}"[:_MAX_ITEM_CHARACTERS] for each in entries if each.is_open]
            )
    return None


class _PlanEntry(Struct, frozen=True):
    content: str
    status: str = "pending"

    @property
    def is_open(self) -> bool:
        return self.status != "completed" and self.content.isprintable()


class _Plan(Struct, frozen=True):
    entries: tuple[_PlanEntry, ...] = ()
