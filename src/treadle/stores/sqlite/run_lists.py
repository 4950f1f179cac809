"""The statement that finds runs. What it reads first selects few of them by an index, in the order of the runs."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.ports.journal import RunFilter
from treadle.stores.sqlite.connection import SQL


def make_find_statement(wanted: RunFilter, limit: int) -> tuple[str, list[Any]]:
    """Return the statement that finds runs, the newest first, and its values."""
    conditions = [*_select_runs(wanted), *_limit_runs(wanted)]
    order = "newest_labelled_runs" if wanted.labels.pairs() else "newest_runs"
    names = ("find_runs", *(name for name, *_ in conditions), order)
    values = [value for _, *values in conditions for value in values]
    return "\n".join([SQL[name] for name in names]), [*values, limit]


Condition = tuple[Any, ...]
"""The name of a part of the statement, and the values of its placeholders."""


def _select_runs(wanted: RunFilter) -> list[Condition]:
    """Return what is read first, and by which values."""
    if labels := wanted.labels.pairs():
        first, *others = labels
        source = "from_labels" if wanted.owners is None else "from_labels_of_owners"
        more = [("and_label", *label) for label in others]
        return [(source, *first), *_match_owners("and_label_of_owner", wanted), *more]
    if wanted.text is not None or wanted.min_cost is not None:  # smaller than the runs
        return [("from_summaries",), *_match_owners("and_owner", wanted)]
    source = "from_runs" if wanted.owners is None else "from_runs_of_owners"
    return [(source,), *_match_owners("and_owner", wanted)]


def _match_owners(name: str, wanted: RunFilter) -> list[Condition]:
    """Return the condition on the owners. The index of a single one has the order of the runs."""
    if wanted.owners is None:
        return []
    if len(wanted.owners) == 1:
        return [(name, wanted.owners[0])]
    return [(f"{name}s", _encode(wanted.owners))]


def _limit_runs(wanted: RunFilter) -> list[Condition]:
    """Return the conditions on single runs."""
    found: list[Condition] = []
    if wanted.before is not None:
        name = "and_label_before" if wanted.labels.pairs() else "and_before"
        of_owners = () if wanted.owners is None else (_encode(wanted.owners),)
        found.append((f"{name}_of_owners" if of_owners else name, wanted.before, *of_owners))
    if wanted.unfinished:
        found.append(("and_unfinished",))
    simple = {
        "and_agents": None if wanted.agents is None else _encode(wanted.agents),
        "and_session": wanted.session_id,
        "and_parent": wanted.parent_run_id,
        "and_status": wanted.status,
        "and_outcome": wanted.outcome,
        "and_id_prefix": wanted.id_prefix,
        "and_id_prefix_end": wanted.id_prefix,
        "and_since": wanted.since,
        "and_until": wanted.until,
        "and_text": wanted.text,
        "and_min_cost": wanted.min_cost,
    }
    return found + [(name, value) for name, value in simple.items() if value is not None]


def _encode(names: Sequence[str]) -> str:
    return msgspec.json.encode(names).decode()
