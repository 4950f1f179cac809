-- Finished evaluations, each with all its results as JSON.
CREATE TABLE evaluations (
    evaluation_id TEXT             NOT NULL PRIMARY KEY,
    name          TEXT             NOT NULL,
    ended_at      DOUBLE PRECISION NOT NULL,
    summary       TEXT             NOT NULL,        -- JSON without the results
    content       BYTEA            NOT NULL         -- JSON
);

CREATE INDEX evaluations_by_name ON evaluations (name, ended_at);

-- What people think of runs: a score from 0 to 1, and a note.
CREATE TABLE feedback (
    feedback_id TEXT             NOT NULL PRIMARY KEY,
    run         BIGINT           NOT NULL REFERENCES runs (id),
    author      TEXT             NOT NULL,
    score       DOUBLE PRECISION NOT NULL,
    note        TEXT             NOT NULL,
    at          DOUBLE PRECISION NOT NULL,
    UNIQUE (run, author)
);

CREATE INDEX feedback_by_time ON feedback (at);
