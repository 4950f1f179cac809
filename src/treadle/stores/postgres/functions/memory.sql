-- Memories, written in the transaction of an event or in one of their own.

-- Announce, until the end of this transaction, that it may still add memories after the current last number.
CREATE OR REPLACE FUNCTION hold_memories() RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('treadle.holds_memories', TRUE) IS DISTINCT FROM 'yes' THEN
        PERFORM pg_advisory_xact_lock_shared((7437::BIGINT << 48) | CASE WHEN is_called THEN last_value ELSE 0 END)
        FROM memories_id_seq;
        PERFORM set_config('treadle.holds_memories', 'yes', TRUE);
    END IF;
END $$;

-- Return the number up to which no transaction can add a memory any more. The last number is read first: a transaction
-- with a lower one holds its lock by then, or has committed.
CREATE OR REPLACE FUNCTION memory_bound() RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    last BIGINT := (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM memories_id_seq);
BEGIN
    RETURN least(last, (
        SELECT min(((classid::BIGINT & 65535) << 32) | objid::BIGINT) FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1 AND classid::BIGINT >> 16 = 7437
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())));
END $$;

-- Return the prefix of one owner's words in the index, so that a search skips the words of others. Two owners may share
-- a mark, so queries also filter by agent and owner. The mark of the local user is that of older databases.
CREATE OR REPLACE FUNCTION mark_of(agent_id_ TEXT, owner_ TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE owner_ WHEN 'local' THEN left(encode(sha256(convert_to(agent_id_, 'UTF8')), 'hex'), 4)
           ELSE left(encode(sha256(convert_to(agent_id_ || '/' || owner_, 'UTF8')), 'hex'), 8) END
$$;

-- Return the words of a memory as they are indexed: under the mark of its owner and, unless that is the local user,
-- under the mark for all owners.
CREATE OR REPLACE FUNCTION marked_words(words JSONB, agent_id_ TEXT, owner_ TEXT)
RETURNS TSVECTOR LANGUAGE sql IMMUTABLE AS $$
    SELECT array_to_tsvector(ARRAY(
        SELECT mark_of(agent_id_, kept) || word
        FROM jsonb_array_elements_text(words) AS word,
             unnest(CASE owner_ WHEN 'local' THEN ARRAY[owner_] ELSE ARRAY[owner_, '*'] END) AS kept))
$$;

-- Store a memory with its words, and return whether it is new. A memory whose id exists, or a fact whose text exists, is
-- left unchanged.
CREATE OR REPLACE FUNCTION keep_memory(
    kept JSONB, agent_id_ TEXT, owner_ TEXT, workspace_ TEXT, session_id_ TEXT, run_id_ TEXT
) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hold_memories();
    INSERT INTO memories (memory_id, agent_id, kind, text, words, lexemes, digest, created_at, source, used_at, uses,
                          pinned, session_id, run_id, owner, workspace)
    VALUES (kept->>'memory_id', agent_id_, kept->>'kind', kept->>'text', kept->>'words',
            marked_words(kept->'lexemes', agent_id_, owner_),
            decode(kept->>'digest', 'hex'), (kept->>'created_at')::FLOAT8, kept->>'source',
            (kept->>'used_at')::FLOAT8, (kept->>'uses')::INTEGER, (kept->>'pinned')::BOOLEAN, session_id_, run_id_,
            owner_, workspace_)
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;

-- Add memories from outside a run, and return how many are new.
CREATE OR REPLACE FUNCTION keep_memories(all_ JSONB) RETURNS INTEGER LANGUAGE plpgsql AS $$
DECLARE
    kept  JSONB;
    count INTEGER := 0;
BEGIN
    FOR kept IN SELECT value FROM jsonb_array_elements(all_) LOOP
        IF keep_memory(kept, kept->>'agent_id', kept->>'owner', coalesce(kept->>'workspace', ''), kept->>'session_id',
                       kept->>'run_id') THEN
            count := count + 1;
        END IF;
    END LOOP;
    RETURN count;
END $$;

-- Store what a run saved or noted, or refresh a repeated memory. A memory that cannot be stored is skipped and reported
-- in the server log; the run continues.
CREATE OR REPLACE FUNCTION remember(run_ BIGINT, kept JSONB) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    whose runs;
    same  BIGINT;
BEGIN
    SELECT * INTO whose FROM runs WHERE id = run_;
    IF EXISTS (SELECT 1 FROM memories WHERE memory_id = kept->>'memory_id') THEN
        RETURN;
    END IF;
    SELECT id INTO same FROM memories
    WHERE memory_id = kept->>'repeats' AND agent_id = whose.agent_id AND owner = whose.owner AND workspace = whose.workspace;
    IF same IS NULL AND NOT keep_memory(
        kept, whose.agent_id, whose.owner, whose.workspace, whose.session_id, whose.run_id
    ) THEN
        SELECT id INTO same FROM memories
        WHERE agent_id = whose.agent_id AND owner = whose.owner AND workspace = whose.workspace AND kind = 'long_term'
          AND digest = decode(kept->>'digest', 'hex')
          AND kept->>'kind' = 'long_term';
    END IF;
    IF same IS NOT NULL THEN
        UPDATE memories
        SET used_at = greatest(used_at, (kept->>'created_at')::FLOAT8), uses = uses + 1,
            pinned = pinned OR (kept->>'pinned')::BOOLEAN
        WHERE id = same;
    END IF;
EXCEPTION
    WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded
        OR syntax_error_or_access_rule_violation THEN
        RAISE WARNING 'a memory of % could not be kept: %', whose.run_id, SQLERRM;
END $$;

-- Record that these memories were shown to a model.
CREATE OR REPLACE FUNCTION recalled(memory_ids JSONB, at_ FLOAT8) RETURNS VOID LANGUAGE sql AS $$
    WITH shown AS (
        SELECT id FROM memories WHERE memory_id = ANY(ARRAY(SELECT jsonb_array_elements_text(memory_ids)))
        ORDER BY id FOR NO KEY UPDATE
    )
    UPDATE memories SET used_at = greatest(used_at, at_), uses = uses + 1 FROM shown WHERE memories.id = shown.id
$$;

-- Store the codes and vectors of memories. A null code means that there will be none; the vectors are concatenated.
-- Vectors of other dimensions under this name are deleted. Then advance `done_to` to the last memory before the first one
-- without a code, but not beyond the number up to which memories can still be added.
CREATE OR REPLACE FUNCTION keep_vectors(
    agent_id_ TEXT, owner_ TEXT, embedder_ TEXT, dimensions_ INTEGER, memories_ BIGINT[], codes_ VARBIT[],
    numbers_ REAL[]
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    known memory_spaces;
    bound BIGINT;
BEGIN
    INSERT INTO memory_spaces (agent_id, owner, embedder, dimensions, done_to)
    VALUES (agent_id_, owner_, embedder_, coalesce(dimensions_, 0), 0)
    ON CONFLICT (agent_id, owner, embedder) DO UPDATE SET embedder = excluded.embedder RETURNING * INTO known;
    IF dimensions_ <> known.dimensions THEN
        UPDATE memory_spaces SET dimensions = dimensions_ WHERE id = known.id;
        IF known.dimensions <> 0 THEN
            DELETE FROM memory_codes WHERE space = known.id;
            DELETE FROM memory_vectors WHERE space = known.id;
            UPDATE memory_spaces SET done_to = 0 WHERE id = known.id;
        END IF;
    END IF;
    INSERT INTO memory_codes (space, memory, code)
    SELECT known.id, made.memory, made.code
    FROM unnest(memories_, codes_) AS made (memory, code) JOIN memories ON memories.id = made.memory
    ORDER BY made.memory FOR KEY SHARE OF memories  -- a memory deleted meanwhile stays deleted
    ON CONFLICT (space, memory) DO UPDATE SET code = coalesce(excluded.code, memory_codes.code);
    INSERT INTO memory_vectors (space, memory, numbers)
    SELECT known.id, made.memory, numbers_[(made.place - 1) * dimensions_ + 1 : made.place * dimensions_]
    FROM (SELECT memory, row_number() OVER (ORDER BY number) AS place
          FROM unnest(memories_, codes_) WITH ORDINALITY AS given (memory, code, number) WHERE code IS NOT NULL) AS made
         JOIN memory_codes ON memory_codes.space = known.id AND memory_codes.memory = made.memory
    ON CONFLICT (space, memory) DO UPDATE SET numbers = excluded.numbers;
    bound := memory_bound();
    IF owner_ = '*' THEN
        UPDATE memory_spaces
        SET done_to = greatest(done_to, least(bound, coalesce(
            (SELECT id - 1 FROM memories AS unseen
             WHERE agent_id = agent_id_ AND id > memory_spaces.done_to
               AND NOT EXISTS (SELECT 1 FROM memory_codes WHERE space = known.id AND memory = unseen.id)
             ORDER BY id LIMIT 1),
            (SELECT max(id) FROM memories WHERE agent_id = agent_id_), 0)))
        WHERE id = known.id;
    ELSE
        UPDATE memory_spaces
        SET done_to = greatest(done_to, least(bound, coalesce(
            (SELECT id - 1 FROM memories AS unseen
             WHERE agent_id = agent_id_ AND owner = owner_ AND id > memory_spaces.done_to
               AND NOT EXISTS (SELECT 1 FROM memory_codes WHERE space = known.id AND memory = unseen.id)
             ORDER BY id LIMIT 1),
            (SELECT max(id) FROM memories WHERE agent_id = agent_id_ AND owner = owner_), 0)))
        WHERE id = known.id;
    END IF;
END $$;

-- Assign memories to another owner or workspace, each under a new number, and compute their vectors again. A fact that the new owner
-- already has there is kept, and the usage counts are merged into it. Return how many were moved and how many merged.
CREATE OR REPLACE FUNCTION assign_memories(
    owner_ TEXT, ids TEXT[], agent_id_ TEXT, before TEXT, workspace_ TEXT, before_workspace TEXT,
    OUT moved INTEGER, OUT merged INTEGER
) LANGUAGE plpgsql AS $$
DECLARE
    each memories;
    same BIGINT;
BEGIN
    moved := 0; merged := 0;
    PERFORM hold_memories();
    FOR each IN
        SELECT * FROM memories
        WHERE (coalesce(owner_, owner) <> owner OR coalesce(workspace_, workspace) <> workspace) AND (ids IS NULL OR memory_id = ANY(ids)) AND (agent_id_ IS NULL OR agent_id = agent_id_)
          AND (before IS NULL OR owner = before) AND (before_workspace IS NULL OR workspace = before_workspace)
        ORDER BY id FOR UPDATE
    LOOP
        SELECT id INTO same FROM memories
        WHERE each.kind = 'long_term' AND agent_id = each.agent_id AND owner = coalesce(owner_, each.owner)
          AND workspace = coalesce(workspace_, each.workspace) AND kind = 'long_term' AND digest = each.digest;
        IF same IS NOT NULL THEN
            UPDATE memories
            SET used_at = greatest(used_at, each.used_at), uses = uses + each.uses, pinned = pinned OR each.pinned
            WHERE id = same;
            DELETE FROM memories WHERE id = each.id;
            merged := merged + 1;
        ELSE
            DELETE FROM memory_codes WHERE memory = each.id;
            DELETE FROM memory_vectors WHERE memory = each.id;
            UPDATE memories
            SET id = DEFAULT, owner = coalesce(owner_, owner), workspace = coalesce(workspace_, workspace),
                lexemes = marked_words((
                    SELECT coalesce(jsonb_agg(substr(lexeme, length(mark_of(agent_id, owner)) + 1)), '[]')
                    FROM unnest(lexemes) WHERE starts_with(lexeme, mark_of(agent_id, owner))), agent_id, coalesce(owner_, owner))
            WHERE id = each.id;
            moved := moved + 1;
        END IF;
    END LOOP;
END $$;
