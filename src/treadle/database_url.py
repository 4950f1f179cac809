"""Where a database is, by its URL."""

from treadle.domain.errors import UsageError


def path_of(database: str) -> str:
    """The file that a database URL names."""
    scheme, separator, path = database.partition(":///")
    if separator and scheme == "sqlite" and path:
        return path
    if database.startswith("postgresql:"):
        raise UsageError("PostgreSQL is not in this version yet; use sqlite:///PATH.")
    raise UsageError(
        f"`{database}` is not a database URL; accepted: sqlite:///PATH (sqlite:////PATH from the root)."
    )
