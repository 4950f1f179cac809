PRAGMA application_id = 0x5452444C;           -- "TRDL"

-- A run, and what is derived from its events for lists and for the dispatcher.
CREATE TABLE runs (
    id             INTEGER PRIMARY KEY,
    run_id         TEXT    NOT NULL UNIQUE,
    session_id     TEXT    NOT NULL,
    agent_id       TEXT    NOT NULL,
    parent_run_id  TEXT,
    submission_key TEXT    UNIQUE,
    created_at     REAL    NOT NULL,
    status         TEXT    NOT NULL,
    outcome        TEXT,
    waiting_for    TEXT,
    sequence       INTEGER NOT NULL,          -- of its last event
    epoch          INTEGER NOT NULL,          -- moves when another worker takes the run
    worker         TEXT,                      -- the worker that owns it, or null
    lease_until    REAL,
    wake_at        REAL                       -- when a worker must check it, or null
) STRICT;

CREATE INDEX runs_unfinished ON runs (session_id, id) WHERE outcome IS NULL;
CREATE INDEX runs_due        ON runs (wake_at)        WHERE wake_at IS NOT NULL AND worker IS NULL;
CREATE INDEX runs_owned      ON runs (worker)         WHERE worker IS NOT NULL;

-- The journal. The position is the order of commits over all runs.
CREATE TABLE events (
    position  INTEGER PRIMARY KEY,
    run       INTEGER NOT NULL REFERENCES runs (id),
    sequence  INTEGER NOT NULL,
    event_id  TEXT    NOT NULL,
    timestamp REAL    NOT NULL,
    type      TEXT    NOT NULL,
    version   INTEGER NOT NULL,
    data      BLOB    NOT NULL,
    UNIQUE (run, sequence)
) STRICT;

-- The keys of what was delivered, so that nothing is delivered twice.
CREATE TABLE deliveries (
    run      INTEGER NOT NULL REFERENCES runs (id),
    key      TEXT    NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX deliveries_by_key ON deliveries (key);

-- What each ended run added to the conversation of its session. Can be rebuilt from the events.
CREATE TABLE said (
    session_id TEXT    NOT NULL,
    run        INTEGER NOT NULL REFERENCES runs (id),
    messages   BLOB    NOT NULL,
    PRIMARY KEY (session_id, run)
) STRICT, WITHOUT ROWID;

CREATE TABLE agents (
    agent_id TEXT NOT NULL PRIMARY KEY,
    name     TEXT NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;
