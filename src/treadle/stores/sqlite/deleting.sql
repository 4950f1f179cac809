-- name: deletable
SELECT listed.session_id, coalesce(name, ''), runs, unfinished, events, first_at, latest_at, agent_id
FROM (SELECT session_id, min(id) AS first, count(*) AS runs, sum(outcome IS NULL) AS unfinished,
             sum((SELECT coalesce(max(sequence), 0) FROM events WHERE run = runs.id)) AS events,
             min(created_at) AS first_at,
             max(coalesce((SELECT timestamp FROM events WHERE run = runs.id ORDER BY sequence DESC LIMIT 1),
                          created_at)) AS latest_at
      FROM runs WHERE session_id = ? GROUP BY session_id) AS listed
JOIN runs ON runs.id = first LEFT JOIN agents USING (agent_id);

-- name: idle_sessions
SELECT listed.session_id, coalesce(name, ''), runs, 0, events, first_at, latest_at, agent_id
FROM (SELECT session_id, min(id) AS first, count(*) AS runs, sum(outcome IS NULL) AS unfinished,
             sum((SELECT coalesce(max(sequence), 0) FROM events WHERE run = runs.id)) AS events,
             min(created_at) AS first_at,
             max(coalesce((SELECT timestamp FROM events WHERE run = runs.id ORDER BY sequence DESC LIMIT 1),
                          created_at)) AS latest_at
      FROM runs GROUP BY session_id) AS listed
JOIN runs ON runs.id = first LEFT JOIN agents USING (agent_id)
WHERE unfinished = 0 AND latest_at < ?1 AND (?2 IS NULL OR name = ?2)
ORDER BY latest_at;

-- name: sessions_under
SELECT DISTINCT child.session_id FROM runs AS parent JOIN runs AS child ON child.parent_run_id = parent.run_id
WHERE parent.session_id = ?1 AND child.session_id <> ?1;

-- name: parents_of_session
SELECT DISTINCT parent.session_id FROM runs AS child LEFT JOIN runs AS parent ON child.parent_run_id = parent.run_id
WHERE child.session_id = ?;

-- name: first_unfinished
SELECT run_id FROM runs WHERE session_id = ? AND outcome IS NULL ORDER BY id LIMIT 1;

-- name: memories_from_session
SELECT memory_id, uses FROM memories
WHERE session_id = ?1 OR run_id IN (SELECT run_id FROM runs WHERE session_id = ?1);

-- name: recalled_elsewhere
SELECT DISTINCT session_id FROM events JOIN runs ON runs.id = events.run
WHERE type = 'memory_recalled' AND session_id <> ?1
  AND EXISTS (SELECT 1 FROM json_each(?2) WHERE instr(CAST(data AS TEXT), json_each.value) > 0);

-- name: delete_events
DELETE FROM events WHERE run IN (SELECT id FROM runs WHERE session_id = ?);

-- name: delete_deliveries
DELETE FROM deliveries WHERE run IN (SELECT id FROM runs WHERE session_id = ?);

-- name: delete_approvals
DELETE FROM approvals WHERE run IN (SELECT id FROM runs WHERE session_id = ?);

-- name: delete_summaries
DELETE FROM run_summaries WHERE run IN (SELECT id FROM runs WHERE session_id = ?);

-- name: delete_labels
DELETE FROM run_labels WHERE run IN (SELECT id FROM runs WHERE session_id = ?);

-- name: delete_feedback
DELETE FROM feedback WHERE run IN (SELECT id FROM runs WHERE session_id = ?);

-- name: delete_said
DELETE FROM said WHERE session_id = ?;

-- name: delete_results
DELETE FROM results WHERE session_id = ?;

-- name: delete_segments
DELETE FROM segments WHERE session_id = ?;

-- name: delete_grants
DELETE FROM grants WHERE session_id = ?;

-- name: delete_notes
DELETE FROM session_notes WHERE session_id = ?;

-- name: delete_reservations
DELETE FROM reservations WHERE run IN (SELECT id FROM runs WHERE session_id = ?);

-- name: delete_tree_accounts
DELETE FROM accounts WHERE account IN (SELECT 'tree/' || run_id FROM runs WHERE session_id = ?);

-- name: delete_tree_windows
DELETE FROM windows WHERE account IN (SELECT 'tree/' || run_id FROM runs WHERE session_id = ?);

-- name: delete_tree_warnings
DELETE FROM warnings WHERE account IN (SELECT 'tree/' || run_id FROM runs WHERE session_id = ?);

-- name: delete_answered_requests
DELETE FROM requests WHERE body IS NOT NULL
  AND (instr(CAST(body AS TEXT), ?1) > 0
       OR EXISTS (SELECT 1 FROM runs WHERE session_id = ?1 AND instr(CAST(body AS TEXT), run_id) > 0));

-- name: bury_runs
INSERT OR IGNORE INTO deleted_runs (run_id, session_id) SELECT run_id, session_id FROM runs WHERE session_id = ?;

-- name: bury_session
INSERT OR REPLACE INTO deleted_sessions
    (session_id, agent_id, runs, events, memories, first_at, latest_at, deleted_at, deleted_by, position)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_runs
DELETE FROM runs WHERE session_id = ?;

-- name: tombstone
SELECT session_id, coalesce(name, ''), runs, events, memories, first_at, latest_at, deleted_at, deleted_by
FROM deleted_sessions LEFT JOIN agents USING (agent_id) WHERE session_id = ?;

-- name: tombstone_of_run
SELECT deleted_runs.session_id, deleted_at, deleted_by
FROM deleted_runs JOIN deleted_sessions USING (session_id) WHERE run_id = ?;
