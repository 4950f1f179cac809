"""Claims in an answer to have acted in the world: sent, created, changed, deleted, run, arranged, paid.

Words alone prove nothing. A claim is a sentence in the agent's own words about a finished act of its own, on
something outside the conversation. Plans, questions, denials, quotations, reports of what others did and texts
written for the reader are not claims. The check blocks the event loop, so its input is bounded and every pass is
linear."""

import re
from collections.abc import Iterator
from itertools import dropwhile, islice, pairwise
from typing import Final, Literal

from msgspec import Struct

Act = Literal["send", "create", "change", "delete", "run", "arrange", "pay"]
ClaimForm = Literal["deed", "state"]
""""I booked it", or "It is booked". A state may have been looked up."""


class ActionClaim(Struct, frozen=True):
    act: Act
    sentence: str
    form: ClaimForm = "deed"


_MAX_SENTENCES: Final = 400
_MAX_SENTENCE_CHARACTERS: Final = 500
_MAX_VERBS: Final = 12

# ── Words ──────────────────────────────────────────────────────────────────────────────────────────


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _nouns(words: str) -> frozenset[str]:
    return _words(words) | {f"{word}s" for word in words.split()}


VERBS: Final[dict[Act, str]] = {
    "send": """sent emailed e-mailed mailed messaged texted posted published tweeted notified forwarded
        submitted uploaded deployed pushed released replied shared pinged delivered told shipped""",
    "create": """created written wrote saved added generated made stored recorded logged registered opened filed
        initialized initialised cloned exported inserted put downloaded unpacked documented implemented placed
        copied""",
    "change": """updated edited modified changed fixed renamed moved replaced refactored configured enabled
        disabled merged committed patched applied closed archived reset assigned upgraded migrated formatted
        reverted rolled turned switched converted""",
    "delete": "deleted removed dropped erased wiped purged revoked unsubscribed uninstalled cleared cleaned",
    "run": """ran run executed tested installed started restarted stopped compiled built launched killed
        rebooted triggered""",
    "arrange": "scheduled booked reserved rescheduled cancelled canceled invited reminded declined set",
    "pay": "ordered purchased bought paid transferred refunded processed issued",
}
_ACT_OF: Final[dict[str, Act]] = {verb: act for act, verbs in VERBS.items() for verb in verbs.split()}
_ADVERB = _words("""just already also now then successfully since both safely finally permanently all gone
    went ahead and even so together automatically""")
_UNREAL_WORD = _words("""not never cannot can't couldn't didn't haven't hasn't wasn't weren't isn't aren't won't
    don't doesn't unable failed nothing no none nobody will would can could should shall may might must if once
    when whenever until unless before after going want need plan about please assuming suppose imagine supposed
    expected attempted tried would've they he she who whether how every any i'll we'll""")
"""Words before an act, in its clause, that make it a plan, a condition, a failure or the act of another."""
_REPORT_WORD = _words("""earlier previously yesterday originally according says said reports reported appears
    seems suggests indicates usually typically often always upstream""")
_REPORTED_PHRASE = re.compile(
    r"for example|e\.g|how to|last \w+|back in|previous \w+|shows? (?:that|how)|by default|\bago\b"
    r"|in (?:19|20)\d\d"
)
"""Phrases that make a sentence a report of something other than the current work."""
_OUTSIDE_NOUN = _nouns("""file folder directory directories repo repository repositories branch branches commit
    request pr tag issue ticket task card record row entry entries column database index migration account user
    event meeting appointment call calendar reminder alarm booking reservation flight hotel room table order
    reorder lunch subscription payment invoice refund config configuration setting preference address
    environment variable server service container pod process processes job cron crontab pipeline build test
    suite script command query queries package dependency dependencies module library libraries endpoint webhook
    channel page post website site email e-mail message notification invitation invite newsletter tweet slack
    team customer client guest key token password permission access log backup disk cache version release
    production staging inbox spreadsheet sheet document doc note wiki workspace project app application bug fix
    change patch dataset data landing proposal contract report minutes footer dockerfile linter money thermostat
    light timer lock""")
_READER_NOUN = _nouns("""summary summaries list plan poem story stories outline example sentence paragraph
    explanation overview comparison translation heading bullet haiku essay section word typo wording tone title
    assumption calculation number answer suggestion idea option thoughts reasoning analysis hint comment line
    limerick caption verse recipe itinerary bio tagline slogan question""")
_TEXT_NOUN = _nouns("""script query queries message command email e-mail function code snippet program regex letter
    post tweet class formula note reply response""")
"""Texts that are written in an answer as often as in a file."""
_DETERMINER = _words("a an the your my some two three four five several few any each type")
_OPENED_NOUN = _nouns("ticket issue pr request incident account case bug branch task channel")
"""Things that opening creates; others are only looked into."""
_MONEY_NOUN = _nouns("refund payment order invoice transaction return cancellation purchase transfer")
_FILE_ENDING = _words("""py js ts tsx md txt json yml yaml csv html css sh sql toml rs go java c cpp log pdf
    xls xlsx env""")
_SENT_WORD = _words("shared told replied set processed ordered released put delivered")
"""Verbs of outside acts that also apply to words: I shared my thoughts, I set the tone."""
_DONE_STATE = _words("scheduled booked reserved set cancelled canceled paid")
_IDIOM = _words("""ran-into ran-out ran-across ran-through made-sure made-certain made-sense made-use set-aside
    set-out turned-out stopped-at stopped-short stopped-because started-by started-with started-from moved-on
    opened-with built-on built-upon added-up""")
"""A verb and the following word that together mean something else."""
_LIKE_AN_ORDER = _words("set put reset run let")
"""Verbs whose past tense equals their imperative."""
_OPENS_CONDITION = _words("if once when whenever until unless as to for make")
_DOUBTS_WHAT_FOLLOWS = _words("if once whenever until unless whether how before")
_FINITE = _words("""is are was were be been has have had do does did the a an your their this these those each
    all any get got""")
_OPENER = _words("done ok okay sure great all set yes success perfect")
_SAYS_WHERE = _words("to in into at as on called named")
_SORTED = _words("by alphabetically chronologically ascending descending")
_ALWAYS_OUTSIDE: Final = ("send", "arrange", "pay")
"""Acts that are hardly ever done to a text of the conversation."""


# ── Words of a sentence ────────────────────────────────────────────────────────────────────────────

_PLAIN_WORD = re.compile(r"[a-z-]+")
_WORD = re.compile(r"[\w~./@+'-]+")
_OBJECT_END = re.compile(r"[,;:]| and | so | which ")
_OUTSIDE_SIGN = re.compile(r"`[^`]|\$\d|#[a-z]")


class _Word(Struct, frozen=True):
    text: str
    start: int
    end: int
    is_place: bool


class _Verb(Struct, frozen=True):
    """A verb of an act, the text before and after it, and the words of the latter."""

    act: Act
    text: str
    before: str
    after: str
    following: list[_Word]

    @property
    def object_length(self) -> int:
        return len(_OBJECT_END.split(self.after, maxsplit=1)[0])


class _Sentence(Struct, frozen=True):
    text: str
    """In lower case, with plain apostrophes, and with spaces around dashes."""
    words: list[_Word]
    vocabulary: frozenset[str]
    has_place: bool
    shows_text: bool


def _read(sentence: str, shows_text: bool) -> _Sentence:
    said = " ".join(sentence.lower().replace("\u2019", "'").replace("\u2014", " \u2014 ").split())
    words = [_Word(_strip_marks(one[0]), one.start(), one.end(), _is_place(one[0])) for one in _WORD.finditer(said)]
    return _Sentence(said, words, _collect_vocabulary(words), _has_place(words), shows_text)


def _strip_marks(word: str) -> str:
    return word.strip("'./+-~")


def _split_words(text: str) -> list[str]:
    return [_strip_marks(word) for word in _WORD.findall(text)]


def _is_place(word: str) -> bool:
    """Return whether the word is a file, a path or an address."""
    name, _, ending = word.rstrip("'.").rpartition(".")
    user, _, host = word.rstrip("'.").partition("@")
    return bool(name and ending in _FILE_ENDING) or bool(user and "." in host) or "/" in word[1:]


def _find_verbs(said: str, words: list[_Word]) -> Iterator[_Verb]:
    for at, word in enumerate(words):
        last, act = at, _ACT_OF.get(word.text)
        if word.text == "let" and (words_to_know := _count_words_to_know(words[at + 1 : at + 6])):
            last, act = at + words_to_know, "send"
        if act is not None:
            yield _Verb(act, word.text, said[: word.start], said[words[last].end :], words[last + 1 :])


def _count_words_to_know(words: list[_Word]) -> int:
    """Return the number of words from `let` to `know`; 0 for `let me know` and if there is none."""
    texts = [word.text for word in words]
    return texts.index("know") + 1 if "know" in texts[1:] and texts[0] not in ("me", "us") else 0


def _collect_vocabulary(words: list[_Word]) -> frozenset[str]:
    """Return the words without possessive endings, and the parts of those with hyphens."""
    texts = [word.text.removesuffix("'s") for word in words]
    return frozenset(texts).union(*(text.split("-") for text in texts if "-" in text))


# ── Claims ─────────────────────────────────────────────────────────────────────────────────────────

_CLAUSE_END = re.compile(r"[;:()\u2014\u2013|]|, (?:but|so|and|which|because)\b|\b(?:but|because|while|so)\b")
_FIRST_PERSON = re.compile(r"\b(?:i|we)(?:'(?:ve|d))?(?: have| had)?(?= |$)")
_ANNOUNCEMENT = re.compile(r"(?:done|all set|all done|success)\b")
_NAME = re.compile(r"[\w`./#-]+")
_BY_OTHERS = re.compile(r"\bby (?!me\b|us\b|mail\b|email\b|adding|using|running)[\w@]")
_NO_OBJECT = re.compile(r"$|[.,!;:]| (?:for|to|in|at|on|and|with|from|into|by|as|successfully|below)\b")
_NOTHING_DONE = re.compile(r" (?:no|nothing|none|zero)\b")
_CLEAR_OBJECT = re.compile(r" (?:it|them|everything|both|all of|your)\b")
_IN_VIEW = re.compile(
    r"\b(?:below|above|here(?:'s| is| are)|as follows|mentally|the formula|this (?:conversation|chat|session)"
    r"|you (?:gave|pasted|provided))\b"
)


def find_claims(sentences: list[str], shows_text: bool) -> list[ActionClaim]:
    """Return the claims in sentences of an answer, in order. `shows_text`: it also shows code or a quotation."""
    candidates = islice(filter(_may_claim, sentences), _MAX_SENTENCES)
    return [claim for one in candidates for claim in _find_claims_in_sentence(one, shows_text)]


def _may_claim(sentence: str) -> bool:
    if len(sentence) > _MAX_SENTENCE_CHARACTERS or sentence.endswith("?"):
        return False
    words = _PLAIN_WORD.findall(sentence.lower())
    return "let" in words or not _ACT_OF.keys().isdisjoint(words)


def _find_claims_in_sentence(sentence: str, shows_text: bool) -> list[ActionClaim]:
    read = _read(sentence, shows_text)
    found: list[ActionClaim] = []
    for verb in islice(_find_verbs(read.text, read.words), _MAX_VERBS):
        form = _find_claim_form(read, verb, bool(found))
        if form is not None and _is_outside(read, verb):
            found.append(ActionClaim(verb.act, sentence, form))
    return found


def _find_claim_form(sentence: _Sentence, verb: _Verb, after_a_claim: bool) -> ClaimForm | None:
    """Return how the verb tells of a finished act of the agent's own, or None if it does not."""
    before, after = verb.before, verb.after
    clause = before[_last_end(_CLAUSE_END, before) :]
    if _NOTHING_DONE.match(after) or _is_idiom(verb) or _is_report(sentence, before, clause):
        return None
    if (end := _last_end(_FIRST_PERSON, before)) > 0:
        return "deed" if _is_own(before[:end], before[end:], verb) else None
    if _is_unreal(clause):
        return None
    by_others = _BY_OTHERS.search(after) is not None
    if (passive := _find_passive_form(before)) is not None:
        if by_others:
            return None
        if passive == "deed" or _ANNOUNCEMENT.match(before):
            return "deed"
        is_set_up = verb.text == "set" and not after.startswith(" for")
        return "state" if verb.text in _DONE_STATE and not is_set_up else None
    if after_a_claim and _is_joined(before):
        return "deed"
    return "deed" if not by_others and _is_bare(clause.lstrip(" ,"), after, verb) else None


def _last_end(pattern: re.Pattern[str], text: str) -> int:
    ends = [match.end() for match in pattern.finditer(text)]
    return ends[-1] if ends else 0


def _is_idiom(verb: _Verb) -> bool:
    following = [word.text for word in verb.following]
    if verb.text == "ordered":
        return not _SORTED.isdisjoint(following)
    return bool(following) and f"{verb.text}-{following[0]}" in _IDIOM


def _is_report(sentence: _Sentence, before: str, clause: str) -> bool:
    start = len(before) - len(clause.rpartition(",")[2])
    in_a_word = any(word.text in _REPORT_WORD for word in sentence.words if word.start >= start)
    return in_a_word or _REPORTED_PHRASE.search(sentence.text, start) is not None


def _is_own(subject: str, between: str, verb: _Verb) -> bool:
    """Return whether the text between the last `I` and the verb leaves the act the agent's own."""
    words_to_it = subject.removesuffix(" have").removesuffix(" had").split()
    if not _DOUBTS_WHAT_FOLLOWS.isdisjoint(words_to_it[-2:-1]):
        return False
    if verb.text in _LIKE_AN_ORDER and subject.endswith("'d"):
        return False  # I would
    if verb.text == "run" and not subject.endswith(("ve", "had")):
        return False  # I do so now and then
    if _ADVERB.issuperset(between.split()):
        return True
    return _is_joined(between) and _UNREAL_WORD.isdisjoint(_split_words(between))


def _is_unreal(clause: str) -> bool:
    words = _split_words(clause)
    is_condition = "," not in clause and not _OPENS_CONDITION.isdisjoint(words[:1])
    return is_condition or not _UNREAL_WORD.isdisjoint(words)


def _find_passive_form(before: str) -> ClaimForm | None:
    """Return "deed" after `has been` or `is now`, which report news, and "state" after `is`."""
    words, adverbs = _without_adverbs(before.split())
    if words[-1:] == ["been"]:
        return "deed" if _without_adverbs(words[:-1])[0][-1:] in (["has"], ["have"]) else None
    if words[-1:] in (["is"], ["are"]) and adverbs in ([], ["already"]):
        return "state"
    is_news = adverbs[:1] in (["now"], ["all"], ["already"], ["both"], ["successfully"])
    return "deed" if is_news and words[-1:] in (["is"], ["are"], ["was"], ["were"]) else None


def _is_joined(text: str) -> bool:
    """Return whether the text ends like a list before its next member: with a comma, `and` or `then`."""
    words, adverbs = _without_adverbs(text.split())
    return "and" in adverbs or "then" in adverbs or bool(words and words[-1].endswith(","))


def _without_adverbs(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words, and the adverbs at their end."""
    end = len(words)
    while end and words[end - 1] in _ADVERB:
        end -= 1
    return words[:end], words[end:]


def _is_bare(clause: str, after: str, verb: _Verb) -> bool:
    """Return whether the act is told as in a note: sent to Bob, ticket created."""
    words = list(dropwhile(lambda word: word.strip(",.!") in _OPENER, clause.split()))
    if verb.text in ("run", "let") or not _FINITE.isdisjoint(words):
        return False
    if not words:
        return verb.text not in _LIKE_AN_ORDER
    is_note = len(words) <= 4 and all(_NAME.fullmatch(word) for word in words)
    return is_note and _NO_OBJECT.match(after) is not None  # else it has a subject of its own


def _is_outside(sentence: _Sentence, verb: _Verb) -> bool:
    """Return whether the act was done to something in the world, and not to a text of the conversation."""
    about = _object_words(sentence, verb)
    in_view = _names_reader_text(about) or _IN_VIEW.search(sentence.text) is not None
    if verb.act in _ALWAYS_OUTSIDE:
        return verb.text not in _SENT_WORD or (not in_view and _is_of_things(verb, sentence, about))
    if (in_view or _is_text_shown(sentence, verb, about)) and not _is_put_somewhere(verb.following):
        return False
    if sentence.shows_text and verb.act != "run" and not sentence.has_place:
        return False
    if verb.text == "opened":
        return not _OPENED_NOUN.isdisjoint(sentence.vocabulary)
    if len(sentence.words) == 1:
        return sentence.text.endswith((".", "!"))  # not a heading
    if sentence.has_place or not _OUTSIDE_NOUN.isdisjoint(sentence.vocabulary):
        return True
    return bool(_OUTSIDE_SIGN.search(sentence.text) or _CLEAR_OBJECT.match(verb.after))


def _object_words(sentence: _Sentence, verb: _Verb) -> list[_Word]:
    """Return the words for what the act was done to."""
    end = len(sentence.text) - len(verb.after) + verb.object_length
    following = [word for word in verb.following if word.start < end]
    return (
        sentence.words if " been " in verb.before or not following else following
    )  # the object is before the verb


def _is_of_things(verb: _Verb, sentence: _Sentence, about: list[_Word]) -> bool:
    if verb.text == "processed":
        return not _MONEY_NOUN.isdisjoint(sentence.vocabulary)
    if verb.text == "set":
        nouns = about if verb.before.endswith(("i ", "ve ")) else sentence.words
        return not _OUTSIDE_NOUN.isdisjoint(_collect_vocabulary(nouns))
    return True


def _names_reader_text(words: list[_Word]) -> bool:
    """Return whether the words name a text of the conversation: the summary, your third paragraph, my reply."""
    texts = [word.text for word in words]
    for at, text in enumerate(texts):
        near = texts[max(at - 4, 0) : at]
        if text in _READER_NOUN and not _DETERMINER.isdisjoint(near) and not any("'" in word for word in near):
            return True
        if text in ("answer", "reply", "response", "message") and texts[at - 1 : at] in (["this"], ["my"]):
            return True
    return False


def _is_text_shown(sentence: _Sentence, verb: _Verb, about: list[_Word]) -> bool:
    """Return whether it is a script or a message that was written into the answer."""
    if verb.act != "create" or sentence.has_place:
        return False
    in_answer = verb.text in ("wrote", "written") or verb.after.startswith(":", verb.object_length)
    return in_answer and not _TEXT_NOUN.isdisjoint(_collect_vocabulary(about))


def _is_put_somewhere(words: list[_Word]) -> bool:
    start = next((at for at, word in enumerate(words) if word.text in _SAYS_WHERE), len(words))
    return _has_place(words[start:]) or any(word.text == "file" for word in words[start:])


def _has_place(words: list[_Word]) -> bool:
    """Return whether the words include a file, a path, an address or a line of a file."""
    has_line = any(word.text == "line" and following.text.isdigit() for word, following in pairwise(words))
    return has_line or any(word.is_place for word in words)
