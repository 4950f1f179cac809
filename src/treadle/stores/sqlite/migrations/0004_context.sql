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
    run_id     TEXT
) STRICT;

-- A fact is kept once; a note is kept each time that it is written.
CREATE UNIQUE INDEX memories_once ON memories (agent_id, digest) WHERE kind = 'long_term';

CREATE INDEX memories_in_order ON memories (agent_id);             -- and, as in every index, the number
CREATE INDEX memories_of_agent ON memories (agent_id, created_at);
CREATE INDEX notes_of_agent    ON memories (agent_id, created_at) WHERE kind = 'journal';
CREATE INDEX memories_of_session ON memories (session_id, created_at) WHERE session_id IS NOT NULL;

-- Their words, which are split and folded before they come here, like those that are looked for. Each begins with a
-- mark of the agent: what others remember is not even looked at. Only who has a word is kept, not where: an
-- identifier is split at its points and underscores, so it is found whole and by its parts.
CREATE VIRTUAL TABLE memory_words USING fts5 (
    words, content = 'memories', content_rowid = 'id', tokenize = 'ascii', detail = 'none', columnsize = 0
);

-- What is deleted leaves no words behind.
INSERT INTO memory_words (memory_words, rank) VALUES ('secure-delete', 1);

-- The vectors that one embedder has made for one agent. Memories above `done_to` have none yet. Where nothing but
-- refusals has come of it, the dimensions are 0.
CREATE TABLE memory_spaces (
    id         INTEGER PRIMARY KEY,
    agent_id   TEXT    NOT NULL,
    embedder   TEXT    NOT NULL,
    dimensions INTEGER NOT NULL,
    done_to    INTEGER NOT NULL,
    UNIQUE (agent_id, embedder)
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

-- A run that has folded away part of the conversation leaves all that is left of it: what is before need not be read.
ALTER TABLE said ADD COLUMN whole INTEGER NOT NULL DEFAULT 0;

CREATE INDEX said_whole ON said (session_id, run) WHERE whole;

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

CREATE INDEX runs_of_session ON runs (session_id, id);
