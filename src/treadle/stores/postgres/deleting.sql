-- name: delete_session
SELECT unknown, unfinished, where_ FROM delete_session($1, $2, $3, $4);

-- name: prune_sessions
SELECT prune_sessions($1::TEXT[], $2, $3, $4, $5);

-- name: tombstones
SELECT session_id, coalesce(name, ''), runs, events, memories, first_at, latest_at, deleted_at, deleted_by
FROM deleted_sessions LEFT JOIN agents USING (agent_id) WHERE deletion = $1 ORDER BY place;

-- name: idle_sessions
SELECT listed.session_id, coalesce(name, ''), runs, 0, events, first_at, latest_at
FROM (SELECT r.session_id, min(r.id) AS first, count(*)::INTEGER AS runs, count(*) - count(r.outcome) AS unfinished,
             sum(r.sequence)::BIGINT AS events, min(r.created_at) AS first_at,
             max(coalesce(e.timestamp, r.created_at)) AS latest_at
      FROM runs AS r LEFT JOIN events AS e ON e.run = r.id AND e.sequence = r.sequence GROUP BY r.session_id) AS listed
     JOIN runs AS one ON one.id = first LEFT JOIN agents USING (agent_id)
WHERE unfinished = 0 AND latest_at < $1 AND ($2::TEXT IS NULL OR name = $2)
ORDER BY latest_at;

-- name: recalled_elsewhere
SELECT DISTINCT r.session_id FROM events AS e JOIN runs AS r ON r.id = e.run
WHERE e.type = 'memory_recalled' AND r.session_id <> $1 AND EXISTS (
    SELECT 1 FROM memories AS m
    WHERE (m.session_id = $1 OR m.run_id IN (SELECT run_id FROM runs WHERE session_id = $1)) AND m.uses > 0
      AND position(convert_to(m.memory_id, 'UTF8') IN e.data) > 0)
ORDER BY r.session_id;

-- name: database_facts
SELECT (SELECT max(version) FROM schema_versions), (SELECT count(*) FROM agents), (SELECT count(*) FROM runs),
       (SELECT count(*) FROM runs WHERE outcome IS NULL), (SELECT count(*) FROM events);

-- name: guards_fired
SELECT type, count(*) FROM (SELECT type FROM events ORDER BY position DESC LIMIT $1) AS latest
WHERE type IN ('loop_warning', 'tool_call_blocked', 'stuck_detected', 'recovery_action', 'phantom_action', 'empty_turn',
               'continuation', 'budget_hint', 'budget_exhausted', 'quota_exceeded', 'output_rejected', 'call_written',
               'calls_dropped', 'run_quarantined', 'context_trimmed', 'context_compacted')
GROUP BY type ORDER BY type;
