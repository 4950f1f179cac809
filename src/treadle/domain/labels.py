"""Labels of runs: tags, and metadata by name. Programs set them to find and count runs by them."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

MAX_TAGS = MAX_METADATA = 16
MAX_TAG_CHARACTERS = 64
"""Also those of the name of a metadata value."""
MAX_VALUE_CHARACTERS = 512
ACCEPTED_TAG = f"1 to {MAX_TAG_CHARACTERS} of the characters A-Z a-z 0-9 . _ : / @ + -, first a letter or a digit"
TAG_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._:/@+-]{{0,{MAX_TAG_CHARACTERS - 1}}}"
_TAG = re.compile(TAG_PATTERN)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SHOWN_CHARACTERS = 80


class Labels(Struct, frozen=True, omit_defaults=True):
    """The tags and the metadata of a run."""

    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = {}

    def pairs(self) -> list[tuple[str, str]]:
        """Return each label as a name and a value. Tags have no name. They come last, as many runs share a tag."""
        return [*self.metadata.items(), *(("", tag) for tag in self.tags)]


NO_LABELS = Labels()


def make_labels(tags: Iterable[str], metadata: Mapping[str, str]) -> Labels:
    """Return checked labels, each tag once. Raise ValueError if one is invalid or there are too many."""
    labels = Labels(tuple(dict.fromkeys(tags)), dict(metadata))
    _check_count("tags", len(labels.tags), MAX_TAGS)
    _check_count("metadata", len(labels.metadata), MAX_METADATA)
    for tag in labels.tags:
        _check_name("the tag", tag)
    for name, value in labels.metadata.items():
        _check_name("the metadata name", name)
        if len(value) > MAX_VALUE_CHARACTERS:
            raise ValueError(
                f"the metadata `{name}` has {len(value)} characters; at most {MAX_VALUE_CHARACTERS} are accepted"
            )
        if _UNPRINTABLE.search(value):
            raise ValueError(f"the metadata `{name}` has control characters; it is one line of text")
    return labels


def inherit_tags(tags: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Return tags that a run inherits, and as many more as it may have."""
    return tuple(dict.fromkeys((*tags, *more)))[:MAX_TAGS]


def parse_metadata(pairs: Iterable[str]) -> dict[str, str]:
    """Return metadata that is written as `NAME=VALUE`. Raise ValueError for anything else, and for two values of a
    name."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise ValueError(f"metadata `{pair[:_SHOWN_CHARACTERS]}` is not written as NAME=VALUE")
        if found.setdefault(name, value) != value:
            raise ValueError(f"the metadata `{name}` has two values")
    return found


def format_metadata(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return metadata as `NAME=VALUE`."""
    return tuple([f"{name}={value}" for name, value in metadata.items()])


def _check_count(kind: str, count: int, limit: int) -> None:
    if count > limit:
        raise ValueError(f"there are {count} {kind}; at most {limit} are accepted")


def _check_name(kind: str, name: str) -> None:
    if not _TAG.fullmatch(name):
        raise ValueError(f"{kind} {name[:_SHOWN_CHARACTERS]!r} is not made of {ACCEPTED_TAG}")
