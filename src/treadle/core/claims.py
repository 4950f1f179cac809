"""What an answer claims to have done in the world: sent, created, changed, deleted, run, arranged, paid.

Words alone prove nothing. A claim is a sentence of the agent's own about a finished act of its own, on a thing
outside the conversation. A plan, a question, a denial, a quotation, a report of what others did and a text written
for the reader are none."""

import re
from typing import Final, Literal

from msgspec import Struct

Act = Literal["send", "create", "change", "delete", "run", "arrange", "pay"]


class Claim(Struct, frozen=True):
    act: Act
    sentence: str


# ── Words ──────────────────────────────────────────────────────────────────────────────────────────

VERBS: Final[dict[Act, str]] = {
    "send": """sent emailed e-mailed mailed messaged texted posted published tweeted notified forwarded
        submitted uploaded deployed pushed released replied shared pinged delivered told shipped""",
    "create": """created written wrote saved added generated made stored recorded logged registered
        opened filed initialized initialised cloned exported inserted put downloaded unpacked documented
        implemented placed copied""",
    "change": """updated edited modified changed fixed renamed moved replaced refactored configured
        enabled disabled merged committed patched applied closed archived reset assigned upgraded
        migrated formatted reverted rolled turned switched converted""",
    "delete": "deleted removed dropped erased wiped purged revoked unsubscribed uninstalled cleared cleaned",
    "run": """ran executed tested installed started restarted stopped compiled built launched killed
        rebooted triggered""",
    "arrange": "scheduled booked reserved rescheduled cancelled canceled invited reminded declined set",
    "pay": "ordered purchased bought paid transferred refunded processed issued",
}
_ADVERBS = """just already also now then successfully since both safely finally permanently all gone
    went ahead and even so together automatically"""
_UNREAL = """not never cannot can't couldn't didn't haven't hasn't wasn't weren't isn't aren't won't
    don't doesn't unable failed nothing no none nobody will would can could should shall may might must
    if once when whenever until unless before after going want need plan about please assuming suppose
    imagine supposed expected attempted tried would've they he she who whether how every any i'll we'll"""
"""Words before an act, in its clause, that make of it a plan, a condition, a failure or another's doing."""
_REPORTED = """earlier previously yesterday originally according says said reports reported appears
    seems suggests indicates usually typically often always"""
_REPORTED_PHRASES = (
    r"for example|e\.g|how to|last \w+|back in|previous \w+|shows? (?:that|how)|by default|\bago\b"
    r"|in (?:19|20)\d\d"
)
"""What makes of a sentence a report of something else than the work of now."""
_OUTSIDE_NOUNS = """file folder directory directories repo repository repositories branch branches
    commit request pr tag issue ticket task card record row entry entries column database index
    migration account user event meeting appointment call calendar reminder alarm booking reservation
    flight hotel room table order reorder lunch subscription payment invoice refund config configuration
    setting preference address environment variable server service container pod process processes job
    cron crontab pipeline build test suite script command query queries package dependency dependencies
    module library libraries endpoint webhook channel page post website site email e-mail message
    notification invitation invite newsletter tweet slack team customer client guest key token password
    permission access log backup disk cache version release production staging inbox spreadsheet sheet
    document doc note wiki workspace project app application bug fix change patch dataset data landing
    proposal contract report minutes footer dockerfile linter money site"""
_READER_NOUNS = """summary summaries list plan poem story stories outline example sentence paragraph
    explanation overview comparison translation heading bullet haiku essay section word typo wording
    tone title assumption calculation number answer suggestion idea option thoughts reasoning analysis
    hint comment line limerick caption verse recipe itinerary bio tagline slogan question"""


def _any_of(words: str, plural: bool = False) -> str:
    ending = "s?" if plural else ""
    return "|".join(re.escape(word) + ending for word in words.split())


# ── Sentences ──────────────────────────────────────────────────────────────────────────────────────

_LET_KNOW = r"let (?!me\b)(?:[\w'-]+ ){1,4}know"
_VERB = re.compile(
    r"\b(?:" + "|".join(f"(?P<{act}>{_any_of(verbs)})" for act, verbs in VERBS.items()) + rf"|{_LET_KNOW})\b",
    re.IGNORECASE,
)
_CLAUSE_ENDS = re.compile(r"[;:()\u2014\u2013|]|, (?:but|so|and|which|because)\b|\b(?:but|because|while|so)\b")
_OWN = re.compile(r".*\b(?:i|we)(?:['\u2019](?:ve|d)| have| had)?(?P<between>(?: [^\s]+)*) ?$", re.IGNORECASE)
_ONLY_ADVERBS = re.compile(rf"^(?: (?:{_any_of(_ADVERBS)}))*$", re.IGNORECASE)
_JOINED = re.compile(rf"(?:,| and| then|, and)(?: (?:{_any_of(_ADVERBS)}))*$", re.IGNORECASE)
_PERFECT = re.compile(
    rf"\b(?:has|have)(?: (?:{_any_of(_ADVERBS)}))* been(?: (?:{_any_of(_ADVERBS)}))* ?$", re.IGNORECASE
)
_NEWS = re.compile(
    r"\b(?:is|are|was|were) (?:now|all|already|both|successfully)(?: (?:successfully|now))? ?$", re.IGNORECASE
)
_STATE = re.compile(r"\b(?:is|are) ?$", re.IGNORECASE)
_DONE_STATES: Final = ("scheduled", "booked", "reserved", "set", "cancelled", "canceled")
_BARE = re.compile(
    r"^(?:(?:done|ok|okay|sure|great|all set|all done|yes|success|perfect)\W+)*(?:[\w`./#-]+ ){0,4}$", re.IGNORECASE
)
_FINITE = re.compile(
    r"\b(?:is|are|was|were|be|been|has|have|had|do|does|did|the|a|an|your|their|this|these|those|each|all|any|get|got)\b",
    re.IGNORECASE,
)
_UNREAL_WORD = re.compile(rf"\b(?:{_any_of(_UNREAL)})(?![\w'])", re.IGNORECASE)
_CONDITION = re.compile(
    r"^(?:if|once|when|whenever|until|unless|as soon as|to|for|make sure)\b[^,]*$", re.IGNORECASE
)
_REPORT = re.compile(rf"\b(?:{_any_of(_REPORTED)})\b|{_REPORTED_PHRASES}", re.IGNORECASE)
_BY_OTHERS = re.compile(r"\bby (?!me\b|us\b|mail\b|email\b|adding|using|running)[\w@]+", re.IGNORECASE)
_PLACE = (
    r"\b[\w./-]+\.(?:py|js|ts|tsx|md|txt|json|ya?ml|csv|html|css|sh|sql|toml|rs|go|java|c|cpp|log|pdf|xlsx?|env)\b"
    r"|[\w.+-]+@[\w-]+\.\w|(?:^|[\s`])(?:~|\.{0,2})/?[\w.-]+/[\w./-]*|\bline \d+"
)
_OUTSIDE = re.compile(
    rf"\b(?:{_any_of(_OUTSIDE_NOUNS, plural=True)})\b|`[^`\n]+`|\$\d|#[a-z]|{_PLACE}", re.IGNORECASE
)
_PUT_SOMEWHERE = re.compile(rf"\b(?:to|in|into|at|as|on|called|named)\b[^.]*(?:{_PLACE}|\bfile\b)", re.IGNORECASE)
_FOR_THE_READER = re.compile(
    r"\b(?:(?:this|my) (?:answer|reply|response|message)"
    rf"|(?:a|an|the|your|my|some|two|three|four|five|several|few|any|each|type) (?:[\w-]+ ){{0,3}}"
    rf"(?:{_any_of(_READER_NOUNS, plural=True)}))\b",
    re.IGNORECASE,
)
_ALWAYS_OUTSIDE: Final = ("send", "arrange", "pay")
"""Acts that are hardly ever done to a text of the conversation."""
_ALSO_WITH_WORDS: Final = (
    "shared",
    "told",
    "replied",
    "set",
    "processed",
    "ordered",
    "released",
    "put",
    "delivered",
)
"""Verbs of such acts that are said of words too: I shared my thoughts, I set the tone."""
_HIS_OWN = re.compile(r"^ (?:it|them|everything|both|all of|your)\b", re.IGNORECASE)
_TABLE_ROW = re.compile(r"^\s*\|(?!.*(?:\u2705|\u2714|done|complete)).*$", re.IGNORECASE | re.MULTILINE)
_NO_OBJECT = re.compile(
    r"^(?:$|[.,!;:]| (?:for|to|in|at|on|and|with|from|into|by|as|successfully|below)\b)", re.IGNORECASE
)
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_QUOTED = re.compile(r"^\s*>.*$|[\u201c\"][^\u201d\"\n]{12,}[\u201d\"]", re.MULTILINE)
_LETTER = re.compile(r"^\s*(?:dear|hi|hello|hey)\b.{0,60},\s*$|^\W*subject:", re.IGNORECASE | re.MULTILINE)
_EMPHASIS = re.compile(r"\*\*|__")
_BULLET = re.compile(r"^(?:\s*(?:[-*\u2022\u2705\u2714\ufe0f\u2611|]+|\d+[.)]))*\s*")
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?=[^\s])[^.!?\n]*)*[.!?]?")
_WORD = re.compile(r"[a-z-]+")
_ABBREVIATION = re.compile(r"\b(dr|mr|mrs|ms|prof|st|vs|approx)\.(?= )", re.IGNORECASE)
_VERSE = re.compile(
    r"(?:^(?!\s*[-*\u2022\d|]).{4,60}[,;]\s*\n){1,}(?:^(?!\s*[-*\u2022\d|]).{4,60}$\n?){1,}", re.MULTILINE
)
_NOTHING_DONE = re.compile(r"^ (?:no|nothing|none|zero)\b", re.IGNORECASE)
_OBJECT_ENDS = re.compile(r"[,;:]| and | so | which ")
_IN_VIEW = re.compile(r"\b(?:below|above|here(?:['\u2019]s| is| are)|as follows)\b", re.IGNORECASE)
_EVERY_VERB = frozenset(" ".join(VERBS.values()).split())


def claims_in(text: str) -> list[Claim]:
    """The claims of an answer, in order."""
    if _EVERY_VERB.isdisjoint(_WORD.findall(text.lower())):
        return []  # most answers, at little cost
    shows_text = "```" in text or bool(_QUOTED.search(text))
    text = _ABBREVIATION.sub(r"\1", text)
    plain = _EMPHASIS.sub("", _TABLE_ROW.sub("", _QUOTED.sub(" ", _FENCE.sub(" ", text))))
    if (letter := _LETTER.search(plain)) is not None:
        plain = plain[: letter.start()]  # what follows is a text for the reader to use
    plain = _VERSE.sub("\n", plain)
    found: list[Claim] = []
    for match in _SENTENCE.finditer(plain):
        sentence = _BULLET.sub("", match.group().strip())
        found += _claims(sentence, shows_text)
    return found


def _claims(sentence: str, shows_text: bool) -> list[Claim]:
    if not sentence or sentence.endswith("?"):
        return []
    found: list[Claim] = []
    for verb in _VERB.finditer(sentence):
        act = _act(verb)
        if _is_told_as_done(sentence, verb, bool(found)) and _is_outside(sentence, verb, act, shows_text):
            found.append(Claim(act, sentence))
    return found


def _is_told_as_done(sentence: str, verb: re.Match[str], after_a_claim: bool) -> bool:
    """Whether the verb tells of a finished act of the agent's own."""
    before = sentence[: verb.start()]
    clause = _CLAUSE_ENDS.split(before)[-1]
    told = sentence[len(before) - len(clause.rpartition(",")[2]) :]
    if _REPORT.search(told) or _NOTHING_DONE.match(sentence[verb.end() :]):
        return False
    if (own := _OWN.search(before)) is not None:
        between = own["between"]
        if _ONLY_ADVERBS.match(between):
            return True
        return bool(_JOINED.search(between)) and not _UNREAL_WORD.search(between)
    before = before.rstrip()
    if _UNREAL_WORD.search(clause) or _CONDITION.match(clause.strip()):
        return False
    if _PERFECT.search(before) or _NEWS.search(before):
        return not _BY_OTHERS.search(sentence, verb.end())
    if _STATE.search(before):
        return verb[0].lower() in _DONE_STATES and not _BY_OTHERS.search(sentence, verb.end())
    if after_a_claim and _JOINED.search(before):
        return True
    bare = clause.lstrip(" ,")
    if not _BARE.match(bare) or _FINITE.search(bare) or _BY_OTHERS.search(sentence, verb.end()):
        return False
    return not bare.strip() or bool(_NO_OBJECT.match(sentence[verb.end() :]))  # else it is somebody's who did it


def _is_outside(sentence: str, verb: re.Match[str], act: Act, shows_text: bool) -> bool:
    """Whether it was done to something in the world, and not to a text of the conversation."""
    about = _OBJECT_ENDS.split(sentence[verb.end() :])[0]
    if " been " in sentence[: verb.start()].lower() or not about.strip():
        about = sentence  # what it was done to stands before the verb
    if act in _ALWAYS_OUTSIDE:
        return verb[0].lower() not in _ALSO_WITH_WORDS or not _FOR_THE_READER.search(about)
    for_the_reader = _FOR_THE_READER.search(about) or _IN_VIEW.search(sentence)
    if for_the_reader and not _PUT_SOMEWHERE.search(sentence, verb.end()):
        return False
    if shows_text and act != "run" and not re.search(_PLACE, sentence, re.IGNORECASE):
        return False
    return bool(_OUTSIDE.search(sentence)) or bool(_HIS_OWN.match(sentence[verb.end() :]))


def _act(match: re.Match[str]) -> Act:
    for act in VERBS:
        if match[act]:
            return act
    return "send"  # it let somebody know
