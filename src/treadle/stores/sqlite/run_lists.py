"""The statements that find runs. What is read first selects few of them by an index, in the order of the runs."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.domain.runs import is_ended
from treadle.ports.journal import RunFilter, RunSums
from treadle.stores.sqlite.connection import SQL, SqliteDatabase

Condition = tuple[Any, ...]
"""The name of a part of the statement, and the values of its placeholders."""


def find_runs(db: SqliteDatabase, wanted: RunFilter, limit: int) -> list[Any]:
    """Return the rows of matching runs, the newest first."""
    statement, values = make_find_statement(wanted, limit, _find_few(db, wanted))
    return db.execute(statement, values).fetchall()


def sum_runs(db: SqliteDatabase, wanted: RunFilter) -> RunSums:
    """Return the sums of all matching runs."""
    statement, values = make_sum_statement(wanted, _find_few(db, wanted))
    [row] = db.execute(statement, values).fetchall()
    return RunSums(*row)


def _find_few(db: SqliteDatabase, wanted: RunFilter) -> list[int] | None:
    if wanted.labels.pairs() or (wanted.text is None and wanted.min_cost is None):  # labels select fewer
        return None
    from treadle.stores.sqlite.searches import find_few

    return find_few(db, wanted)


def make_find_statement(wanted: RunFilter, limit: int, among: list[int] | None = None) -> tuple[str, list[Any]]:
    """Return the statement that finds runs, the newest first, and its values. `among` has the numbers of the runs
    that match its text or its cost."""
    source, *conditions = _choose_source(wanted, among)
    order = ORDERS.get(source[0], "newest_runs") if wanted.order == "created" else "sorted_runs"
    conditions = [source, *conditions, *_page(wanted, order), *_limit_runs(wanted)]
    names = ("find_runs", *(name for name, *_ in conditions), order)
    return _join(names, wanted), [*_list_values(conditions), limit]


def make_sum_statement(wanted: RunFilter, among: list[int] | None = None) -> tuple[str, list[Any]]:
    """Return the statement that sums up runs, and its values."""
    conditions = [*_choose_source(wanted, among), *_limit_runs(wanted)]
    return _join(("sum_runs", *(name for name, *_ in conditions)), wanted), _list_values(conditions)


def _join(names: Sequence[str], wanted: RunFilter) -> str:
    """Return the parts of a statement as one, with the order of the filter."""
    statement = "\n".join([SQL[name] for name in names])
    if wanted.order == "created":
        return statement
    direction, compared = ("ASC", ">") if wanted.ascending else ("DESC", "<")
    words = {"VALUE": SORTED_VALUES[wanted.order], "DIRECTION": direction, "COMPARED": compared}
    return re.sub(r"\b(VALUE|DIRECTION|COMPARED)\b", lambda found: words[found[0]], statement)


def _list_values(conditions: Sequence[Condition]) -> list[Any]:
    return [value for _, *values in conditions for value in values]


SORTED_VALUES = {
    "cost": "coalesce(summary.cost, -1)",
    "tokens": "coalesce(summary.tokens, -1)",
    "steps": "coalesce(summary.steps, -1)",
    "duration": "coalesce(summary.duration_ms, -1)",
    "score": "coalesce(nullif(summary.facts, '') ->> '$.score', -1)",
}
"""What an order compares. Runs without a value are last."""


ORDERS = {
    "from_labels": "newest_labelled_runs",
    "from_labels_of_owners": "newest_labelled_runs",
    "from_summaries": "newest_summaries",
    "from_times": "newest_runs_by_time",
}
"""The orders of sources that are not read by the numbers of runs."""
BEFORE = {"newest_labelled_runs": "and_label_before", "newest_summaries": "and_summary_before"}
"""The conditions that begin a further page in these orders."""


def _choose_source(wanted: RunFilter, among: list[int] | None) -> list[Condition]:
    """Return what is read first, and by which values."""
    owners = _match_owners("and_owner", wanted)
    if labels := wanted.labels.pairs():
        first, *others = labels
        source = "from_labels" if wanted.owners is None else "from_labels_of_owners"
        more = [("and_label", *label) for label in others]
        return [(source, *first), *_match_owners("and_label_of_owner", wanted), *more]
    if among is not None:
        return [("from_numbers", msgspec.json.encode(among).decode()), *owners]
    if wanted.text is not None or wanted.min_cost is not None:  # smaller than the runs
        return [("from_summaries",), *owners]
    if wanted.owners is not None:
        return [("from_runs_of_owners",), *owners]
    if wanted.session_id is not None or wanted.parent_run_id is not None or wanted.id_prefix is not None:
        return [("from_runs",)]
    return [_choose_index(wanted)]


def _choose_index(wanted: RunFilter) -> Condition:
    """Return the index of the runs that is read, in the order of the runs or of their times."""
    if wanted.unfinished or (wanted.status is not None and not is_ended(wanted.status)):
        return ("from_unfinished_runs",)
    if wanted.outcome is not None:
        return ("from_runs_of_outcome",)
    if wanted.status is not None:
        return ("from_ended_runs_of_status",)
    if wanted.agents is not None and len(wanted.agents) == 1:
        return ("from_runs_of_agent", wanted.agents[0])
    if wanted.since is not None or wanted.until is not None:
        return ("from_times",)
    return ("from_runs",)


def _match_owners(name: str, wanted: RunFilter) -> list[Condition]:
    """Return the condition on the owners. The index of a single one has the order of the runs."""
    if wanted.owners is None:
        return []
    if len(wanted.owners) == 1:
        return [(name, wanted.owners[0])]
    return [(f"{name}s", _encode(wanted.owners))]


def _page(wanted: RunFilter, order: str) -> list[Condition]:
    """Return the condition that begins a further page."""
    owners = None if wanted.owners is None else _encode(wanted.owners)
    if wanted.before is None:
        return []
    if order == "sorted_runs":
        return [("and_behind", wanted.before, owners, owners)]
    if order == "newest_runs_by_time":
        return [("and_before_in_time", wanted.before)]
    name = BEFORE.get(order, "and_before")
    return [(name, wanted.before)] if owners is None else [(f"{name}_of_owners", wanted.before, owners)]


def _limit_runs(wanted: RunFilter) -> list[Condition]:
    """Return the conditions on single runs."""
    found: list[Condition] = []
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
        "and_id_suffix": wanted.id_suffix,
        "and_since": wanted.since,
        "and_until": wanted.until,
        "and_text": wanted.text,
        "and_min_cost": wanted.min_cost,
    }
    return found + [(name, value) for name, value in simple.items() if value is not None]


def _encode(names: Sequence[str]) -> str:
    return msgspec.json.encode(names).decode()
