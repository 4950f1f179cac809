"""The baseline of the schemas. Databases from before it were never released; they are refused."""

from treadle.domain.errors import StoreNewer, StoreOutdated

LAST_COMMIT_BEFORE_BASELINE = "4c7fd559"
"""The last commit of Treadle that can open the databases from before the baseline."""


def refuse_version(what: str, found: int, baseline: int, known: int) -> None:
    """Raise StoreNewer or StoreOutdated if this code cannot open a schema version; 0: there is no schema."""
    if found > known:
        raise StoreNewer(
            f"{what} was written by a newer Treadle (schema version {found}; this one supports {known}). Install "
            "that version, or point TREADLE_DATABASE_URL at another database. Nothing was changed."
        )
    if 0 < found < baseline:
        raise _explain_outdated(what, found)


def _explain_outdated(what: str, found: int) -> StoreOutdated:
    return StoreOutdated(
        f"{what} is from before the first release (schema version {found}), and this Treadle cannot "
        "read it. Nothing was changed. Check out commit "
        f"{LAST_COMMIT_BEFORE_BASELINE} of Treadle: with it, `treadle memory export` prints the memories, and "
        "`treadle prune --older-than 1s --archive FILE` moves the events to a file. Then start with a new database "
        "and run `treadle memory import FILE`."
    )
