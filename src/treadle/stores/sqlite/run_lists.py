"""The statement that finds runs: it reads first what selects the fewest of them by an index."""

from typing import Any

import msgspec

from treadle.ports.journal import RunFilter
from treadle.stores.sqlite.connection import SQL

_LABELS = "run_labels AS chosen CROSS JOIN runs ON runs.id = chosen.run"
_LABELS_OF_OWNERS = "run_labels AS chosen INDEXED BY labels_of_owner CROSS JOIN runs ON runs.id = chosen.run"
_SUMMARIES = "run_summaries AS chosen CROSS JOIN runs ON runs.id = chosen.run"
_RUNS_OF_OWNERS = "runs INDEXED BY runs_of_owner"


def make_find_statement(wanted: RunFilter, limit: int) -> tuple[str, list[Any]]:
    """Return the statement that finds runs, and its values: the newest first."""
    source, conditions = _choose_source(wanted)
    conditions += _list_conditions(wanted)
    number = "runs.id" if source in ("runs", _RUNS_OF_OWNERS) else "chosen.run"
    if wanted.before is not None:
        known = [("run_id = ?", wanted.before), *_match_owners("owner", wanted)]
        where, values = _join(known)
        earlier = f"{number} < (SELECT id FROM runs WHERE {where})"  # noqa: S608 -- constant names
        conditions.append((earlier, *values))
    where, values = _join(conditions)
    statement = (
        f"{SQL['select_runs']} FROM {source} LEFT JOIN agents USING (agent_id) "
        f"LEFT JOIN run_summaries AS summary ON summary.run = runs.id WHERE {where} ORDER BY {number} DESC LIMIT ?"
    )
    return statement, [*values, limit]


_Condition = tuple[Any, ...]
"""An expression, and the values of its placeholders."""


def _choose_source(wanted: RunFilter) -> tuple[str, list[_Condition]]:
    """Return what is read first, and the conditions by which it is read. All of them are read in the order of the
    runs, unless there are several owners."""
    if labels := wanted.labels.pairs():
        first, *others = labels
        source = _LABELS if wanted.owners is None else _LABELS_OF_OWNERS
        more = [
            ("EXISTS (SELECT 1 FROM run_labels WHERE key = ? AND value = ? AND run = chosen.run)", *each)
            for each in others
        ]
        return source, [
            *_match_owners("chosen.owner", wanted),
            ("chosen.key = ? AND chosen.value = ?", *first),
            *more,
        ]
    if wanted.text is not None or wanted.min_cost is not None:  # smaller than the runs
        return _SUMMARIES, _match_owners("runs.owner", wanted)
    return "runs" if wanted.owners is None else _RUNS_OF_OWNERS, _match_owners("runs.owner", wanted)


def _match_owners(column: str, wanted: RunFilter) -> list[_Condition]:
    if wanted.owners is None:
        return []
    if len(wanted.owners) == 1:  # an index of the owner then has the order of the runs
        return [(f"{column} = ?", wanted.owners[0])]
    names = "(SELECT value FROM json_each(?))"
    return [(f"{column} IN {names}", _encode(wanted.owners))]


def _list_conditions(wanted: RunFilter) -> list[_Condition]:
    """Return the conditions on single runs."""
    found: list[_Condition] = []
    if wanted.agents is not None:
        names = "SELECT agent_id FROM agents WHERE name IN (SELECT value FROM json_each(?))"
        found.append((f"runs.agent_id IN ({names})", _encode(wanted.agents)))
    if wanted.unfinished:
        found.append(("outcome IS NULL",))
    if wanted.id_prefix is not None:
        found.append(("run_id >= ? AND run_id < ? || 'g'", wanted.id_prefix, wanted.id_prefix))
    simple = {
        "session_id = ?": wanted.session_id,
        "parent_run_id = ?": wanted.parent_run_id,
        "status = ?": wanted.status,
        "outcome = ?": wanted.outcome,
        "created_at >= ?": wanted.since,
        "created_at < ?": wanted.until,
        "instr(lower(summary.message), lower(?)) > 0": wanted.text,
        "summary.cost >= ?": wanted.min_cost,
    }
    return found + [(condition, value) for condition, value in simple.items() if value is not None]


def _join(conditions: list[_Condition]) -> tuple[str, list[Any]]:
    texts = [condition for condition, *_ in conditions] or ["TRUE"]
    return " AND ".join(texts), [value for _, *values in conditions for value in values]


def _encode(names: tuple[str, ...]) -> str:
    return msgspec.json.encode(names).decode()
