-- The user that a run is for, as its first event says. All runs of a session have one owner. What was there before
-- there were users is the local user's.
ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';

CREATE INDEX runs_of_owner     ON runs (owner, id);
CREATE INDEX sessions_of_owner ON runs (owner, session_id, id);

-- Who is reminded of it.
ALTER TABLE memories ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';

DROP INDEX memories_once;
CREATE UNIQUE INDEX memories_once ON memories (agent_id, owner, digest) WHERE kind = 'long_term';

CREATE INDEX memories_of_owner          ON memories (owner, created_at);
CREATE INDEX memories_of_owner_in_order ON memories (agent_id, owner, id);
CREATE INDEX memories_of_agent_owner    ON memories (agent_id, owner, created_at);
CREATE INDEX notes_of_owner             ON memories (agent_id, owner, created_at) WHERE kind = 'journal';

-- The vectors that one embedder has made of what one owner has told one agent; the owner `*` is all of them together,
-- for an agent that shares its memories.
ALTER TABLE memory_spaces ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';
ALTER TABLE memory_spaces ALTER COLUMN owner DROP DEFAULT;
ALTER TABLE memory_spaces DROP CONSTRAINT memory_spaces_agent_id_embedder_key;
ALTER TABLE memory_spaces ADD UNIQUE (agent_id, owner, embedder);

-- The user that a token works for; null: one of its own, with the token's id as its name. Those that were there before
-- see what they saw.
ALTER TABLE tokens ADD COLUMN owner TEXT;
ALTER TABLE tokens ADD COLUMN visibility TEXT NOT NULL DEFAULT 'all';

-- The user that their runs are for.
ALTER TABLE schedules ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';
ALTER TABLE hooks ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';

-- What takes other parameters now.
DROP FUNCTION IF EXISTS mark_of(TEXT);
DROP FUNCTION IF EXISTS keep_memory(JSONB, TEXT, TEXT, TEXT);
DROP FUNCTION IF EXISTS keep_vectors(TEXT, TEXT, INTEGER, BIGINT[], VARBIT[], REAL[]);
DROP FUNCTION IF EXISTS feed(BIGINT, TEXT[], INTEGER);
