"""Patterns of many alternatives, written so that they can be read."""

import re


def any_of(alternatives: str) -> re.Pattern[str]:
    """Return a pattern of alternatives, which stand on lines of their own or two blanks apart, in any case."""
    found = [each for each in re.split(r"\n|\s{2,}", alternatives.strip()) if each]
    return re.compile("|".join(found), re.IGNORECASE)


def match_any(*patterns: str) -> re.Pattern[str]:
    """Return a pattern of these patterns, in any case."""
    return re.compile("|".join(patterns), re.IGNORECASE)
