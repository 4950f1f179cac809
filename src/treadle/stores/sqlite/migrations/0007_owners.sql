-- The user that a run is for, as its first event says. All runs of a session have one owner. What was there before
-- there were users is the local user's.
ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';

CREATE INDEX runs_of_owner     ON runs (owner);                    -- and, as in every index, the number
CREATE INDEX sessions_of_owner ON runs (owner, session_id);

-- Who is reminded of it.
ALTER TABLE memories ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';

DROP INDEX memories_once;
CREATE UNIQUE INDEX memories_once ON memories (agent_id, owner, digest) WHERE kind = 'long_term';

CREATE INDEX memories_of_owner          ON memories (owner, created_at);
CREATE INDEX memories_of_owner_in_order ON memories (agent_id, owner);
CREATE INDEX memories_of_agent_owner    ON memories (agent_id, owner, created_at);
CREATE INDEX notes_of_owner             ON memories (agent_id, owner, created_at) WHERE kind = 'journal';

-- The vectors that one embedder has made of what one owner has told one agent; the owner `*` is all of them together,
-- for an agent that shares its memories. Made anew, because SQLite cannot take a UNIQUE away.
CREATE TABLE memory_spaces_of_owners (
    id         INTEGER PRIMARY KEY,
    agent_id   TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    embedder   TEXT    NOT NULL,
    dimensions INTEGER NOT NULL,
    done_to    INTEGER NOT NULL,
    UNIQUE (agent_id, owner, embedder)
) STRICT;

CREATE TABLE memory_codes_of_owners (
    space  INTEGER NOT NULL REFERENCES memory_spaces_of_owners (id),
    memory INTEGER NOT NULL,
    code   BLOB    NOT NULL,
    PRIMARY KEY (space, memory)
) STRICT, WITHOUT ROWID;

CREATE TABLE memory_vectors_of_owners (
    space  INTEGER NOT NULL REFERENCES memory_spaces_of_owners (id),
    memory INTEGER NOT NULL,
    bytes  BLOB    NOT NULL,
    PRIMARY KEY (space, memory)
) STRICT;

INSERT INTO memory_spaces_of_owners SELECT id, agent_id, 'local', embedder, dimensions, done_to FROM memory_spaces;
INSERT INTO memory_codes_of_owners SELECT space, memory, code FROM memory_codes;
INSERT INTO memory_vectors_of_owners (space, memory, bytes) SELECT space, memory, bytes FROM memory_vectors;
DROP TABLE memory_codes;
DROP TABLE memory_vectors;
DROP TABLE memory_spaces;
ALTER TABLE memory_spaces_of_owners RENAME TO memory_spaces;
ALTER TABLE memory_codes_of_owners RENAME TO memory_codes;
ALTER TABLE memory_vectors_of_owners RENAME TO memory_vectors;

-- The user that a token works for; null: one of its own, with the token's id as its name. Those that were there before
-- see what they saw.
ALTER TABLE tokens ADD COLUMN owner TEXT;
ALTER TABLE tokens ADD COLUMN visibility TEXT NOT NULL DEFAULT 'all';

-- The user that their runs are for.
ALTER TABLE schedules ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';
ALTER TABLE hooks ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';
