CREATE TABLE vault (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL,
    sealed_check BLOB NOT NULL,
    key_place TEXT NOT NULL
) STRICT;
CREATE TABLE secrets (
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    created REAL NOT NULL,
    changed REAL NOT NULL
) STRICT;
CREATE TABLE grants (
    name TEXT NOT NULL REFERENCES secrets ON DELETE CASCADE,
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    PRIMARY KEY (name, agent, tool)
) STRICT;
