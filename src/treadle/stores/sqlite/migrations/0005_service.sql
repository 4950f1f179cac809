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

-- What was used of what has no window. What is reserved is in `reservations` alone, and summed up when asked for.
CREATE TABLE accounts (
    account TEXT NOT NULL PRIMARY KEY,
    cost    REAL NOT NULL DEFAULT 0,           -- dollars
    credits REAL NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- What was used lately: tokens by the minute, calls by the second. Older rows are deleted by those who add new ones.
CREATE TABLE windows (
    account TEXT    NOT NULL,
    kind    TEXT    NOT NULL,                  -- tokens, calls
    bucket  INTEGER NOT NULL,                  -- minutes, or seconds, since 1970
    amount  INTEGER NOT NULL,
    PRIMARY KEY (account, kind, bucket)
) STRICT, WITHOUT ROWID;

-- What calls under way may use at most; one row for each account that a call counts for.
CREATE TABLE reservations (
    account TEXT    NOT NULL,
    run     INTEGER NOT NULL REFERENCES runs (id),
    step    INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    tokens  INTEGER NOT NULL,
    cost    REAL    NOT NULL,
    credits REAL    NOT NULL,
    PRIMARY KEY (account, run, step, attempt)
) STRICT, WITHOUT ROWID;

CREATE INDEX reservations_of_run ON reservations (run);

-- When the last warning was sent, and about which ceiling.
CREATE TABLE warnings (
    account TEXT NOT NULL,
    kind    TEXT NOT NULL,
    ceiling REAL NOT NULL,
    at      REAL NOT NULL,
    PRIMARY KEY (account, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage (
    day                INTEGER NOT NULL,       -- days since 1970, UTC
    agent              TEXT    NOT NULL,
    token              TEXT    NOT NULL,       -- empty: none
    model              TEXT    NOT NULL,       -- provider/model; empty: none was resolved
    runs               INTEGER NOT NULL,
    model_calls        INTEGER NOT NULL,
    input_tokens       INTEGER NOT NULL,
    output_tokens      INTEGER NOT NULL,
    cache_read_tokens  INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    tool_calls         INTEGER NOT NULL,
    cost               REAL    NOT NULL,
    credits            REAL    NOT NULL,
    unpriced_calls     INTEGER NOT NULL,
    PRIMARY KEY (day, agent, token, model)
) STRICT, WITHOUT ROWID;

-- The sequence up to which what a run used is in `usage`. It is updated when the run is released, and now and then:
-- an owner that writes less often than it counts costs less.
ALTER TABLE runs ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;

-- What remains of a deleted session: that it existed, how large it was, and who deleted it when.
CREATE TABLE deleted_sessions (
    session_id TEXT    NOT NULL PRIMARY KEY,
    agent_id   TEXT    NOT NULL,               -- of its first run
    runs       INTEGER NOT NULL,
    events     INTEGER NOT NULL,
    memories   INTEGER NOT NULL,
    first_at   REAL    NOT NULL,
    latest_at  REAL    NOT NULL,               -- of its last event
    deleted_at REAL    NOT NULL,
    deleted_by TEXT    NOT NULL,
    position   INTEGER NOT NULL                -- the highest there was then: it is not given again
) STRICT, WITHOUT ROWID;

-- A request for one of its runs is answered with this.
CREATE TABLE deleted_runs (
    run_id     TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Automation: schedules, inbound webhooks, and webhooks.
CREATE TABLE schedules (
    schedule_id  TEXT    NOT NULL PRIMARY KEY,
    agent        TEXT    NOT NULL,             -- its name
    message      TEXT    NOT NULL,
    every        TEXT    NOT NULL,             -- JSON: seconds, text such as "15m", or a cron expression
    zone         TEXT    NOT NULL,
    anchor       REAL    NOT NULL,
    next_at      REAL,                         -- null: never
    session_id   TEXT,
    is_heartbeat INTEGER NOT NULL,
    paused       INTEGER NOT NULL,
    firing_at    REAL,                         -- the tick that is being seen to
    firing_since REAL,
    fired_at     REAL,
    run_id       TEXT,
    problem      TEXT    NOT NULL DEFAULT ''
) STRICT;

-- The secret of a hook is in the vault.
CREATE TABLE hooks (
    hook_id    TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    agent      TEXT NOT NULL,
    message    TEXT NOT NULL,
    session    TEXT,
    created_at REAL NOT NULL
) STRICT;

-- The secret of a webhook is in the vault.
CREATE TABLE webhooks (
    webhook_id      TEXT    NOT NULL PRIMARY KEY,
    url             TEXT    NOT NULL,
    events          TEXT    NOT NULL,          -- a JSON list of globs
    agents          TEXT,                      -- a JSON list of names; null: all of them
    created_at      REAL    NOT NULL,
    position        INTEGER NOT NULL,          -- of the last event that is done with
    most_attempts   INTEGER,
    attempts        INTEGER NOT NULL,
    first_failed_at REAL,
    retry_at        REAL,
    delivered_at    REAL,
    problem         TEXT    NOT NULL,
    disabled        INTEGER NOT NULL
) STRICT;

-- Events that could not be sent. Their content is in the journal alone.
CREATE TABLE dead_letters (
    webhook_id TEXT    NOT NULL,
    event_id   TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    sequence   INTEGER NOT NULL,
    type       TEXT    NOT NULL,
    attempts   INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    died_at    REAL    NOT NULL,
    queued     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (webhook_id, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX dead_letters_of_run ON dead_letters (run_id);
