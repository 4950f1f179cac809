-- Who may ask over HTTP. Of a token only its digest is kept.
CREATE TABLE tokens (
    token_id   TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    digest     BLOB NOT NULL UNIQUE,
    scopes     TEXT NOT NULL,                  -- a JSON list
    agents     TEXT,                           -- a JSON list of names; null: all of them
    quotas     TEXT,                           -- JSON; null: none of its own
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL
) STRICT, WITHOUT ROWID;

-- What was answered to a request with an Idempotency-Key, for a day.
CREATE TABLE requests (
    token_id TEXT    NOT NULL,                 -- empty: the owner of the home
    route    TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    digest   BLOB    NOT NULL,                 -- of the body
    at       REAL    NOT NULL,
    status   INTEGER,                          -- null: it was not answered yet
    body     BLOB,
    PRIMARY KEY (token_id, route, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX requests_by_age ON requests (at);

ALTER TABLE agents ADD COLUMN state TEXT NOT NULL DEFAULT 'running';

CREATE INDEX runs_of_agent  ON runs (agent_id, id);
CREATE INDEX runs_of_parent ON runs (parent_run_id, id) WHERE parent_run_id IS NOT NULL;
