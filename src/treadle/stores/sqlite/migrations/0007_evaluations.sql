-- Finished evaluations, each with all its results as JSON.
CREATE TABLE evaluations (
    evaluation_id TEXT NOT NULL PRIMARY KEY,
    name          TEXT NOT NULL,
    ended_at      REAL NOT NULL,
    summary       TEXT NOT NULL,               -- JSON without the results
    content       BLOB NOT NULL                -- JSON
) STRICT, WITHOUT ROWID;

CREATE INDEX evaluations_by_name ON evaluations (name, ended_at);

-- What people think of runs: a score from 0 to 1, and a note.
CREATE TABLE feedback (
    feedback_id TEXT    NOT NULL PRIMARY KEY,
    run         INTEGER NOT NULL REFERENCES runs (id),
    author      TEXT    NOT NULL,
    score       REAL    NOT NULL,
    note        TEXT    NOT NULL,
    at          REAL    NOT NULL,
    UNIQUE (run, author)
) STRICT, WITHOUT ROWID;

CREATE INDEX feedback_by_time ON feedback (at);
