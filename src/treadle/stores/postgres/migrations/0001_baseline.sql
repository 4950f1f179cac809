-- pgvector compares vectors many times as fast as SQL does. Where the server does not have it, or our user may not
-- create it, SQL does. An extension that is created later is used at once.
DO $$
BEGIN
    CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'vectors are compared without pgvector: %', SQLERRM;
END $$;

-- A run, and what is derived from its events for lists and for the dispatcher. The order of `id` is the order in which
-- the runs of a session are executed. A process that adds one holds the lock of its session. A process that claims or
-- releases a run with a concurrency limit holds the lock of its agent.
CREATE TABLE runs (
    id             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id         TEXT NOT NULL UNIQUE,
    session_id     TEXT NOT NULL,
    agent_id       TEXT NOT NULL,
    parent_run_id  TEXT,
    submission_key TEXT UNIQUE,
    created_at     DOUBLE PRECISION NOT NULL,
    status         TEXT NOT NULL,
    outcome        TEXT,
    waiting_for    TEXT,
    sequence       INTEGER NOT NULL DEFAULT 0,      -- of its last event
    epoch          INTEGER NOT NULL DEFAULT 0,      -- moves when another worker takes the run
    worker         TEXT,                            -- the worker that owns it, or null
    lease_until    DOUBLE PRECISION,
    wake_at        DOUBLE PRECISION,                -- when a worker must check it, or null
    counted        INTEGER NOT NULL DEFAULT 0,      -- the sequence up to which its use is in `usage`
    places         INTEGER,                         -- the concurrency limit of its agent, or null
    owner          TEXT NOT NULL DEFAULT 'local',   -- the user that it is for; all runs of a session have the same
    lost_worker    TEXT,                            -- the last worker that died while it owned the run, or null
    title          TEXT,                            -- of the session, from the caller, on its first run; or null
    session_model  TEXT,                            -- that a caller chose for the session, on its first run; or null
    workspace      TEXT NOT NULL DEFAULT '',        -- its identity; the session has that of its latest run
    folder         TEXT NOT NULL DEFAULT ''
) WITH (fillfactor = 70);

CREATE INDEX runs_unfinished ON runs (session_id, id) WHERE outcome IS NULL;
CREATE INDEX runs_due        ON runs (wake_at)        WHERE wake_at IS NOT NULL AND worker IS NULL AND outcome IS NULL;
CREATE INDEX runs_owned      ON runs (worker)         WHERE worker IS NOT NULL;
CREATE INDEX runs_lost       ON runs (lost_worker)    WHERE lost_worker IS NOT NULL;
CREATE INDEX runs_at_work    ON runs (agent_id)       WHERE worker IS NOT NULL;
CREATE INDEX runs_in_line    ON runs (agent_id, id)   WHERE places IS NOT NULL AND worker IS NULL AND outcome IS NULL;
CREATE INDEX runs_of_agent   ON runs (agent_id, id);
CREATE INDEX runs_of_session ON runs (session_id, id);
CREATE INDEX runs_of_parent  ON runs (parent_run_id, id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_of_owner   ON runs (owner, id);
CREATE INDEX sessions_of_owner ON runs (owner, session_id, id);
CREATE INDEX runs_of_workspace ON runs (workspace, id);

-- The journal. Positions are given before a transaction commits, so a reader of all runs stops where a
-- transaction can still add events: see `feed_bound`.
CREATE TABLE events (
    position    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run         BIGINT  NOT NULL,
    sequence    INTEGER NOT NULL,
    event_id    TEXT    NOT NULL,
    timestamp   DOUBLE PRECISION NOT NULL,
    type        TEXT    NOT NULL,
    version     SMALLINT NOT NULL,
    data        BYTEA   NOT NULL,
    UNIQUE (run, sequence)
);

-- In which sessions memories of another were recalled.
CREATE INDEX events_recalling ON events (run) WHERE type = 'memory_recalled';

-- The keys of what was delivered, so that nothing is delivered twice.
CREATE TABLE deliveries (
    run      BIGINT  NOT NULL REFERENCES runs (id),
    key      TEXT    NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (run, key)
);

CREATE INDEX deliveries_by_key ON deliveries (key);

-- What each ended run added to the conversation of its session. Can be rebuilt from the events. After a compaction,
-- `whole`, it replaces the runs before it.
CREATE TABLE said (
    session_id TEXT    NOT NULL,
    run        BIGINT  NOT NULL REFERENCES runs (id),
    messages   BYTEA   NOT NULL,
    whole      BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (session_id, run)
);

CREATE INDEX said_whole ON said (session_id, run) WHERE whole;

CREATE TABLE agents (
    agent_id TEXT NOT NULL PRIMARY KEY,
    name     TEXT NOT NULL UNIQUE,
    state    TEXT NOT NULL DEFAULT 'running'
);

-- What waits for a person's decision, or has had it. Can be rebuilt from the events.
CREATE TABLE approvals (
    approval_id  TEXT   NOT NULL PRIMARY KEY,
    run          BIGINT NOT NULL REFERENCES runs (id),
    call_id      TEXT   NOT NULL,
    tool         TEXT   NOT NULL,
    arguments    TEXT   NOT NULL,
    reason       TEXT   NOT NULL,
    pattern      TEXT,
    requested_at DOUBLE PRECISION NOT NULL,
    expires_at   DOUBLE PRECISION,
    decision     TEXT                               -- null: it waits
);

CREATE INDEX approvals_pending ON approvals (run) WHERE decision IS NULL;

-- What need not be asked for again in a session, until it continues in another workspace.
CREATE TABLE grants (
    session_id TEXT   NOT NULL,
    workspace  TEXT   NOT NULL,
    tool       TEXT   NOT NULL,
    pattern    TEXT   NOT NULL,
    run        BIGINT NOT NULL,                     -- in which it was granted
    PRIMARY KEY (session_id, workspace, tool, pattern, run)
);

-- The whole text of results that were too long to be shown.
CREATE TABLE results (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id TEXT   NOT NULL,
    run        BIGINT NOT NULL REFERENCES runs (id),
    call_id    TEXT   NOT NULL,
    content    TEXT   NOT NULL,
    UNIQUE (session_id, call_id, run)
);

-- The lineage of what the model was shown of a session. Can be rebuilt from the events.
CREATE TABLE segments (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    segment_id TEXT    NOT NULL UNIQUE,
    session_id TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    run        BIGINT  NOT NULL REFERENCES runs (id),
    reason     TEXT    NOT NULL,
    messages   INTEGER NOT NULL,
    opened_at  DOUBLE PRECISION NOT NULL
);

CREATE INDEX segments_of_session ON segments (session_id, id);

-- What a session keeps of its workspace in the system prompt, until a new segment is opened.
CREATE TABLE session_notes (
    session_id TEXT NOT NULL PRIMARY KEY,
    workspace  TEXT NOT NULL,
    notes      TEXT NOT NULL
);

-- What agents remember beyond a session. What runs have saved can be rebuilt from the events; what people have added
-- cannot. The words are split and folded before they come here, like those that are looked for.
CREATE TABLE memories (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    memory_id  TEXT    NOT NULL UNIQUE,
    agent_id   TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    words      TEXT    NOT NULL,
    lexemes    TSVECTOR NOT NULL,
    digest     BYTEA   NOT NULL,                    -- of the text without what does not matter
    created_at DOUBLE PRECISION NOT NULL,
    source     TEXT    NOT NULL,
    used_at    DOUBLE PRECISION,
    uses       INTEGER NOT NULL DEFAULT 0,
    pinned     BOOLEAN NOT NULL DEFAULT FALSE,
    session_id TEXT,
    run_id     TEXT,
    owner      TEXT    NOT NULL DEFAULT 'local',    -- the user who is reminded of it
    workspace  TEXT    NOT NULL DEFAULT ''          -- of the run that saved it; empty: none
);

-- A fact is kept once; a note is kept each time that it is written.
CREATE UNIQUE INDEX memories_once ON memories (agent_id, owner, workspace, digest) WHERE kind = 'long_term';
CREATE INDEX memories_in_order   ON memories (agent_id, id);
CREATE INDEX memories_of_agent   ON memories (agent_id, created_at);
CREATE INDEX notes_of_agent      ON memories (agent_id, created_at) WHERE kind = 'journal';
CREATE INDEX memories_of_session ON memories (session_id, created_at) WHERE session_id IS NOT NULL;
CREATE INDEX memories_of_owner          ON memories (owner, created_at);
CREATE INDEX memories_of_owner_in_order ON memories (agent_id, owner, id);
CREATE INDEX memories_of_agent_owner    ON memories (agent_id, owner, created_at);
CREATE INDEX notes_of_owner             ON memories (agent_id, owner, created_at) WHERE kind = 'journal';
CREATE INDEX memories_of_workspace      ON memories (agent_id, workspace, owner);
CREATE INDEX notes_of_workspace         ON memories (agent_id, workspace, created_at) WHERE kind = 'journal';
CREATE INDEX memory_words        ON memories USING gin (lexemes);

-- The vectors that one embedder has made of what one owner has told one agent; the owner `*` is all of them together,
-- for an agent that shares its memories. Memories above `done_to` have none yet. If the embedder has refused all of
-- them, the dimensions are 0.
CREATE TABLE memory_spaces (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent_id   TEXT    NOT NULL,
    embedder   TEXT    NOT NULL,
    dimensions INTEGER NOT NULL,
    done_to    BIGINT  NOT NULL,
    owner      TEXT    NOT NULL,
    UNIQUE (agent_id, owner, embedder)
);

-- What an embedder has made of a memory: a code, by which a few hundred of all are chosen. Null: there will be none.
CREATE TABLE memory_codes (
    space  BIGINT NOT NULL REFERENCES memory_spaces (id) ON DELETE CASCADE,
    memory BIGINT NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    code   BIT VARYING,
    PRIMARY KEY (space, memory)
);

CREATE INDEX codes_of_memory ON memory_codes (memory);

-- And the vector itself, of length 1, by which those few are put in order.
CREATE TABLE memory_vectors (
    space   BIGINT NOT NULL REFERENCES memory_spaces (id) ON DELETE CASCADE,
    memory  BIGINT NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    numbers REAL[] NOT NULL,
    PRIMARY KEY (space, memory)
);

CREATE INDEX vectors_of_memory ON memory_vectors (memory);
ALTER TABLE memory_vectors ALTER COLUMN numbers SET STORAGE EXTERNAL;  -- there is nothing to be gained by packing them

-- Who may ask over HTTP. Of a token only its digest is kept.
CREATE TABLE tokens (
    token_id   TEXT  NOT NULL PRIMARY KEY,
    name       TEXT  NOT NULL,
    digest     BYTEA NOT NULL UNIQUE,
    scopes     TEXT  NOT NULL,                      -- a JSON list
    agents     TEXT,                                -- a JSON list of names; null: all of them
    quotas     TEXT,                                -- JSON; null: none of its own
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION,
    revoked_at DOUBLE PRECISION,
    owner      TEXT,                                -- the user that it works for; null: one of its own, named by its id
    visibility TEXT    NOT NULL DEFAULT 'all',
    multi_user BOOLEAN NOT NULL DEFAULT FALSE       -- it acts for the user that each request names
);

-- What was answered to a request with an Idempotency-Key, for a day.
CREATE TABLE requests (
    token_id TEXT  NOT NULL,                        -- empty: the owner of the home
    route    TEXT  NOT NULL,
    key      TEXT  NOT NULL,
    digest   BYTEA NOT NULL,                        -- of the body
    at       DOUBLE PRECISION NOT NULL,
    status   INTEGER,                               -- null: it was not answered yet
    body     BYTEA,
    PRIMARY KEY (token_id, route, key)
);

CREATE INDEX requests_by_age ON requests (at);

-- What was used of what has no window. What is reserved is in `reservations` alone, and summed up when asked for.
CREATE TABLE accounts (
    account TEXT NOT NULL PRIMARY KEY,
    cost    DOUBLE PRECISION NOT NULL DEFAULT 0,    -- dollars
    credits DOUBLE PRECISION NOT NULL DEFAULT 0
);

-- What was used lately: tokens by the minute, calls by the second; steps and runs for good, in one bucket. Older rows
-- are deleted by those who add new ones.
CREATE TABLE windows (
    account TEXT   NOT NULL,
    kind    TEXT   NOT NULL,                        -- tokens, calls, steps, runs
    bucket  BIGINT NOT NULL,
    amount  BIGINT NOT NULL,
    PRIMARY KEY (account, kind, bucket)
);

-- What calls under way may use at most; one row for each account that a call counts for.
CREATE TABLE reservations (
    account TEXT    NOT NULL,
    run     BIGINT  NOT NULL REFERENCES runs (id),
    step    INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    tokens  BIGINT  NOT NULL,
    cost    DOUBLE PRECISION NOT NULL,
    credits DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (account, run, step, attempt)
);

CREATE INDEX reservations_of_run ON reservations (run);

-- When the last warning was sent, and about which ceiling.
CREATE TABLE warnings (
    account TEXT NOT NULL,
    kind    TEXT NOT NULL,
    ceiling DOUBLE PRECISION NOT NULL,
    at      DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (account, kind)
);

CREATE TABLE usage (
    day                INTEGER NOT NULL,            -- days since 1970, UTC
    agent              TEXT    NOT NULL,
    token              TEXT    NOT NULL,            -- empty: none
    model              TEXT    NOT NULL,            -- provider/model; empty: none was resolved
    runs               BIGINT  NOT NULL,
    model_calls        BIGINT  NOT NULL,
    input_tokens       BIGINT  NOT NULL,
    output_tokens      BIGINT  NOT NULL,
    cache_read_tokens  BIGINT  NOT NULL,
    cache_write_tokens BIGINT  NOT NULL,
    tool_calls         BIGINT  NOT NULL,
    cost               DOUBLE PRECISION NOT NULL,
    credits            DOUBLE PRECISION NOT NULL,
    unpriced_calls     BIGINT  NOT NULL,
    PRIMARY KEY (day, agent, token, model)
);

-- What remains of a deleted session: that it existed, how large it was, and who deleted it when.
CREATE TABLE deleted_sessions (
    session_id TEXT    NOT NULL PRIMARY KEY,
    agent_id   TEXT    NOT NULL,                    -- of its first run
    runs       INTEGER NOT NULL,
    events     BIGINT  NOT NULL,
    memories   INTEGER NOT NULL,
    first_at   DOUBLE PRECISION NOT NULL,
    latest_at  DOUBLE PRECISION NOT NULL,           -- of its last event
    deleted_at DOUBLE PRECISION NOT NULL,
    deleted_by TEXT    NOT NULL,
    deletion   TEXT,                                -- its name; a process that loses the connection finds it again
    place      BIGINT GENERATED ALWAYS AS IDENTITY  -- the order of the sessions of a deletion
);

CREATE INDEX sessions_of_deletion ON deleted_sessions (deletion);

-- A request for one of its runs is answered with this.
CREATE TABLE deleted_runs (
    run_id     TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL
);

-- Automation: schedules, inbound webhooks, and webhooks.
CREATE TABLE schedules (
    schedule_id  TEXT    NOT NULL PRIMARY KEY,
    agent        TEXT    NOT NULL,                  -- its name
    message      TEXT    NOT NULL,
    every        TEXT    NOT NULL,                  -- JSON: seconds, text such as "15m", or a cron expression
    zone         TEXT    NOT NULL,
    anchor       DOUBLE PRECISION NOT NULL,
    next_at      DOUBLE PRECISION,                  -- null: never
    session_id   TEXT,
    is_heartbeat BOOLEAN NOT NULL,
    paused       BOOLEAN NOT NULL,
    firing_at    DOUBLE PRECISION,                  -- the tick that is being seen to
    firing_since DOUBLE PRECISION,
    fired_at     DOUBLE PRECISION,
    run_id       TEXT,
    problem      TEXT    NOT NULL DEFAULT '',
    number       BIGINT GENERATED ALWAYS AS IDENTITY,  -- the order in which they were added
    owner        TEXT    NOT NULL DEFAULT 'local',  -- the user that its runs are for
    deliver      TEXT    NOT NULL DEFAULT ''        -- where the answers are sent
);

-- The secret of a hook is in the vault.
CREATE TABLE hooks (
    hook_id    TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    agent      TEXT NOT NULL,
    message    TEXT NOT NULL,
    session    TEXT,
    created_at DOUBLE PRECISION NOT NULL,
    number     BIGINT GENERATED ALWAYS AS IDENTITY,  -- the order in which they were added
    owner      TEXT NOT NULL DEFAULT 'local',       -- the user that its runs are for
    scheme     TEXT NOT NULL DEFAULT 'standard'     -- how the sender signs
);

-- The secret of a webhook is in the vault.
CREATE TABLE webhooks (
    webhook_id      TEXT    NOT NULL PRIMARY KEY,
    url             TEXT    NOT NULL,
    events          TEXT    NOT NULL,               -- a JSON list of globs
    agents          TEXT,                           -- a JSON list of names; null: all of them
    created_at      DOUBLE PRECISION NOT NULL,
    position        BIGINT  NOT NULL,               -- of the last event that is done with
    most_attempts   INTEGER,
    attempts        INTEGER NOT NULL,
    first_failed_at DOUBLE PRECISION,
    retry_at        DOUBLE PRECISION,
    delivered_at    DOUBLE PRECISION,
    problem         TEXT    NOT NULL,
    disabled        BOOLEAN NOT NULL,
    number          BIGINT GENERATED ALWAYS AS IDENTITY  -- the order in which they were added
);

-- Events that could not be sent. Their content is in the journal alone.
CREATE TABLE dead_letters (
    webhook_id TEXT    NOT NULL,
    event_id   TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    sequence   INTEGER NOT NULL,
    type       TEXT    NOT NULL,
    attempts   INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    died_at    DOUBLE PRECISION NOT NULL,
    queued     BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (webhook_id, event_id)
);

CREATE INDEX dead_letters_of_run ON dead_letters (run_id);

-- Each process that writes, the number of the last batch that it has committed, and the answer: a process that
-- loses the connection during a batch sends it again, and it is applied once.
CREATE TABLE writers (
    writer  TEXT   NOT NULL PRIMARY KEY,
    batch   BIGINT NOT NULL,
    answers TEXT   NOT NULL,
    at      DOUBLE PRECISION NOT NULL
) WITH (fillfactor = 50);

-- Workers that died, or lost their lease, while they owned runs.
CREATE TABLE deaths (
    worker TEXT    NOT NULL PRIMARY KEY,
    runs   INTEGER NOT NULL,                        -- that it owned
    at     DOUBLE PRECISION NOT NULL                -- when the first of them was claimed again
);

-- Sign-ins of browsers. A cookie is stored only as its digest.
CREATE TABLE sign_ins (
    sign_in_id TEXT             NOT NULL PRIMARY KEY,
    digest     BYTEA            NOT NULL UNIQUE,
    token_id   TEXT,                                -- null: the owner of the home
    created_at DOUBLE PRECISION NOT NULL,
    used_at    DOUBLE PRECISION NOT NULL
);

-- One-time codes of sign-in links, as their digests.
CREATE TABLE sign_in_codes (
    digest     BYTEA            NOT NULL PRIMARY KEY,
    expires_at DOUBLE PRECISION NOT NULL
);

-- What lists of runs show and filter, derived from the events of each run.
CREATE TABLE run_summaries (
    run         BIGINT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE ON UPDATE CASCADE,
    message     TEXT   NOT NULL DEFAULT '',         -- the beginning of the message that it answers
    cost        DOUBLE PRECISION,                   -- null until it has ended
    tokens      BIGINT,
    steps       INTEGER,
    duration_ms BIGINT
);

-- People who may write on a channel.
CREATE TABLE channel_people (
    channel  TEXT NOT NULL,
    sender   TEXT NOT NULL,                    -- the platform's ID of the person
    name     TEXT NOT NULL,
    owner    TEXT NOT NULL,                    -- the user who owns the sessions and memories of the person
    grants   TEXT NOT NULL,                    -- a JSON list
    added_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (channel, sender)
);

CREATE TABLE channel_codes (
    code         TEXT NOT NULL PRIMARY KEY,
    channel      TEXT NOT NULL,
    sender       TEXT NOT NULL,                -- empty: for the person who sends the code
    name         TEXT NOT NULL,
    conversation TEXT NOT NULL,
    expires_at   DOUBLE PRECISION NOT NULL,
    owner        TEXT NOT NULL,
    grants       TEXT NOT NULL
);

CREATE TABLE channel_conversations (
    channel      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    owner        TEXT NOT NULL,
    is_direct    BOOLEAN NOT NULL,
    PRIMARY KEY (channel, conversation)
);

-- How far a platform was read.
CREATE TABLE channel_cursors (
    channel TEXT NOT NULL PRIMARY KEY,
    cursor  TEXT NOT NULL
);

CREATE TABLE channel_inbox (
    number       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel      TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    conversation TEXT NOT NULL,
    received_at  DOUBLE PRECISION NOT NULL,
    content      TEXT NOT NULL,                -- removed when the message is done
    state        TEXT NOT NULL,                -- new, running or done
    run_id       TEXT,
    UNIQUE (channel, message_id)
);

CREATE INDEX channel_inbox_open ON channel_inbox (channel, number) WHERE state <> 'done';

CREATE TABLE channel_outbox (
    number       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel         TEXT NOT NULL,
    key             TEXT NOT NULL,
    conversation    TEXT NOT NULL,
    state           TEXT NOT NULL,             -- draft, ready, sent or failed
    created_at      DOUBLE PRECISION NOT NULL,
    content         TEXT NOT NULL,             -- removed when the message was sent
    message_id      TEXT NOT NULL DEFAULT '',
    attempts        INTEGER NOT NULL DEFAULT 0,
    first_failed_at DOUBLE PRECISION,
    retry_at        DOUBLE PRECISION,
    run_id          TEXT,
    problem         TEXT NOT NULL DEFAULT '',
    UNIQUE (channel, key)
);

CREATE INDEX channel_outbox_open ON channel_outbox (channel, number) WHERE state = 'ready';
CREATE INDEX channel_outbox_sent ON channel_outbox (channel, message_id) WHERE message_id <> '';

-- What the process that holds the connection of a channel last recorded about it.
CREATE TABLE channel_states (
    channel     TEXT NOT NULL PRIMARY KEY,
    status      TEXT NOT NULL,
    account     TEXT NOT NULL,
    reason      TEXT NOT NULL,
    since       DOUBLE PRECISION NOT NULL,     -- when the status began
    retry_at    DOUBLE PRECISION,
    recorded_at DOUBLE PRECISION NOT NULL
);
