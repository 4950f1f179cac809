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
    epoch          INTEGER NOT NULL,          -- moves when another worker takes the run
    worker         TEXT,                      -- the worker that owns it, or null
    lease_until    REAL,
    wake_at        REAL,                      -- when a worker must check it, or null
    counted        INTEGER NOT NULL DEFAULT 0,  -- the sequence up to which its use is in `usage`
    places         INTEGER,                   -- the concurrency limit of its agent, or null
    owner          TEXT    NOT NULL DEFAULT 'local',  -- the user that it is for; all runs of a session have the same
    lost_worker    TEXT,                      -- the last worker that died while it owned the run, or null
    title          TEXT,                      -- of the session, from the caller, on its first run; or null
    session_model  TEXT,                      -- that a caller chose for the session, on its first run; or null
    workspace      TEXT    NOT NULL DEFAULT '',  -- its identity; the session has that of its latest run
    folder         TEXT    NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX runs_unfinished ON runs (session_id, id) WHERE outcome IS NULL;
CREATE INDEX runs_due        ON runs (wake_at)        WHERE wake_at IS NOT NULL AND worker IS NULL;
CREATE INDEX runs_owned      ON runs (worker)         WHERE worker IS NOT NULL;
CREATE INDEX runs_lost       ON runs (lost_worker)    WHERE lost_worker IS NOT NULL;
CREATE INDEX runs_at_work    ON runs (agent_id)       WHERE worker IS NOT NULL;
CREATE INDEX runs_in_line    ON runs (agent_id, id)   WHERE places IS NOT NULL AND worker IS NULL AND outcome IS NULL;
CREATE INDEX runs_of_session ON runs (session_id, id);
CREATE INDEX runs_of_agent   ON runs (agent_id, id);
CREATE INDEX runs_of_parent  ON runs (parent_run_id, id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_of_owner   ON runs (owner);                      -- and, as in every index, the number
CREATE INDEX sessions_of_owner ON runs (owner, session_id);
CREATE INDEX runs_of_workspace ON runs (workspace);

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

-- What each ended run added to the conversation of its session. Can be rebuilt from the events. After a compaction,
-- `whole`, it replaces the runs before it.
CREATE TABLE said (
    session_id TEXT    NOT NULL,
    run        INTEGER NOT NULL REFERENCES runs (id),
    messages   BLOB    NOT NULL,
    whole      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (session_id, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX said_whole ON said (session_id, run) WHERE whole;

CREATE TABLE agents (
    agent_id TEXT NOT NULL PRIMARY KEY,
    name     TEXT NOT NULL UNIQUE,
    state    TEXT NOT NULL DEFAULT 'running'
) STRICT, WITHOUT ROWID;

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

-- What need not be asked for again in a session, until it continues in another workspace.
CREATE TABLE grants (
    session_id TEXT    NOT NULL,
    workspace  TEXT    NOT NULL,
    tool       TEXT    NOT NULL,
    pattern    TEXT    NOT NULL,
    run        INTEGER NOT NULL,               -- in which it was granted
    PRIMARY KEY (session_id, workspace, tool, pattern, run)
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

-- What agents remember beyond a session. What runs have saved can be rebuilt from the events; what people have
-- added cannot. A number is never given twice: the indexes below go by it.
CREATE TABLE memories (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_id  TEXT    NOT NULL UNIQUE,
    agent_id   TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    words      TEXT    NOT NULL,               -- of the text, as they are looked for
    digest     BLOB    NOT NULL,               -- of the text without what does not matter
    created_at REAL    NOT NULL,
    source     TEXT    NOT NULL,
    used_at    REAL,
    uses       INTEGER NOT NULL DEFAULT 0,
    pinned     INTEGER NOT NULL DEFAULT 0,
    session_id TEXT,
    run_id     TEXT,
    owner      TEXT    NOT NULL DEFAULT 'local',  -- the user who is reminded of it
    workspace  TEXT    NOT NULL DEFAULT ''     -- of the run that saved it; empty: none
) STRICT;

-- A fact is kept once; a note is kept each time that it is written.
CREATE UNIQUE INDEX memories_once ON memories (agent_id, owner, workspace, digest) WHERE kind = 'long_term';

CREATE INDEX memories_in_order ON memories (agent_id);             -- and, as in every index, the number
CREATE INDEX memories_of_agent ON memories (agent_id, created_at);
CREATE INDEX notes_of_agent    ON memories (agent_id, created_at) WHERE kind = 'journal';
CREATE INDEX memories_of_session ON memories (session_id, created_at) WHERE session_id IS NOT NULL;
CREATE INDEX memories_of_owner          ON memories (owner, created_at);
CREATE INDEX memories_of_owner_in_order ON memories (agent_id, owner);
CREATE INDEX memories_of_agent_owner    ON memories (agent_id, owner, created_at);
CREATE INDEX notes_of_owner             ON memories (agent_id, owner, created_at) WHERE kind = 'journal';
CREATE INDEX memories_of_workspace      ON memories (agent_id, workspace, owner);
CREATE INDEX notes_of_workspace         ON memories (agent_id, workspace, created_at) WHERE kind = 'journal';

-- Their words, which are split and folded before they come here, like those that are looked for. Each begins with a
-- mark of the agent: what others remember is not even looked at. Only who has a word is kept, not where: an
-- identifier is split at its points and underscores, so it is found whole and by its parts.
CREATE VIRTUAL TABLE memory_words USING fts5 (
    words, content = 'memories', content_rowid = 'id', tokenize = 'ascii', detail = 'none', columnsize = 0
);

-- What is deleted leaves no words behind.
INSERT INTO memory_words (memory_words, rank) VALUES ('secure-delete', 1);

-- The vectors that one embedder has made of what one owner has told one agent; the owner `*` is all of them together,
-- for an agent that shares its memories. Memories above `done_to` have none yet. If the embedder has refused all of
-- them, the dimensions are 0.
CREATE TABLE memory_spaces (
    id         INTEGER PRIMARY KEY,
    agent_id   TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    embedder   TEXT    NOT NULL,
    dimensions INTEGER NOT NULL,
    done_to    INTEGER NOT NULL,
    UNIQUE (agent_id, owner, embedder)
) STRICT;

-- Three bits for each number of a vector: small enough to look at all of them.
CREATE TABLE memory_codes (
    space  INTEGER NOT NULL REFERENCES memory_spaces (id),
    memory INTEGER NOT NULL,
    code   BLOB    NOT NULL,
    PRIMARY KEY (space, memory)
) STRICT, WITHOUT ROWID;

-- The vector itself, a byte for each number, for those few that the codes have chosen.
CREATE TABLE memory_vectors (
    space  INTEGER NOT NULL REFERENCES memory_spaces (id),
    memory INTEGER NOT NULL,
    bytes  BLOB    NOT NULL,
    PRIMARY KEY (space, memory)
) STRICT;

-- The lineage of what the model was shown of a session. Can be rebuilt from the events.
CREATE TABLE segments (
    id         INTEGER PRIMARY KEY,
    segment_id TEXT    NOT NULL UNIQUE,
    session_id TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    run        INTEGER NOT NULL REFERENCES runs (id),
    reason     TEXT    NOT NULL,
    messages   INTEGER NOT NULL,
    opened_at  REAL    NOT NULL
) STRICT;

CREATE INDEX segments_of_session ON segments (session_id, id);

-- What a session keeps of its workspace in the system prompt, until a new segment is opened.
CREATE TABLE session_notes (
    session_id TEXT NOT NULL PRIMARY KEY,
    workspace  TEXT NOT NULL,
    notes      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

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
    revoked_at REAL,
    owner      TEXT,                           -- the user that it works for; null: one of its own, named by its id
    visibility TEXT NOT NULL DEFAULT 'all',
    multi_user INTEGER NOT NULL DEFAULT 0      -- it acts for the user that each request names
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
    problem      TEXT    NOT NULL DEFAULT '',
    owner        TEXT    NOT NULL DEFAULT 'local',  -- the user that its runs are for
    deliver      TEXT    NOT NULL DEFAULT ''   -- where the answers are sent
) STRICT;

-- The secret of a hook is in the vault.
CREATE TABLE hooks (
    hook_id    TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    agent      TEXT NOT NULL,
    message    TEXT NOT NULL,
    session    TEXT,
    created_at REAL NOT NULL,
    owner      TEXT NOT NULL DEFAULT 'local',  -- the user that its runs are for
    scheme     TEXT NOT NULL DEFAULT 'standard'  -- how the sender signs
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

-- Workers that died, or lost their lease, while they owned runs.
CREATE TABLE deaths (
    worker TEXT    NOT NULL PRIMARY KEY,
    runs   INTEGER NOT NULL,                        -- that it owned
    at     REAL    NOT NULL                         -- when the first of them was claimed again
) STRICT, WITHOUT ROWID;

-- Sign-ins of browsers. A cookie is stored only as its digest.
CREATE TABLE sign_ins (
    sign_in_id TEXT NOT NULL PRIMARY KEY,
    digest     BLOB NOT NULL UNIQUE,
    token_id   TEXT,                           -- null: the owner of the home
    created_at REAL NOT NULL,
    used_at    REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- One-time codes of sign-in links, as their digests.
CREATE TABLE sign_in_codes (
    digest     BLOB NOT NULL PRIMARY KEY,
    expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- What lists of runs show and filter, derived from the events of each run.
CREATE TABLE run_summaries (
    run         INTEGER PRIMARY KEY REFERENCES runs (id),
    message     TEXT NOT NULL DEFAULT '',      -- the beginning of the message that it answers
    cost        REAL,                          -- null until it has ended
    tokens      INTEGER,
    steps       INTEGER,
    duration_ms INTEGER
) STRICT;

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

-- What the process that holds the connection of a channel last recorded about it.
CREATE TABLE channel_states (
    channel     TEXT NOT NULL PRIMARY KEY,
    status      TEXT NOT NULL,
    account     TEXT NOT NULL,
    reason      TEXT NOT NULL,
    since       REAL NOT NULL,                 -- when the status began
    retry_at    REAL,
    recorded_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
