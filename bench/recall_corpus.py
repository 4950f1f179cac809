"""A reproducible corpus of a hundred thousand memories as agents store them."""

from collections.abc import Iterator
from random import Random

PEOPLE = (
    "Anna", "Boris", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hiro", "Ines", "Jakub", "Kavya",
    "Liam", "Mei", "Nadia", "Omar", "Petra", "Quentin", "Rosa", "Sven", "Tariq", "Uma", "Viktor",
    "Wanda", "Ximena", "Yusuf", "Zoe",
)  # fmt: skip
PLACES = (
    "Lisbon", "Oslo", "Kyoto", "Nairobi", "Denver", "Graz", "Lyon", "Porto", "Tallinn", "Quito",
    "Perth", "Leeds", "the harbour office", "the old library", "the roof terrace",
    "the second data centre", "the clinic", "the barn",
)  # fmt: skip
THINGS = (
    "invoice", "deployment", "dashboard", "migration", "contract", "prototype", "garden fence",
    "piano lesson", "newsletter", "rental car", "water bill", "school trip", "database replica",
    "login page", "search index", "translation", "podcast episode", "tax return", "bicycle",
    "vaccination", "chess club", "message queue", "certificate", "mobile app", "coffee machine",
    "holiday flat", "cache layer", "survey", "compiler", "photo album", "training plan",
    "insurance claim", "wedding cake", "printer", "staging cluster", "sourdough starter",
    "telescope",
)  # fmt: skip
QUALITIES = (
    "slow", "cheaper than expected", "broken on Mondays", "almost finished", "waiting for approval",
    "too loud", "out of date", "safe to delete", "shared with the auditors", "a gift",
    "the wrong colour", "well documented", "blocked by the vendor", "covered by warranty",
    "double booked", "written in Rust", "encrypted at rest", "fragile", "only valid until spring",
    "popular with customers", "hard to find", "allergic to nothing", "off limits",
)  # fmt: skip
ACTS = (
    "repaired", "cancelled", "ordered", "rewrote", "measured", "painted", "postponed", "sold",
    "reviewed", "copied", "tested", "signed", "translated", "archived", "doubled", "renamed",
    "inspected", "borrowed", "published", "locked",
)  # fmt: skip
REASONS = (
    "because the budget was cut", "after the storm", "to please the regulator", "before the audit",
    "by mistake", "when the old supplier went bankrupt", "so that the team can sleep at night",
    "for the anniversary", "on a whim", "since the licence ran out", "to save memory",
    "while everyone was on holiday", "after three failed attempts", "because customers complained",
    "to make room for the new shelf", "as the doctor advised", "to win a bet",
)  # fmt: skip
WISHES = (
    "short answers", "tables instead of prose", "metric units", "to be called by the first name",
    "no meat", "tea", "window seats", "meetings before noon", "dark mode", "tabs over spaces",
    "a reminder one day early", "silence", "hand-written notes", "the train rather than the plane",
    "reports as PDF", "loud music while coding", "no emoji",
)  # fmt: skip


def make_memories(count: int, seed: int = 7) -> Iterator[str]:
    """Return this many texts, nearly all of them different."""
    chance = Random(seed)
    makers = (_preference, _event, _state, _failure, _plan, _version)
    for _ in range(count):
        yield chance.choice(makers)(chance)


def _date(chance: Random) -> str:
    return f"{chance.randint(2019, 2026)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"


def _preference(chance: Random) -> str:
    who, wish, other = chance.choice(PEOPLE), chance.choice(WISHES), chance.choice(THINGS)
    return f"{who} from {chance.choice(PLACES)} prefers {wish} when it is about the {other}."


def _event(chance: Random) -> str:
    who, act, thing = chance.choice(PEOPLE), chance.choice(ACTS), chance.choice(THINGS)
    return f"On {_date(chance)} {who} {act} the {thing} in {chance.choice(PLACES)} {chance.choice(REASONS)}."


def _state(chance: Random) -> str:
    thing, quality = chance.choice(THINGS), chance.choice(QUALITIES)
    return f"The {thing} of {chance.choice(PEOPLE)} is {quality}; {chance.choice(PEOPLE)} knows more about it."


def _failure(chance: Random) -> str:
    code = f"{chance.choice(('ERR', 'WARN', 'FATAL'))}_{chance.choice(ACTS).upper()}_{chance.randint(100, 9999)}"
    thing, quality = chance.choice(THINGS), chance.choice(QUALITIES)
    return f"{code} appears when the {thing} is {quality}; restart it as {_user(chance)}."


def _plan(chance: Random) -> str:
    thing, other = chance.sample(THINGS, 2)
    act, first = chance.choice(ACTS), chance.choice(ACTS)
    return f"Before the {thing} can be {act}, the {other} must be {first} by {_date(chance)}."


def _version(chance: Random) -> str:
    version = f"v{chance.randint(0, 9)}.{chance.randint(0, 30)}.{chance.randint(0, 9)}"
    path = f"/srv/{chance.choice(THINGS).replace(' ', '-')}/{chance.choice(PEOPLE).lower()}.toml"
    return f"Since {version} the {chance.choice(THINGS)} reads its settings from {path}, {chance.choice(REASONS)}."


def _user(chance: Random) -> str:
    return f"svc_{chance.choice(PEOPLE).lower()}{chance.randint(1, 40)}"
