-- What waits for a person's decision, or has had it. Can be rebuilt from the events.
CREATE TABLE approvals (
    approval_id  TEXT    NOT NULL PRIMARY KEY,
    run          INTEGER NOT NULL REFERENCES runs (id),
    call_id      TEXT    NOT NULL,
    tool         TEXT    NOT NULL,
    arguments    TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    pattern      TEXT,
    requested_at REAL    NOT NULL,
    expires_at   REAL,
    decision     TEXT                          -- null: it waits
) STRICT;

CREATE INDEX approvals_pending ON approvals (run) WHERE decision IS NULL;

-- What need not be asked for again in a session.
CREATE TABLE grants (
    session_id TEXT NOT NULL,
    tool       TEXT NOT NULL,
    pattern    TEXT NOT NULL,
    PRIMARY KEY (session_id, tool, pattern)
) STRICT, WITHOUT ROWID;

-- The whole text of results that were too long to be shown.
CREATE TABLE results (
    id         INTEGER PRIMARY KEY,
    session_id TEXT    NOT NULL,
    run        INTEGER NOT NULL REFERENCES runs (id),
    call_id    TEXT    NOT NULL,
    content    TEXT    NOT NULL,
    UNIQUE (session_id, call_id, run)
) STRICT;
