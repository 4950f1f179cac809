-- name: insert_memory
INSERT INTO memories (memory_id, agent_id, kind, text, words, digest, created_at, source, used_at, uses, pinned,
                      session_id, run_id, owner, workspace)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING RETURNING id;

-- name: insert_memory_words
INSERT INTO memory_words (rowid, words) VALUES (?, ?);

-- name: has_memory
SELECT 1 FROM memories WHERE memory_id = ?;

-- name: repeat_memory
UPDATE memories SET used_at = max(coalesce(used_at, 0.0), ?), uses = uses + 1, pinned = max(pinned, ?)
WHERE memory_id = ? AND agent_id = ? AND owner = ? AND workspace = ? RETURNING id;

-- name: repeat_same_memory
UPDATE memories SET used_at = max(coalesce(used_at, 0.0), ?), uses = uses + 1, pinned = max(pinned, ?)
WHERE agent_id = ? AND owner = ? AND workspace = ? AND kind = 'long_term' AND digest = ? RETURNING id;

-- name: recalled_memory
UPDATE memories SET used_at = max(coalesce(used_at, 0.0), ?), uses = uses + 1 WHERE memory_id = ?;

-- name: run_of_memory
SELECT agent_id, session_id, run_id, owner, workspace FROM runs WHERE id = ?;

-- name: memory
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE memory_id = ?;

-- name: memories
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE (?1 IS NULL OR kind = ?1) AND (?3 IS NULL OR workspace = ?3)
ORDER BY created_at DESC, id DESC LIMIT ?2;

-- name: memories_of_agent
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE agent_id = ?1 AND (?2 IS NULL OR kind = ?2) AND (?4 IS NULL OR workspace = ?4)
ORDER BY created_at DESC, id DESC LIMIT ?3;

-- name: memories_of_owner
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE owner = ?1 AND (?2 IS NULL OR kind = ?2) AND (?4 IS NULL OR workspace = ?4)
ORDER BY created_at DESC, id DESC LIMIT ?3;

-- name: memories_of_agent_owner
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE agent_id = ?1 AND owner = ?2 AND (?3 IS NULL OR kind = ?3) AND (?5 IS NULL OR workspace = ?5)
ORDER BY created_at DESC, id DESC LIMIT ?4;

-- name: latest_notes_of_owner
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories
WHERE agent_id = ?1 AND owner = ?2 AND kind = 'journal' AND (?3 IS NULL OR session_id IS NOT ?3 OR created_at < ?4)
ORDER BY created_at DESC, id DESC LIMIT ?5;

-- name: latest_notes
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE agent_id = ?1 AND kind = 'journal' AND (?2 IS NULL OR session_id IS NOT ?2 OR created_at < ?3)
ORDER BY created_at DESC, id DESC LIMIT ?4;

-- name: latest_notes_of_workspace
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories
WHERE agent_id = ?1 AND workspace = ?2 AND (?3 IS NULL OR owner = ?3) AND kind = 'journal'
  AND (?4 IS NULL OR session_id IS NOT ?4 OR created_at < ?5)
ORDER BY created_at DESC, id DESC LIMIT ?6;

-- name: memories_left_out
SELECT id FROM memories WHERE session_id = ? AND created_at >= ?;

-- name: number_of_memory
SELECT id FROM memories WHERE memory_id = ?;

-- name: pin_memory
UPDATE memories SET pinned = ? WHERE memory_id = ? RETURNING id;

-- name: same_memory
SELECT memory_id FROM memories WHERE agent_id = ? AND owner = ? AND workspace = ? AND kind = 'long_term' AND digest = ?;

-- name: any_memory
SELECT 1 FROM memories WHERE agent_id = ? LIMIT 1;

-- name: any_memory_of_owner
SELECT 1 FROM memories WHERE agent_id = ? AND owner = ? LIMIT 1;

-- name: any_memory_of_workspace
SELECT 1 FROM memories WHERE agent_id = ?1 AND workspace = ?2 AND (?3 IS NULL OR owner = ?3) LIMIT 1;

-- name: any_memory_above_of_owner
SELECT 1 FROM memories WHERE agent_id = ? AND owner = ? AND id > ? LIMIT 1;

-- name: any_memory_above
SELECT 1 FROM memories WHERE agent_id = ? AND id > ? LIMIT 1;

-- name: memories_above
SELECT id, words, memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE agent_id = ? AND id > ? ORDER BY id LIMIT ?;

-- name: memories_above_of_owner
SELECT id, words, memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE agent_id = ? AND owner = ? AND id > ? ORDER BY id LIMIT ?;

-- name: memories_with_words
SELECT rowid FROM memory_words WHERE memory_words MATCH ? ORDER BY rowid DESC LIMIT ?;

-- name: memories_with_words_of_workspace
SELECT id
FROM (SELECT rowid AS id FROM memory_words WHERE memory_words MATCH ?1 ORDER BY rowid DESC LIMIT ?4)
     CROSS JOIN memories USING (id)
WHERE workspace = ?3 LIMIT ?2;

-- name: memories_by_number_of_workspace
SELECT id, words, memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories
WHERE agent_id = ?1 AND workspace = ?2 AND (?3 IS NULL OR owner = ?3) AND id IN (SELECT value FROM json_each(?4));

-- name: memories_by_number
SELECT id, words, memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE agent_id = ? AND id IN (SELECT value FROM json_each(?));

-- name: memories_by_number_of_owner
SELECT id, words, memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories WHERE agent_id = ? AND owner = ? AND id IN (SELECT value FROM json_each(?));

-- name: nearest_memories
WITH near AS MATERIALIZED (
    SELECT memory FROM memory_codes WHERE space = ?1
    ORDER BY vec_distance_hamming(vec_bit(code), vec_bit(?2)) LIMIT ?3
), nearest AS MATERIALIZED (
    SELECT near.memory, 1 - vec_distance_cosine(vec_int8(bytes), vec_int8(?4)) AS likeness
    FROM near CROSS JOIN memory_vectors ON memory_vectors.space = ?1 AND memory_vectors.memory = near.memory
    WHERE near.memory NOT IN (SELECT value FROM json_each(?5)) ORDER BY likeness DESC LIMIT ?6
)
SELECT likeness, words, memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM nearest CROSS JOIN memories ON memories.id = nearest.memory ORDER BY likeness DESC;

-- name: nearest_memories_of_workspace
WITH near AS MATERIALIZED (
    SELECT memory FROM memories CROSS JOIN memory_codes ON space = ?1 AND memory = memories.id
    WHERE agent_id = ?7 AND workspace = ?8 AND (?9 IS NULL OR owner = ?9)
    ORDER BY vec_distance_hamming(vec_bit(code), vec_bit(?2)) LIMIT ?3
), nearest AS MATERIALIZED (
    SELECT near.memory, 1 - vec_distance_cosine(vec_int8(bytes), vec_int8(?4)) AS likeness
    FROM near CROSS JOIN memory_vectors ON memory_vectors.space = ?1 AND memory_vectors.memory = near.memory
    WHERE near.memory NOT IN (SELECT value FROM json_each(?5)) ORDER BY likeness DESC LIMIT ?6
)
SELECT likeness, words, memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM nearest CROSS JOIN memories ON memories.id = nearest.memory ORDER BY likeness DESC;

-- name: memory_space
SELECT id, dimensions, done_to FROM memory_spaces WHERE agent_id = ? AND owner = ? AND embedder = ?;

-- name: spaces_of_memory
SELECT id FROM memory_spaces WHERE agent_id = ? AND owner IN (?, '*');

-- name: insert_memory_space
INSERT INTO memory_spaces (agent_id, owner, embedder, dimensions, done_to) VALUES (?, ?, ?, ?, 0) RETURNING id;

-- name: clear_memory_codes
DELETE FROM memory_codes WHERE space = ?;

-- name: clear_memory_vectors
DELETE FROM memory_vectors WHERE space = ?;

-- name: reset_memory_space
UPDATE memory_spaces SET dimensions = ?, done_to = 0 WHERE id = ?;

-- name: size_memory_space
UPDATE memory_spaces SET dimensions = ? WHERE id = ?;

-- name: insert_memory_code
INSERT OR REPLACE INTO memory_codes (space, memory, code)
SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM memories WHERE id = ?2);

-- name: insert_memory_vector
INSERT OR REPLACE INTO memory_vectors (space, memory, bytes)
SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM memories WHERE id = ?2);

-- name: memory_space_done
UPDATE memory_spaces SET done_to = max(done_to, ?) WHERE id = ?;

-- name: memory_to_forget
SELECT id, agent_id, owner, words FROM memories WHERE memory_id = ?;

-- name: forget_memory_code
DELETE FROM memory_codes WHERE space = ? AND memory = ?;

-- name: forget_memory_vector
DELETE FROM memory_vectors WHERE space = ? AND memory = ?;

-- name: forget_memory_words
INSERT INTO memory_words (memory_words, rowid, words) VALUES ('delete', ?, ?);

-- name: forget_memory
DELETE FROM memories WHERE id = ?;

-- name: owners_of_memories
SELECT name, agent_id FROM agents ORDER BY name;

-- name: memories_to_assign
SELECT memory_id, agent_id, kind, text, created_at, source, used_at, uses, pinned, session_id, run_id,
       owner, workspace
FROM memories
WHERE (coalesce(?1, owner) <> owner OR coalesce(?5, workspace) <> workspace) AND (?6 IS NULL OR workspace = ?6)
  AND (?2 IS NULL OR memory_id IN (SELECT value FROM json_each(?2)))
  AND (?3 IS NULL OR agent_id = ?3) AND (?4 IS NULL OR owner = ?4)
ORDER BY id;

-- name: merge_memory
UPDATE memories SET used_at = nullif(max(coalesce(used_at, 0.0), coalesce(?1, 0.0)), 0.0), uses = uses + ?2,
                    pinned = max(pinned, ?3)
WHERE agent_id = ?4 AND owner = ?5 AND workspace = ?6 AND kind = 'long_term' AND digest = ?7 RETURNING id;
