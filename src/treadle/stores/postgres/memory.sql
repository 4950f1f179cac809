-- name: memories
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE ($1::TEXT IS NULL OR agent_id = $1) AND ($2::TEXT IS NULL OR kind = $2)
  AND ($4::TEXT IS NULL OR owner = $4) AND ($5::TEXT IS NULL OR workspace = $5)
ORDER BY created_at DESC, id DESC LIMIT $3;

-- name: memory
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE memory_id = $1;

-- name: add_memories
SELECT keep_memories($1);

-- name: pin_memory
UPDATE memories SET pinned = $2 WHERE memory_id = $1 RETURNING id;

-- name: forget_memories
DELETE FROM memories WHERE memory_id = ANY($1::TEXT[]) RETURNING id;

-- name: assign_memories
SELECT * FROM assign_memories($1, $2::TEXT[], $3, $4, $5, $6);

-- name: owners_of_memories
SELECT name, agent_id FROM agents ORDER BY name;

-- name: same_memory
SELECT memory_id FROM memories
WHERE agent_id = $1 AND owner = $2 AND workspace = $3 AND kind = 'long_term' AND digest = $4;

-- name: latest_notes
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories
WHERE agent_id = $1 AND kind = 'journal' AND ($2::TEXT IS NULL OR session_id IS DISTINCT FROM $2 OR created_at < $3)
  AND memory_id <> ALL($4::TEXT[]) AND ($6::TEXT IS NULL OR workspace = $6)
ORDER BY created_at DESC, id DESC LIMIT $5;

-- name: latest_notes_of_owner
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories
WHERE agent_id = $1 AND owner = $2 AND kind = 'journal' AND ($3::TEXT IS NULL OR session_id IS DISTINCT FROM $3 OR created_at < $4)
  AND memory_id <> ALL($5::TEXT[]) AND ($7::TEXT IS NULL OR workspace = $7)
ORDER BY created_at DESC, id DESC LIMIT $6;

-- name: memories_left_out
SELECT id FROM memories WHERE session_id = $1 AND created_at >= $2
UNION SELECT id FROM memories WHERE memory_id = ANY($3::TEXT[]);

-- name: memory_space
SELECT EXISTS (SELECT 1 FROM memories WHERE agent_id = $1 AND ($3::TEXT IS NULL OR workspace = $3)), space.id, space.dimensions,
       EXISTS (SELECT 1 FROM memories AS unseen
               WHERE agent_id = $1 AND id > coalesce(space.done_to, 0)
                 AND NOT EXISTS (SELECT 1 FROM memory_codes WHERE space = space.id AND memory = unseen.id))
FROM (VALUES (1)) AS always LEFT JOIN memory_spaces AS space ON agent_id = $1 AND owner = '*' AND embedder = $2;

-- name: memory_space_of_owner
SELECT EXISTS (SELECT 1 FROM memories WHERE agent_id = $1 AND owner = $2 AND ($4::TEXT IS NULL OR workspace = $4)), space.id, space.dimensions,
       EXISTS (SELECT 1 FROM memories AS unseen
               WHERE agent_id = $1 AND owner = $2 AND id > coalesce(space.done_to, 0)
                 AND NOT EXISTS (SELECT 1 FROM memory_codes WHERE space = space.id AND memory = unseen.id))
FROM (VALUES (1)) AS always LEFT JOIN memory_spaces AS space ON agent_id = $1 AND owner = $2 AND embedder = $3;

-- name: unseen_memories
SELECT id, words, memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories AS unseen
WHERE agent_id = $1 AND id > coalesce((SELECT done_to FROM memory_spaces WHERE id = $2), 0)
  AND NOT EXISTS (SELECT 1 FROM memory_codes WHERE space = $2 AND memory = unseen.id)
ORDER BY id LIMIT $3;

-- name: unseen_memories_of_owner
SELECT id, words, memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories AS unseen
WHERE agent_id = $1 AND owner = $2 AND id > coalesce((SELECT done_to FROM memory_spaces WHERE id = $3), 0)
  AND NOT EXISTS (SELECT 1 FROM memory_codes WHERE space = $3 AND memory = unseen.id)
ORDER BY id LIMIT $4;

-- name: keep_vectors
SELECT keep_vectors($1, $2, $3, $4, $5, $6, $7);

-- name: memories_with_words
WITH terms AS MATERIALIZED (
    SELECT string_agg(format('(%s)', replace(query, '@', mark_of($1, owner))), ' | ')::TSQUERY AS query, place
    FROM unnest($2::TEXT[]) WITH ORDINALITY AS term (query, place), unnest($4::TEXT[]) AS owner GROUP BY place
)
SELECT place, newest.id
FROM terms CROSS JOIN LATERAL (
    WITH found AS MATERIALIZED (
        SELECT id FROM memories WHERE lexemes @@ terms.query AND ($5::TEXT IS NULL OR workspace = $5))
    SELECT id FROM found ORDER BY id DESC LIMIT $3
) AS newest
ORDER BY place, newest.id DESC;

-- name: memories_by_number
SELECT id, words, memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE agent_id = $1 AND id = ANY($2::BIGINT[]) AND ($3::TEXT IS NULL OR workspace = $3);

-- name: memories_by_number_of_owner
SELECT id, words, memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE agent_id = $1 AND owner = $2 AND id = ANY($3::BIGINT[]) AND ($4::TEXT IS NULL OR workspace = $4);

-- name: nearest_by_code
SELECT memory FROM memory_codes WHERE space = $1 AND code IS NOT NULL AND memory <> ALL($3::BIGINT[])
  AND ($5::TEXT IS NULL OR EXISTS (SELECT 1 FROM memories WHERE id = memory AND workspace = $5))
ORDER BY bit_count(code # $2) LIMIT $4;

-- name: has_pgvector
SELECT to_regtype('vector') IS NOT NULL;

-- name: nearest_with_pgvector
SELECT memory, -(numbers::VECTOR <#> $3::REAL[]::VECTOR)
FROM memory_vectors WHERE space = $1 AND memory = ANY($2::BIGINT[]) ORDER BY 2 DESC LIMIT $4;

-- name: nearest_by_sql
SELECT memory, (SELECT coalesce(sum(a * b), 0) FROM unnest(numbers, $3::REAL[]) AS pair (a, b))::FLOAT8
FROM memory_vectors WHERE space = $1 AND memory = ANY($2::BIGINT[]) ORDER BY 2 DESC LIMIT $4;
