-- People who may write on a channel.
CREATE TABLE channel_people (
    channel  TEXT NOT NULL,
    sender   TEXT NOT NULL,                    -- the platform's ID of the person
    name     TEXT NOT NULL,
    owner    TEXT NOT NULL,                    -- the user who owns the sessions and memories of the person
    grants   TEXT NOT NULL,                    -- a JSON list
    added_at REAL NOT NULL,
    PRIMARY KEY (channel, sender)
) STRICT, WITHOUT ROWID;

CREATE TABLE channel_codes (
    code         TEXT NOT NULL PRIMARY KEY,
    channel      TEXT NOT NULL,
    sender       TEXT NOT NULL,                -- empty: for the person who sends the code
    name         TEXT NOT NULL,
    conversation TEXT NOT NULL,
    expires_at   REAL NOT NULL,
    owner        TEXT NOT NULL,
    grants       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE channel_conversations (
    channel      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    owner        TEXT NOT NULL,
    is_direct    INTEGER NOT NULL,
    PRIMARY KEY (channel, conversation)
) STRICT, WITHOUT ROWID;

-- How far a platform was read.
CREATE TABLE channel_cursors (
    channel TEXT NOT NULL PRIMARY KEY,
    cursor  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE channel_inbox (
    number       INTEGER PRIMARY KEY,
    channel      TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    conversation TEXT NOT NULL,
    received_at  REAL NOT NULL,
    content      TEXT NOT NULL,                -- removed when the message is done
    state        TEXT NOT NULL,                -- new, running or done
    run_id       TEXT,
    UNIQUE (channel, message_id)
) STRICT;

CREATE INDEX channel_inbox_open ON channel_inbox (channel, number) WHERE state <> 'done';

CREATE TABLE channel_outbox (
    number          INTEGER PRIMARY KEY,
    channel         TEXT NOT NULL,
    key             TEXT NOT NULL,
    conversation    TEXT NOT NULL,
    state           TEXT NOT NULL,             -- draft, ready, sent or failed
    created_at      REAL NOT NULL,
    content         TEXT NOT NULL,             -- removed when the message was sent
    message_id      TEXT NOT NULL DEFAULT '',
    attempts        INTEGER NOT NULL DEFAULT 0,
    first_failed_at REAL,
    retry_at        REAL,
    run_id          TEXT,
    problem         TEXT NOT NULL DEFAULT '',
    UNIQUE (channel, key)
) STRICT;

CREATE INDEX channel_outbox_open ON channel_outbox (channel, number) WHERE state = 'ready';
CREATE INDEX channel_outbox_sent ON channel_outbox (channel, message_id) WHERE message_id <> '';

-- Where the answers of a schedule are sent.
ALTER TABLE schedules ADD COLUMN deliver TEXT NOT NULL DEFAULT '';
