-- pgvector compares vectors many times as fast as SQL does. Where the server does not have it, or our user may not
-- create it, SQL does. An extension that is created later is used at once.
DO $$
BEGIN
    CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'vectors are compared without pgvector: %', SQLERRM;
END $$;

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

-- In which sessions memories of another were recalled.
CREATE INDEX events_recalling ON events (run) WHERE type = 'memory_recalled';

-- The order in which they were added.
ALTER TABLE schedules ADD COLUMN number BIGINT GENERATED ALWAYS AS IDENTITY;
ALTER TABLE hooks     ADD COLUMN number BIGINT GENERATED ALWAYS AS IDENTITY;
ALTER TABLE webhooks  ADD COLUMN number BIGINT GENERATED ALWAYS AS IDENTITY;

-- The name of the deletion, and the order of its sessions. A process that loses the connection finds the deletion.
ALTER TABLE deleted_sessions ADD COLUMN deletion TEXT;
ALTER TABLE deleted_sessions ADD COLUMN place BIGINT GENERATED ALWAYS AS IDENTITY;

CREATE INDEX sessions_of_deletion ON deleted_sessions (deletion);
